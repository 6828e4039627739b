package attack

import (
	"fmt"
	"testing"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that programs go on while no daemon runs, and that the next daemon counts what they took and freed
// meanwhile. crash_test.go has daemons that are killed under load, and state_test.go has damaged state files.

// TestStoppedDaemonIsResumed: an orderly stop of the daemon ends no session. Programs
// continue, their lease pages stay valid, and the next daemon resumes all sessions.
func TestStoppedDaemonIsResumed(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "8G", NoMount: true})
	p := cudaprog(m)
	say(t, p, "alloc a 100M", "ok")
	say(t, p, "stream s", "ok")
	c, err := ipc.Dial(t.Context(), m.Socket)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.HelloShim(t.Context(), ipc.HelloRequest{Memory: ipc.NoLimit})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for round := range 3 {
		m.Stop()
		if s.Page.Ended().Load() != 0 {
			t.Error("the page says that the session has ended: the daemon has")
		}
		say(t, p, fmt.Sprintf("alloc a%d 4096", round), "ok") // from its credit
		m.Start()
		say(t, p, fmt.Sprintf("alloc b%d 200M", round), "ok")
		agree(t, m)
	}
}

// TestTakenWithoutADaemon: a program under a bare preload may allocate without a limit while no daemon runs. The next
// daemon counts that memory, and accepts as freed what the program freed meanwhile.
func TestTakenWithoutADaemon(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "8G", NoMount: true})
	p := cudaprog(m)
	say(t, p, "alloc a 100M", "ok")
	m.Kill()
	say(t, p, "alloc b 1G", "ok") // more than its credit, while no daemon answers
	say(t, p, "alloc c 2G", "ok")
	say(t, p, "free c", "ok")
	m.Start()
	say(t, p, "free a", "ok")
	rig.Eventually(t, "the program is back", func() bool {
		say(t, p, "alloc d 300M", "ok")
		say(t, p, "free d", "ok")
		return disagreement(m) == ""
	})
	say(t, p, "free b", "ok")
	agree(t, m)
	say(t, p, "alloc d 7G", "ok")
	agree(t, m)
	say(t, p, "free d", "ok")
	if n := m.Snapshot().Stats.ClampedWords; n != 0 {
		t.Errorf("%d credit words of an honest program were clamped", n)
	}
}

// TestBegunWithoutADaemon: a program begins to use a device while no daemon runs.
// The next daemon has a lease for it.
func TestBegunWithoutADaemon(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "8G,8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	p := cudaprog(m)
	say(t, p, "alloc a 100M", "ok")
	m.Kill()
	say(t, p, "context second 1", "ok")
	say(t, p, "alloc b 1G", "ok")
	m.Start()
	rig.Eventually(t, "the program is back", func() bool {
		say(t, p, "alloc c 300M", "ok")
		return p.Ask("free c") == "ok" && disagreement(m) == ""
	})
	say(t, p, "free b", "ok")
	agree(t, m)
	if n := m.Snapshot().Stats.ClampedWords; n != 0 {
		t.Errorf("%d credit words of an honest program were clamped", n)
	}
}

// TestTakenBeyondTheBudget: a resumed lease counts the memory that the device itself reports, even if no daemon
// granted it. The lease is then over its limit. The result does not depend on whether the new daemon reads the
// device before or after the program reconnects.
func TestTakenBeyondTheBudget(t *testing.T) {
	t.Parallel()
	for _, read := range []bool{false, true} {
		t.Run(fmt.Sprintf("read=%t", read), func(t *testing.T) {
			t.Parallel()
			m := machine(t, rig.Options{Devices: "8G", NoMount: true, Config: "schema_version = 1\n[defaults]\nmemory.max = \"500M\"\n"})
			p := cudaprog(m)
			pid := p.PID()
			say(t, p, "alloc a 100M", "ok")
			m.Kill()
			say(t, p, "alloc b 2G", "ok")
			m.Start()
			if read {
				rig.Eventually(t, "the daemon counts the memory that the program took", func() bool { return m.Lease(pid, 0).Excess > 0 })
			}
			rig.Eventually(t, "the program is back", func() bool {
				return p.Ask("alloc c 400M") == "err 2" || p.Ask("free c") != "ok"
			})
			if l := m.Lease(pid, 0); l.Used != 100<<20+2<<30 || l.State != "over" {
				t.Errorf("beyond its budget: %+v", l)
			}
			say(t, p, "free b", "ok")
			say(t, p, "alloc c 400M", "ok")
			agree(t, m)
		})
	}
}
