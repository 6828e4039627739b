package arbiter_test

import (
	"slices"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// All processes that a rule matches share one budget if the rule says so, and keep it when the configuration changes or the daemon
// restarts. limits_test.go tests budgets of users, and rules/policy_test.go how a rule is found again.

// students returns a policy in which a group shares a quarter of each device.
func students(first ...rules.Rule) rules.Policy {
	p := exact(unlimited())
	p.Rules = append(first, rules.Rule{Key: "students", Match: rules.Match{Group: "students"},
		Scope: ptr(rules.ScopeRule), Max: &accounting.Size{PerMille: 250}})
	return p
}

// TestMovedRuleKeepsBudget: a rule that moves, or that has a name and now matches other processes, keeps its budget. So it never has two
// budgets at a time.
func TestMovedRuleKeepsBudget(t *testing.T) {
	w := newWorld(t, students(), 8*gib)
	one, two := w.clientOf(w.process(eve, "a"), 0, 0), w.clientOf(w.process(ann, "b"), 0, 0)
	one.must(gib)
	first := rules.Rule{Match: rules.Match{User: "bob"}, Max: ptr(size(gib))}
	w.arb.SetPolicy(w.now, students(first))
	two.must(gib)
	if o := two.alloc(1); o.Reason != arbiter.ReasonSharedFull {
		t.Errorf("after a rule came before it: %+v", o)
	}
	p := students()
	p.Rules[0].Match = rules.Match{User: "[ae]*"}
	p.Rules[0].Max = ptr(size(3 * gib))
	w.arb.SetPolicy(w.now, p)
	two.must(gib)
	if o := one.alloc(1); o.Reason != arbiter.ReasonSharedFull || o.Limit != 3*gib {
		t.Errorf("after it matched by other words: %+v", o)
	}
	if b := w.arb.Snapshot(w.now).Budgets; len(b) != 1 || b[0].Name != "rule students" || b[0].Devices[0].Used != 3*gib {
		t.Errorf("%+v", b)
	}
	p.Rules[0].Match = rules.Match{User: "ann"} // eve's programs leave it
	w.arb.SetPolicy(w.now, p)
	one.must(gib)
	if b := w.arb.Snapshot(w.now).Budgets; len(b) != 1 || b[0].Devices[0].Used != 2*gib {
		t.Errorf("%+v", b)
	}
	w.arb.SetPolicy(w.now, exact(unlimited()))
	if b := w.arb.Snapshot(w.now).Budgets; len(b) != 0 {
		t.Errorf("no rule, and a budget: %+v", b)
	}
}

// TestARestartKeepsTheRulesBudget: after a restart, bytes held before count in the rule's budget, whichever lease is restored first.
func TestARestartKeepsTheRulesBudget(t *testing.T) {
	w := newWorld(t, students(), 8*gib)
	for i, uid := range []uint32{eve, ann} {
		p := w.process(uid, "a")
		job := arbiter.JobID(0)
		if i == 0 {
			job = 7
			if err := w.arb.RestoreJob(w.now, arbiter.RestoredJob{ID: job, Request: arbiter.JobRequest{Process: p}}); err != nil {
				t.Fatal(err)
			}
		}
		w.restored(arbiter.SessionRequest{Process: p, Job: job}, arbiter.RestoredLease{Granted: gib})
	}
	w.arb.Tick(w.now)
	if o := w.clientOf(w.process(ann, "b"), 0, 0).alloc(1); o.Reason != arbiter.ReasonSharedFull {
		t.Errorf("%+v", o)
	}
	row := w.arb.Snapshot(w.now).Budgets[0]
	if row.Scope != "rule" || row.Devices[0].Max != 2*gib || row.Devices[0].Used != 2*gib || len(row.Jobs) != 3 {
		t.Errorf("%+v", row)
	}
}

// TestLeaseNamesItsSharedBudget: a row of a lease names the shared budget that its BUDGET comes from.
func TestLeaseNamesItsSharedBudget(t *testing.T) {
	w := newWorld(t, students(), 8*gib)
	w.clientOf(w.process(eve, "a"), 0, 0).must(1)
	w.clientOf(w.process(bob, "b"), 0, 0).must(1)
	leases := w.arb.Snapshot(w.now).Leases
	if i := slices.IndexFunc(leases, func(l figures.LeaseState) bool { return l.UID == eve }); leases[i].Shared != "rule students" || leases[1-i].Shared != "" {
		t.Errorf("%+v", leases)
	}
}
