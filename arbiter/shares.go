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

// This file makes shared budgets, and places jobs and sessions below them. A rule has shared budgets by user, by cgroup, or for all its
// jobs. The live limits of users and cgroups are caps, which apply in addition. renew.go calls this file.

// userOwner and cgroupOwner return the keys of users and cgroups in the table of live limits.
func userOwner(uid uint32) rules.Owner    { return rules.Owner{Kind: rules.OfUser, ID: uint64(uid)} }
func cgroupOwner(path string) rules.Owner { return rules.Owner{Kind: rules.OfCgroup, Path: path} }

// capKey returns the key in a.shareds of the cap of a user or cgroup.
func capKey(of rules.Owner) sharedKey { return sharedKey{uid: uint32(of.ID), cgroup: of.Path} }

// share adds a shared budget to a.shareds.
func (a *Arbiter) share(s *shared) *shared {
	s.budget.Owner = s
	a.shareds[s.key] = s
	return s
}

// capOf returns the cap for the live limits of a user or cgroup. It makes the cap when the first job or session needs it.
func (a *Arbiter) capOf(c *rules.Limits) *shared {
	if s := a.shareds[capKey(c.Of)]; s != nil {
		s.limit = c // the limits may have been changed
		return s
	}
	return a.share(&shared{key: capKey(c.Of), limit: c, ownerName: c.String(), budget: a.ledger.OpenCap()})
}

// cgroupsAround returns the caps of the cgroups around a process, in all hierarchies, that have a limit. The narrower ones come first.
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

// mentions reports whether the amounts of a request apply to a device. They apply to the processor only if the request names it, because a
// share of the machine's memory is large and rarely meant.
func (r *JobRequest) mentions(d *device) bool {
	return d.IsGPU() || slices.Contains(r.Devices, d.Index)
}

// exceeds reports whether the request of a job asks for more than its rule allows on any device, and may. Only privileged users may.
func (a *Arbiter) exceeds(j *job) bool {
	r := &j.request
	return r.Max != nil && r.Process.MayPass() && slices.ContainsFunc(a.devices, func(d *device) bool {
		return r.mentions(d) && d.bounds().Amount(*r.Max) > j.Rule.Memory(d.bounds()).Max
	})
}

// shareFor returns the shared budget of a job's rule, and makes it if it does not exist. nil: the rule has none, a privileged user asked for
// more than the rule allows, or the job is inside another.
func (a *Arbiter) shareFor(j *job) *shared {
	p := &j.request.Process
	if j.around != nil || a.exceeds(j) { // the job around it is below the shared budget of its own rule
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
		s = a.share(&shared{key: key, ownerName: who, budget: a.ledger.OpenBudget(nil)})
	}
	s.rule = j.Rule
	return s
}

// moveTo moves a job's budget from the shared budget *at below the shared budget to; nil stands for none. put changes the ledger.
func (a *Arbiter) moveTo(b *accounting.Budget, at **shared, to *shared, put func(b, up *accounting.Budget) error) {
	old := *at
	if to == old {
		return
	}
	*at = to
	a.changed()
	if err := put(b, budgetOf(to)); err != nil {
		panic("arbiter: " + err.Error()) // the budget of a job is not a cap, and is above no shared budget
	}
	a.dropShared(old)
}

// capJob puts a job's budget below the cap of its user. If the user has no live limit, the budget gets no cap.
func (a *Arbiter) capJob(j *job) {
	var to *shared
	if j.UserLimits = a.limits[userOwner(j.request.Process.UID)]; j.around != nil {
		j.UserLimits = nil // the limits of the job around it hold, whichever user its programs have
	}
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

// capSession puts a session's budget below the caps of the cgroups around its process. It returns true if these have changed.
func (a *Arbiter) capSession(s *session) (moved bool) {
	old, to := s.cgroups, a.cgroupsAround(s.process)
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
		panic("arbiter: " + err.Error()) // each of budgets is a cap, and the budget of a session is not
	}
	for _, c := range old {
		a.dropShared(c)
	}
	return true
}

// dropShared removes a shared budget if no budget is below it. Callers use it after they moved a budget away.
func (a *Arbiter) dropShared(s *shared) {
	if s == nil {
		return
	}
	if s.budget.Empty() {
		delete(a.shareds, s.key)
		a.dropBudget(s.budget)
	}
}

// dropBudget removes a budget from the ledger. No budget and no lease may be below it.
func (a *Arbiter) dropBudget(b *accounting.Budget) {
	for _, d := range a.devices {
		delete(a.exceeded, account{b, d.Index})
	}
	if err := a.ledger.CloseBudget(b); err != nil {
		panic("arbiter: " + err.Error())
	}
}
