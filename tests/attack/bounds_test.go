package attack

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that a client which asks for too much is refused with the bound: too many jobs, streams, objects or
// bytes, or the same request twice. descriptors_test.go has the bounds that follow from the limit of open files.

// TestJobsOfOneProcess: one process may open a bounded number of jobs, each on a connection of its own.
func TestJobsOfOneProcess(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true})
	open := func() error {
		c, err := ipc.Dial(t.Context(), m.Socket)
		check(t, err)
		defer c.Close()
		if _, err = c.OpenJob(t.Context(), ipc.JobOpenRequest{Memory: ipc.NoLimit}); err != nil {
			return err
		}
		if _, err := c.OpenJob(t.Context(), ipc.JobOpenRequest{Memory: ipc.NoLimit}); err == nil || !strings.Contains(err.Error(), "one of its own") {
			t.Errorf("a second job on one connection: %v", err)
		}
		if _, err := c.HelloShim(t.Context(), ipc.HelloRequest{Memory: ipc.NoLimit}); err == nil || !strings.Contains(err.Error(), "one of its own") {
			t.Errorf("a session on a job's connection: %v", err)
		}
		return nil
	}
	for range 10 {
		check(t, open())
	}
	var err error
	for n := 10; err == nil && n < 1000; n++ {
		c, dialed := ipc.Dial(t.Context(), m.Socket)
		check(t, dialed)
		_, err = c.OpenJob(t.Context(), ipc.JobOpenRequest{Memory: ipc.NoLimit})
		_ = c.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "jobs already") {
		t.Errorf("a thousand jobs: %v", err)
	}
	if r := rig.Run(t, m.Gpuarb("run", "--", "true")); r.Code != 0 {
		t.Errorf("another user's job: exit status %d, %s", r.Code, r.Stderr)
	}
}

// TestRetriesAreCountedOnce: after a restart a client repeats a request for streams under its old number. Streams that
// the old daemon granted count once. If the client then reports that it has no streams, the daemon counts none, and the
// repeated request is granted again.
func TestRetriesAreCountedOnce(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true})
	s, slot := shimOf(t, m, 50<<20)
	ask := func(number uint64) {
		t.Helper()
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: m.Socket, Net: "unixpacket"})
		check(t, err)
		defer c.Close()
		for _, message := range [][]byte{
			ipc.Marshal(nil, ipc.Header{Type: ipc.TypeJoin, Request: 1 << 50}, &ipc.JoinRequest{Session: s.Hello.Session}),
			ipc.Marshal(nil, ipc.Header{Type: ipc.TypeStream, Request: number}, &ipc.StreamRequest{Slot: slot, Count: 3}),
		} {
			_, err = c.Write(message)
			check(t, err)
			reply := make([]byte, 1024)
			n, err := c.Read(reply)
			check(t, err)
			if h, _, err := ipc.ParseReply(reply[:n], n); err != nil || h.Status != ipc.StatusOK {
				t.Fatalf("%v: status %d, %v", h.Type, h.Status, err)
			}
		}
	}
	ask(1 << 40)
	m.Kill()
	m.Start()
	c, err := ipc.Dial(t.Context(), m.Socket)
	check(t, err)
	check(t, s.Resume(t.Context(), c, []ipc.ResumeLease{{Device: uuid(m, 0), Used: 20 << 20, Streams: 3, Slot: slot}}))
	if l := m.Lease(os.Getpid(), 0); l.Streams != 3 || l.Used != 20<<20 {
		t.Errorf("after the resume: %+v", l)
	}
	check(t, s.Main.Objects(t.Context(), slot)) // reports no streams, like a client that lost the answer
	if l := m.Lease(os.Getpid(), 0); l.Streams != 0 {
		t.Errorf("%d streams, the client has none", l.Streams)
	}
	ask(1 << 40) // repeats the request
	if l := m.Lease(os.Getpid(), 0); l.Streams != 3 {
		t.Errorf("%d streams, want the same 3", l.Streams)
	}
	ask(1<<40 + 1)
	if l := m.Lease(os.Getpid(), 0); l.Streams != 6 {
		t.Errorf("%d streams, want 6", l.Streams)
	}
}

// TestObjectsWithoutEnd: a client that announces more objects again and again is refused when the number exceeds the limit of a lease.
// The daemon keeps no objects above that limit.
func TestObjectsWithoutEnd(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true})
	s, slot := shimOf(t, m, 0)
	r := ipc.ObjectsRequest{Slot: slot, Flags: ipc.ObjectsMore, Count: ipc.ObjectsMakers}
	for i := range r.Makers {
		r.Makers[i] = ipc.ObjectsMaker{Thread: uint32(i + 1), Streams: 1}
	}
	told := 0
	for range 2000 {
		switch err := ipc.Call(t.Context(), s.Main, ipc.TypeObjects, &r, &ipc.Empty{}); {
		case err == nil:
			told++
		case !errors.Is(err, ipc.StatusTooMany):
			t.Fatal(err)
		}
	}
	if told == 0 || told > 64 {
		t.Errorf("%d messages of %d threads were taken", told, ipc.ObjectsMakers)
	}
	check(t, s.Main.Objects(t.Context(), slot)) // ends the list of objects
	if l := m.Lease(os.Getpid(), 0); int(l.Streams) != told*ipc.ObjectsMakers {
		t.Errorf("%d streams of %d messages", l.Streams, told)
	}
}

// TestCountsOutOfRange: a count out of range is refused with a message that names it, or is limited to the range.
func TestCountsOutOfRange(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true})
	s, slot := shimOf(t, m, 0)
	ctx := t.Context()
	for _, n := range []int32{1<<31 - 1, -(1<<31 - 1), 257} {
		r, err := s.Main.Stream(ctx, slot, n)
		if n > 0 && err == nil || r.Current != 0 {
			t.Errorf("%d streams: %+v, %v", n, r, err)
		}
		for range 3 {
			_, err = s.Main.Context(ctx, slot, n)
			check(t, err)
		}
	}
	for _, n := range []int32{0, -1 << 31} {
		if _, err := s.Main.Stream(ctx, slot, n); err == nil || !strings.Contains(err.Error(), "Count") {
			t.Errorf("%d streams: %v", n, err)
		}
	}
	for _, other := range []uint32{slot + 1, 31} {
		if _, err := s.Main.Stream(ctx, other, 1); err == nil || !strings.Contains(err.Error(), "Attach") {
			t.Errorf("slot %d: %v", other, err)
		}
	}
	for _, n := range []uint64{1<<64 - 1, 1 << 63, 1 << 48, 1<<30 + 1} {
		r, err := s.Main.Alloc(ctx, ipc.AllocRequest{Slot: slot, Kind: ipc.MemoryPlain, Bytes: n})
		if err == nil || r.Granted != 0 || r.Requested != n {
			t.Errorf("%d bytes: %+v, %v", n, r, err)
		}
	}
	l := m.Lease(os.Getpid(), 0)
	if l.Used != 0 || l.Streams != 0 || l.Contexts < 0 {
		t.Errorf("afterwards: %+v", l)
	}
	sane(t, m)
}

// TestLogNobodyReads: the daemon serves clients and can end although its log is a full pipe.
func TestLogNobodyReads(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Stopped: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	r, w, err := os.Pipe()
	check(t, err)
	defer r.Close()
	cmd := m.Command(m.Env(), gpuarbd(t), "--socket", m.Socket, "--mount", "none", "--debug",
		"--config", filepath.Join(m.Dir, "none.toml"))
	check(t, os.WriteFile(filepath.Join(m.Dir, "none.toml"), []byte("schema_version = 1\n"), 0o600))
	cmd.Stderr = w
	check(t, cmd.Start())
	check(t, w.Close())
	awaitSocket(m)
	p := cudaprog(m)
	say(t, p, "alloc a 1G", "ok")
	for i := range 3000 { // each writes a line to the log
		if got := p.Ask(fmt.Sprintf("alloc b%d 1", i)); got != "err 2" {
			t.Fatalf("allocation %d: %s", i, got)
		}
	}
	say(t, p, "free a", "ok")
	agree(t, m)
	p.End()
	check(t, cmd.Process.Signal(syscall.SIGTERM))
	check(t, rig.Wait(t, rig.Patience, cmd))
}
