package attack

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that a restart of the daemon changes no effect of `gpuarb limit`: the later of two limits holds, and
// a changed memory.min moves no slot. seen_test.go has limits whose record was lost.

// TestLastWordOverARestart: an owner sets a limit on all devices, and root sets one on a single device. On that device the later of the two
// limits holds, also with the next daemon.
func TestLastWordOverARestart(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	ann := m.OtherUser(1000)
	p := ann.Bare()
	say(t, p, "alloc a 1M", "ok")
	pid := fmt.Sprint(p.PID())
	inForce := func(want accounting.Bytes) {
		t.Helper()
		for _, when := range []string{"at once", "after a restart", "after two restarts"} {
			if l := m.Lease(p.PID(), 0); l.Budget != want {
				t.Errorf("%s %v are in force, want %v", when, l.Budget.Human(), want.Human())
			}
			m.Kill()
			m.Start()
		}
	}
	limit := func(command func(...string) *exec.Cmd, args ...string) {
		t.Helper()
		if r := rig.Run(t, command(append([]string{"limit", pid}, args...)...)); r.Code != 0 {
			t.Fatalf("gpuarb limit: %s", r.Stderr)
		}
	}
	limit(ann.Gpuarb, "memory.max=300M")
	limit(m.Gpuarb, "--device", "0", "memory.max=500M")
	inForce(500 * mib)
	limit(ann.Gpuarb, "memory.max=200M")
	inForce(200 * mib)
	limit(m.Gpuarb, "--device", "0", "memory.max=400M")
	limit(ann.Gpuarb, "--device", "0", "memory.max=100M")
	inForce(100 * mib)
}

// TestSlotOfAJobOverARestart: setting memory.min while a job runs takes no slot, and a job keeps its slot when its memory.min is
// removed. Both also hold with the next daemon.
func TestSlotOfAJobOverARestart(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true})
	for _, x := range []struct {
		flag, change string
		want         int
	}{{"--min=0", "memory.min=50M", 0}, {"--min=50M", "memory.min=0", 1}} {
		p := m.Interact(m.Gpuarb("run", "--name", "j", x.flag, "--", "sh", "-c", "echo ready; exec cat"))
		if r := rig.Run(t, m.Gpuarb("limit", "--job", "j", x.change)); r.Code != 0 {
			t.Fatalf("gpuarb limit: %s", r.Stderr)
		}
		for _, when := range []string{"at once", "after a restart"} {
			if n := m.Snapshot().Devices[0].SlotsCurrent; n != x.want {
				t.Errorf("a job with %s, then %s: %s %d slots are taken, want %d", x.flag, x.change, when, n, x.want)
			}
			m.Kill()
			m.Start()
		}
		p.End()
		rig.Eventually(t, "the job has ended", func() bool { return len(m.Snapshot().Jobs) == 0 })
	}
}
