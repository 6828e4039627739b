package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the test of the row F4 of rows.txt: deadlocks of waiting requests.

// waiters returns a machine on which requests without room wait. Each context costs 64 MiB of
// the device in addition to the program's allocations.
func waiters(t *testing.T, devices, more string) *rig.Machine {
	return rig.New(t, rig.Options{Devices: devices, NoMount: true,
		Config: "schema_version = 1\n[defaults]\non_full = \"wait\"\n" + more})
}

// team starts a program with several threads that each execute commands.
func team(m *rig.Machine, env ...string) *rig.Program {
	m.T.Helper()
	return m.Interact(m.Command(append(m.PreloadEnv(), env...), rig.Build(m.T, "programs/team")))
}

// want sends a thread of a team a command that must not wait, and checks the answer.
func want(p *rig.Program, command, answer string) {
	p.Tell(command)
	says(p, command, answer)
}

// says reads the result of a thread's command, which must be answer.
func says(p *rig.Program, command, answer string) {
	var thread, word string
	_, _ = fmt.Sscan(command, &thread, &word)
	p.Expect(thread + " " + word + " " + answer)
}

// deadlock makes a deadlock of two single-threaded programs that each hold what the other needs. It checks that the later
// request is refused with an explanation, and that the first program goes on.
func deadlock(t *testing.T, m *rig.Machine, first, second *rig.Program, wants [2]string, gives string) {
	t.Helper()
	first.Tell(wants[0])
	parks(m, first, 1)
	second.Tell(wants[1])
	says(second, wants[1], errOutOfMemory)
	if !first.Silent() {
		t.Errorf("the first one has been answered too")
	}
	explained(t, m, first, second)
	want(second, gives, "ok")
	says(first, wants[0], "ok")
}

// explained looks for the event about the deadlock, which must name both processes.
func explained(t *testing.T, m *rig.Machine, parties ...*rig.Program) {
	t.Helper()
	var told string
	rig.Eventually(t, "an event tells of the deadlock", func() bool { // the log is written with a delay
		for line := range strings.Lines(m.Log()) {
			if strings.Contains(line, "event=deadlock") {
				told = line
			}
		}
		return told != ""
	})
	for _, p := range parties {
		if !strings.Contains(told, fmt.Sprintf("[%d]", p.Process())) {
			t.Errorf("process %d is not named in: %s", p.Process(), told)
		}
	}
}

// TestF4Deadlock: two programs each hold what the other waits for. The deadlock is
// broken when it forms, by refusing the younger request with an explanation.
func TestF4Deadlock(t *testing.T) {
	t.Parallel()
	t.Run("one device", func(t *testing.T) {
		t.Parallel()
		m := waiters(t, "4G", "")
		a, b := team(m), team(m)
		for _, p := range []*rig.Program{a, b} {
			want(p, "0 context c", "ok")
			want(p, "0 alloc one 1600000000", "ok")
		}
		deadlock(t, m, a, b, [2]string{"0 alloc two 1600000000", "0 alloc two 1600000000"}, "0 free one")
	})
	t.Run("two devices", func(t *testing.T) {
		t.Parallel()
		m := waiters(t, "4G,4G", "")
		a, b := team(m), team(m)
		for i, p := range []*rig.Program{a, b} {
			want(p, fmt.Sprintf("0 context other %d", 1-i), "ok")
			want(p, fmt.Sprintf("0 context own %d", i), "ok")
			want(p, "0 alloc one 3000000000", "ok")
			want(p, "0 use other", "ok")
		}
		deadlock(t, m, a, b, [2]string{"0 alloc two 3000000000", "0 alloc two 3000000000"}, "0 free one")
	})
	t.Run("bytes and slots", func(t *testing.T) {
		t.Parallel()
		m := waiters(t, "4G,4G", "[[device]]\nmatch.index = 0\nslots.max = 1\n")
		a, b := team(m), team(m)
		want(a, "0 context other 1", "ok")
		want(a, "0 context slot 0", "ok")
		want(b, "0 context own 1", "ok")
		want(b, "0 alloc one 3000000000", "ok")
		want(a, "0 use other", "ok")
		deadlock(t, m, a, b, [2]string{"0 alloc two 3000000000", "0 context slot 0"}, "0 free one")
	})
}

// TestF4BusyThread: if a process in the deadlock has a thread outside the queue, that thread could free memory. The
// deadlock is broken only after no process in it has changed anything for deadlock_grace.
func TestF4BusyThread(t *testing.T) {
	t.Parallel()
	m := waiters(t, "4G", "deadlock_grace = \"300ms\"\n")
	a, b := team(m), team(m)
	for _, p := range []*rig.Program{a, b} {
		want(p, "0 context c", "ok")
		want(p, "0 alloc one 1600000000", "ok")
		want(p, "1 use c", "ok")
		want(p, "1 info x", "ok")
	}
	deadlock(t, m, a, b, [2]string{"0 alloc two 1600000000", "0 alloc two 1600000000"}, "1 free one")
}

// TestF4NotOne: a situation that only looks like a deadlock is left alone. A thread that
// holds a slot and is not known to wait may still release it, however long it works.
func TestF4NotOne(t *testing.T) {
	t.Parallel()
	m := waiters(t, "4G", "slots.max = 2\nslots.scope = \"thread\"\ndeadlock_grace = \"1ms\"\n")
	programs := []*rig.Program{team(m), team(m)}
	for _, p := range programs {
		want(p, "0 context c", "ok")
	}
	for i, p := range programs {
		p.Tell("1 context d")
		parks(m, p, i+1)
	}
	rig.Eventually(t, "both have waited for many times deadlock_grace", func() bool { return m.Snapshot().Stats.OldestQueuedMs > 500 })
	for _, p := range programs {
		if !p.Silent() {
			t.Error("a working thread was counted as a waiting thread")
		}
	}
	for _, p := range programs {
		p.Tell("0 destroy c")
	}
	for _, p := range programs {
		got := []string{p.Line(), p.Line()} // from two threads, in any order
		slices.Sort(got)
		if !slices.Equal(got, []string{"0 destroy ok", "1 context ok"}) {
			t.Errorf("after the slots were given back: %q", got)
		}
	}
}
