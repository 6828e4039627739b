package arbitration

import (
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// TestExclusive: an exclusive job does not wait for itself, its programs share its
// budget, and nobody else gets in before it ends.
func TestExclusive(t *testing.T) {
	t.Parallel()
	m := machine(t, "8G", "")
	job := m.Begin(m.Gpuarb("run", "--exclusive", "--memory", "4G", "--", "/bin/sh", "-c",
		`exec 3<&0; "$0" "alloc a 2G; hold" <&3 & "$0" "alloc b 2G; hold" <&3 & wait`, rig.Build(t, "programs/cudaprog-dlsym")))
	granted := 0
	for granted < 2 {
		switch line := job.Line(); {
		case strings.HasSuffix(line, " ok") && strings.HasPrefix(line, "alloc"):
			granted++
		case line != "ready" && line != "hold ok":
			t.Fatalf("the job says %q", line)
		}
	}
	if n := m.SimNumber("total", "0"); n != 4*gib {
		t.Errorf("the two hold %d bytes, want the budget of both", n)
	}
	outsider := m.Begin(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym")))
	waiting(m, 1)
	if !outsider.Silent() {
		t.Error("somebody is beside the exclusive job")
	}
	if r := rig.Run(t, m.Gpuarb("run", "--no-wait", "--exclusive", "--", "/bin/true")); r.Code != 75 {
		t.Errorf("gpuarb run --no-wait --exclusive beside it: %d %s", r.Code, r.Stderr)
	}
	if r := rig.Run(t, m.Gpuarb("run", "--no-wait", "--", rig.Build(t, "programs/cudaprog-dlsym"))); r.Code != 75 || r.Stdout != "" || !strings.Contains(r.Stderr, "alone there") {
		t.Errorf("a program that does not wait is started beside it: %d %q %q", r.Code, r.Stdout, r.Stderr)
	}
	job.CloseStdin()
	if status := job.Wait(); status != 0 {
		t.Errorf("the job ended with %d: %s", status, job.Stderr())
	}
	outsider.Expect("ready")
	outsider.Want("alloc a 1M", "ok")
	outsider.End()
	idle(m)
}

// TestExclusiveWaits: it waits until everybody else is gone, and is told whom it waits for.
func TestExclusiveWaits(t *testing.T) {
	t.Parallel()
	m := machine(t, "8G", "")
	holder := bare(m)
	holder.Want("alloc a 1M", "ok")
	job := m.Begin(m.Gpuarb("run", "--exclusive", "--", rig.Build(t, "programs/cudaprog-dlsym")))
	waiting(m, 1)
	rig.Eventually(t, "the job says whom it waits for", func() bool {
		return strings.Contains(job.Stderr(), "cudaprog-dlsym")
	})
	holder.End()
	job.Expect("ready")
	job.End()
	idle(m)
}

// TestReservationOnDevicesOfTwoSizes: it is not cut down on the smaller one, which the job is
// not given; who names both is told what the smaller one could have.
func TestReservationOnDevicesOfTwoSizes(t *testing.T) {
	t.Parallel()
	m := machine(t, "4G,8G", "")
	p := cudaprog(m, "--min", "7G")
	p.Want("alloc a 7G", "ok")
	if !strings.Contains(p.Stderr(), "--min 7G fits GPU 1 alone: the program is given no other") {
		t.Errorf("it says %q", p.Stderr())
	}
	s := m.Snapshot()
	if s.Devices[0].Committed != 0 || s.Devices[1].Committed < 7*gib {
		t.Errorf("reserved: %d and %d", s.Devices[0].Committed, s.Devices[1].Committed)
	}
	p.End()
	r := rig.Run(t, m.Gpuarb("run", "--min", "7G", "--device", "0,1", "--", "/bin/true"))
	if r.Code != 125 || !strings.Contains(r.Stderr, "memory.min of 7 GiB on GPU 0 could never be used in full: 3.7 GiB is the most") {
		t.Errorf("on both by name: %d %s", r.Code, r.Stderr)
	}
	idle(m)
}
