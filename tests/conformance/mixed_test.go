package conformance

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file repeats the rows of A with programs that use CUDA, OpenCL and Vulkan. slots_test.go has these rows for CUDA alone.

// TestA1Mixed: one slot limit counts CUDA, OpenCL and Vulkan together, in any order, and a limit of one lets programs run one by one.
func TestA1Mixed(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 2} {
		t.Run(fmt.Sprint(most), func(t *testing.T) { t.Parallel(); oneCap(t, most, often) })
	}
}

func oneCap(t *testing.T, most, times int) {
	m := meeting(t, most, "job")
	all := several(m, len(interfaces))
	for i := range times {
		order := orders[i%len(orders)]
		for n, which := range order {
			all[which].Tell(interfaces[which] + " a 64K")
			if n < most {
				all[which].Expect(interfaces[which] + " a ok")
			} else {
				parks(m, all[which], n-most+1)
			}
			if d := device(m); d.SlotsCurrent != min(n+1, most) {
				t.Errorf("%d have come, %d slots of %d are taken", n+1, d.SlotsCurrent, most)
			}
		}
		for n, which := range order { // each end lets one in
			all[which].Want("end a", "ok")
			if next := n + most; next < len(order) {
				all[order[next]].Expect(interfaces[order[next]] + " a ok")
			}
		}
		empty(m)
		storm(m, all, most, interfaces...)
	}
	end(m, all...)
}

// storm makes all programs create and end objects at the same time, each of the interfaces that `what` names for it. By
// the programs' own count at most `most` of them are inside at any moment.
func storm(m *rig.Machine, all []*rig.Program, most int, what ...string) {
	m.T.Helper()
	commands := make([]string, len(all))
	for i, p := range all {
		commands[i] = fmt.Sprintf("rounds %s 1 4 %s", what[i%len(what)], filepath.Join(m.Dir, "count"))
		p.Tell(commands[i])
	}
	for i, p := range all {
		within(m, commands[i], p.Line(), most)
	}
	empty(m)
}

// within checks the answer to the command "rounds": by the program's own count at least one and at most `most` holders
// were inside at once.
func within(m *rig.Machine, command, answer string, most int) {
	m.T.Helper()
	var what string
	var inside int
	if _, err := fmt.Sscanf(answer, "rounds %s ok %d", &what, &inside); err != nil || inside < 1 || inside > most {
		m.T.Errorf("%s: %q, want at most %d inside", command, answer, most)
	}
}

// TestA2Mixed: a program that waits for a slot has created no object of any interface, by the drivers' own count.
func TestA2Mixed(t *testing.T) { t.Parallel(); permitFirst(t, often) }

func permitFirst(t *testing.T, times int) {
	m := meeting(t, 1, "job")
	env, made := counted(m)
	holders, waiters := several(m, len(interfaces), env...), several(m, len(interfaces), env...)
	for i := range times {
		which := i % len(interfaces)
		holders[which].Want(interfaces[which]+" a 64K", "ok")
		before := made()
		for n, waiter := range waiters {
			waiter.Tell(interfaces[n] + " a 64K")
			parks(m, waiter, n+1)
		}
		if after := made(); after != before || before == 0 {
			t.Errorf("with three waiting %d objects were made, before %d", after, before)
		}
		holders[which].Want("end a", "ok")
		for n, waiter := range waiters {
			waiter.Expect(interfaces[n] + " a ok")
			if after := made(); after != before+n+1 {
				t.Errorf("%d are through, and %d objects were made", n+1, after-before)
			}
			waiter.Want("end a", "ok")
		}
		empty(m)
	}
	end(m, append(holders, waiters...)...)
}

// TestA3Mixed: a program or a thread that has a slot through one interface needs no further slot for another interface. This also
// holds for the programs of one job, each with another interface.
func TestA3Mixed(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"job", "process", "thread"} {
		t.Run(scope, func(t *testing.T) { t.Parallel(); reentrant(t, scope, often) })
	}
	t.Run("one job", func(t *testing.T) { t.Parallel(); reentrantJob(t, often) })
}

// unwaiting is a configuration with which no request waits.
const unwaiting = `wait_timeout = "1ms"`

func reentrant(t *testing.T, scope string, times int) {
	m := meeting(t, 1, scope, unwaiting)
	p := together(m)
	for i := range times {
		order := orders[i%len(orders)]
		for n, name := range []string{"a", "b", "c", "d", "e", "f"} {
			p.Want(fmt.Sprintf("%s %s 1M", interfaces[order[n%len(order)]], name), "ok")
		}
		s := m.Snapshot()
		if len(s.Leases) != 1 || s.Devices[0].SlotsCurrent != 1 || s.Devices[0].Used != 6<<20 {
			t.Errorf("%d leases, %d slots, %d bytes of one holder of 6 MiB", len(s.Leases), s.Devices[0].SlotsCurrent, s.Devices[0].Used)
		}
		for _, name := range []string{"c", "f", "a", "d", "b", "e"} {
			p.Want("end "+name, "ok")
		}
		empty(m)
	}
	end(m, p)
}

func reentrantJob(t *testing.T, times int) {
	m := meeting(t, 1, "job", unwaiting)
	script := `for one in cuda opencl vulkan; do "$0" "$one a 64K;$one b 64K;end a;$one c 0;end b;end c" & done; wait`
	for range times {
		r := rig.Run(t, only(m, m.Gpuarb("run", "--", "/bin/sh", "-c", script, rig.Build(t, "programs/mixed"))))
		if n := strings.Count(r.Stdout, " ok\n"); n != 6*len(interfaces) || r.Stderr != "" {
			t.Errorf("%d commands of a job's programs went well\n%s%s", n, r.Stdout, r.Stderr)
		}
		m.AllGone()
		rig.Eventually(t, "the job is over", func() bool { return device(m).SlotsCurrent == 0 })
	}
}

// TestA4Mixed: a slot is released with the last object, in whatever order the objects of the three interfaces end, with memory
// and without.
func TestA4Mixed(t *testing.T) {
	t.Parallel()
	for _, size := range []string{"64K", "0"} {
		t.Run(size, func(t *testing.T) { t.Parallel(); lastObject(t, size, often) })
	}
}

func lastObject(t *testing.T, size string, times int) {
	m := meeting(t, 1, "process")
	p, q := together(m), together(m)
	for i := range times * len(orders) {
		order := orders[i%len(orders)]
		for _, one := range interfaces {
			p.Want(fmt.Sprintf("%s %[1]s %s", one, size), "ok")
		}
		waits := interfaces[i%len(interfaces)]
		q.Tell(waits + " a " + size)
		parks(m, q, 1)
		for _, which := range order[:2] {
			p.Want("end "+interfaces[which], "ok")
			if d := device(m); d.SlotsCurrent != 1 || d.Queue != 1 || !q.Silent() {
				t.Errorf("order %v: %d slots taken, %d waiting, while an object is left", order, d.SlotsCurrent, d.Queue)
			}
		}
		p.Want("end "+interfaces[order[2]], "ok")
		q.Expect(waits + " a ok")
		q.Want("end a", "ok")
		empty(m)
	}
	end(m, p, q)
}

// TestA5Mixed: for every interface the slot limit is the configured one, or less if the environment says so.
func TestA5Mixed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env   string
		holds int // how many may hold at once, of a configured 3
	}{
		{"", 3}, {"2", 2}, {"1", 1}, {"0", 1}, {"many", 3},
	} {
		t.Run(c.env, func(t *testing.T) { t.Parallel(); tunable(t, c.env, c.holds, often) })
	}
}

func tunable(t *testing.T, value string, holds, times int) {
	m := meeting(t, 3, "job")
	var env []string
	if value != "" {
		env = []string{"GPUARB_SLOTS=" + value}
	}
	all := several(m, holds+1, env...)
	for i := range times {
		one := func(n int) string { return interfaces[(i+n)%len(interfaces)] }
		for n, p := range all[:holds] {
			p.Want(one(n)+" a 64K", "ok")
		}
		late := all[holds]
		late.Tell(one(holds) + " a 64K")
		parks(m, late, 1)
		all[0].Want("end a", "ok")
		late.Expect(one(holds) + " a ok")
		for _, p := range all[1:] {
			p.Want("end a", "ok")
		}
		empty(m)
	}
	end(m, all...)
}

// TestA6MixedProcesses and TestA6MixedThreads: twenty processes or threads of all interfaces run at once. None hangs, and by their
// own count there are never more inside than there are slots.
func TestA6MixedProcesses(t *testing.T) { t.Parallel(); twentyProcesses(t, 2, often) }

func twentyProcesses(t *testing.T, most, times int) {
	m := meeting(t, most, "process")
	for range times / often { // new ones each time, which open their drivers at once
		all := several(m, 20)
		for range often {
			storm(m, all, most, "cuda", "opencl", "vulkan", turns, atOnce)
		}
		end(m, all...)
	}
}

func TestA6MixedThreads(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 2} {
		t.Run(fmt.Sprint(most), func(t *testing.T) { t.Parallel(); twentyThreads(t, most, often) })
	}
}

// threaded are the interfaces that threads with slots of their own use. Vulkan is left out: its loader holds one lock while it makes or
// destroys a logical device. A thread that waits for a slot inside it would block the thread that could release one.
var threaded = []string{"cuda/opencl", "cuda+opencl"}

func twentyThreads(t *testing.T, most, times int) {
	m := meeting(t, most, "thread")
	p := together(m)
	for range times {
		for _, what := range threaded {
			command := fmt.Sprintf("rounds %s 20 3 %s", what, filepath.Join(m.Dir, "count"))
			p.Tell(command)
			within(m, command, p.Line(), most)
			empty(m)
		}
	}
	end(m, p)
}

// TestA7Mixed: a program with objects of one or of all interfaces is killed or aborts. Its slot is free again.
func TestA7Mixed(t *testing.T) { t.Parallel(); deadHolder(t, often) }

func deadHolder(t *testing.T, times int) {
	m := meeting(t, 1, "job")
	waiter := together(m)
	for i := range times {
		for n, objects := range [][]string{interfaces[:1], interfaces[1:2], interfaces[2:], interfaces} {
			holder := together(m)
			for _, one := range objects {
				holder.Want(fmt.Sprintf("%s %[1]s 64K", one), "ok")
			}
			waits := interfaces[(i+n)%len(interfaces)]
			waiter.Tell(waits + " a 64K")
			parks(m, waiter, 1)
			death, signal := "kill 9", syscall.SIGKILL
			if (i+n)%2 == 1 {
				death, signal = "abort", syscall.SIGABRT
			}
			holder.Tell(death)
			waiter.Expect(waits + " a ok")
			if status := holder.Wait(); status != 128+int(signal) {
				t.Errorf("the holder ended with %d", status)
			}
			waiter.Want("end a", "ok")
			rig.Eventually(t, "the memory of the dead program is free", func() bool { return device(m).Used == 0 })
			empty(m)
		}
	}
	end(m, waiter)
}
