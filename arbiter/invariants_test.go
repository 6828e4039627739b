package arbiter_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/reading"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// Random clients never get more than the limits allow, no client is charged for another, and nothing is left when all have ended. Each
// client counts for itself what it uses, and these counts are the expected values. model_test.go has the clients, and accounting/doc.go the
// invariants I1 and I2.

// TestInvariants drives many clients at random: allocations by both paths, frees, ends of processes, limits, readings and invalid credit
// words. There are two devices, jobs, and a budget that one user shares. It checks I1, I2 and the rows of leases after every step,
// and at the end that no lease holds anything.
func TestInvariants(t *testing.T) {
	for name, mins := range map[string]bool{"plain": false, "reservations": true} {
		t.Run(name, func(tb *testing.T) {
			rapid.Check(tb, func(t *rapid.T) { newUniverse(t, tb, mins).run(t) })
		})
	}
}

func (u *universe) run(t *rapid.T) {
	device := rapid.IntRange(0, 1)
	t.Repeat(map[string]func(*rapid.T){
		"open":    func(t *rapid.T) { u.open(t) },
		"openJob": u.openJob,
		"alloc":   func(t *rapid.T) { u.take(t, u.pick(t), amount(t, 300)) },
		"alloc2":  func(t *rapid.T) { u.take(t, u.pick(t), amount(t, 30)) },
		"free": func(t *rapid.T) {
			l := u.pick(t)
			n := amount(t, int(l.used))
			l.used -= n
			if !l.rubbish {
				l.free(n)
			}
		},
		"die": func(t *rapid.T) { u.end(u.pick(t)) },
		"gone": func(t *rapid.T) {
			for _, l := range slices.Clone(u.leases) {
				if l.draining && rapid.Bool().Draw(t, "gone") {
					u.gone(l)
				}
			}
		},
		"closeJob": func(t *rapid.T) {
			if len(u.jobs) > 0 {
				j := rapid.SampledFrom(u.jobs).Draw(t, "job")
				u.arb.CloseJob(u.now, j.id)
				j.closed = true
				u.jobs = slices.DeleteFunc(u.jobs, func(x *modelJob) bool { return x == j })
			}
		},
		"limit": func(t *rapid.T) {
			if len(u.jobs) > 0 {
				u.limit(t, rapid.SampledFrom(u.jobs).Draw(t, "job"), device.Draw(t, "device"))
			}
		},
		"limitUser": func(t *rapid.T) {
			u.limitUser(t, rapid.SampledFrom(u.users).Draw(t, "uid"), device.Draw(t, "device"))
		},
		"limitCgroup": func(t *rapid.T) {
			u.limitCgroup(t, rapid.SampledFrom(cgroups[1:]).Draw(t, "cgroup"), device.Draw(t, "device"))
		},
		"observe": func(t *rapid.T) { u.observe(t, device.Draw(t, "device")) },
		"tick":    func(*rapid.T) { u.arb.Tick(u.now) },
		"module":  func(t *rapid.T) { u.pick(t).module = amount(t, 200) },
		"context": u.contexts,
		"rubbish": u.corruptWord,
		"":        u.check,
	})
	u.finish(t)
}

// corruptWord writes random values into a client's credit word.
func (u *universe) corruptWord(t *rapid.T) {
	for _, l := range u.live() {
		if l.rubbish {
			l.word.state.Store(rapid.Uint64().Draw(t, "word"))
			l.word.low.Store(rand.Uint64())
			l.word.pending = accounting.Max
			l.word.told = reading.ClientReport{Known: true, Blocks: rand.Uint32(), Pools: rand.Uint32(), Imported: accounting.Max}
		}
	}
}

// contexts lets a client make or destroy a context, if contexts have a cost.
func (u *universe) contexts(t *rapid.T) {
	if l := u.pick(t); u.mins && !l.word.told.Known {
		l.contexts(1 - 2*rapid.IntRange(0, 1).Draw(t, "destroy"))
	}
}

// check compares a snapshot with the model.
func (u *universe) check(t *rapid.T) {
	s := u.arb.Snapshot(u.now)
	if len(s.Leases) != len(u.leases) {
		t.Fatalf("%d rows, %d leases", len(s.Leases), len(u.leases))
	}
	rows := map[[2]int]figures.LeaseState{}
	for _, row := range s.Leases {
		rows[[2]int{row.PID, row.Device}] = row
	}
	held := map[*modelJob]map[int]accounting.Bytes{}
	now := map[arbiter.LeaseID]accounting.Bytes{}
	for _, l := range u.leases {
		row := rows[[2]int{l.process.PID, l.device}]
		u.checkRow(t, l, row)
		if held[l.job] == nil {
			held[l.job] = map[int]accounting.Bytes{}
		}
		held[l.job][l.device] += row.Granted
		now[l.lease] = row.Granted
	}
	u.last = now
	u.checkJobs(t, s, rows, held)
	if len(u.leases) > 0 {
		u.checkSnapshots(t, s, u.leases[0])
	}
	u.checkDevices(t, s)
}

// checkSnapshots checks that a snapshot of one session, and one of the leases, agree with the whole snapshot.
func (u *universe) checkSnapshots(t *rapid.T, whole figures.Snapshot, of *modelLease) {
	s := u.arb.SnapshotOf(u.now, of.session)
	process := func(p figures.ProcessState) bool { return p.PID != of.process.PID }
	lease := func(l figures.LeaseState) bool { return l.PID != of.process.PID }
	if !reflect.DeepEqual(s.Processes, slices.DeleteFunc(slices.Clone(whole.Processes), process)) ||
		!reflect.DeepEqual(s.Leases, slices.DeleteFunc(slices.Clone(whole.Leases), lease)) {
		t.Fatalf("%+v %+v of %+v", s.Processes, s.Leases, whole)
	}
	if s := u.arb.SnapshotOfLeases(u.now); !reflect.DeepEqual(s.Leases, whole.Leases) {
		t.Fatalf("%+v of %+v", s.Leases, whole.Leases)
	}
	if j := slices.IndexFunc(whole.Jobs, func(j figures.JobState) bool { return j.ID == s.Processes[0].Job }); len(s.Jobs) != 1 || !reflect.DeepEqual(s.Jobs[0], whole.Jobs[j]) {
		t.Fatalf("%+v of %+v", s.Jobs, whole.Jobs)
	}
}

// checkRow checks I1 on one lease, and that its row shows what its client really uses. Unexplained usage must be charged to the process
// that has it, and to no other.
func (u *universe) checkRow(t *rapid.T, l *modelLease, row figures.LeaseState) {
	if row.Granted != l.word.granted || row.Used+row.Credit != row.Granted || row.Pending > row.Used {
		t.Fatalf("granted %d, and the word adds up to %d: %+v", row.Granted, l.word.granted, row)
	}
	if !l.rubbish && (row.Used != l.used || row.Peak != l.peak) {
		t.Fatalf("used %d, peak %d: %+v", l.used, l.peak, row)
	}
	if !l.rubbish && !l.draining && row.Excess != l.excess() {
		t.Fatalf("an excess of %d is charged: %+v", l.excess(), row)
	}
	over := row.State == figures.StateOver || row.State == figures.StateDraining
	if row.Granted > row.Budget && !over {
		t.Fatalf("above its budget, and not over: %+v", row)
	}
	if was, known := u.last[l.lease]; known && row.Granted > row.Budget && row.Granted > was {
		t.Fatalf("over, and granted grew from %d: %+v", was, row)
	}
	if !l.draining && l.word.closed() != (row.State == figures.StateOver) && !l.rubbish {
		t.Fatalf("closed: %v, and %+v", l.word.closed(), row)
	}
}

// checkJobs checks I1 for the budgets of jobs.
func (u *universe) checkJobs(t *rapid.T, s figures.Snapshot, rows map[[2]int]figures.LeaseState,
	held map[*modelJob]map[int]accounting.Bytes) {
	eves, of := map[int]accounting.Bytes{}, map[uint32]map[int]accounting.Bytes{}
	for j, on := range held {
		for d, n := range on {
			if most, limited := j.max[d]; limited && n > most {
				u.allOver(t, rows, d, func(l *modelLease) bool { return l.job == j })
			}
			if student(j.uid) {
				eves[d] += n
			}
			if of[j.uid] == nil {
				of[j.uid] = map[int]accounting.Bytes{}
			}
			of[j.uid][d] += n
		}
	}
	for uid, on := range of {
		for d, n := range on {
			if most, limited := u.caps[uid][d]; limited && n > most {
				u.allOver(t, rows, d, func(l *modelLease) bool { return l.job.uid == uid })
			}
		}
	}
	u.checkCgroups(t, s, rows)
	for d, n := range eves {
		if n > u.shared[d] {
			t.Fatalf("the students hold %d of %d on %d", n, u.shared[d], d)
		}
	}
	for _, j := range s.Jobs {
		if j.ID == 0 || len(j.Devices) != len(totals) {
			t.Fatalf("%+v", j)
		}
	}
}

// checkCgroups checks I1 for cgroups, and that their rows show what is used there.
func (u *universe) checkCgroups(t *rapid.T, s figures.Snapshot, rows map[[2]int]figures.LeaseState) {
	for of, on := range u.cgroups {
		for d, most := range on {
			var held, used accounting.Bytes
			for _, l := range u.leases {
				if row := rows[[2]int{l.process.PID, l.device}]; l.device == d && l.in(of) {
					held, used = held+row.Granted, used+row.Used
				}
			}
			if held > most {
				u.allOver(t, rows, d, func(l *modelLease) bool { return l.in(of) })
			}
			i := slices.IndexFunc(s.Budgets, func(b figures.BudgetState) bool { return b.Cgroup == of && b.Rule == "" })
			if b := s.Budgets[i].Devices[d]; b.Used != used || b.Max != most || held > most && !b.Over {
				t.Fatalf("%d used of %d, %d held in %s: %+v", used, most, held, of, b)
			}
		}
	}
}

func (u *universe) allOver(t *rapid.T, rows map[[2]int]figures.LeaseState, d int, below func(*modelLease) bool) {
	for _, l := range u.live() {
		if row := rows[[2]int{l.process.PID, d}]; l.device == d && below(l) && row.State != figures.StateOver {
			t.Fatalf("a shared budget is over, and a lease below it is not: %+v", row)
		}
	}
}

// checkDevices checks I2, and that the sums of devices agree with their rows.
func (u *universe) checkDevices(t *rapid.T, s figures.Snapshot) {
	deficit := map[int]accounting.Bytes{}
	for _, d := range s.Devices {
		var granted, used accounting.Bytes
		for _, row := range s.Leases {
			if row.Device == d.Index {
				granted += row.Granted
				used += row.Used
			}
		}
		if d.Granted != granted || d.Used != used || d.Peak < d.Used || d.Committed < d.Granted {
			t.Fatalf("rows add up to %d and %d: %+v", granted, used, d)
		}
		if beside := d.Unmanaged.Plus(d.Overhead); d.Capacity != d.Total.Less(beside) {
			t.Fatalf("%d are taken beside the budgets: %+v", beside, d)
		}
		deficit[d.Index] = d.Committed.Less(d.Capacity)
		if deficit[d.Index] > u.deficit[d.Index] && !u.observed {
			t.Fatalf("beyond the capacity, and more by the step: %+v", d)
		}
	}
	u.deficit, u.observed = deficit, false
}

// finish ends all processes in some order, and checks that no lease is left.
func (u *universe) finish(t *rapid.T) {
	for _, l := range slices.Clone(u.leases) {
		if !l.draining && rapid.Bool().Draw(t, "forget") {
			forget(u.arb, u.now, l.session)
			u.leases = slices.DeleteFunc(u.leases, func(x *modelLease) bool { return x.session == l.session })
			continue
		}
		if slices.Contains(u.leases, l) {
			u.end(l)
		}
	}
	for _, j := range u.jobs {
		u.arb.CloseJob(u.now, j.id)
	}
	for d := range totals {
		u.arb.Observe(u.now.Add(time.Minute), arbiter.Usage{Device: d}) // lists no process: all memory is freed
	}
	s := u.arb.Snapshot(u.now)
	if len(s.Leases)+len(s.Processes)+len(s.Jobs) != 0 {
		t.Fatalf("left: %+v", s)
	}
	for _, d := range s.Devices {
		if d.Granted+d.Committed+d.Used+d.Overhead+d.Unmanaged != 0 || d.Capacity != d.Total || d.Streams != 0 {
			t.Fatalf("left: %+v", d)
		}
	}
}
