package arbiter_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file has no test. It has the clients of invariants_test.go, which act at random and count for themselves what they use, and the
// check of a refusal against these counts. queue_model_test.go has another model, that of the queue.

// modelLease is the model of one client's lease: what it really uses, by its own count.
type modelLease struct {
	*client
	job      *modelJob
	device   int
	used     accounting.Bytes
	peak     accounting.Bytes
	draining bool
	rubbish  bool             // writes random values into its credit word
	module   accounting.Bytes // memory that no call asked for
	shown    accounting.Bytes // part of module that the last two readings showed
	last     accounting.Bytes // part of module that the last reading showed
}

type modelJob struct {
	id     arbiter.JobID // 0: a process without a runner
	uid    uint32
	max    map[int]accounting.Bytes
	min    accounting.Bytes
	closed bool
}

// universe is a set of random clients of an arbiter.
type universe struct {
	*world
	t         *rapid.T
	leases    []*modelLease
	jobs      []*modelJob
	unmanaged map[int]accounting.Bytes
	shared    map[int]accounting.Bytes // budget of the students, by device
	users     []uint32
	caps      map[uint32]map[int]accounting.Bytes // caps of users, by device
	cgroups   map[string]map[int]accounting.Bytes // caps of cgroups, by device
	last      map[arbiter.LeaseID]accounting.Bytes
	deficit   map[int]accounting.Bytes // bytes by which each device exceeds its capacity
	mins      bool
	observed  bool // there was a reading since the last check
}

const (
	bob = 1000
	eve = 1001 // a user whose jobs share one budget, in some runs with ann's jobs too
	ann = 1002 // a user who has jobs only in the runs in which they share eve's budget
)

// student reports whether a user's programs share a budget. ann's do only if the rule is for both users.
func student(uid uint32) bool { return uid == eve || uid == ann }

// sharing returns the rule of the students' budget, and the users of the machine.
func sharing(together bool, most accounting.Size) (rules.Rule, []uint32) {
	if together {
		return rules.Rule{Match: rules.Match{Group: "students"}, Scope: ptr(rules.ScopeRule), Max: &most}, []uint32{bob, eve, ann}
	}
	return rules.Rule{Match: rules.Match{User: "eve"}, Scope: ptr(rules.ScopeUser), Max: &most}, []uint32{bob, eve}
}

var totals = []accounting.Bytes{1000, 400}

func newUniverse(t *rapid.T, tb testing.TB, mins bool) *universe {
	p := exact(unlimited())
	rule, users := sharing(rapid.Bool().Draw(t, "one budget for all students"), size(500))
	p.Rules = []rules.Rule{rule}
	if mins {
		p.ContextReserve = size(7)
	}
	u := &universe{world: newWorld(tb, p, totals...), t: t, mins: mins, users: users}
	u.unmanaged, u.caps = map[int]accounting.Bytes{}, map[uint32]map[int]accounting.Bytes{}
	u.cgroups = map[string]map[int]accounting.Bytes{}
	u.shared = map[int]accounting.Bytes{0: 500, 1: 400}
	return u
}

func amount(t *rapid.T, most int) accounting.Bytes {
	return accounting.Bytes(rapid.IntRange(0, most).Draw(t, "bytes"))
}

// live returns the leases of living processes.
func (u *universe) live() []*modelLease {
	return slices.DeleteFunc(slices.Clone(u.leases), func(l *modelLease) bool { return l.draining })
}

func (u *universe) pick(t *rapid.T) *modelLease {
	live := u.live()
	if len(live) == 0 {
		return u.open(t)
	}
	return rapid.SampledFrom(live).Draw(t, "lease")
}

// open starts a process, in a job or without one, and attaches it to one device or both.
func (u *universe) open(t *rapid.T) *modelLease {
	uid := rapid.SampledFrom(u.users).Draw(t, "uid")
	j := &modelJob{uid: uid, max: map[int]accounting.Bytes{}}
	joinable := slices.DeleteFunc(slices.Clone(u.jobs), func(j *modelJob) bool { return j.closed })
	if len(joinable) > 0 && rapid.Bool().Draw(t, "join") {
		j = rapid.SampledFrom(joinable).Draw(t, "job")
	}
	p := u.process(j.uid, "p")
	p.Cgroup = rapid.SampledFrom(cgroups).Draw(t, "cgroup")
	p.AlsoIn = rapid.SliceOfN(rapid.SampledFrom(cgroups), 0, 2).Draw(t, "other hierarchies")
	c := u.clientOf(p, j.id, 0)
	rubbish := rapid.IntRange(0, 4).Draw(t, "rubbish") == 0
	one := &modelLease{client: c, job: j, rubbish: rubbish}
	one.word.told.Known = rapid.Bool().Draw(t, "told")
	u.leases = append(u.leases, one)
	if rapid.Bool().Draw(t, "both devices") {
		u.leases = append(u.leases, &modelLease{client: c.on(1), job: j, device: 1, rubbish: rubbish})
	}
	return one
}

func (u *universe) openJob(t *rapid.T) {
	j := &modelJob{uid: rapid.SampledFrom(u.users).Draw(t, "uid"), max: map[int]accounting.Bytes{}}
	r := arbiter.JobRequest{Process: u.process(j.uid, "gpuarb"), NoWait: true}
	if rapid.Bool().Draw(t, "limited") {
		most := amount(t, 400)
		r.Max = ptr(size(most))
		for d, total := range totals {
			j.max[d] = min(most, total)
		}
	}
	if u.mins && rapid.Bool().Draw(t, "reserved") {
		least := amount(t, 200)
		if r.Max != nil {
			least = min(least, r.Max.Bytes)
		}
		r.Min, j.min = ptr(size(least)), least
	}
	info, err := u.arb.OpenJob(u.now, r)
	if err != nil {
		if j.min == 0 {
			t.Fatal(err)
		}
		return
	}
	j.id = info.ID
	u.jobs = append(u.jobs, j)
}

// take allocates as a client does: from its own word first, then by asking.
func (u *universe) take(t *rapid.T, l *modelLease, n accounting.Bytes) {
	if !l.rubbish && l.word.fast(n) {
		l.gain(n)
		return
	}
	before, over := u.granted(), false
	for _, x := range u.leases { // leases over a limit lose their idle bytes
		over = over || x.word.closed() || x.rubbish
	}
	o := l.alloc(n)
	if o.Granted {
		l.gain(n)
		return
	}
	if o.Requested != n || o.Remaining >= n {
		t.Fatalf("refusal of %d: %+v", n, o)
	}
	after := u.granted()
	if lost := before[l.lease].Less(after[l.lease]); lost > 0 && !l.alloc(lost).Granted { // a limit was lowered: its idle bytes have no room
		before[l.lease] = after[l.lease]
	}
	if !maps.Equal(before, after) && !over {
		t.Fatalf("a refusal moved something: %v, then %v", before, after)
	}
	u.checkRefusal(t, l, n, o)
}

// excess returns the bytes that must be charged to the lease.
func (l *modelLease) excess() accounting.Bytes {
	if !l.word.told.Known {
		return 0
	}
	return l.shown
}

func (l *modelLease) gain(n accounting.Bytes) {
	l.used += n
	l.peak = max(l.peak, l.used)
}

// checkRefusal checks a refusal against what all leases use. It does so where the model is simple enough: without reservations, and with all
// credit words known.
func (u *universe) checkRefusal(t *rapid.T, l *modelLease, n accounting.Bytes, o arbiter.Result) {
	if u.mins || o.Reason == arbiter.ReasonTooLarge {
		return
	}
	var job, students, user, all accounting.Bytes
	for _, x := range u.leases {
		if x.rubbish {
			return
		}
		if x.device != l.device {
			continue
		}
		if x.draining && x.excess() > 0 { // a charge at the end of a process stays, whatever is read later
			return
		}
		all += x.used + x.excess()
		if x.job == l.job {
			job += x.used + x.excess()
		}
		if x.job.uid == l.job.uid {
			user += x.used + x.excess()
		}
		if student(x.job.uid) {
			students += x.used + x.excess()
		}
	}
	used := map[arbiter.Reason]accounting.Bytes{
		arbiter.ReasonOverBudget: job, arbiter.ReasonSharedFull: students, arbiter.ReasonDeviceFull: all,
	}[o.Reason]
	for of, on := range u.cgroups {
		if o.Reason != arbiter.ReasonSharedFull || !strings.Contains(o.Explain+";", "that root set for cgroup "+of+";") {
			continue
		}
		if used = u.usedIn(of, l.device); !l.in(of) || o.Limit != on[l.device] {
			t.Fatalf("refused by a limit of %d, and that of %s is %d", o.Limit, of, on[l.device])
		}
	}
	if most, limited := u.caps[l.job.uid][l.device]; limited && o.Reason == arbiter.ReasonSharedFull && strings.Contains(o.Explain, "that root set for user") {
		if used = user; o.Limit != most {
			t.Fatalf("refused by a limit of %d, and the user's is %d", o.Limit, most)
		}
	}
	// A lease may use its idle bytes, even if the capacity has fallen below the sum.
	if want := max(o.Limit.Less(used), l.word.idle()); o.Remaining != want || n <= want {
		t.Fatalf("%d refused, %d remaining of %d (%v), and %d are used", n, o.Remaining, o.Limit, o.Reason, used)
	}
}

func (u *universe) granted() map[arbiter.LeaseID]accounting.Bytes {
	all := map[arbiter.LeaseID]accounting.Bytes{}
	for _, l := range u.leases {
		all[l.lease] = l.word.granted
	}
	return all
}

func (u *universe) end(l *modelLease) {
	u.arb.EndSession(u.now, l.session)
	for _, x := range u.leases {
		x.draining = x.draining || x.session == l.session
	}
}

func (u *universe) gone(l *modelLease) {
	u.arb.Gone(u.now, l.session, l.device)
	u.leases = slices.DeleteFunc(u.leases, func(x *modelLease) bool { return x == l })
	delete(u.words.all, l.lease)
}

// observe reads a device: the real usage of clients, a context for each, and processes without a lease.
func (u *universe) observe(t *rapid.T, device int) {
	usage := arbiter.Usage{Device: device}
	u.arb.Note(device)
	for _, l := range u.leases {
		if l.device != device {
			continue
		}
		extra := l.module
		if l.used > 0 || l.draining {
			extra += 5 // for a context that the client did not report
			usage.Processes = append(usage.Processes, arbiter.ProcessUsage{
				PID: l.process.PID, StartTicks: l.process.StartTicks, Bytes: l.used + extra})
		} else {
			extra = 0
		}
		// Bytes that it used and freed since the low-water mark was reset may be in the reading.
		freed := l.word.Recent(l.word.granted).Less(l.used)
		l.shown, l.last = min(l.last, extra.Less(freed)), extra
	}
	if n := amount(t, 300); n > 200 {
		u.unmanaged[device] = n - 200
		usage.Processes = append(usage.Processes, arbiter.ProcessUsage{PID: 1, Bytes: n - 200})
	}
	u.arb.Observe(u.now, usage)
	u.observed = true
}

// limit sets a job's memory.max on a device, as root.
func (u *universe) limit(t *rapid.T, j *modelJob, device int) {
	most := amount(t, 500)
	if err := u.arb.SetJobLimits(u.now, j.id, rules.Change{Device: device, Max: ptr(size(most))}); err != nil {
		if _, refused := err.(*arbiter.Result); !refused || j.min == 0 {
			t.Fatal(err)
		}
		return // it would restore a reservation that has no room now
	}
	j.max[device] = min(most, totals[device])
	u.settled(t, j, device)
}

// limitUser sets or removes the cap of a user on a device.
func (u *universe) limitUser(t *rapid.T, uid uint32, device int) {
	limit := size(amount(t, 500))
	if u.caps[uid] == nil {
		u.caps[uid] = map[int]accounting.Bytes{}
	}
	u.caps[uid][device] = min(limit.Bytes, totals[device])
	if rapid.IntRange(0, 2).Draw(t, "off") == 0 {
		limit = unlimited()
		delete(u.caps[uid], device)
	}
	if err := u.arb.SetUserLimits(u.now, uid, "", rules.Change{Device: device, Max: &limit}); err != nil {
		t.Fatal(err)
	}
	u.settledBelow(t, u.caps[uid], device, func(l *modelLease) bool { return l.job.uid == uid })
}

// cgroups lists the cgroups that processes of the model run in.
var cgroups = []string{"/", "/a", "/a/b", "/a/b/c", "/a/bc", "/d"}

func (l *modelLease) in(of string) bool {
	return slices.ContainsFunc(append(l.process.AlsoIn, l.process.Cgroup), func(at string) bool {
		return at == of || strings.HasPrefix(at, of+"/")
	})
}

// usedIn returns the bytes that all programs in a cgroup use on a device.
func (u *universe) usedIn(of string, device int) (used accounting.Bytes) {
	for _, l := range u.leases {
		if l.device == device && l.in(of) {
			used += l.used + l.excess()
		}
	}
	return used
}

// limitCgroup sets or removes the cap of a cgroup on a device.
func (u *universe) limitCgroup(t *rapid.T, of string, device int) {
	limit := size(amount(t, 500))
	if u.cgroups[of] == nil {
		u.cgroups[of] = map[int]accounting.Bytes{}
	}
	u.cgroups[of][device] = min(limit.Bytes, totals[device])
	if rapid.IntRange(0, 2).Draw(t, "off") == 0 {
		limit = unlimited()
		delete(u.cgroups[of], device)
	}
	if err := u.arb.SetCgroupLimits(u.now, of, rules.Change{Device: device, Max: &limit}); err != nil {
		t.Fatal(err)
	}
	u.settledBelow(t, u.cgroups[of], device, func(l *modelLease) bool { return l.in(of) })
}

// settledBelow does the check of settled for the leases below a limit.
func (u *universe) settledBelow(t *rapid.T, limits map[int]accounting.Bytes, device int, below func(*modelLease) bool) {
	most, limited := limits[device]
	var held accounting.Bytes
	for _, l := range u.leases {
		if below(l) && l.device == device {
			held += l.word.granted
		}
	}
	for _, l := range u.live() {
		if limited && held > most && below(l) && l.device == device && !l.rubbish && (l.word.idle() != 0 || !l.word.closed()) {
			t.Fatalf("over, and %d bytes idle in a word that is closed: %v", l.word.idle(), l.word.closed())
		}
	}
}

// settled checks that a lowered limit was in force before the call returned: below a budget over its limit, all words are closed and no
// idle credit is left.
func (u *universe) settled(t *rapid.T, j *modelJob, device int) {
	var held accounting.Bytes
	for _, l := range u.leases {
		if l.job == j && l.device == device {
			held += l.word.granted
		}
	}
	for _, l := range u.live() {
		if l.job != j || l.device != device || l.rubbish || held <= j.max[device] {
			continue
		}
		if l.word.idle() != 0 || !l.word.closed() {
			t.Fatalf("over, and %d bytes idle in a word that is closed: %v", l.word.idle(), l.word.closed())
		}
	}
}
