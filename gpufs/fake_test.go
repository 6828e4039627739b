package gpufs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"golang.org/x/sys/unix"
)

// This file has the equipment of this package's tests: a state that a test changes, in place of the daemon's, mounts
// of it, and programs that run with a time limit.

// fakeView is a state that tests change. It records all written settings.
type fakeView struct {
	mu      sync.Mutex
	s       figures.Snapshot
	taken   int
	written []Setting
	refusal error // returned for every setting; nil: accept
}

func (v *fakeView) Set(_ context.Context, s Setting) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.written = append(v.written, s)
	return v.refusal
}

func (v *fakeView) Snapshot() figures.Snapshot {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.taken++
	s := v.s
	s.Devices = slices.Clone(s.Devices)
	s.Leases = slices.Clone(s.Leases)
	s.Processes = slices.Clone(s.Processes)
	s.Jobs = slices.Clone(s.Jobs)
	s.Queue = slices.Clone(s.Queue)
	return s
}

func (v *fakeView) SnapshotOf(pid int) figures.Snapshot {
	s := v.Snapshot()
	s.Devices, s.Users, s.Queue, s.Budgets = nil, nil, nil, nil
	s.Leases = slices.DeleteFunc(s.Leases, func(l figures.LeaseState) bool { return l.PID != pid })
	s.Processes = slices.DeleteFunc(s.Processes, func(p figures.ProcessState) bool { return p.PID != pid })
	s.Jobs = slices.DeleteFunc(s.Jobs, func(j figures.JobState) bool {
		return !slices.ContainsFunc(s.Processes, func(p figures.ProcessState) bool { return p.Job == j.ID })
	})
	return s
}

func (v *fakeView) Leases() figures.Snapshot {
	s := v.Snapshot()
	return figures.Snapshot{TimeUnixNano: s.TimeUnixNano, Leases: s.Leases}
}

func (v *fakeView) change(f func(*figures.Snapshot)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f(&v.s)
}

// writeMetrics takes the place of package metrics, which this package does not import.
func writeMetrics(w io.Writer, s figures.Snapshot) error {
	_, err := fmt.Fprintf(w, "gpuarb_leases %d\n", len(s.Leases))
	return err
}

const gib = accounting.Bytes(1 << 30)

// sample returns a state with two devices and three processes: one on each device, and one on both.
func sample() figures.Snapshot {
	return figures.Snapshot{
		Version: "1.2.3",
		Devices: []figures.DeviceState{
			{Index: 0, Vendor: "nvidia", Name: "Simulated GPU", UUID: "GPU-00000000-0000-0000-0000-000000000001",
				PCI: "0000:01:00.0", Total: 8 * gib, Reserve: gib / 2, Capacity: 7 * gib, Granted: 4 * gib,
				Committed: 5 * gib, Used: 3 * gib, Peak: 4 * gib, Unmanaged: gib / 4, Overhead: gib / 4,
				Streams: 3, SlotsMax: 2, SlotsCurrent: 1, Admitted: 100, Denied: 7, AtMax: 8, Pressure: figures.PressureState{
					Some: figures.PressureLine{Avg10: 100, Avg60: 99.5, Avg300: 7, TotalUs: 90_000_000},
					Full: figures.PressureLine{Avg10: 0.05, TotalUs: 1}}},
			{Index: 1, Vendor: "amd", Name: "Card", PCI: "0000:02:00.0", Total: 16 * gib, Capacity: 16 * gib, Lost: true},
		},
		Leases: []figures.LeaseState{
			{PID: 100, User: "ann", UID: 1000, Device: 0, State: figures.StateRunning, Used: 2 * gib, Granted: 3 * gib,
				Credit: gib, Pending: 4096, Budget: 4 * gib, Min: gib, Peak: 3 * gib, Overhead: 300 << 20, Streams: 2,
				StreamsMax: 256, Contexts: 1, Slot: true, Job: 7, AgeSeconds: 61, Admitted: 90, Denied: 7, AtMax: 8,
				Command: "python3 train.py --name=two words"},
			{PID: 300, User: "bob", UID: 1001, Device: 0, State: figures.StateOver, Used: gib, Granted: gib,
				Budget: accounting.Max, Peak: gib, Streams: 1, StreamsMax: 256, Job: 9, AgeSeconds: 5, Command: "evil\nroot 1 0"},
			{PID: 300, User: "bob", UID: 1001, Device: 1, State: figures.StateWaiting, Used: 512,
				Budget: 2 * gib, Peak: 1024, StreamsMax: 128, Job: 9, AgeSeconds: 4, Command: "evil\nroot 1 0"},
		},
		Processes: []figures.ProcessState{
			{PID: 100, StartTicks: 1111, UID: 1000, User: "ann", Command: "python3 train.py --name=two words",
				State: figures.StateRunning, Job: 7},
			{PID: 200, StartTicks: 2222, UID: 0, User: "root", Command: "nvidia-smi", State: figures.StateRunning, Job: 8},
			{PID: 300, StartTicks: 3333, UID: 1001, User: "bob", Command: "evil\nroot 1 0", State: figures.StateOver, Job: 9},
		},
		Jobs: []figures.JobState{
			{ID: 7, UID: 1000, User: "ann", Command: "python3 train.py --name=two words", State: figures.StateRunning,
				Run: true, StreamsMax: 256, Processes: []int{100},
				Devices: []figures.JobDeviceState{{Device: 0, Min: gib, Max: 4 * gib, Used: 2 * gib, Peak: 3 * gib}}},
			{ID: 8, User: "root", Command: "nvidia-smi", State: figures.StateRunning, StreamsMax: 256, Processes: []int{200}},
			{ID: 9, UID: 1001, User: "bob", Command: "evil\nroot 1 0", State: figures.StateOver, StreamsMax: 256,
				Processes: []int{300}, Devices: []figures.JobDeviceState{
					{Device: 0, Max: accounting.Max, Used: gib, Peak: gib}, {Device: 1, Max: 2 * gib, Used: 512, Peak: 1024}}},
		},
		Users: []figures.UserState{
			{UID: 0, Name: "root", Max: accounting.Max},
			{UID: 1000, Name: "ann", Used: 2 * gib, Max: accounting.Max, Streams: 2},
			{UID: 1001, Name: "bob", Used: gib + 512, Max: 6 * gib, Streams: 1, Pressure: figures.PressureState{
				Some: figures.PressureLine{Avg10: 18.11, Avg60: 3.27, Avg300: 0.68, TotalUs: 2_000_001}},
				Counts: figures.RequestCounts{Refused: []figures.ReasonCount{{Reason: "device_full", Count: 7}}}},
		},
		Queue: []figures.TicketState{
			{Pos: 1, Ticket: 12, PID: 300, User: "bob", UID: 1001, Device: 1, Wants: "512 MiB", WantsBytes: 512 << 20,
				WaitedMs: 61999, Reason: "device_full", Job: 9, Command: "evil\nroot 1 0"},
			{Pos: 2, Ticket: 13, PID: 400, User: "two words", UID: 1002, Device: -1, Wants: "device",
				WaitedMs: 7, Reason: "slots", Job: 10, Command: "gpuarb claim"},
		},
		Stats: figures.Stats{QueueDepth: 2, Admitted: 100, Denied: 7, Clients: 3, Leases: 3},
	}
}

// mountHere mounts for a test that reads the mount in its own process, which no daemon does. It polls a file once, so
// that the kernel learns that this filesystem has no poll. Otherwise Go's runtime would poll while it holds the lock
// that the answer needs.
func mountHere(path string, view View, o Options) (*Server, error) {
	s, err := Mount(path, view, o)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(filepath.Join(s.Path(), "version"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(err, s.Unmount())
	}
	defer unix.Close(fd)
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); err != nil {
		return nil, errors.Join(err, s.Unmount())
	}
	return s, nil
}

// mountView mounts a view in the test's own folder. The test fails if the server logs an error.
func mountView(t testing.TB, view View) (*Server, string) {
	t.Helper()
	var logged lockedBuffer
	path := filepath.Join(t.TempDir(), "gpu")
	control, _ := view.(Control)
	s, err := mountHere(path, view, Options{System: true, SelfOf: selfOf, Control: control, Metrics: writeMetrics,
		Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Unmount(); err != nil {
			t.Error(err)
		}
		if logged.String() != "" {
			t.Errorf("the server logged: %s", logged.String())
		}
	})
	return s, path
}

// selfOf returns the PID of the process of a thread, read from /proc as the daemon does; false: the thread does not exist.
func selfOf(tid uint32) (int, bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return 0, false
	}
	pid := 0
	for line := range strings.Lines(string(data)) {
		if n, _ := fmt.Sscanf(line, "Tgid:\t%d", &pid); n == 1 {
			return pid, true
		}
	}
	return 0, false
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// patience bounds the time of a program; no result depends on it.
var patience = bounded.Patience

// output runs a program that must succeed, and returns its stdout. The test fails if the program hangs.
func output(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, errText, err := run(t, name, args...)
	if err != nil || errText != "" {
		t.Fatalf("%s %q: %v, stderr %q", name, args, err, errText)
	}
	return out
}

func run(t testing.TB, name string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := bounded.Command(t, bounded.Patience, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	return out.String(), errs.String(), err
}
