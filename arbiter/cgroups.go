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
	g := a.cgroups[of]
	if g == nil {
		g = &rules.Cgroup{Path: of}
	}
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
	edit, err := a.edit(c, who, limitEdit{owner: &rules.Process{}, live: &g.Live, whose: who, now: g.Memory, streams: noStreams})
	if err != nil {
		return err
	}
	defer a.serveQueues(now)
	if a.cgroups[of] = g; g.Unlimited() {
		delete(a.cgroups, of)
	}
	a.nest(g)
	a.outdate(func(j *job) bool {
		return slices.ContainsFunc(j.sessions, func(s *session) bool { return accounting.InCgroup(s.process.Cgroup, of) })
	})
	a.audit(now, c, edit)
	return nil
}

func noStreams() rules.Streams { return rules.Streams{Max: rules.NoStreams} }

// CgroupLimited reports whether anything limits all programs in a cgroup.
func (a *Arbiter) CgroupLimited(of string) bool { return a.cgroups[of] != nil }

// nestedWith is how many cgroups that have a limit, and the one of a path, lie in one another at most.
func (a *Arbiter) nestedWith(of string) (most int) {
	if a.cgroups[of] != nil {
		return 0 // it is one of them already
	}
	depth := func(at string) (n int) {
		for ; at != "/"; at = path.Dir(at) {
			if a.cgroups[at] != nil || at == of {
				n++
			}
		}
		return n
	}
	most = depth(of)
	for at := range a.cgroups {
		most = max(most, depth(at))
	}
	return most
}

// cgroupKey is that of the budget of all programs in a cgroup.
func cgroupKey(of string) sharedKey {
	return sharedKey{scope: rules.ScopeCgroup, cgroup: of, all: true}
}

// cgroupFor returns the budget of the innermost cgroup with a limit around what runs at a path; nil: there is none.
// It is made with its first process.
func (a *Arbiter) cgroupFor(at string) *shared {
	if len(a.cgroups) == 0 || rules.CheckCgroup(at) != nil {
		return nil
	}
	for ; at != "/"; at = path.Dir(at) {
		if g := a.cgroups[at]; g != nil {
			return a.cgroupOf(g)
		}
	}
	return nil
}

func (a *Arbiter) cgroupOf(g *rules.Cgroup) *shared {
	key := cgroupKey(g.Path)
	s := a.shareds[key]
	if s == nil {
		s = &shared{key: key, group: g, who: g.String(), budget: a.ledger.OpenCap()}
		s.budget.Owner = s
		a.shareds[key] = s
		a.putInto(s, a.cgroupFor(path.Dir(g.Path)))
	}
	return s
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

// nest brings the budgets of cgroups that have a limit into the order of their paths, after g has got or lost one:
// those around others first.
func (a *Arbiter) nest(g *rules.Cgroup) {
	if s := a.shareds[cgroupKey(g.Path)]; s != nil {
		s.group = g
	}
	var all []*shared
	for _, s := range a.shareds {
		if s.group != nil && accounting.InCgroup(s.group.Path, g.Path) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(x, y *shared) int { return len(x.group.Path) - len(y.group.Path) })
	for _, s := range all {
		a.putInto(s, a.cgroupFor(path.Dir(s.group.Path)))
	}
	if all != nil {
		a.stirOwner(all[0].budget)
	}
}

// capSession puts a process under the cgroups around it that have a limit.
func (a *Arbiter) capSession(s *session) {
	a.moveTo(s.budget, &s.cgroup, a.cgroupFor(s.process.Cgroup), a.ledger.SetCap)
}

// cgroupChanges appends those limits of a cgroup, and of those around it, that are not what they were.
func (a *Arbiter) cgroupChanges(changes []limitChange, s *shared) []limitChange {
	for ; s != nil; s = s.up {
		for _, d := range a.devices {
			if l := s.limits(d); l != s.budget.Limits(d.Index) {
				changes = append(changes, limitChange{budget: s.budget, device: d, limits: l})
			}
		}
	}
	return changes
}
