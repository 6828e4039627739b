package arbiter

import (
	"cmp"
	"path"
	"slices"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file has the caps: budgets for the live limits of users and cgroups. They limit programs in addition to the budgets that follow from the
// programs' rules.

// userOwner and cgroupOwner return the keys of users and cgroups in the table of live limits.
func userOwner(uid uint32) rules.Owner    { return rules.Owner{Kind: rules.OfUser, ID: uint64(uid)} }
func cgroupOwner(path string) rules.Owner { return rules.Owner{Kind: rules.OfCgroup, Path: path} }

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

// capJob puts a job's budget under the cap of its user; if the user has no live limit, under none.
func (a *Arbiter) capJob(j *job) {
	var to *shared
	j.User = a.limits[userOwner(j.request.Process.UID)]
	if j.User != nil {
		to = a.capOf(j.User)
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

// capKey returns the key in a.shareds of the budget for the live limits of a user or cgroup.
func capKey(of rules.Owner) sharedKey { return sharedKey{uid: uint32(of.ID), cgroup: of.Path} }

// capOf returns the budget for the live limits of a user or cgroup. It makes the budget when the first job or process comes under it.
func (a *Arbiter) capOf(c *rules.Limits) *shared {
	if s := a.shareds[capKey(c.Of)]; s != nil {
		s.limit = c // it may have been changed
		return s
	}
	return a.share(&shared{key: capKey(c.Of), limit: c, who: c.String(), budget: a.ledger.OpenCap()})
}

// share enters a shared budget among those of the arbiter.
func (a *Arbiter) share(s *shared) *shared {
	s.budget.Owner = s
	a.shareds[s.key] = s
	return s
}
