package arbitration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that root can limit the memory of all processes in a cgroup: through the cgroup's folder in /gpu, or
// with `gpuarb limit --cgroup`. The expected values are what programs of several users can still allocate.
// confined_test.go tests which processes may change such a limit.

// folder returns the path at which a machine's mount shows a cgroup, or a file of the cgroup.
func folder(m *rig.Machine, c *rig.Cgroup, file string) string {
	return filepath.Join(m.Mount, "cgroups", c.Path, file)
}

// TestCgroupFolder: root limits the processes in a cgroup, and in cgroups below it, through the cgroup's folder. The limit holds to the
// byte, for processes of all users, whichever interface set it. Limits nest, and only root may set them. They survive a kill of the
// daemon even if no process runs in the cgroup, and end when they are removed.
func TestCgroupFolder(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "400M,200M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: "schema_version = 1\n"})
	outer := m.Cgroup()
	inner := m.Below(outer, "a box.scope")
	u, v := m.OtherUser(anne), m.OtherUser(bert)
	a, b, beside := u.BareIn(outer), v.BareIn(inner), u.Bare()
	a.Want("alloc a 100M", "ok")
	b.Want("alloc b 50M", "ok")
	beside.Want("alloc a 10M", "ok")
	shown := func(c *rig.Cgroup, file, want string) {
		t.Helper()
		if got, err := os.ReadFile(folder(m, c, file)); err != nil || string(got) != want {
			t.Errorf("%s of %s: %q, %v; want %q", file, c.Path, got, err, want)
		}
	}
	write := func(c *rig.Cgroup, text string) {
		t.Helper()
		if err := os.WriteFile(folder(m, c, "memory.max"), []byte(text+"\n"), 0); err != nil {
			t.Fatal(err)
		}
	}
	shown(outer, "memory.current", "157286400\n")
	shown(outer, "cgroup.procs", fmt.Sprintln(a.PID()))
	shown(inner, "memory.current", "52428800\n")
	shown(inner, "cgroup.procs", fmt.Sprintln(b.PID()))
	shown(inner, "memory.max", "max\n")

	write(outer, "170M")
	m.AwaitLog("root changed memory.max of cgroup " + outer.Path + " on GPU 0 from max to 170 MiB")
	write(inner, "60M")
	a.Want("alloc most 10M", "ok")
	b.Want("alloc most 10M", "ok")
	b.Want("alloc more 1", errOutOfMemory)
	a.Want("alloc more 1", errOutOfMemory)
	if why := rig.Run(t, u.Gpuarb("why", fmt.Sprint(a.PID()))); !strings.Contains(why.Stdout, "0 bytes left of the 170 MiB that root set for cgroup "+outer.Path+"; holds: ") {
		t.Errorf("gpuarb why: %s%s", why.Stdout, why.Stderr)
	}
	beside.Want("alloc more 100M", "ok")
	limitTable(t, 0, "gpuarb: the programs in cgroup "+inner.Path+" hold 60 MiB of a limit of 40 MiB on GPU 0: nothing new until 20 MiB are freed",
		rig.Run(t, m.Gpuarb("limit", "--cgroup", inner.Path, "--device", "0", "memory.max=40M")))
	want := "GPU LIMIT VALUE HELD IN-FORCE SET-BY\n0 memory.max 41943040 62914560 yes root\n0 memory.max 178257920 178257920 no root; shared by all programs in cgroup " + outer.Path +
		"\n1 memory.max 62914560 0 yes root\n1 memory.max 178257920 0 no root; shared by all programs in cgroup " + outer.Path
	if got := limitTable(t, 0, "", rig.Run(t, u.Gpuarb("limit", "--bytes", "--cgroup", inner.Path))); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	limitTable(t, 1, "cgroup "+inner.Path+": only root may change what its programs may hold", rig.Run(t, v.Gpuarb("limit", "--cgroup", inner.Path, "memory.max=1M")))
	limitTable(t, 2, `"there" is no path of a cgroup`, rig.Run(t, m.Gpuarb("limit", "--cgroup", "there", "memory.max=1M")))
	limitTable(t, 2, `"streams.max" is no limit of a cgroup; there is memory.max`, rig.Run(t, m.Gpuarb("limit", "--cgroup", inner.Path, "streams.max=1")))
	if err := os.WriteFile(folder(m, inner, "memory.max"), []byte("nonsense"), 0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an unknown message is answered with %v", err)
	}
	if r := rig.Run(t, v.Command(m.Env(), "sh", "-c", `echo 1G > "$0"`, folder(m, inner, "memory.max"))); r.Code == 0 || !strings.Contains(r.Stderr, "Permission denied") {
		t.Errorf("a user writes into it: %d, %q", r.Code, r.Stderr)
	}

	m.Kill()
	m.Start()
	rig.Eventually(t, "all sessions are resumed", func() bool { return len(m.Snapshot().Leases) == 3 })
	shown(inner, "memory.max", "41943040\n")
	shown(outer, "memory.max", "178257920\n")
	b.Want("free b", "ok")
	b.Want("alloc b 30M", "ok")
	b.Want("alloc more 1", errOutOfMemory)
	a.Want("alloc more 20M", "ok")
	a.Want("alloc beyond 1", errOutOfMemory)
	late := u.BareIn(inner)
	late.Want("alloc a 1", errOutOfMemory)
	for _, p := range []*rig.Program{a, b, beside, late} {
		p.End()
	}
	m.Kill()
	m.Start()
	rig.Eventually(t, "no process is left", func() bool { return len(m.Snapshot().Processes) == 0 })
	shown(inner, "memory.max", "41943040\n")
	shown(inner, "memory.current", "0\n")
	write(inner, "max")
	shown(outer, "memory.max", "178257920\n")
	write(outer, "max")
	rig.Eventually(t, "the folder of what has neither clients nor a limit is gone", func() bool {
		_, err := os.Stat(folder(m, outer, ""))
		return errors.Is(err, os.ErrNotExist)
	})
	m.Kill()
	m.Start()
	if s := m.Snapshot(); len(s.Budgets) != 0 {
		t.Errorf("%+v", s.Budgets)
	}
}

// TestCgroupsOfHybridMachines checks a machine with both cgroup hierarchies, v1 and v2: a limit and a rule of a cgroup
// bind its processes, whichever hierarchy has the cgroup. This holds even if a process has a longer path in another
// hierarchy. A process whose cgroups in two hierarchies have the same path counts once.
func TestCgroupsOfHybridMachines(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "400M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: `schema_version = 1
[[rule]]
match.cgroup = "*/ruled.service"
memory.max = "30M"
`})
	unified, old := m.Cgroup(), m.CgroupV1()
	longer := m.Below(unified, "a-name-that-is-much-longer-than-any-in-the-other-hierarchy")
	named, ruled := m.Below(old, "box"), m.Below(old, "ruled.service")
	u := m.OtherUser(anne)
	in := func(of, besides *rig.Cgroup) *rig.Program { return m.Interact(of.In(besides.In(u.BareCommand()))) }
	a, b, c := in(named, longer), in(named, unified), in(ruled, longer) // the cgroups old and unified have the same path, each in its hierarchy
	for _, r := range [][]string{{named.Path, "memory.max=100M"}, {old.Path, "memory.max=120M"}, {longer.Path, "memory.max=60M"}} {
		limitTable(t, 0, "", rig.Run(t, m.Gpuarb("limit", "--cgroup", r[0], r[1])))
	}
	a.Want("alloc a 60M", "ok")
	a.Want("alloc more 1", errOutOfMemory)
	b.Want("alloc b 40M", "ok")
	b.Want("alloc more 1", errOutOfMemory)
	if why := rig.Run(t, u.Gpuarb("why", fmt.Sprint(b.PID()))); !strings.Contains(why.Stdout, "of the 100 MiB that root set for cgroup "+named.Path) {
		t.Errorf("gpuarb why: %s%s", why.Stdout, why.Stderr)
	}
	limitTable(t, 0, "", rig.Run(t, m.Gpuarb("limit", "--cgroup", longer.Path, "memory.max=max")))
	c.Want("alloc c 20M", "ok")
	c.Want("alloc more 1", errOutOfMemory) // the limit of the cgroup around its own cgroup is used up
	limitTable(t, 0, "", rig.Run(t, m.Gpuarb("limit", "--cgroup", old.Path, "memory.max=max")))
	c.Want("alloc more 10M", "ok")
	c.Want("alloc beyond 1", errOutOfMemory) // the rule of its cgroup refuses more
	for of, want := range map[*rig.Cgroup]string{named: "104857600\n", old: "136314880\n", longer: "94371840\n"} {
		if got, err := os.ReadFile(folder(m, of, "memory.current")); err != nil || string(got) != want {
			t.Errorf("memory.current of %s: %q, %v; want %q", of.Path, got, err, want)
		}
	}
	m.Kill()
	m.Start()
	rig.Eventually(t, "all sessions are resumed", func() bool { return len(m.Snapshot().Leases) == 3 })
	b.Want("free b", "ok")
	b.Want("alloc b 40M", "ok")
	b.Want("alloc more 1", errOutOfMemory)
	for _, p := range []*rig.Program{a, b, c} {
		p.End()
	}
}

// TestLimitsEndWithTheirFolders checks that a limit that was written into a cgroup's folder in /gpu, or set with --with-folder,
// ends when the kernel's folder of the cgroup is removed, in each hierarchy and also while no daemon runs. A cgroup that is made
// again at the path does not inherit the limit, however soon it is made. A limit that was set by path stays.
func TestLimitsEndWithTheirFolders(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "400M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: "schema_version = 1\n"})
	u := m.OtherUser(anne)
	unified, old := m.Cgroup(), m.CgroupV1()
	end := func(p *rig.Program) { // and waits until the next program can have all memory
		t.Helper()
		p.End()
		rig.Eventually(t, "its memory is free again", func() bool { return len(m.Snapshot().Leases) == 0 })
	}
	limited := func(c *rig.Cgroup, most string) {
		t.Helper()
		p := u.BareIn(c)
		p.Want("alloc a "+most, "ok")
		p.Want("alloc more 1", errOutOfMemory)
		end(p)
	}
	free := func(c *rig.Cgroup) {
		t.Helper()
		p := u.BareIn(c)
		p.Want("alloc a 300M", "ok")
		end(p)
	}
	write := func(c *rig.Cgroup, text string) {
		t.Helper()
		p := u.BareIn(c)
		p.Want("alloc a 1M", "ok") // /gpu has a folder for a cgroup with processes or a limit
		if err := os.WriteFile(folder(m, c, "memory.max"), []byte(text), 0); err != nil {
			t.Fatal(err)
		}
		end(p)
	}
	set := func(args ...string) {
		t.Helper()
		limitTable(t, 0, "", rig.Run(t, m.Gpuarb(append([]string{"limit", "--cgroup"}, args...)...)))
	}
	for name, in := range map[string]*rig.Cgroup{"v2": unified, "v1": old} {
		box, unit := m.Below(in, name+"-box"), m.Below(in, name+".service")
		again := func(c *rig.Cgroup) { t.Helper(); m.Remove(c); m.Make(c) }
		write(box, "50M")
		limited(box, "50M")
		again(box)
		free(box)

		set(box.Path, "--with-folder", "memory.max=50M")
		limited(box, "50M")
		m.Remove(box)
		rig.Eventually(t, name+": the limit ends without a request", func() bool { return len(m.Snapshot().Budgets) == 0 })
		m.AwaitLog("the limits of a cgroup have gone with its folder\" cgroup=" + box.Path)
		m.Make(box)
		free(box)

		set(box.Path, "--with-folder", "memory.max=50M")
		m.Kill()
		m.Start()
		limited(box, "50M") // the limit outlives the daemon
		m.Kill()
		again(box)
		m.Start()
		free(box)

		set(unit.Path, "memory.max=50M")
		limited(unit, "50M")
		again(unit)
		limited(unit, "50M")
		write(unit, "60M") // a limit that was set by path stays one when the folder changes its value
		again(unit)
		limited(unit, "60M")
		m.Remove(unit)
		m.Kill()
		m.Start()
		m.Make(unit)
		limited(unit, "60M")
		set(unit.Path, "memory.max=max")

		m.Remove(box)
		limitTable(t, 1, "cgroup "+box.Path+" has no folder that the limit could end with: without --with-folder the limit waits for it",
			rig.Run(t, m.Gpuarb("limit", "--cgroup", box.Path, "--with-folder", "memory.max=50M")))
		set(box.Path, "memory.max=50M")
		m.Make(box)
		limited(box, "50M")
		set(box.Path, "memory.max=max")
	}
	limitTable(t, 2, "--with-folder goes with a memory.max of a cgroup: gpuarb limit --cgroup PATH --with-folder memory.max=4G",
		rig.Run(t, m.Gpuarb("limit", "--user", "root", "--with-folder", "memory.max=1M")))
	if s := m.Snapshot(); len(s.Budgets) != 0 {
		t.Errorf("%+v", s.Budgets)
	}
}

// TestCgroupOfAJob: each process of a job counts in its own cgroup, and a killed process counts until its memory is free. A request that
// waits for memory of other processes in the cgroup is served when they free it.
func TestCgroupOfAJob(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "400M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: `schema_version = 1
[defaults]
on_full = "wait"
`})
	box := m.Cgroup()
	u := m.OtherUser(anne)
	if r := rig.Run(t, m.Gpuarb("limit", "--cgroup", box.Path, "memory.max=100M")); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	within := box.In(m.Command(nil, rig.Build(t, "programs/cudaprog-dlsym")))
	job := m.Interact(m.Gpuarb(append([]string{"run", "--"}, within.Args...)...))
	other := u.BareIn(box)
	job.Want("alloc a 80M", "ok")
	other.Tell("alloc b 40M")
	rig.Eventually(t, "a request waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	if q := m.Snapshot().Queue[0]; q.Reason != "shared_full" || !strings.Contains(q.Text, "of the 100 MiB that root set for cgroup "+box.Path+", ") {
		t.Errorf("%+v", q)
	}
	if err := syscall.Kill(job.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	other.Expect("alloc b ok")
	if s, _ := snapshotOf(m).Cgroup(box.Path); s.Used != 40<<20 || s.Max != 100<<20 {
		t.Errorf("%+v", s)
	}
	other.End()
	job.Wait()
}

func snapshotOf(m *rig.Machine) *figures.Snapshot { s := m.Snapshot(); return &s }
