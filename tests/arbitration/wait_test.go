package arbitration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that programs which wait for memory finish in the end: which request is served before which, when a
// deadlock is broken, and that a reservation is kept free. onejob_test.go has processes of one job, and crowded_test.go
// has more requests than the queue has places.

// TestThreeOfSixty: three programs that each need 60 % of a device are started together.
// All finish with the right output.
func TestThreeOfSixty(t *testing.T) {
	t.Parallel()
	m := machine(t, "100M", "")
	programs := map[int]*rig.Program{}
	for range 3 {
		p := cudaprog(m, "--wait")
		programs[p.PID()] = p
	}
	for _, p := range programs {
		p.Tell("alloc a 60M; write a 7; read a; free a")
	}
	for len(programs) > 0 {
		var next int
		rig.Eventually(t, "another one goes on", func() bool {
			for pid, p := range programs {
				if !p.Silent() {
					next = pid
					return true
				}
			}
			return false
		})
		p := programs[next]
		for _, want := range []string{"alloc a ok", "write a ok", "read a ok 7", "free a ok"} {
			p.Expect(want)
		}
		p.End()
		delete(programs, next)
	}
	within(m, 100*mib)
	idle(m)
}

// TestSmallSteps: two programs grow in small steps until neither can grow further. One is
// refused, with the deadlock explained on its stderr, and the other finishes.
func TestSmallSteps(t *testing.T) {
	t.Parallel()
	for name, grace := range map[string]string{"at once": "", "busy thread": "deadlock_grace = \"200ms\"\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine(t, "100M", "[defaults]\n"+grace)
			var programs []*rig.Program
			for range 2 {
				p := m.Interact(m.Gpuarb("run", "--wait", "--", rig.Build(t, "programs/team")))
				p.Tell("0 context c")
				p.Expect("0 context ok")
				if grace != "" {
					p.Tell("1 use c")
					p.Expect("1 use ok")
					p.Tell("1 info x")
					p.Expect("1 info ok")
				}
				programs = append(programs, p)
			}
			refused := grow(t, m, programs)
			other := programs[1-refused]
			if said := programs[refused].End(); !strings.Contains(said, "deadlock") {
				t.Errorf("the refused one's stderr does not explain: %q", said)
			}
			other.Expect("0 alloc ok") // goes on with the memory of the refused program
			for range 5 {
				other.Tell("0 alloc more 5000000")
				other.Expect("0 alloc ok")
			}
			other.End()
			within(m, 100*mib)
			idle(m)
		})
	}
}

// grow lets both programs allocate 60 MiB in turn until one program is refused, and
// returns the index of that program.
func grow(t *testing.T, m *rig.Machine, programs []*rig.Program) int {
	t.Helper()
	blocked := [2]bool{}
	for step := range 40 {
		who := step % 2
		if blocked[who] {
			who = 1 - who
		}
		p := programs[who]
		p.Tell(fmt.Sprintf("0 alloc s%d %d", step, 6*mib))
		rig.Eventually(t, "the allocation has an answer or waits", func() bool {
			return !p.Silent() || len(m.Snapshot().Queue) == 1 && !blocked[1-who]
		})
		if p.Silent() {
			blocked[who] = true
			continue
		}
		if p.Line() != "0 alloc ok" {
			return who
		}
	}
	t.Fatal("no program was refused")
	return 0
}

// TestNewcomer: a waiting request for 90 % of a device does not block a running job that grows within the free memory. It does if its rule has
// age_after and it has waited for that long.
func TestNewcomer(t *testing.T) {
	t.Parallel()
	t.Run("young", func(t *testing.T) {
		t.Parallel()
		m := machine(t, "100M", "")
		running := bare(m) // on_full = deny, as by default
		running.Want("alloc first 20M", "ok")
		newcomer := cudaprog(m, "--wait")
		newcomer.Tell("alloc a 90M")
		waiting(m, 1)
		running.Want("many step 50 1M", "ok 50")
		if !newcomer.Silent() {
			t.Error("the newcomer has been answered")
		}
		running.End()
		newcomer.Expect("alloc a ok")
		within(m, 100*mib)
	})
	t.Run("aged", func(t *testing.T) {
		t.Parallel()
		m := machine(t, "100M", "[[rule]]\nmatch.command = \"*cudaprog*\"\nage_after = \"100ms\"\n")
		running, newcomer := bare(m), cudaprog(m, "--wait")
		running.Want("alloc first 20M", "ok")
		running.Want("alloc second 20M", "ok")
		newcomer.Tell("alloc a 90M")
		rig.Eventually(t, "the request has waited for age_after", func() bool { return m.Snapshot().Stats.OldestQueuedMs > 100 })
		running.Want("free first", "ok")
		running.Want("alloc third 30M", errOutOfMemory) // the free memory belongs to the aged request
		running.Want("free second", "ok")
		newcomer.Expect("alloc a ok")
		within(m, 100*mib)
	})
}

// TestOwnQuota: a user's request that waits for the user's own budget does not delay other users.
func TestOwnQuota(t *testing.T) {
	t.Parallel()
	m := machine(t, "100M", `[defaults]
on_full = "wait"
[[rule]]
match.command = "*quota*"
scope = "user"
memory.max = "30M"
`)
	first, second := bare(m), bare(m)
	quota := func() *rig.Program {
		return m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym"), "--context", "create", "-", "quota"))
	}
	one, two := quota(), quota()
	one.Want("alloc a 20M", "ok")
	two.Tell("alloc a 20M") // waits at the user's budget
	waiting(m, 1)
	first.Want("alloc a 70M", "ok")
	first.Want("free a", "ok")
	second.Want("alloc a 60M", "ok")
	if !two.Silent() {
		t.Error("more than the quota was granted")
	}
	one.Want("free a", "ok")
	two.Expect("alloc a ok")
	within(m, 100*mib)
}

// TestReservation: a guaranteed job waits for its reservation before it starts. Afterwards
// no request inside the reservation waits, whatever other jobs ask of the device.
func TestReservation(t *testing.T) {
	t.Parallel()
	m := machine(t, "100M", "[defaults]\ncontext_reserve = \"0\"\n")
	holder := bare(m)
	holder.Want("alloc a 60M", "ok")
	guaranteed := m.Begin(m.Gpuarb("run", "--min", "50M", "--memory", "50M", "--", rig.Build(t, "programs/cudaprog-dlsym")))
	waiting(m, 1)
	holder.Want("free a", "ok")
	guaranteed.Expect("ready")
	holder.Want("alloc b 60M", errOutOfMemory)
	holder.Want("alloc c 50M", "ok")
	other := cudaprog(m, "--wait")
	other.Tell("alloc a 10M")
	waiting(m, 1)
	guaranteed.Want("alloc a 25M", "ok")
	guaranteed.Want("alloc b 25M", "ok")
	guaranteed.Want("alloc c 1", errOutOfMemory)
	if !other.Silent() {
		t.Error("reserved memory was granted to another job")
	}
	guaranteed.End()
	other.Expect("alloc a ok")
	within(m, 100*mib)
}
