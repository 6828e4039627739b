package conformance

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the machine of the conformance tests: the ways to run a program, and the comparisons with the driver's count.

// Names of the driver's errors, as test programs print them.
const (
	errInvalidValue  = "err 1"
	errOutOfMemory   = "err 2"
	errInvalidHandle = "err 400"
)

// way is a way to run a program under the shim with limits of its own.
type way struct {
	name  string
	build string // the variant of cudaprog, by the way in which it finds the driver's functions
	run   bool   // under `gpuarb run`; else the bare preload
}

var ways = []way{
	{"run, dlsym", "cudaprog-dlsym", true},
	{"run, linked", "cudaprog-link", true},
	{"run, cuGetProcAddress", "cudaprog-gpa", true},
	{"preload, dlsym", "cudaprog-dlsym", false},
	{"preload, cuGetProcAddress", "cudaprog-gpa", false},
}

// limits are the limits that a program sets for itself; zero: none.
type limits struct {
	memory  uint64
	streams int
}

// start starts the program on device 0. With the bare preload the shim's own
// messages are on stderr.
func (w way) start(m *rig.Machine, l limits) *rig.Program {
	m.T.Helper()
	program := rig.Build(m.T, "programs/"+w.build)
	if w.run {
		args := []string{"run"}
		if l.memory > 0 {
			args = append(args, "--memory", fmt.Sprint(l.memory))
		}
		if l.streams > 0 {
			args = append(args, "--streams", fmt.Sprint(l.streams))
		}
		return m.Interact(m.Gpuarb(append(args, "--", program)...))
	}
	env := append(m.PreloadEnv(), "GPUARB_LOG=stderr")
	if l.memory > 0 {
		env = append(env, fmt.Sprintf("GPUARB_MEMORY=%d", l.memory))
	}
	if l.streams > 0 {
		env = append(env, fmt.Sprintf("GPUARB_STREAMS=%d", l.streams))
	}
	return m.Interact(m.Command(env, program))
}

// everyWay runs a test in each way, on a machine of its own.
func everyWay(t *testing.T, o rig.Options, l limits, f func(t *testing.T, w way, m *rig.Machine, p *rig.Program)) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, o)
			f(t, w, m, w.start(m, l))
		})
	}
}

// agree compares the daemon's leases with the driver's own count, in both directions. Call it
// only while no driver call is in progress and no free is pending.
func agree(t *testing.T, m *rig.Machine) {
	t.Helper()
	type place struct{ pid, device int }
	held := map[place]rig.Held{}
	for _, h := range m.Held() {
		held[place{h.PID, h.Device}] = h
	}
	for _, l := range m.Snapshot().Leases {
		h := held[place{l.PID, l.Device}]
		delete(held, place{l.PID, l.Device})
		if uint64(l.Used) != h.Bytes || l.Streams != h.Streams {
			t.Errorf("process %d on GPU %d: the daemon says %d bytes and %d streams, the driver %d and %d",
				l.PID, l.Device, l.Used, l.Streams, h.Bytes, h.Streams)
		}
	}
	for at, h := range held {
		if h.Bytes > 0 || h.Streams > 0 {
			t.Errorf("process %d on GPU %d holds %d bytes and %d streams, and has no lease", at.pid, at.device, h.Bytes, h.Streams)
		}
	}
}

// holds compares the bytes and streams of one process on one device with the driver's count and the daemon's.
func holds(t *testing.T, m *rig.Machine, pid, device int, bytes uint64, streams int) {
	t.Helper()
	if h := m.HeldBy(pid, device); h.Bytes != bytes || h.Streams != streams {
		t.Errorf("the driver holds %d bytes and %d streams on GPU %d, want %d and %d", h.Bytes, h.Streams, device, bytes, streams)
	}
	if l := m.Lease(pid, device); uint64(l.Used) != bytes || l.Streams != streams {
		t.Errorf("the daemon says %d bytes and %d streams on GPU %d, want %d and %d", l.Used, l.Streams, device, bytes, streams)
	}
}

// unmoved is the state of a device that a refused call must leave unchanged.
type unmoved struct {
	used, granted, pending uint64
	streams                int
}

func stateOf(m *rig.Machine, pid int) unmoved {
	m.T.Helper()
	l := m.Lease(pid, 0)
	return unmoved{uint64(l.Used), uint64(l.Granted), uint64(l.Pending), l.Streams}
}

// contains checks that a program's stderr has a text.
func contains(t *testing.T, stderr, want string) {
	t.Helper()
	if !strings.Contains(stderr, want) {
		t.Errorf("stderr lacks %q:\n%s", want, stderr)
	}
}

// lease opens a lease by speaking the protocol directly, because only the protocol's
// answers have every figure of a refusal.
func lease(t *testing.T, m *rig.Machine, req ipc.HelloRequest, device int) (*ipc.ShimSession, uint32) {
	t.Helper()
	ctx := t.Context()
	c, err := ipc.Dial(ctx, m.Socket)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.HelloShim(ctx, req)
	if err != nil {
		_ = c.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	var id ipc.UUID
	text := strings.ReplaceAll(strings.TrimPrefix(m.Snapshot().Devices[device].UUID, "GPU-"), "-", "")
	if n, err := hex.Decode(id[:], []byte(text)); err != nil || n != len(id) {
		t.Fatalf("the UUID of GPU %d is %q", device, text)
	}
	at, err := s.Main.Attach(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return s, at.Slot
}
