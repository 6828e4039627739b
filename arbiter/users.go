package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// SetUserLimits changes what all programs of a user may hold together, now and later:
// memory.max (no limit: Size.Max), and streams.max of each lease (NoStreams). It stays in
// force until it is taken off, whoever comes and goes. ErrRange, ErrNoDevice, ErrPermission (a
// user may limit himself, within what root set). What is lowered below what is held closes
// the words and takes idle credit back: with many jobs job by job, as Tick goes on.
func (a *Arbiter) SetUserLimits(now time.Time, uid uint32, name string, c rules.Change) error {
	who := wording.User(uid, name)
	if c.Min != nil {
		return rules.Wrong(rules.ErrRange, wording.UserHasNoMin, who)
	}
	u := a.users[uid]
	if u == nil {
		u = &rules.User{UID: uid}
	}
	edit, err := a.edit(c, who, limitEdit{owner: &rules.Process{UID: uid, User: name}, live: &u.Live, whose: who, now: u.Memory, streams: u.Streams})
	if err != nil {
		return err
	}
	defer a.serveQueues(now)
	u.Name = name
	if a.users[uid] = u; u.Unlimited() {
		delete(a.users, uid)
	}
	a.outdate(func(j *job) bool { return j.request.Process.UID == uid })
	a.audit(now, c, edit)
	return nil
}

// UserLimited reports whether anything limits all programs of a user.
func (a *Arbiter) UserLimited(uid uint32) bool { return a.users[uid] != nil }

// capJob puts a job under what its user may hold in all, or under nothing where there is no
// such limit. The budget is made with its first job.
func (a *Arbiter) capJob(j *job) {
	a.moveTo(j.budget, &j.cap, a.capFor(&j.request.Process), a.ledger.SetCap)
	if j.User = nil; j.cap != nil {
		j.User = j.cap.user
	}
}

// capKey is that of the budget of all of a user's programs.
func capKey(uid uint32) sharedKey { return sharedKey{scope: rules.ScopeUser, uid: uid, all: true} }

func (a *Arbiter) capFor(p *rules.Process) *shared {
	u := a.users[p.UID]
	if u == nil {
		return nil
	}
	s := a.shareds[capKey(u.UID)]
	if s == nil {
		s = &shared{key: capKey(u.UID), at: atUser, user: u, who: u.String(), budget: a.ledger.OpenCap()}
		s.budget.Owner = s
		a.shareds[s.key] = s
	}
	s.user = u // his limit may have been taken off and set again
	return s
}
