package bindings

import (
	"syscall"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks `gpuarb job open` commands that wait for their reservation: over restarts of the daemon, and inside other jobs of
// cgroups.

// waits starts a `gpuarb job open` that has to wait for its reservation, and returns when its request is in the queue.
func waits(t *testing.T, m *rig.Machine, c *rig.Cgroup, name, memory, least string) *rig.Program {
	t.Helper()
	p := m.Begin(m.Gpuarb("job", "open", "--cgroup", c.Path, "--name", name, "--memory", memory, "--min", least, "--wait", "max"))
	rig.Eventually(t, name+" waits", func() bool { _, waits := waiting(m, name); return waits })
	return p
}

// waiting returns the waiting request of the job with a name.
func waiting(m *rig.Machine, name string) (figures.TicketState, bool) {
	for _, q := range m.Snapshot().Queue {
		if q.JobName == name {
			return q, true
		}
	}
	return figures.TicketState{}, false
}

// ended waits for the end of a command that waits started, which must have opened its job.
func ended(t *testing.T, p *rig.Program, name string) {
	t.Helper()
	if code := p.Wait(); code != 0 {
		t.Fatalf("the open of %s: %d, %s", name, code, p.Stderr())
	}
}

// TestWaitsOverARestart: opens that wait keep their places when the daemon is killed or stopped, outside and inside another job, and
// then get their reservations in order.
func TestWaitsOverARestart(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*rig.Machine){"killed": (*rig.Machine).Kill, "stopped": (*rig.Machine).Stop} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine(t, "400M", "")
			u, top := m.OtherUser(anne), m.Cgroup()
			first, second, pod := m.Below(top, "first"), m.Below(top, "second"), m.Below(top, "pod")
			box := m.Below(pod, "box")
			job(t, m, 0, "", "open", "--cgroup", pod.Path, "--memory", "100M", "--name", "pod")
			inside, beside := u.BareIn(pod), u.Bare()
			inside.Want("alloc a 80M", "ok")
			beside.Want("alloc a 100M", "ok")
			beside.Want("alloc b 150M", "ok")
			a := waits(t, m, first, "a", "100M", "100M")
			b := waits(t, m, second, "b", "100M", "100M")
			c := waits(t, m, box, "c", "50M", "50M")
			for range 2 {
				before := map[string]int64{}
				for _, q := range m.Snapshot().Queue {
					before[q.JobName] = q.WaitedMs
				}
				if len(before) != 3 {
					t.Fatalf("the queue has %v", before)
				}
				began := time.Now()
				end(m)
				m.Start()
				rig.Eventually(t, "the sessions are resumed", func() bool { return len(m.Snapshot().Leases) == 2 })
				for name, waited := range before {
					since := time.Since(began).Milliseconds()
					rig.Eventually(t, name+" waits again", func() bool { _, waits := waiting(m, name); return waits })
					if q, _ := waiting(m, name); q.WaitedMs < waited+since-10 { // 10: rounding
						t.Errorf("after the restart %s has waited %d ms: it has lost its place, at which it had waited %d ms already %d ms ago", name, q.WaitedMs, waited, since)
					}
				}
			}
			beside.Want("free a", "ok")
			ended(t, a, "a")
			if _, still := waiting(m, "b"); !still {
				t.Error("b waits no more, though there was room for one")
			}
			inside.Want("free a", "ok")
			ended(t, c, "c")
			beside.Want("free b", "ok")
			ended(t, b, "b")
			for name, in := range map[string]*rig.Cgroup{"a": first, "b": second, "c": box} {
				if !named(m, name) {
					t.Errorf("%s is not open", name)
				}
				p := u.BareIn(in)
				p.Want("alloc a 50M", "ok")
				p.End()
			}
			inside.End()
			beside.End()
		})
	}
}

// TestGivenUpOpenLeavesNothing: a command that is killed while it waits leaves no job and no request, also if the daemon was killed before
// it.
func TestGivenUpOpenLeavesNothing(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, box := m.OtherUser(anne), m.Cgroup()
	beside := u.Bare()
	beside.Want("alloc a 350M", "ok")
	p := waits(t, m, box, "box", "100M", "100M")
	p.Signal(syscall.SIGKILL)
	p.Wait()
	rig.Eventually(t, "nothing waits", func() bool { _, waits := waiting(m, "box"); return !waits })
	p = waits(t, m, box, "box", "100M", "100M")
	m.Kill()
	p.Signal(syscall.SIGKILL)
	p.Wait()
	m.Start()
	rig.Eventually(t, "nothing waits", func() bool { s := m.Snapshot(); return len(s.Queue) == 0 && !named(m, "box") && len(s.Leases) == 1 })
	beside.Want("free a", "ok")
	holds(t, m, beside, "400M", 400*mib)
	beside.End()
}

// TestWaitsInside: an open inside another job whose budget is full waits in order until there is room. It is refused at once if it may not
// wait, or if there can never be room.
func TestWaitsInside(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, pod := m.OtherUser(anne), m.Cgroup()
	one, two, three, four := m.Below(pod, "one"), m.Below(pod, "two"), m.Below(pod, "three"), m.Below(pod, "four")
	job(t, m, 0, "", "open", "--cgroup", pod.Path, "--memory", "200M", "--min", "150M", "--name", "pod")
	job(t, m, 0, "", "open", "--cgroup", one.Path, "--memory", "120M", "--min", "120M")
	inside := u.BareIn(pod)
	inside.Want("alloc a 50M", "ok")
	job(t, m, 75, "pod (job 1, cgroup)", "open", "--cgroup", two.Path, "--memory", "100M", "--min", "60M")
	job(t, m, 1, "pod (job 1, cgroup)", "open", "--cgroup", two.Path, "--memory", "250M", "--min", "201M", "--wait", "max")
	big := waits(t, m, two, "two", "100M", "60M")
	small := waits(t, m, three, "three", "30M", "20M") // there is room, and two comes first
	if q, _ := waiting(m, "two"); q.Reason != "over_budget" {
		t.Errorf("two waits because of %q: %s", q.Reason, q.Text)
	}
	job(t, m, 124, "pod (job 1, cgroup)", "open", "--cgroup", four.Path, "--memory", "100M", "--min", "60M", "--wait", "10ms")
	beside := u.Bare()
	holds(t, m, beside, "230M", 230*mib) // an open that waits reserves nothing
	beside.End()
	inside.Want("free a", "ok")
	ended(t, big, "two")
	ended(t, small, "three")
	job(t, m, 0, "", "close", "one")
	job(t, m, 0, "", "open", "--cgroup", four.Path, "--memory", "120M", "--min", "120M")
	inside.Want("alloc a 1", errOutOfMemory)
	inside.End()
}

// TestOpenedAroundAWaitingOne: while one job waits for its reservation, another job is opened for a cgroup above. The first job is then
// inside the second, and gets no more than the second job's budget.
func TestOpenedAroundAWaitingOne(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, pod := m.OtherUser(anne), m.Cgroup()
	box := m.Below(pod, "box")
	beside := u.Bare()
	beside.Want("alloc a 350M", "ok")
	p := waits(t, m, box, "box", "300M", "100M")
	job(t, m, 0, "", "open", "--cgroup", pod.Path, "--memory", "200M", "--name", "pod")
	beside.Want("free a", "ok")
	ended(t, p, "box")
	held := u.BareIn(box)
	holds(t, m, held, "200M", 200*mib)
	held.End()
	beside.End()
}
