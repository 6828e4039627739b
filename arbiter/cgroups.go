package arbiter

import (
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
// credit back: with many jobs job by job, as Tick goes on.
func (a *Arbiter) SetCgroupLimits(now time.Time, of string, c rules.Change) error {
	g := rules.Cap{Of: rules.Capped{Cgroup: of}}
	who := g.String()
	switch err := rules.CheckCgroup(of); {
	case err != nil:
		return err
	case c.Min != nil || c.Streams != nil:
		return rules.Wrong(rules.ErrRange, wording.CgroupHasMax, who)
	case !c.MayPass():
		return rules.Wrong(rules.ErrPermission, wording.CgroupIsRoots, who)
	case a.nestedWith(of) > maxNested:
		return rules.Wrong(rules.ErrRange, wording.CgroupTooDeep, who, maxNested)
	}
	c.Lowers = false
	return a.setCap(now, c, g, rules.Process{}, func(j *job) bool {
		return slices.ContainsFunc(j.sessions, func(s *session) bool { return accounting.InCgroup(s.process.Cgroup, of) })
	})
}

// nestedWith is how many cgroups that have a limit, and the one of a path, lie in one another at most.
func (a *Arbiter) nestedWith(of string) (most int) {
	if a.CgroupLimited(of) {
		return 0 // it is one of them already
	}
	depth := func(at string) (n int) {
		for ; at != "/"; at = path.Dir(at) {
			if at == of || a.CgroupLimited(at) {
				n++
			}
		}
		return n
	}
	most = depth(of)
	for at := range a.caps {
		if at.Cgroup != "" {
			most = max(most, depth(at.Cgroup))
		}
	}
	return most
}

// cgroupFor returns the budget of the innermost cgroup with a limit around what runs at a path; nil: there is none.
func (a *Arbiter) cgroupFor(at string) *shared {
	if len(a.caps) == 0 || rules.CheckCgroup(at) != nil {
		return nil
	}
	for ; at != "/"; at = path.Dir(at) {
		if g := a.caps[rules.Capped{Cgroup: at}]; g != nil {
			return a.capOf(g)
		}
	}
	return nil
}

// putInto has the budget of a cgroup count at that of one around it.
func (a *Arbiter) putInto(s, up *shared) {
	s.at = atUser >> 1
	if up != nil {
		s.at = up.at >> 1
	}
	if old := s.up; old != up {
		s.up = up
		if err := a.ledger.SetCap(s.budget, budgetOf(up)); err != nil {
			panic("arbiter: " + err.Error()) // paths know no circles
		}
		a.dropShared(old)
	}
}

// nest brings the budgets of cgroups that have a limit into the order of their paths, after one of them has got or lost one:
// those around others first.
func (a *Arbiter) nest(of string) {
	var all []*shared
	for _, s := range a.shareds {
		if s.ofCgroup() && accounting.InCgroup(s.key.cgroup, of) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(x, y *shared) int { return len(x.key.cgroup) - len(y.key.cgroup) })
	for _, s := range all {
		a.putInto(s, a.cgroupFor(path.Dir(s.key.cgroup)))
	}
	if all != nil {
		a.stirOwner(all[0].budget)
	}
}

// capSession puts a process under the cgroups around it that have a limit.
func (a *Arbiter) capSession(s *session) {
	a.moveTo(s.budget, &s.cgroup, a.cgroupFor(s.process.Cgroup), a.ledger.SetCap)
}
