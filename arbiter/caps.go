package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// SetUserLimits changes what all programs of a user may hold together, now and later:
// memory.max (no limit: Size.Max), and streams.max of each lease (NoStreams). It stays in
// force until it is taken off, whoever comes and goes. ErrRange, ErrNoDevice, ErrPermission (a
// user may limit himself, within what root set). What is lowered below what is held closes
// the words and takes idle credit back.
func (a *Arbiter) SetUserLimits(now time.Time, uid uint32, name string, c rules.Change) error {
	if c.Min != nil {
		return rules.Wrong(rules.ErrRange, wording.UserHasNoMin, wording.User(uid, name))
	}
	return a.setCap(now, c, rules.Cap{Of: rules.Capped{UID: uid}, Name: name}, rules.Process{UID: uid, User: name},
		func(j *job) bool { return j.request.Process.UID == uid })
}

// setCap changes a cap, or makes the one that is given. owner may lower it, too; jobs tells which jobs have programs under it.
func (a *Arbiter) setCap(now time.Time, c rules.Change, given rules.Cap, owner rules.Process, jobs func(*job) bool) error {
	who, limit := given.String(), a.caps[given.Of]
	if limit == nil {
		limit = &given
	}
	edit, err := a.edit(c, who, limitEdit{owner: &owner, live: &limit.Live, whose: who, now: limit.Memory, streams: limit.Streams})
	if err != nil {
		return err
	}
	defer a.cycle(now)
	limit.Name = given.Name
	if a.caps[given.Of] = limit; limit.Unlimited() {
		delete(a.caps, given.Of)
	}
	if s := a.shareds[capKey(given.Of)]; s != nil {
		s.limit = limit // it may have been taken off and set again
	}
	a.outdate(now, jobs)
	a.audit(now, c, edit)
	return nil
}

// UserLimited reports whether anything limits all programs of a user, CgroupLimited, all in a cgroup.
func (a *Arbiter) UserLimited(uid uint32) bool    { return a.caps[rules.Capped{UID: uid}] != nil }
func (a *Arbiter) CgroupLimited(path string) bool { return a.caps[rules.Capped{Cgroup: path}] != nil }

// capJob puts a job under what its user may hold in all, or under nothing where there is no
// such limit.
func (a *Arbiter) capJob(j *job) {
	var to *shared
	j.User = a.caps[rules.Capped{UID: j.request.Process.UID}]
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

// capKey is that of the budget under a cap.
func capKey(of rules.Capped) sharedKey { return sharedKey{uid: of.UID, cgroup: of.Cgroup} }

// capOf returns the budget under a cap. It is made with its first job, or process.
func (a *Arbiter) capOf(c *rules.Cap) *shared {
	if s := a.shareds[capKey(c.Of)]; s != nil {
		return s
	}
	return a.share(&shared{key: capKey(c.Of), limit: c, who: c.String(), budget: a.ledger.OpenCap()})
}

// share puts a budget in place that jobs share.
func (a *Arbiter) share(s *shared) *shared {
	s.budget.Owner = s
	a.shareds[s.key] = s
	return s
}
