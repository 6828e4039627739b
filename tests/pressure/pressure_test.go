package pressure

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the whole test: schedules of waiting and running programs, and the interval in which each total must lie.

// machine returns a machine with a device of 100 MiB on which contexts cost no memory.
func machine(t *testing.T) *rig.Machine {
	return rig.New(t, rig.Options{Devices: "100M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: "schema_version = 1\n"})
}

// program starts the interactive test program; its allocations wait.
func program(m *rig.Machine) *rig.Program {
	m.T.Helper()
	return m.Interact(m.Gpuarb("run", "--wait", "--", rig.Build(m.T, "programs/cudaprog-dlsym")))
}

// reserve starts a job that reserves bytes of the first device and uses none. It prints "there" when it has them.
func reserve(m *rig.Machine, bytes string) *rig.Program {
	m.T.Helper()
	return m.Begin(m.Gpuarb("run", "--device", "0", "--min", bytes, "--", "sh", "-c", "echo there; cat"))
}

// file is the content of a memory.pressure file: its totals.
type file struct{ some, full time.Duration }

// read reads the pressure of a device, a job or a user.
func read(m *rig.Machine, of string) file {
	m.T.Helper()
	var avg [6]float64
	var some, full int64
	text := m.Read(of + "/memory.pressure")
	if n, err := fmt.Sscanf(text, "some avg10=%f avg60=%f avg300=%f total=%d\nfull avg10=%f avg60=%f avg300=%f total=%d\n",
		&avg[0], &avg[1], &avg[2], &some, &avg[3], &avg[4], &avg[5], &full); n != 8 || err != nil {
		m.T.Fatalf("%s: %q: %v", of, text, err)
	}
	for _, a := range avg {
		if a < 0 || a > 100 {
			m.T.Errorf("%s: %q", of, text)
		}
	}
	if full > some {
		m.T.Errorf("%s: full is more than some: %q", of, text)
	}
	return file{time.Duration(some) * time.Microsecond, time.Duration(full) * time.Microsecond}
}

// truth is the interval in which a total must lie: its least and its greatest possible value.
type truth struct{ least, most time.Duration }

// span returns the truth for a state that began between the first two times and ended between the last two.
func span(began, beganBy, ends, endedBy time.Time) truth {
	return truth{max(0, ends.Sub(beganBy)), endedBy.Sub(began)}
}

func (x truth) and(y truth) truth { return truth{x.least + y.least, x.most + y.most} }

// holds checks that a total lies in the interval, to the microsecond, which is the unit of the files.
func (x truth) holds(t *testing.T, what string, got time.Duration) {
	t.Helper()
	if got < x.least-time.Microsecond || got > x.most {
		t.Errorf("%s is %v: at least %v passed, and at most %v", what, got, x.least, x.most)
	}
}

// waiting waits until n requests are in the queue.
func waiting(m *rig.Machine, n int) {
	m.T.Helper()
	rig.Eventually(m.T, fmt.Sprintf("%d requests wait", n), func() bool { return len(m.Snapshot().Queue) == n })
}

// lasts waits until the device's pressure has grown by 200 ms, so that the present state lasts that long. No result depends on that figure.
func lasts(m *rig.Machine, what func(file) time.Duration) {
	m.T.Helper()
	was := what(read(m, "devices/0"))
	rig.Eventually(m.T, "the pressure grows", func() bool { return what(read(m, "devices/0")) > was+200*time.Millisecond })
}

func some(f file) time.Duration { return f.some }
func full(f file) time.Duration { return f.full }

// jobOf returns the folder of a process's job.
func jobOf(m *rig.Machine, pid int) string {
	m.T.Helper()
	return "jobs/" + strings.TrimSpace(m.Read(fmt.Sprintf("processes/%d/job", pid)))
}

// TestSome: "some" grows while one program waits for bytes of another program, which continues.
func TestSome(t *testing.T) {
	t.Parallel()
	m := machine(t)
	holder, waiter := program(m), program(m)
	holder.Want("alloc a 60M", "ok")
	waiter.Want("alloc a 10M", "ok")
	job, none := jobOf(m, waiter.PID()), jobOf(m, holder.PID())
	if got := read(m, "devices/0"); got != (file{}) {
		t.Errorf("the device has pressure before a program waited: %+v", got)
	}
	var sum truth
	for range 3 {
		began := time.Now()
		waiter.Tell("alloc b 50M")
		waiting(m, 1)
		beganBy := time.Now()
		lasts(m, some)
		ends := time.Now()
		holder.Want("free a", "ok")
		waiter.Expect("alloc b ok")
		waiter.Want("free b", "ok")
		holder.Want("alloc a 60M", "ok")
		sum = sum.and(span(began, beganBy, ends, time.Now()))
	}
	for _, of := range []string{"devices/0", job, "users/" + rig.User()} {
		sum.holds(t, "some of "+of, read(m, of).some)
	}
	sum.holds(t, "full of the job that waited", read(m, job).full)
	if got := read(m, none); got != (file{}) {
		t.Errorf("a job that never waited: %+v", got)
	}
	if got := read(m, "devices/0"); got.full != 0 {
		t.Errorf("a program always continued, and full grew: %+v", got)
	}
}

// TestFull: "full" grows while all programs with a lease on the device wait, even if memory there is used without gpuarb. It stops
// growing as soon as one of these programs continues.
func TestFull(t *testing.T) {
	t.Parallel()
	m := machine(t)
	keeper := reserve(m, "60M")
	keeper.Expect("there")
	waiter, other := program(m), program(m)
	for _, p := range []*rig.Program{waiter, other} {
		p.Want("alloc a 10M", "ok")
	}
	one := time.Now()
	waiter.Tell("alloc b 50M")
	waiting(m, 1)
	oneBy := time.Now()
	lasts(m, some)
	both := time.Now()
	other.Tell("alloc b 50M")
	waiting(m, 2)
	bothBy := time.Now()
	lasts(m, full)
	ends := time.Now()
	rig.Run(t, m.Gpuarb("queue", "cancel", ticketOf(m, other)))
	other.Expect("alloc b err 2")
	nobody := span(both, bothBy, ends, time.Now())
	lasts(m, some)
	nobody.holds(t, "full of the device", read(m, "devices/0").full)
	again := time.Now()
	other.End()
	rig.Eventually(t, "only the one that waits is there", func() bool { return len(m.Snapshot().Leases) == 1 })
	againBy := time.Now()
	lasts(m, full)
	ends = time.Now()
	keeper.End()
	waiter.Expect("alloc b ok")
	over := time.Now()
	for _, of := range []string{"devices/0", "users/" + rig.User()} {
		nobody.and(span(again, againBy, ends, over)).holds(t, "full of "+of, read(m, of).full)
		span(one, oneBy, ends, over).holds(t, "some of "+of, read(m, of).some)
	}
}

// ticketOf returns the number of a program's waiting request.
func ticketOf(m *rig.Machine, p *rig.Program) string {
	m.T.Helper()
	runs := p.Process()
	for _, q := range m.Snapshot().Queue {
		for _, j := range m.Snapshot().Jobs {
			if j.ID == q.Job && j.PID == runs {
				return fmt.Sprint(q.Ticket)
			}
		}
	}
	m.T.Fatal("it does not wait")
	return ""
}

// TestReservationsCount: a job that waits for its reservation waits for bytes, and one that waits for a slot does not.
func TestReservationsCount(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "100M,100M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[[device]]\nmatch.index = 1\nslots.max = 1\n"})
	keeper := reserve(m, "60M")
	keeper.Expect("there")
	busy := m.Interact(m.Gpuarb("run", "--device", "1", "--", rig.Build(t, "programs/cudaprog-dlsym")))
	busy.Want("alloc a 1M", "ok")
	began := time.Now()
	late := reserve(m, "50M")
	waiting(m, 1)
	beganBy := time.Now()
	slot := m.Begin(m.Gpuarb("run", "--device", "1", "--", rig.Build(t, "programs/cudaprog-dlsym")))
	waiting(m, 2)
	lasts(m, some)
	ends := time.Now()
	keeper.End()
	late.Expect("there")
	span(began, beganBy, ends, time.Now()).holds(t, "some of the device", read(m, "devices/0").some)
	busy.End()
	slot.Expect("ready")
	if got := read(m, "devices/1"); got != (file{}) {
		t.Errorf("a wait for a slot counts as pressure: %+v", got)
	}
	late.End()
}

// TestAfterAKill: the next daemon counts from its start, including a wait that goes on.
func TestAfterAKill(t *testing.T) {
	t.Parallel()
	m := machine(t)
	holder, waiter := program(m), program(m)
	holder.Want("alloc a 90M", "ok")
	waiter.Want("alloc a 1M", "ok")
	job := jobOf(m, waiter.PID())
	waiter.Tell("alloc b 50M")
	waiting(m, 1)
	lasts(m, some)
	m.Kill()
	starts := time.Now()
	m.Start()
	waiting(m, 1)
	resumedBy := time.Now()
	lasts(m, some)
	ends := time.Now()
	holder.Want("free a", "ok")
	waiter.Expect("alloc b ok")
	waited := span(starts, resumedBy, ends, time.Now())
	for _, of := range []string{job, "devices/0", "users/" + rig.User()} {
		waited.holds(t, "some of "+of, read(m, of).some)
	}
}
