package arbiter

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file makes the budgets that jobs share and puts jobs and processes below them: the budget of a rule for a user, a cgroup or all jobs of the
// rule, and the caps for the live limits of users and cgroups, which limit programs in addition. renew.go calls it.

// userOwner and cgroupOwner return the keys of users and cgroups in the table of live limits.
func userOwner(uid uint32) rules.Owner    { return rules.Owner{Kind: rules.OfUser, ID: uint64(uid)} }
func cgroupOwner(path string) rules.Owner { return rules.Owner{Kind: rules.OfCgroup, Path: path} }

// capKey returns the key in a.shareds of the budget for the live limits of a user or cgroup.
func capKey(of rules.Owner) sharedKey { return sharedKey{uid: uint32(of.ID), cgroup: of.Path} }

// share enters a shared budget among those of the arbiter.
func (a *Arbiter) share(s *shared) *shared {
	s.budget.Owner = s
	a.shareds[s.key] = s
	return s
}

// capOf returns the budget for the live limits of a user or cgroup. It makes the budget when the first job or process comes under it.
func (a *Arbiter) capOf(c *rules.Limits) *shared {
	if s := a.shareds[capKey(c.Of)]; s != nil {
		s.limit = c // it may have been changed
		return s
	}
	return a.share(&shared{key: capKey(c.Of), limit: c, who: c.String(), budget: a.ledger.OpenCap()})
}

// cgroupsAround returns the budgets of the cgroups, of all hierarchies, that have a limit and contain a process, the narrower ones first.
func (a *Arbiter) cgroupsAround(p *rules.Process) (all []*shared) {
	if len(a.limits) == 0 {
		return nil
	}
	for in := range p.Cgroups {
		if rules.CheckCgroup(in) != nil {
			continue
		}
		for at := in; at != "/"; at = path.Dir(at) {
			if g := a.limits[cgroupOwner(at)]; g != nil {
				all = append(all, a.capOf(g))
			}
		}
	}
	slices.SortFunc(all, func(x, y *shared) int {
		return cmp.Or(len(y.key.cgroup)-len(x.key.cgroup), cmp.Compare(x.key.cgroup, y.key.cgroup))
	})
	return slices.Compact(all) // a process may have the same path in two hierarchies
}

// RunsIn reports whether a live client runs in a cgroup or below it.
func (a *Arbiter) RunsIn(of string) bool {
	for _, s := range a.sessions {
		if s.alive() && s.process.InCgroup(of) {
			return true
		}
	}
	return false
}

// mentions reports whether a request is about a device, as far as its amounts go: a share of the machine's memory is much, and
// nobody means that who did not name the processor.
func (r *JobRequest) mentions(d *device) bool {
	return d.IsGPU() || slices.Contains(r.Devices, d.Index)
}

// exceeds reports whether a job's request, of root's, passes its rule on any device.
func (a *Arbiter) exceeds(j *job) bool {
	r := &j.request
	return r.Max != nil && r.Process.MayPass() && slices.ContainsFunc(a.devices, func(d *device) bool {
		return r.mentions(d) && d.bounds().Amount(*r.Max) > j.Rule.Memory(d.bounds()).Max
	})
}

// shareFor returns the budget that the job shares with others by its rule; nil
// for none, as where root asked for more than the rule. It is made when its first job comes.
func (a *Arbiter) shareFor(j *job) *shared {
	p := &j.request.Process
	if a.exceeds(j) {
		return nil
	}
	key := sharedKey{scope: j.Rule.Scope, rule: j.Rule.Key}
	who := ""
	switch j.Rule.Scope {
	case rules.ScopeUser:
		key.uid, who = p.UID, wording.User(p.UID, p.User)
	case rules.ScopeCgroup:
		key.cgroup, who = p.Cgroup, fmt.Sprintf(wording.Cgroup, wording.Plain(p.Cgroup))
	case rules.ScopeRule:
		who = j.Rule.Key.String()
	default:
		return nil
	}
	s := a.shareds[key]
	if s == nil {
		s = a.share(&shared{key: key, who: who, budget: a.ledger.OpenBudget(nil)})
	}
	s.rule = j.Rule
	return s
}

// moveTo puts a job's budget below the shared budget to, instead of the one in *at; nil: no shared budget. put changes the ledger.
func (a *Arbiter) moveTo(b *accounting.Budget, at **shared, to *shared, put func(b, up *accounting.Budget) error) {
	old := *at
	if to == old {
		return
	}
	*at = to
	a.changed()
	if err := put(b, budgetOf(to)); err != nil {
		panic("arbiter: " + err.Error()) // a job's budget is not a cap, and no shared budget is below it
	}
	a.dropShared(old)
}

// capJob puts a job's budget under the cap of its user; if the user has no live limit, under none.
func (a *Arbiter) capJob(j *job) {
	var to *shared
	j.UserLimits = a.limits[userOwner(j.request.Process.UID)]
	if j.UserLimits != nil {
		to = a.capOf(j.UserLimits)
	}
	a.moveTo(j.budget, &j.cap, to, func(b, cap *accounting.Budget) error {
		if cap == nil {
			return a.ledger.SetCaps(b)
		}
		return a.ledger.SetCaps(b, cap)
	})
}

// capSession puts a process's budget under the caps of the cgroups around it. moved: these are others than before.
func (a *Arbiter) capSession(s *session) (moved bool) {
	old, to := s.cgroups, a.cgroupsAround(&s.process)
	if slices.Equal(old, to) {
		return false
	}
	s.cgroups = to
	a.changed()
	budgets := make([]*accounting.Budget, len(to))
	for i, c := range to {
		budgets[i] = c.budget
	}
	if err := a.ledger.SetCaps(s.budget, budgets...); err != nil {
		panic("arbiter: " + err.Error()) // each of budgets is a cap, and a session's budget is not
	}
	for _, c := range old {
		a.dropShared(c)
	}
	return true
}

// dropShared takes a shared budget out when nothing is below it. It is for who shares it no longer.
func (a *Arbiter) dropShared(s *shared) {
	if s == nil {
		return
	}
	if s.budget.Empty() {
		delete(a.shareds, s.key)
		a.dropBudget(s.budget)
	}
}

// dropBudget takes a budget out of the ledger that has nothing below it.
func (a *Arbiter) dropBudget(b *accounting.Budget) {
	for _, d := range a.devices {
		delete(a.overs, account{b, d.Index})
	}
	if err := a.ledger.CloseBudget(b); err != nil {
		panic("arbiter: " + err.Error())
	}
}
