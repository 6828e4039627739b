package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the tests of the rows A1 to A7 of rows.txt: slots. mixed_test.go repeats them with several programming interfaces.

// slots returns a machine with one device and a limit of slots.
func slots(t *testing.T, most int, scope string, more ...string) *rig.Machine {
	return rig.New(t, rig.Options{Devices: "4G", NoMount: true, Config: fmt.Sprintf(
		"schema_version = 1\n[defaults]\nslots.max = %d\nslots.scope = %q\n", most, scope) + strings.Join(more, "\n")})
}

// waiting waits until n requests are in the queue.
func waiting(m *rig.Machine, n int) {
	m.T.Helper()
	rig.Eventually(m.T, fmt.Sprintf("%d requests wait", n), func() bool { return len(m.Snapshot().Queue) == n })
}

// parks waits until a program's call is in the queue with n requests in all, and checks that it has no answer.
func parks(m *rig.Machine, p *rig.Program, n int) {
	m.T.Helper()
	rig.Eventually(m.T, fmt.Sprintf("%d requests wait", n), func() bool { return len(m.Snapshot().Queue) == n || !p.Silent() })
	if !p.Silent() {
		m.T.Fatalf("%q instead of a wait", p.Line())
	}
}

// bare starts a program under the bare preload, with more variables. It has
// no context yet.
func bare(m *rig.Machine, env ...string) *rig.Program {
	m.T.Helper()
	return m.Interact(m.Command(append(m.PreloadEnv(), env...), rig.Build(m.T, "programs/cudaprog-dlsym"), "--context", "none"))
}

// contexts returns how many processes have a context, by the driver's count.
func contexts(m *rig.Machine) int {
	m.T.Helper()
	n := 0
	for _, h := range m.Held() {
		if h.Contexts > 0 {
			n++
		}
	}
	return n
}

// TestA1OneCap: there are two slots, and four programs that call the driver in three ways. At most
// two of them have a context at any time.
func TestA1OneCap(t *testing.T) {
	t.Parallel()
	m := slots(t, 2, "job")
	var all []*rig.Program
	for _, build := range []string{"dlsym", "link", "gpa", "dlsym"} {
		all = append(all, m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-"+build), "--context", "none")))
	}
	all[0].Want("context c", "ok")
	all[1].Want("context c", "ok")
	all[2].Tell("context c")
	parks(m, all[2], 1)
	all[3].Tell("context c")
	parks(m, all[3], 2)
	if n := contexts(m); n != 2 || m.Snapshot().Devices[0].SlotsCurrent != 2 {
		t.Errorf("%d contexts with two slots, %d slots taken", n, m.Snapshot().Devices[0].SlotsCurrent)
	}
	for i := range 2 { // each end admits one program
		all[i].End()
		if got := all[i+2].Line(); got != "context c ok" {
			t.Errorf("the request whose turn it was: %s", got)
		}
		if n := contexts(m); n > 2 {
			t.Errorf("%d contexts with two slots", n)
		}
	}
	all[2].End()
	all[3].End()
}

// TestA2PermitFirst: a program that waits for a slot has made nothing on the device. Below
// `gpuarb run` the program has not even started.
func TestA2PermitFirst(t *testing.T) {
	t.Parallel()
	m := slots(t, 1, "job")
	first, second := bare(m), bare(m)
	first.Want("context c", "ok")
	m.CountCalls("cuCtxCreate*")
	second.Tell("context c")
	parks(m, second, 1)
	started := filepath.Join(m.Dir, "started")
	third := m.Begin(m.Gpuarb("run", "--", "/bin/sh", "-c", `: >"$0"; exec "$1"`, started, rig.Build(t, "programs/cudaprog-dlsym")))
	waiting(m, 2)
	if n := m.Calls("cuCtxCreate*"); n != 0 || contexts(m) != 1 {
		t.Errorf("a program without a slot called the driver %d times; %d contexts", n, contexts(m))
	}
	if exists(started) {
		t.Error("the program started before it had a slot")
	}
	first.End()
	if got := second.Line(); got != "context c ok" {
		t.Errorf("after the first had ended: %s", got)
	}
	if exists(started) {
		t.Error("two programs have the only slot")
	}
	second.End()
	if got := third.Line(); got != "ready" {
		t.Errorf("the third: %s", got)
	}
	third.End()
}

// TestA3Reentrant: a program with a slot creates any number of objects and takes no further slot.
func TestA3Reentrant(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"job", "process", "thread"} {
		t.Run(scope, func(t *testing.T) {
			t.Parallel()
			m := slots(t, 1, scope, `wait_timeout = "1ms"`) // no request of this test waits
			p := bare(m)
			for _, command := range []string{"context c", "context d", "primary e", "alloc a 1M", "stream s", "alloc b 1M", "stream t"} {
				p.Want(command, "ok")
			}
			if n := m.Snapshot().Devices[0].SlotsCurrent; n != 1 {
				t.Errorf("%d slots taken by one holder", n)
			}
			p.End()
		})
	}
}

// TestA4LastObject: the slot is released with the last object, in whatever order the objects end.
func TestA4LastObject(t *testing.T) {
	t.Parallel()
	full := []string{"context c", "alloc a 1M", "context d", "alloc b 1M", "stream s"}
	empty := []string{"context c", "context d"}
	for i, c := range []struct{ objects, order []string }{
		{full, []string{"destroy c", "destroy d"}},
		{full, []string{"destroy d", "destroy c"}},
		{empty, []string{"destroy c", "destroy d"}},
		{empty, []string{"destroy d", "destroy c"}},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			m := slots(t, 1, "process")
			p, q := bare(m), bare(m)
			for _, command := range c.objects {
				p.Want(command, "ok")
			}
			q.Tell("context c")
			parks(m, q, 1)
			p.Want(c.order[0], "ok")
			if n := m.Snapshot().Devices[0].SlotsCurrent; n != 1 || len(m.Snapshot().Queue) != 1 {
				t.Errorf("%d slots taken, %d waiting, while one context is left", n, len(m.Snapshot().Queue))
			}
			p.Want(c.order[1], "ok")
			if got := q.Line(); got != "context c ok" {
				t.Errorf("the waiter: %s", got)
			}
			p.End()
			q.End()
		})
	}
}

// TestA5Tunable: the slot limit comes from the configuration, and the environment can lower it. In the environment a
// value below 1 means 1; an invalid value leaves the configured limit in force, with a message.
func TestA5Tunable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env   string
		holds int // how many may hold at once, of a configured 3
		says  string
	}{
		{"", 3, ""}, {"2", 2, ""}, {"1", 1, ""}, {"0", 1, ""}, {"-4", 1, ""}, {"9", 3, ""}, {"many", 3, "GPUARB_SLOTS"},
	} {
		t.Run(c.env, func(t *testing.T) {
			t.Parallel()
			m := slots(t, 3, "job")
			var env []string
			if c.env != "" {
				env = []string{"GPUARB_SLOTS=" + c.env, "GPUARB_LOG=stderr"}
			}
			var all []*rig.Program
			for range c.holds {
				p := bare(m, env...)
				p.Want("context c", "ok")
				all = append(all, p)
			}
			late := bare(m, env...)
			late.Tell("context c")
			parks(m, late, 1)
			all[0].End()
			if got := late.Line(); got != "context c ok" {
				t.Errorf("the program above the limit: %s", got)
			}
			for _, p := range append(all[1:], late) {
				if said := p.End(); c.says != "" && !strings.Contains(said, c.says) {
					t.Errorf("nothing was said about the value: %q", said)
				}
			}
		})
	}
}

// TestA6TwentyProcesses and TestA6TwentyThreads: twenty processes or threads use slots at once, each a hundred times.
// None hangs, and by their own count there are never more inside than there are slots.
func TestA6TwentyProcesses(t *testing.T) {
	t.Parallel()
	m := slots(t, 2, "process")
	file := filepath.Join(m.Dir, "count")
	var group sync.WaitGroup
	for range 20 {
		cmd := m.Command(m.PreloadEnv(), rig.Build(t, "programs/permits"), "1", "100", "own", file)
		group.Go(func() { permitted(t, cmd, 2) })
	}
	group.Wait()
	agree(t, m)
}

func TestA6TwentyThreads(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"own", "primary", "shared"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			m := slots(t, 2, "thread")
			permitted(t, m.Command(m.PreloadEnv(), rig.Build(t, "programs/permits"), "20", "100", how, filepath.Join(m.Dir, "count")), 2)
		})
	}
}

// permitted runs a program whose threads or processes count how many of them have a context at the same time, and checks that the highest
// count is not above a limit.
func permitted(t *testing.T, cmd *exec.Cmd, most int) {
	r := rig.Run(t, cmd)
	var inside int
	if _, err := fmt.Sscanf(r.Stdout, "permits ok %d", &inside); err != nil || inside < 1 || inside > most {
		t.Errorf("%q, want at most %d inside\n%s", r.Stdout, most, r.Stderr)
	}
}

// TestA7DeadHolder: the slot of a program that is killed or aborts is free again.
func TestA7DeadHolder(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGABRT, syscall.SIGSEGV} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			m := slots(t, 1, "job")
			holder, waiter := bare(m), bare(m)
			holder.Want("context c", "ok")
			waiter.Tell("context c")
			parks(m, waiter, 1)
			holder.Tell(fmt.Sprintf("kill %d", signal))
			if got := waiter.Line(); got != "context c ok" {
				t.Errorf("the waiter: %s", got)
			}
			waiter.End()
		})
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
