package arbitration

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold what happens to processes of one job that wait for each other: one of them is refused with advice,
// and the others go on. They also hold that a process is refused at once if only its own job's budget is full.
// wait_test.go has deadlocks of different jobs.

// TestOneJobWaitsForItself: eight processes of one job, as `pytest -n8` starts them, fill a
// device in two steps each until all of them wait. No program outside the job could release memory. The youngest
// process is refused with the reason and an advice, and the other processes finish.
func TestOneJobWaitsForItself(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		knows bool // the parent process has called the driver, and holds nothing
		idle  bool // each process also has an idle thread
	}{
		"all of it":           {},
		"a controller beside": {knows: true},
		"idle threads":        {idle: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine(t, "100M", "[defaults]\ndeadlock_grace = \"200ms\"\n")
			runner := oneJob(t, m, c.knows, "--wait")
			var workers []*rig.Program
			for range 8 {
				workers = append(workers, worker(t, m, runner, c.idle))
			}
			for _, w := range workers {
				w.Tell("0 alloc first 10485760")
				w.Expect("0 alloc ok")
			}
			for i, w := range workers {
				w.Tell("0 alloc second 31457280")
				if i < len(workers)-1 {
					waiting(m, i+1)
				}
			}
			served, refused := finish(t, workers)
			if served+len(refused) != len(workers) || len(refused) == 0 {
				t.Errorf("%d were served and %d refused", served, len(refused))
			}
			for _, said := range refused {
				if !strings.Contains(said, "all of its processes that hold memory wait for each other") || !strings.Contains(said, "--per-process --min") {
					t.Errorf("the refused one's stderr does not help: %q", said)
				}
			}
			runner.End()
			within(m, 100*mib)
			idle(m)
		})
	}
}

// TestOneJobSharesItsBudget: a process does not wait for memory that its siblings hold of the job's own
// budget. The refusal says how each process gets a budget of its own.
func TestOneJobSharesItsBudget(t *testing.T) {
	t.Parallel()
	m := machine(t, "100M", "")
	runner := oneJob(t, m, false, "--memory", "40M", "--wait")
	first, second := worker(t, m, runner, false), worker(t, m, runner, false)
	first.Tell("0 alloc a 31457280")
	first.Expect("0 alloc ok")
	second.Tell("0 alloc a 31457280")
	second.Expect("0 alloc err 2")
	if said := second.End(); !strings.Contains(said, "--per-process") {
		t.Errorf("it is not told of --per-process: %q", said)
	}
	first.Tell("0 alloc b 31457280") // no other process has memory of this budget
	first.Expect("0 alloc err 2")
	if said := first.End(); strings.Contains(said, "--per-process") {
		t.Errorf("--per-process would not help it: %q", said)
	}
	runner.End()
	idle(m)
}

// oneJob starts a program below `gpuarb run` that holds nothing; knows: it has called the driver.
func oneJob(t *testing.T, m *rig.Machine, knows bool, flags ...string) *rig.Program {
	t.Helper()
	args := append(append([]string{"run"}, flags...), "--", rig.Build(t, "programs/cudaprog-dlsym"), "--context", "none", "-")
	runner := m.Interact(m.Gpuarb(args...))
	if knows {
		runner.Number("total")
	}
	return runner
}

// worker starts one more process of a program's job.
func worker(t *testing.T, m *rig.Machine, runner *rig.Program, idle bool) *rig.Program {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", runner.PID()))
	if err != nil {
		t.Fatal(err)
	}
	p := m.Interact(m.Command(strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00"), rig.Build(t, "programs/team")))
	p.Tell("0 context c")
	p.Expect("0 context ok")
	if idle {
		p.Tell("1 use c")
		p.Expect("1 use ok")
		p.Tell("1 info x")
		p.Expect("1 info ok")
	}
	return p
}

// finish ends each program when it has an answer. It returns how many programs were
// served, and the messages of the refused programs.
func finish(t *testing.T, programs []*rig.Program) (served int, refused []string) {
	t.Helper()
	left := map[*rig.Program]bool{}
	for _, p := range programs {
		left[p] = true
	}
	for len(left) > 0 {
		var next *rig.Program
		rig.Eventually(t, "another one is answered", func() bool {
			for p := range left {
				if !p.Silent() {
					next = p
					return true
				}
			}
			return false
		})
		line := next.Line()
		said := next.End()
		if line == "0 alloc ok" {
			served++
		} else {
			refused = append(refused, line+"\n"+said)
		}
		delete(left, next)
	}
	return served, refused
}
