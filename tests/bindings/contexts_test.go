package bindings

import (
	"fmt"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks where contexts are counted: outside the budget of a cgroup's job, or inside it.

// TestContextsInside: with --contexts inside, budgets that add up to the whole device all start, and each holds its context and its
// allocations together, also after a restart of the daemon. Without it the context lies outside the budget.
func TestContextsInside(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "800M", NoMount: true, Sim: []string{fmt.Sprintf("SIMCUDA_CONTEXT_BYTES=%d", 30*mib)}, Config: "schema_version = 1\n"})
	u, box := m.OtherUser(anne), m.Cgroup()
	var cgroups []*rig.Cgroup
	var programs []*rig.Program
	for i := range 8 {
		c := m.Below(box, fmt.Sprintf("share%d", i))
		cgroups = append(cgroups, c)
		job(t, m, 0, "", "open", "--cgroup", c.Path, "--memory", "100M", "--min", "100M", "--contexts", "inside")
	}
	for _, c := range cgroups {
		p := u.BareIn(c)
		p.Want("alloc a 60M", "ok")
		programs = append(programs, p)
	}
	for _, p := range programs {
		rig.Eventually(t, "the context is measured", func() bool { return m.Lease(p.PID(), 0).Overhead == 30*mib })
		p.Want("alloc b 10M", "ok")
		p.Want("alloc more 1", errOutOfMemory)
	}
	m.Kill()
	m.Start()
	rig.Eventually(t, "the sessions are resumed", func() bool { return len(m.Snapshot().Leases) == 8 })
	programs[3].Want("free b", "ok")
	rig.Eventually(t, "its context is counted again", func() bool { return m.Lease(programs[3].PID(), 0).Overhead == 30*mib })
	programs[3].Want("alloc b 10M", "ok")
	programs[3].Want("alloc more 1", errOutOfMemory)
	for i, p := range programs {
		p.End()
		job(t, m, 0, "", "close", fmt.Sprintf("share%d", i))
	}
	job(t, m, 0, "", "open", "--cgroup", cgroups[0].Path, "--memory", "100M")
	p := u.BareIn(cgroups[0])
	holds(t, m, p, "100M", 100*mib)
	p.End()
}

// TestFullThroughARestart: a program has filled its budget, or the device, with its context and its allocations. The next daemon refuses it
// one more byte, from its first request on. After a free the program gets exactly what it freed.
func TestFullThroughARestart(t *testing.T) {
	t.Parallel()
	for name, open := range map[string][]string{
		"contexts inside":         {"--memory", "100M", "--contexts", "inside"},
		"contexts inside, closed": {"--memory", "100M", "--contexts", "inside"},
		"contexts outside":        {"--memory", "200M"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: "400M", NoMount: true, Sim: []string{fmt.Sprintf("SIMCUDA_CONTEXT_BYTES=%d", 10*mib)},
				Config: "schema_version = 1\n[[device]]\nmatch.index = 0\nmemory = \"200M\"\n"}) // the driver itself has room for more
			u, box := m.OtherUser(anne), m.Cgroup()
			job(t, m, 0, "", append([]string{"open", "--cgroup", box.Path, "--name", "box"}, open...)...)
			p := u.BareIn(box)
			p.Want("alloc a 10M", "ok")
			rig.Eventually(t, "the context is measured", func() bool { return m.Lease(p.PID(), 0).Overhead == 10*mib })
			most := 80
			if name == "contexts outside" {
				most = 180
			}
			p.Want(fmt.Sprintf("alloc b %dM", most), "ok")
			if name == "contexts inside, closed" {
				job(t, m, 0, "", "close", "box")
			}
			for range 5 {
				m.Kill()
				m.Start()
				p.Want("alloc more 1", errOutOfMemory)
				p.Want("free a", "ok")
				p.Want("alloc more 10485761", errOutOfMemory)
				p.Want("alloc a 10M", "ok")
				p.Want("alloc more 1", errOutOfMemory)
			}
			if held, want := m.HeldBy(p.PID(), 0).Bytes, uint64(most+10)*mib; held != want {
				t.Errorf("the driver counts %d bytes, want %d", held, want)
			}
			p.End()
		})
	}
}
