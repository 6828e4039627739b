package arbiter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// These tests check that the jobs of stopped units outlive the daemon, and that no more jobs are suspended than can be recorded. The tests
// in tests/evict kill a real daemon, but cover only jobs with hooks, because they have no systemd.

// outByUnit suspends a job by the stop of its unit, and returns what the daemon must record of the job.
func outByUnit(t *testing.T) arbiter.Suspension {
	p := evicting()
	p.Defaults.Evict.How, p.Defaults.Evict.Return = rules.EvictByUnit, rules.ReturnOnUse
	w := newWorld(t, p, 8*gib)
	x := w.process(bob, "vllm")
	x.Unit = "vllm.service"
	c := w.clientOf(x, 0, 0)
	c.must(6 * gib)
	job := c.jobOf()
	if err := w.arb.Suspend(w.now, job, nil); err != nil {
		t.Fatal(err)
	}
	errand := w.arb.Errands()[0]
	w.arb.EndSession(w.now, c.session)
	w.arb.Gone(w.now, c.session, 0)
	w.arb.ErrandDone(w.now, errand.ID, "")
	all := w.arb.Suspensions()
	if len(all) != 1 || all[0].State != arbiter.Suspended || all[0].Unit != "vllm.service" || len(all[0].Had) != 1 || all[0].Had[0].Bytes != 6*gib {
		t.Fatalf("recorded: %+v", all)
	}
	if again := w.arb.Suspensions(); again != nil {
		t.Errorf("recorded again: %+v", again)
	}
	return all[0]
}

// TestJobsOfStoppedUnitsOutliveTheDaemon: the next daemon knows the job of a unit that has no process any more, in each of its states. Its
// reservation is made again, and a program that starts in the unit gets all that the job held.
func TestJobsOfStoppedUnitsOutliveTheDaemon(t *testing.T) {
	for state, want := range map[arbiter.Residence]struct {
		reserved accounting.Bytes
		errands  int
	}{
		arbiter.Suspending: {0, 1}, arbiter.Suspended: {0, 0}, arbiter.Resuming: {6 * gib, 1}, arbiter.Stuck: {6 * gib, 0},
	} {
		t.Run(string(state), func(t *testing.T) {
			saved := outByUnit(t)
			saved.State, saved.Answered = state, state == arbiter.Stuck
			p := evicting() // the new policy has hooks; the restored job is still suspended by its unit
			w := newWorld(t, p, 8*gib)
			w.arb.Restore(w.now, func() {
				if err := w.arb.RestoreSuspension(w.now, saved); err != nil {
					t.Fatal(err)
				}
			})
			w.arb.Restore(w.now, func() { w.arb.ContinueSuspensions(w.now) })
			if r := w.residence(saved.Job); r != state {
				t.Errorf("it is %q", r)
			}
			if got := w.arb.Snapshot(w.now).Devices[0].Reserved; got != want.reserved {
				t.Errorf("%d bytes are reserved", got)
			}
			if got := w.arb.Errands(); len(got) != want.errands || want.errands == 1 && (got[0].Unit != "vllm.service" || got[0].Resume != (state == arbiter.Resuming)) {
				t.Errorf("errands: %+v", got)
			}
			if all := w.arb.Suspensions(); len(all) != 1 || all[0].State != state {
				t.Errorf("recorded: %+v", all)
			}
			x := w.process(bob, "vllm")
			x.Unit = "vllm.service"
			c := w.clientOf(x, 0, 0)
			if o := w.client(0, 0).alloc(3 * gib); o.Waiting == 0 && state != arbiter.Suspending {
				t.Errorf("another job got memory that is reserved: %+v", o)
			}
			if state != arbiter.Suspending {
				c.must(6 * gib)
				w.errandsIn(time.Second)
				if r := w.residence(c.jobOf()); r != arbiter.Resident && state != arbiter.Resuming { // its unit is still being started
					t.Errorf("with its memory it is %q", r)
				}
			}
		})
	}
}

// TestNoSuspensionWithoutAJob: the suspension of a job whose program has ended is not restored, unless its unit was stopped.
func TestNoSuspensionWithoutAJob(t *testing.T) {
	saved := outByUnit(t)
	w := newWorld(t, evicting(), 8*gib)
	saved.State = arbiter.Resident
	if err := w.arb.RestoreSuspension(w.now, saved); !errors.Is(err, arbiter.ErrNoJob) {
		t.Errorf("resident: %v", err)
	}
	saved.State, saved.How = arbiter.Suspended, rules.EvictByHook
	if err := w.arb.RestoreSuspension(w.now, saved); !errors.Is(err, arbiter.ErrNoJob) {
		t.Errorf("by a hook: %v", err)
	}
	if n := len(w.arb.Jobs()); n != 0 {
		t.Errorf("%d jobs", n)
	}
}

// TestMostSuspensions: no more jobs are asked for their memory than can be recorded. Jobs that were asked before can be asked again, and the end
// of one makes room for another.
func TestMostSuspensions(t *testing.T) {
	w := newWorld(t, evicting(), 8*gib)
	var all []*client
	for range arbiter.MaxSuspensions + 1 {
		c := w.client(0, 0)
		c.must(gib / 64)
		all = append(all, c)
	}
	suspend := func(c *client) error {
		err := w.arb.Suspend(w.now, c.jobOf(), nil)
		for _, e := range w.arb.Errands() {
			w.arb.ErrandDone(w.now, e.ID, "it fails")
		}
		w.errandsIn(3 * time.Second)
		return err
	}
	for _, c := range all[1:] {
		if err := suspend(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := suspend(all[1]); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := suspend(all[0]); !errors.Is(err, rules.ErrRange) {
		t.Errorf("one more: %v", err)
	}
	w.arb.EndSession(w.now, all[1].session)
	w.arb.Gone(w.now, all[1].session, 0)
	if err := suspend(all[0]); err != nil {
		t.Errorf("after the end of another: %v", err)
	}
}
