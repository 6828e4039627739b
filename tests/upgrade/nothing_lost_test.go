package upgrade

import (
	"fmt"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that an upgrade and the way back keep a job's reservation, changed limits and the order of
// waiting requests. upgrade_test.go replaces the daemons, and checks budgets and streams.

// TestNothingIsLost: over an upgrade and back, a job keeps its reservation and its changed limits, programs keep their
// memory, and waiting requests keep their order.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G", NoMount: true, Binary: before.path(t, "gpuarbd"),
		Sim:    []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\non_loss = \"closed\"\non_full = \"wait\"\nwait_timeout = \"max\"\n"})
	s := &scene{t: t, m: m}
	job := s.run(before, "--min", "400M", "--memory", "700M")
	job.Want("alloc kept 100M", "ok")
	if got := rig.Run(t, m.Gpuarb("limit", fmt.Sprint(job.PID()), "memory.max=500M")); got.Code != 0 {
		t.Fatalf("gpuarb limit: %s", got.Stderr)
	}
	holder, first, second := s.preload(before), s.preload(before), s.preload(before)
	for i, to := range []release{now, before, now} {
		what := fmt.Sprintf("change %d, to %v", i+1, to)
		holder.Want("alloc big 500M", "ok")
		for n, p := range []*rig.Program{first, second} {
			p.Tell("alloc w 200M")
			rig.Eventually(t, "a request waits", func() bool { return len(m.Snapshot().Queue) == n+1 })
		}
		order := waiting(m)
		s.swap(to)
		for _, j := range m.Snapshot().Jobs {
			if d := j.Devices[0]; j.Run && (d.Min != 400*mib || d.Reserved != 400*mib) {
				t.Errorf("%s: of the job's 400 MiB %d are its memory.min, and %d are reserved", what, d.Min, d.Reserved)
			}
		}
		rig.Eventually(t, what+": both wait again", func() bool { return len(waiting(m)) == 2 })
		if got := waiting(m); got[0] != order[0] || got[1] != order[1] {
			t.Errorf("%s: the processes %v wait, in this order; before that, %v", what, got, order)
		}
		job.Want("alloc within 300M", "ok") // the rest of its reservation
		holder.Want("free big", "ok")
		first.Expect("alloc w ok")
		second.Expect("alloc w ok")
		(&program{Program: job, what: "the job", limit: 500 * mib, held: 400 * mib}).refusedAbove(t, what)
		for p, block := range map[*rig.Program]string{job: "within", first: "w", second: "w"} {
			p.Want("free "+block, "ok")
		}
		rig.Eventually(t, what+": the counts agree", func() bool { return m.Disagreement() == "" })
	}
}

// refusedAbove checks that a program is refused the first byte above its own limit.
func (p *program) refusedAbove(t *testing.T, when string) {
	t.Helper()
	if got := p.Ask(fmt.Sprintf("alloc more %d", p.limit-p.held+1)); got != "err 2" {
		t.Errorf("%s: %s: of %d bytes %d are held, and one byte too many: %s", when, p.what, p.limit, p.held, got)
	}
}

// waiting returns the waiting processes in the order of the queue.
func waiting(m *rig.Machine) (pids []int) {
	m.T.Helper()
	for _, q := range m.Snapshot().Queue {
		pids = append(pids, q.PID)
	}
	return pids
}
