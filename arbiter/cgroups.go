package arbiter

import (
	"cmp"
	"path"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// SetCgroupLimits changes what all programs in a cgroup and in those below it may hold together, now and later:
// memory.max (no limit: Size.Max). It stays in force until it is taken off, whoever comes and goes. ErrRange,
// ErrNoDevice, ErrPermission (only root may). What is lowered below what is held closes the words and takes idle
// credit back.
func (a *Arbiter) SetCgroupLimits(now time.Time, of string, c rules.Change) error {
	g := rules.Cap{Of: rules.Capped{Cgroup: of}}
	who := g.String()
	switch err := rules.CheckCgroup(of); {
	case err != nil:
		return err
	case c.Min != nil || c.Streams != nil:
		return rules.Wrong(rules.ErrRange, wording.CgroupHasMax, who)
	case !c.MayPass():
		return c.Denied(wording.CgroupIsRoots, who)
	}
	c.Lowers = false
	return a.setCap(now, c, g, rules.Process{}, func(j *job) bool {
		return slices.ContainsFunc(j.sessions, func(s *session) bool { return s.process.InCgroup(of) })
	})
}

// cgroupsAround returns the budgets of the cgroups with a limit that a process runs in, in whichever hierarchy, the
// narrower ones first.
func (a *Arbiter) cgroupsAround(p *rules.Process) (all []*shared) {
	if len(a.caps) == 0 {
		return nil
	}
	for in := range p.Cgroups {
		if rules.CheckCgroup(in) != nil {
			continue
		}
		for at := in; at != "/"; at = path.Dir(at) {
			if g := a.caps[rules.Capped{Cgroup: at}]; g != nil {
				all = append(all, a.capOf(g))
			}
		}
	}
	slices.SortFunc(all, func(x, y *shared) int {
		return cmp.Or(len(y.key.cgroup)-len(x.key.cgroup), cmp.Compare(x.key.cgroup, y.key.cgroup))
	})
	return slices.Compact(all) // paths of two hierarchies may lie in one cgroup
}

// RunsIn reports whether a client that lives counts in a cgroup or below it.
func (a *Arbiter) RunsIn(of string) bool {
	for _, s := range a.sessions {
		if s.alive() && s.process.InCgroup(of) {
			return true
		}
	}
	return false
}

// capSession puts a process under the cgroups around it that have a limit.
func (a *Arbiter) capSession(s *session) {
	old, to := s.cgroups, a.cgroupsAround(&s.process)
	if slices.Equal(old, to) {
		return
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
}
