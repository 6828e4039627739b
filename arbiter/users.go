package arbiter

import (
	"fmt"
	"math"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// user is what somebody set for all programs of one user together: a memory.max that they
// share, and a streams.max that each of their leases has. It stands beside what the rules
// give: the budget is a cap on the user's jobs, whatever budgets their rules have them share.
type user struct {
	uid  uint32
	name string
	live live
}

// NoStreams as a Change's Streams of a user takes that limit off.
const NoStreams = math.MaxInt32

// who is how people know the user.
func (u *user) who() string { return userName(u.uid, u.name) }

// key is that of the budget of all of the user's programs.
func (u *user) key() sharedKey { return sharedKey{scope: ScopeUser, uid: u.uid, all: true} }

func userName(uid uint32, name string) string {
	if name == "" {
		return fmt.Sprintf("user %d", uid)
	}
	return "user " + plain(name)
}

// given are the limits of all programs of the user on a device.
func (u *user) given(d *device) given {
	g := unlimited()
	g.change(u.live.of(d.Index), d)
	if g.Max == accounting.Max {
		g.maxBy = ""
	}
	return g
}

// streams is how many streams each of the user's leases may have.
func (u *user) streams() streamLimit {
	l := streamLimit{max: NoStreams, most: NoStreams}
	l.change(u.live.streams)
	return l
}

// unlimited reports that nothing is limited any more.
func (u *user) unlimited() bool {
	for _, l := range u.live.on {
		for _, s := range [...]setting[accounting.Size]{l.max.forced, l.max.own} {
			if s.value != nil && !s.value.Max {
				return false
			}
		}
	}
	return u.streams().max == NoStreams
}

// limit lowers the streams of a lease to what its user's may have.
func (u *user) limit(l *streamLimit) {
	if u == nil {
		return
	}
	if most := u.streams(); most.max < l.max {
		l.max, l.by = most.max, u.by(most.by)
	}
	l.most = min(l.most, u.streams().max)
}

// by says where a limit comes from that somebody set for the user.
func (u *user) by(setter string) string { return setter + ", for all programs of " + u.who() }

// SetUserLimits changes what all programs of a user may hold together, now and later:
// memory.max (no limit: Size.Max), and streams.max of each lease (NoStreams). It stays in
// force until it is taken off, whoever comes and goes. ErrRange, ErrNoDevice, ErrPermission (a
// user may limit himself, within what root set). What is lowered below what is held closes
// the words and takes idle credit back before this returns.
func (a *Arbiter) SetUserLimits(now time.Time, uid uint32, name string, c Change) error {
	if c.Min != nil {
		return fmt.Errorf("%s: a user has memory.max and streams.max, and no memory.min: %w", userName(uid, name), ErrRange)
	}
	u := a.users[uid]
	if u == nil {
		u = &user{uid: uid}
	}
	who := userName(uid, name)
	edit, err := a.edit(c, who, limitEdit{owner: &Process{UID: uid, User: name}, live: &u.live, whose: who, now: u.given, streams: u.streams})
	if err != nil {
		return err
	}
	defer a.turn(now)
	u.name = name
	a.users[uid] = u
	jobs := a.jobsOf(uid)
	for _, j := range jobs { // all of them, before any limit is put in force
		a.capJob(j)
	}
	a.relimitUser(now, jobs)
	if u.unlimited() {
		delete(a.users, uid)
		for _, j := range jobs {
			a.capJob(j)
		}
	}
	a.audit(now, c, edit)
	return nil
}

// UserLimited reports whether anything limits all programs of a user.
func (a *Arbiter) UserLimited(uid uint32) bool { return a.users[uid] != nil }

// jobsOf are the jobs of a user.
func (a *Arbiter) jobsOf(uid uint32) (jobs []*job) {
	for _, j := range a.sortedJobs() {
		if j.request.Process.UID == uid {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// relimitUser puts a user's limits in force for his jobs.
func (a *Arbiter) relimitUser(now time.Time, jobs []*job) {
	for _, j := range jobs {
		a.relimit(now, j)
	}
	for _, d := range a.devices {
		if len(jobs) > 0 && jobs[0].cap != nil { // also where the limit is what it was, and a job came under it
			a.enforce(now, jobs[0].cap.budget, d.Index)
		}
	}
}

// capJob puts a job under what its user may hold in all, or under nothing where there is no
// such limit. The budget is made with its first job.
func (a *Arbiter) capJob(j *job) {
	old := j.cap
	j.cap = a.capFor(&j.request.Process)
	if j.cap == old {
		return
	}
	a.stir(j)
	var cap *accounting.Budget
	if j.cap != nil {
		cap = j.cap.budget
	}
	if err := a.ledger.SetCap(j.budget, cap); err != nil {
		panic("arbiter: " + err.Error()) // a job is no cap
	}
	a.dropShared(old)
}

func (a *Arbiter) capFor(p *Process) *shared {
	u := a.users[p.UID]
	if u == nil {
		return nil
	}
	s := a.shareds[u.key()]
	if s == nil {
		s = &shared{key: u.key(), user: u, who: u.who(), budget: a.ledger.OpenCap()}
		s.budget.Owner = s
		a.shareds[s.key] = s
	}
	return s
}
