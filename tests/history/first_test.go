package history

import (
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks what the history says of a program whose first request is refused so that it drops its cache.

// TestRefusedFirst: the first request of a caching allocator is refused so that the allocator drops its cache. The history does not count this
// refusal. The history keeps its other figures, and the command needs no more than its peak.
func TestRefusedFirst(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{NoMount: true, Devices: "8G"})
	holder := m.Interact(run(m, "--name", "holder"))
	holder.Want("alloc a 7G", "ok")
	waiter := m.Interact(run(m, "--name", "waiter", "--wait", "--refuse-first"))
	waiter.Want("alloc a 2G", "err 2")
	waiter.Tell("alloc a 2G")
	rig.Eventually(t, "the second request waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	holder.End()
	waiter.Expect("alloc a ok")
	waiter.End()
	pasts := ended(m, 2)
	if p := pasts["waiter"]; p.Refused != 0 || p.Waits != 1 || p.Peak != 2*gib {
		t.Errorf("the history has %+v, want no refused request, one that waited, and a peak of 2 GiB", p)
	}
	if sums := reported(m, "name", 2); sums["waiter"].Refused != 0 || sums["waiter"].Waited <= 0 {
		t.Errorf("the report has %+v", sums["waiter"])
	}
	if r := rig.Run(t, m.Gpuarb("suggest", "--name", "waiter")); strings.TrimSpace(r.Stdout) != "2304MiB" { // 2252.8 MiB
		t.Errorf("suggest: %+v", r)
	}
	if sums, _ := asked[report.Total](m, "report", "--by", "device"); len(sums) != 1 {
		t.Errorf("the report has counts without a device: %+v", sums)
	}
}
