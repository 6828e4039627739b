package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that `gpuarb run --exec`, which the program replaces, gives the program the same job, budget and
// reservation as `gpuarb run`. started_test.go has the state in which the program starts.

// TestJobOfTheProgramItself checks a job started with --exec. It lives as long as the program that replaced gpuarb, and as
// the processes that the program leaves behind, also over restarts of the daemon. Then it gives back its
// reservation.
func TestJobOfTheProgramItself(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	p := m.Interact(m.Gpuarb("run", "--exec", "--memory", "64M", "--min", "32M", "--name", "whole", "--", cudaprog(t, "dlsym")))
	if pid := p.PID(); pid != p.Process() {
		t.Errorf("the program is process %d, gpuarb was %d", pid, p.Process())
	}
	reserved := func(when string, want uint64) {
		t.Helper()
		s := m.Snapshot()
		if len(s.Jobs) != 1 || s.Jobs[0].Name != "whole" || s.Jobs[0].PID != p.Process() || uint64(s.Devices[0].Granted) < want {
			t.Errorf("%s: jobs %+v, %d bytes granted, want one with at least %d", when, s.Jobs, s.Devices[0].Granted, want)
		}
	}
	reserved("before it uses the GPU", 0)
	m.Kill()
	m.Start()
	reserved("after a restart", 0)
	p.Want("alloc a 48M", "ok")
	p.Want(fmt.Sprintf("alloc b %d", 16<<20+1), "err 2")
	m.Kill()
	m.Start()
	p.Want("free a", "ok")
	p.Want("alloc a 64M", "ok")
	p.Want("alloc b 1", "err 2")
	reserved("when it holds all", 64<<20)
	p.End()
	rig.Eventually(t, "the job has ended", func() bool { return len(m.Snapshot().Jobs) == 0 })

	// A process that the program leaves in the background keeps the job and its reservation.
	r := rig.Run(t, m.Gpuarb("run", "--exec", "--min", "2G", "--", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"))
	var left int
	if _, err := fmt.Sscan(r.Stdout, &left); err != nil {
		t.Fatal(err, r)
	}
	if got := rig.Run(t, m.Gpuarb("jobs")); !strings.Contains(got.Stdout, "2GiB") {
		t.Errorf("with something in the background the jobs are\n%s", got.Stdout)
	}
	kill(t, left)
	rig.Eventually(t, "the second job has ended", func() bool { return len(m.Snapshot().Jobs) == 0 })
}
