package upgrade

import (
	"fmt"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that the jobs of cgroups survive an upgrade, and the way back to a version that does not know them.

// TestBindingsSurvive: a binding of this version's daemon holds its programs also under the daemon of the version before, which does
// not know it. When this version's daemon is back, it holds programs that start in the cgroup too, also if no program was left. Under both
// daemons, a limit that was changed after the opening holds, and not the limit of the opening.
func TestBindingsSurvive(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "400M", NoMount: true, Binary: now.path(t, "gpuarbd"), Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\non_loss = \"closed\"\n[[device]]\ncontext_reserve = \"0\"\n"})
	s := &scene{t: t, m: m}
	unified, old := m.Cgroup(), m.CgroupV1()
	used, empty := m.Below(unified, "used"), m.Below(old, "empty")
	for name, c := range map[string]*rig.Cgroup{"used": used, "empty": empty} {
		if got := rig.Run(t, m.Gpuarb("job", "open", "--cgroup", c.Dir(), "--memory", "100M", "--min", "50M", "--name", name, "--allow", "reserve")); got.Code != 0 {
			t.Fatalf("gpuarb job open: %s", got.Stderr)
		}
	}
	in := func(c *rig.Cgroup) *rig.Program {
		return m.Interact(c.In(m.Command(append(m.Env(), "GPUARB_SOCKET="+m.Socket), "env", "LD_PRELOAD="+now.path(t, "libgpuarb.so"), rig.Build(t, "programs/cudaprog-dlsym"), "-")))
	}
	for name, most := range map[string]string{"used": "90M", "empty": "80M"} {
		for _, j := range m.Snapshot().Jobs {
			if j.Name != name {
				continue
			}
			if got := rig.Run(t, m.Gpuarb("limit", "--job", fmt.Sprint(j.ID), "memory.max="+most)); got.Code != 0 {
				t.Fatalf("gpuarb limit: %s", got.Stderr)
			}
		}
	}
	p := in(used)
	p.Want("alloc a 60M", "ok")
	for _, to := range []release{before, now} {
		s.swap(to)
		rig.Eventually(t, "the program goes on", func() bool { return len(m.Snapshot().Leases) == 1 })
		if to == before {
			rig.Eventually(t, "the job without a program is dropped", func() bool { return len(m.Snapshot().Jobs) == 1 })
		}
		p.Want("alloc b 30M", "ok")
		if got := p.Ask("alloc more 1"); got != "err 2" {
			t.Errorf("with the daemon of %v: one byte above the budget: %s", to, got)
		}
		p.Want("free b", "ok")
	}
	if got := rig.Run(t, empty.In(m.Gpuarb("run", "--min", "70M", "--", "true"))); got.Code != 0 {
		t.Errorf("what the binding allows is refused after the way back: %s", got.Stderr)
	}
	rig.Eventually(t, "the reservation of that job is given back", func() bool { return len(m.Snapshot().Jobs) == 2 })
	late := in(empty)
	late.Want("alloc a 80M", "ok")
	if got := late.Ask("alloc more 1"); got != "err 2" {
		t.Errorf("a program that started after the way back: one byte above the budget: %s", got)
	}
	p.Want("alloc b 30M", "ok")
	late.End()
	p.End()
}
