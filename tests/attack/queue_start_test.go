package attack

import (
	"slices"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that programs and jobs which wait for their memory.min before they start keep their order over a kill
// of the daemon. queue_test.go has requests of programs that have started.

// TestStartsOutliveTheDaemon: programs and a job wait for their memory.min when the daemon is killed. With the next daemon they keep their order, even before
// any of them has repeated its request, and no reservation is made twice.
func TestStartsOutliveTheDaemon(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\non_loss = \"closed\"\nmemory.min = \"600M\"\nwait_timeout = \"max\"\n"})
	queue := func() (pids []int) {
		for _, q := range m.Snapshot().Queue {
			pids = append(pids, q.PID)
		}
		return pids
	}
	waits := func(n int) {
		rig.Eventually(t, "a request waits", func() bool { return len(queue()) == n })
	}
	begin := func() *rig.Program {
		return m.Begin(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym")))
	}
	holder := cudaprog(m)
	first := begin()
	waits(1)
	job := m.Begin(m.Gpuarb("run", "--min", "700M", "--wait", "--", rig.Build(t, "programs/cudaprog-dlsym"), "-"))
	waits(2)
	second := begin()
	waits(3)
	order := queue()
	m.Kill()
	m.Start()
	if got := queue(); !slices.Equal(got, order) {
		t.Errorf("the processes %v wait, in this order; before that, %v", got, order)
	}
	holder.End()
	first.Expect("ready")
	first.End()
	job.Expect("ready")
	if got := queue(); len(got) != 1 {
		t.Errorf("%v wait while the job holds what it reserves", got)
	}
	job.End()
	second.Expect("ready")
	second.End()
	m.AllGone()
}
