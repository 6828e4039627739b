package bindings

import (
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks what a job of a cgroup reserves when it is opened, before any process is in the cgroup.

// TestReservedAtTheOpen: --min is reserved when the job is opened, and others do not get it. Without room the open fails at once
// with 75; with --wait it waits, in order, until there is room or its time is over.
func TestReservedAtTheOpen(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, box := m.OtherUser(anne), m.Cgroup()
	first, second, third := m.Below(box, "first"), m.Below(box, "second"), m.Below(box, "third")
	job(t, m, 0, "", "open", "--cgroup", first.Path, "--memory", "300M", "--min", "250M")
	beside := u.Bare()
	holds(t, m, beside, "150M", 150*mib)
	a := u.BareIn(first)
	holds(t, m, a, "250M", 250*mib) // the reservation; the rest of the budget is not free
	job(t, m, 75, "", "open", "--cgroup", second.Path, "--memory", "100M", "--min", "100M")
	job(t, m, 1, "", "open", "--cgroup", second.Path, "--memory", "500M", "--min", "450M", "--wait", "max")
	job(t, m, 124, "", "open", "--cgroup", second.Path, "--memory", "100M", "--min", "100M", "--wait", "10ms")
	waits := m.Begin(m.Gpuarb("job", "open", "--cgroup", second.Path, "--memory", "100M", "--min", "100M", "--wait", "max"))
	rig.Eventually(t, "the open waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	if q := m.Snapshot().Queue[0]; q.JobName != "second" {
		t.Errorf("the request in the queue is of job %q", q.JobName)
	}
	beside.Want("free all", "ok")
	waits.End()
	job(t, m, 75, "", "open", "--cgroup", third.Path, "--memory", "100M", "--min", "60M")
	b := u.BareIn(second)
	holds(t, m, b, "100M", 100*mib)
	list := job(t, m, 0, "", "list", "--json")
	if !strings.Contains(list, `"min_bytes":104857600`) && !strings.Contains(list, `"min_bytes": 104857600`) {
		t.Errorf("gpuarb job list --json: %s", list)
	}
	for _, p := range []*rig.Program{a, b, beside} {
		p.End()
	}
	job(t, m, 0, "", "close", "first")
	job(t, m, 0, "", "open", "--cgroup", third.Path, "--memory", "300M", "--min", "300M") // the reservation of first is given back
}
