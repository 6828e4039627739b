package bindings

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks jobs inside jobs of cgroups: bindings of cgroups below, and jobs of `gpuarb run` inside.

// inside returns a command of gpuarb that a user runs in a cgroup.
func inside(m *rig.Machine, u *rig.OtherUser, c *rig.Cgroup, args ...string) *exec.Cmd {
	return c.In(u.Gpuarb(args...))
}

// runIn starts the interactive test program by `gpuarb run` in a cgroup.
func runIn(m *rig.Machine, u *rig.OtherUser, c *rig.Cgroup, flags ...string) *rig.Program {
	m.T.Helper()
	return m.Interact(inside(m, u, c, append(append([]string{"run"}, flags...), "--", u.Program("cudaprog-dlsym"))...))
}

// TestBindingsNest: a process belongs to the deepest binding around it, and counts in all that are around that one, whichever was
// opened first. When one in the middle closes, the others still hold.
func TestBindingsNest(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]int{"from outside": {0, 1, 2}, "from inside": {2, 1, 0}, "the middle last": {0, 2, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine(t, "400M", "")
			u, pod := m.OtherUser(anne), m.Cgroup()
			mid := m.Below(pod, "mid")
			box := m.Below(mid, "box")
			cgroups, memory, names := []*rig.Cgroup{pod, mid, box}, []string{"100M", "80M", "50M"}, []string{"pod", "mid", "box"}
			for _, i := range order {
				job(t, m, 0, "", "open", "--cgroup", cgroups[i].Path, "--memory", memory[i], "--name", names[i])
			}
			a, b, c := u.BareIn(pod), u.BareIn(mid), u.BareIn(box)
			c.Want("alloc c 50M", "ok")
			c.Want("alloc more 1", errOutOfMemory)
			b.Want("alloc b 30M", "ok")
			b.Want("alloc more 1", errOutOfMemory)
			a.Want("alloc a 20M", "ok")
			a.Want("alloc more 1", errOutOfMemory)
			sum := uint64(0)
			for p, name := range map[*rig.Program]string{a: "pod", b: "mid", c: "box"} {
				sum += m.HeldBy(p.PID(), 0).Bytes
				if l := m.Lease(p.PID(), 0); l.JobName != name {
					t.Errorf("process %d is in job %q, not %s", p.PID(), l.JobName, name)
				}
			}
			if sum != 100*mib {
				t.Errorf("the driver counts %d bytes in the cgroups", sum)
			}
			job(t, m, 0, "", "close", "mid")
			b.End()
			rig.Eventually(t, "its memory is free", func() bool { return len(m.Snapshot().Leases) == 2 })
			c.Want("alloc more 1", errOutOfMemory)
			a.Want("alloc more 30M", "ok")
			a.Want("alloc beyond 1", errOutOfMemory)
			job(t, m, 0, "", "close", "pod")
			c.Want("alloc more 1", errOutOfMemory)
			for _, p := range []*rig.Program{a, c} {
				p.End()
			}
		})
	}
}

// TestReservationsNest: the reservation of an inner binding is part of that of the outer one, and none is larger than the budget
// around it.
func TestReservationsNest(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, pod := m.OtherUser(anne), m.Cgroup()
	box, other := m.Below(pod, "box"), m.Below(pod, "other")
	job(t, m, 0, "", "open", "--cgroup", pod.Path, "--memory", "200M", "--min", "150M", "--name", "pod")
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "200M", "--min", "120M")
	job(t, m, 75, "80 MiB could be, of the 200 MiB budget of pod (job 1, cgroup)", "open", "--cgroup", other.Path, "--memory", "100M", "--min", "90M")
	beside := u.Bare()
	holds(t, m, beside, "250M", 250*mib)
	a, b := u.BareIn(pod), u.BareIn(box)
	holds(t, m, a, "30M", 30*mib)
	holds(t, m, b, "120M", 120*mib)
	for _, p := range []*rig.Program{a, b, beside} {
		p.End()
	}
}

// TestNothingPassesABinding: a token, GPUARB_MEMORY and a `gpuarb run` inside only lower what a program gets, and a program inside
// may not claim, be exclusive, reserve or raise its priority.
func TestNothingPassesABinding(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, box := m.OtherUser(anne), m.Cgroup()
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "100M", "--name", "web")
	narrow := runIn(m, u, box, "--memory", "30M", "--name", "inner")
	narrow.Want("alloc a 30M", "ok")
	narrow.Want("alloc more 1", errOutOfMemory)
	wide := runIn(m, u, box, "--memory", "300M")
	wide.Want("alloc a 70M", "ok")
	wide.Want("alloc more 1", errOutOfMemory)
	if sum := m.HeldBy(narrow.PID(), 0).Bytes + m.HeldBy(wide.PID(), 0).Bytes; sum != 100*mib && sum != 0 {
		t.Errorf("the driver counts %d bytes", sum)
	}
	narrow.End()
	wide.End()
	for what, args := range map[string][]string{
		"a claim":                {"claim", "--try", "--exec", "true"},
		"exclusive use":          {"run", "--exclusive", "--", "true"},
		"a reservation":          {"run", "--memory", "50M", "--min", "50M", "--", "true"},
		"a device for itself":    {"run", "--device", "any", "--", "true"},
		"a reservation of claim": {"claim", "--try", "--min", "10M", "--exec", "true"},
	} {
		if got := rig.Run(t, inside(m, u, box, args...)); got.Code == 0 || !strings.Contains(got.Stderr, "this is inside web (job 1, cgroup): ") {
			t.Errorf("%s: %d, %s", what, got.Code, got.Stderr)
		}
	}
	for _, budgets := range [][2]string{{"20M", ""}, {"20M", "30M"}, {"30M", "20M"}, {"20M", "50%"}, {"50%", "20M"}, {"200M", "5%"}, {"5%", ""}, {"5%", "50M"}, {"10%", "5%"}} {
		moved := m.Interact(m.Gpuarb("run", "--memory", budgets[0], "--", "sh", "-c", `echo $$ >"$0" && GPUARB_MEMORY=$1 && export GPUARB_MEMORY && exec "$2"`,
			box.Procs(), budgets[1], u.Program("cudaprog-dlsym")))
		moved.Want("alloc a 20M", "ok")
		moved.Want("alloc more 1", errOutOfMemory)
		if l := m.Snapshot().Leases; len(l) != 1 || l[0].JobName != "web" {
			t.Errorf("a process that a job outside left in the cgroup is in the job %+v", l)
		}
		moved.End()
		rig.Eventually(t, "it is gone", func() bool { return len(m.Snapshot().Leases) == 0 })
	}
}

// TestReservesInsideItsReservation: if the binding was opened with a reservation, a program inside may reserve of that.
func TestReservesInsideItsReservation(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, box := m.OtherUser(anne), m.Cgroup()
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "100M", "--min", "60M")
	a := runIn(m, u, box, "--min", "50M")
	b := u.BareIn(box)
	holds(t, m, b, "50M", 50*mib)
	a.Want("alloc a 50M", "ok")
	if got := rig.Run(t, inside(m, u, box, "run", "--min", "20M", "--", "true")); got.Code == 0 || !strings.Contains(got.Stderr, "of its own reservation") {
		t.Errorf("%d, %s", got.Code, got.Stderr)
	}
	a.End()
	b.End()
}

// TestRootInsideOpensBelow: root in a binding may open a binding only for a cgroup below, and its limits count inside.
func TestRootInsideOpensBelow(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, box := m.OtherUser(anne), m.Cgroup()
	below, beside := m.Below(box, "below"), m.Below(box, "beside")
	job(t, m, 0, "", "open", "--cgroup", below.Path, "--memory", "50M", "--name", "step")
	deep := m.Below(below, "deep")
	if got := rig.Run(t, below.In(m.Gpuarb("job", "open", "--cgroup", deep.Path, "--memory", "300M"))); got.Code != 0 {
		t.Errorf("below: %d, %s", got.Code, got.Stderr)
	}
	for what, args := range map[string][]string{
		"beside":      {"job", "open", "--cgroup", beside.Path, "--memory", "300M"},
		"above":       {"job", "open", "--cgroup", box.Path, "--memory", "300M"},
		"its own end": {"job", "close", "step"},
	} {
		if got := rig.Run(t, below.In(m.Gpuarb(args...))); got.Code != 1 || !strings.Contains(got.Stderr, "only jobs of cgroups below") {
			t.Errorf("%s: %d, %s", what, got.Code, got.Stderr)
		}
	}
	if got := rig.Run(t, below.In(m.Gpuarb("limit", "--job", "step", "memory.max=300M"))); got.Code == 0 {
		t.Error("root raises from inside what its own binding may hold")
	}
	if got := rig.Run(t, below.In(m.Gpuarb("limit", "--job", "step", "memory.max=40M"))); got.Code != 0 {
		t.Errorf("root lowers it: %d, %s", got.Code, got.Stderr)
	}
	p := u.BareIn(deep)
	holds(t, m, p, "40M", 40*mib)
	p.End()
}

// TestAllowed: a binding that was opened with --allow lets programs inside do just that, within its budget, also after a restart of the
// daemon. A binding around it must allow it too.
func TestAllowed(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, pod := m.OtherUser(anne), m.Cgroup()
	box := m.Below(pod, "box")
	job(t, m, 2, `--allow: "root" is unknown; write a list of claim`, "open", "--cgroup", box.Path, "--memory", "100M", "--allow", "claim,root")
	open := []string{"open", "--cgroup", box.Path, "--memory", "100M", "--name", "web", "--allow", "claim,reserve", "--allow", "exclusive"}
	id := job(t, m, 0, "", open...)
	if again := job(t, m, 0, "", open...); again != id {
		t.Errorf("opened again as job %s", again)
	}
	job(t, m, 1, "with other limits or options", open[:len(open)-2]...)
	if list := job(t, m, 0, "", "list"); !strings.Contains(list, "claim,reserve,exclusive") {
		t.Errorf("gpuarb job list: %s", list)
	}
	asks := map[string][]string{
		"claim":     {"claim", "--try", "--exec", "true"},
		"any":       {"run", "--device", "any", "--", "true"},
		"exclusive": {"run", "--exclusive", "--", "true"},
		"reserve":   {"run", "--memory", "80M", "--min", "80M", "--", "true"},
	}
	tries := func(refused string) {
		t.Helper()
		for what, args := range asks {
			got := rig.Run(t, inside(m, u, box, args...))
			if refused == "" && got.Code != 0 || refused != "" && (got.Code == 0 || !strings.Contains(got.Stderr, refused)) {
				t.Errorf("%s: %d, %s; want %q", what, got.Code, got.Stderr, refused)
			}
		}
		rig.Eventually(t, "the jobs inside have ended", func() bool {
			return !slices.ContainsFunc(m.Snapshot().Jobs, func(j figures.JobState) bool { return j.Bound == "" })
		})
	}
	tries("")
	if got := rig.Run(t, inside(m, u, box, "run", "--min", "101M", "--", "true")); got.Code == 0 {
		t.Error("more than the budget is reserved inside")
	}
	m.Kill()
	m.Start()
	tries("")
	reserves := runIn(m, u, box, "--memory", "80M", "--min", "80M")
	beside := u.Bare()
	holds(t, m, beside, "320M", 320*mib)
	holds(t, m, reserves, "80M", 80*mib)
	reserves.End()
	beside.End()
	job(t, m, 0, "", "open", "--cgroup", pod.Path, "--memory", "200M", "--name", "pod")
	tries("this is inside pod (job ")
	job(t, m, 0, "", "close", "pod")
	tries("")
}

// TestPriorityAllowed: root in a binding may open one below with a priority, or with a reservation beyond its own binding's, only if its
// own was opened so.
func TestPriorityAllowed(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	pod := m.Cgroup()
	box := m.Below(pod, "box")
	opens := func(code int, says string, flags ...string) {
		t.Helper()
		got := rig.Run(t, pod.In(m.Gpuarb(append([]string{"job", "open", "--cgroup", box.Path, "--memory", "50M"}, flags...)...)))
		if got.Code != code || !strings.Contains(got.Stderr, says) {
			t.Errorf("%q: %d, %s; want %d, %q", flags, got.Code, got.Stderr, code, says)
		}
	}
	job(t, m, 0, "", "open", "--cgroup", pod.Path, "--memory", "100M", "--min", "20M", "--name", "pod")
	opens(1, "inside pod (job 1, cgroup) it may not be raised", "--priority", "5")
	opens(1, "of its own reservation 20 MiB is left on GPU 0", "--min", "30M")
	opens(0, "", "--min", "20M", "--priority", "-5")
	job(t, m, 0, "", "close", "box")
	job(t, m, 0, "", "close", "pod")
	job(t, m, 0, "", "open", "--cgroup", pod.Path, "--memory", "100M", "--min", "20M", "--name", "pod", "--allow", "priority,reserve")
	opens(0, "", "--min", "30M", "--priority", "5")
}
