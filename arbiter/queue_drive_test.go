package arbiter_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// Under random requests of random clients, the arbiter serves and refuses waiting requests exactly as the documentation says. The expected
// decisions come from the reference in queue_model_test.go. queue_restart_test.go adds restarts, and queue_test.go has cases by hand.

// drive runs random clients against an arbiter and against the reference of its queue. Both must make the same decisions, so that no
// request is served out of order and no wake-up is lost.
type drive struct {
	*world
	*reference
	rng             *rand.Rand
	users           []uint32
	arrivals        int
	seed            uint64
	steps           int
	verbose         bool
	trace           []string
	deadlocksBroken int  // number of deadlocks that were broken some time after they formed
	capped          bool // users are limited now and then
	upsets          bool // now and then a device is lost, a session resumes, or the daemon is restarted
	policy          rules.Policy
	afterwards      bool // the last request had to wait at first, and its decision came after its call; settled has compared it
	pressures       refPressures
	held            []arbiter.Result // taken from the arbiter, and not compared yet
	mustRead        bool             // the last request was to be decided after a reading only
	toldToRead      bool             // the arbiter wanted that
	resubmits       bool             // the request was made before, and keeps its place
}

// ageOfWaiters is the age after which requests of "waiter" block jobs that have held memory for longer.
const ageOfWaiters = time.Minute

// maxTrace is how many of the last steps a failure shows.
const maxTrace = 100

func newDrive(t testing.TB, seed uint64, context accounting.Bytes) *drive {
	rng := rand.New(rand.NewPCG(seed, 1))
	scope := []rules.Scope{rules.ScopeJob, rules.ScopeJob, rules.ScopeProcess, rules.ScopeThread}[rng.IntN(4)]
	p := exact(unlimited())
	p.DeadlockGrace = 2 * time.Second
	p.ContextReserve = size(context)
	students, users := sharing(rng.IntN(2) == 0, size(60))
	students.OnFull = ptr(rules.OnFullWait)
	p.Rules = []rules.Rule{students, {Match: rules.Match{Exe: "waiter"}, OnFull: ptr(rules.OnFullWait), AgeAfter: ptr(ageOfWaiters)}}
	d := &drive{rng: rng, pressures: newRefPressures(), seed: seed, users: users, reference: &reference{scope: scope, grace: 2 * time.Second, shared: 60, caps: map[uint32]accounting.Bytes{}, cgroups: map[int]accounting.Bytes{}, context: context, now: start}}
	totals := []accounting.Bytes{100, 80}
	if rng.IntN(4) > 0 { // few have to wait
		totals = []accounting.Bytes{300, 200}
	}
	totals = totals[:1+rng.IntN(2)]
	for i, total := range totals {
		slots := []int{0, 0, 1, 1, 2, 3}[rng.IntN(6)]
		d.devices = append(d.devices, &refDevice{index: i, total: total, slots: slots})
		p.Devices = append(p.Devices, rules.DeviceRule{Match: rules.DeviceMatch{Index: ptr(i)}, SlotsMax: slots, SlotScope: scope})
	}
	d.world, d.policy = newWorld(t, p, totals...), p
	return d
}

func (d *drive) logf(format string, args ...any) {
	if !d.verbose {
		return
	}
	if len(d.trace) >= maxTrace {
		d.trace = append(d.trace[:0], d.trace[maxTrace/2:]...)
	}
	d.trace = append(d.trace, fmt.Sprintf(format, args...))
}

func (d *drive) fail(format string, args ...any) {
	d.t.Helper()
	for range 20 { // once more with a trace; maps are iterated in random order
		if d.verbose {
			break
		}
		again := newDrive(d.t, d.seed, d.context)
		again.capped, again.upsets = d.capped, d.upsets
		again.verbose = true
		again.run(d.steps)
	}
	for _, j := range d.jobs {
		d.logf("job %d uid %d wait %v min %d max %d on %v kept %v spare %v tail %v pending %v released %v closed %v fresh %v blocked %v", j.id, j.uid, j.wait, j.min, j.max, j.on, j.kept, j.spare, j.tail, j.pending, j.released, j.closed, d.fresh(j), d.blocked(j))
		for _, s := range j.sessions {
			d.logf("  session %d dead %v threads %d wish %d", s.id, s.dead, s.threads, s.wish)
			for _, l := range s.leases {
				d.logf("    device %d used %d gone %v idle %d: %v", l.device.index, l.used, l.gone, l.word.idle(), l.threads)
			}
		}
	}
	for _, t := range d.tickets {
		needs, _, _ := d.evaluate(t, d.current(t))
		session := arbiter.SessionID(0)
		if t.lease != nil {
			session = t.lease.session.id
		}
		d.logf("ticket %d %c session %d thread %d wants %d since %v: %+v", t.id, t.kind, session, t.thread, t.n, t.since.Sub(start), needs)
	}
	for _, dev := range d.arb.Snapshot(d.world.now).Devices {
		d.logf("device %d: slots.max %d, held by %+v", dev.Index, dev.SlotsMax, dev.Holders)
	}
	for _, q := range d.arb.Snapshot(d.world.now).Queue {
		d.logf("the arbiter: ticket %d on %d: %s", q.Ticket, q.Device, q.Reason)
	}
	d.t.Fatalf("seed %d, slots by %s: %s\nthe last steps:\n%s", d.seed, d.scope, fmt.Sprintf(format, args...), joined(d.trace))
}

func joined(lines []string) (all string) {
	for _, l := range lines {
		all += "  " + l + "\n"
	}
	return all
}

// run takes a number of random steps.
func (d *drive) run(steps int) {
	d.steps = steps
	for range steps {
		d.one()
		if d.rng.IntN(256) == 0 {
			d.checkSums()
		}
	}
	d.finish()
}

func (d *drive) one() {
	if d.upsets && d.rng.IntN(30) == 0 {
		d.upset()
		return
	}
	switch n := d.rng.IntN(100); {
	case n < 8:
		d.openSession()
	case n < 14:
		d.openJob()
	case n < 40:
		d.alloc()
	case n < 58:
		d.free()
	case n < 66:
		d.object('c', 1)
	case n < 72:
		d.object('s', 1)
	case n < 80:
		d.unmake()
	case n < 85:
		d.die()
	case n < 89, len(d.jobs) > 2*maxJobs:
		d.gone()
	case n < 92:
		d.endJob()
	case n < 94:
		d.cancel()
	case n < 96:
		d.setThreads()
	case n < 98:
		d.limits()
	default:
		d.pass()
	}
}

func pickOf[T any](d *drive, from []T) (one T, ok bool) {
	if len(from) == 0 {
		return one, false
	}
	return from[d.rng.IntN(len(from))], true
}

func (d *drive) sessions() (all []*refSession) {
	for _, j := range d.jobs {
		for _, s := range j.sessions {
			if !s.dead {
				all = append(all, s)
			}
		}
	}
	return all
}

// Few parties reach each other's limits more often than many.
const maxSessions, maxJobs = 6, 5

func (d *drive) openSession() {
	if len(d.sessions()) >= maxSessions {
		return
	}
	var j *refJob
	if open := slices.DeleteFunc(slices.Clone(d.jobs), func(j *refJob) bool { return !j.run || j.closed || j.pending }); len(open) > 0 && d.rng.IntN(2) == 0 {
		j, _ = pickOf(d, open)
	}
	req := arbiter.SessionRequest{}
	if j != nil {
		req.Job = j.id
		req.Process = d.process(j.uid, "x")
	} else {
		uid, exe := d.user()
		req.Process = d.process(uid, exe)
		j = &refJob{uid: uid, closed: true, wait: exe == "waiter" || student(uid), max: accounting.Max, timeout: 10 * time.Minute, age: ageOf(uid, exe)}
		d.jobs = append(d.jobs, j)
	}
	s := &refSession{job: j, cgroup: d.rng.IntN(len(refCgroups))}
	s.beside = s.cgroup
	if n := len(j.sessions) + len(d.jobs); n%3 == 0 {
		s.beside = n / 3 % len(refCgroups)
	}
	req.Process.Cgroup, req.Process.AlsoIn = refCgroups[s.cgroup], []string{refCgroups[s.beside]}
	if d.rng.IntN(6) == 0 {
		s.wish = 1 + d.rng.IntN(2)
		req.Slots = s.wish
	}
	info, err := d.arb.OpenSession(d.world.now, req)
	if err != nil || info.Waiting != 0 {
		d.fail("session: %+v, %v", info, err)
	}
	s.id, s.request = info.ID, req
	if n := d.rng.IntN(4); n > 0 {
		s.threads = n
		d.arb.Threads(d.world.now, s.id, n)
	}
	j.sessions = append(j.sessions, s)
	d.logf("session %d of job %d (uid %d, wait %v) in %s and %s, wish %d, %d threads", s.id, j.id, j.uid, j.wait, refCgroups[s.cgroup], refCgroups[s.beside], s.wish, s.threads)
	d.settled(nil)
}

func (d *drive) user() (uint32, string) {
	uid := uint32(bob)
	if d.rng.IntN(3) == 0 {
		uid = d.users[1+d.rng.IntN(len(d.users)-1)]
	}
	return uid, []string{"waiter", "waiter", "x"}[d.rng.IntN(3)]
}

// ageOf returns the age_after of the rule of a user's program.
func ageOf(uid uint32, exe string) time.Duration {
	if exe == "waiter" && !student(uid) {
		return ageOfWaiters
	}
	return 0
}

func (d *drive) openJob() {
	if len(d.jobs) >= maxJobs {
		return
	}
	uid, exe := d.user()
	j := &refJob{uid: uid, run: true, pending: true, wait: exe == "waiter" || student(uid), max: accounting.Max}
	req := arbiter.JobRequest{}
	if d.rng.IntN(8) == 0 {
		j.uid, j.wait = 0, exe == "waiter"
		j.priority = d.rng.IntN(3)
		req.Priority = j.priority
	}
	req.Process, j.age = d.process(j.uid, exe), ageOf(j.uid, exe)
	if d.rng.IntN(2) == 0 {
		j.min = accounting.Bytes(1 + d.rng.IntN(50))
		req.Min = ptr(size(j.min))
		if d.rng.IntN(2) == 0 {
			j.max = j.min
		} else {
			j.max = j.min + accounting.Bytes(d.rng.IntN(40))
		}
		if student(j.uid) {
			j.max = min(j.max, d.shared)
		}
		req.Max = ptr(size(j.max))
	}
	if d.rng.IntN(5) == 0 {
		req.Wait, j.wait = true, true
	}
	if d.rng.IntN(8) == 0 {
		req.NoWait, j.noWait = true, true
	}
	if d.rng.IntN(4) == 0 {
		req.Timeout = time.Duration(1+d.rng.IntN(90)) * time.Second
	}
	req.Exclusive = d.rng.IntN(6) == 0
	j.exclusive = req.Exclusive
	t := &refTicket{kind: 'j', job: j}
	j.claim = d.rng.IntN(4) == 0
	req.Claim = j.claim
	from := slices.DeleteFunc(slices.Clone(d.devices), func(dev *refDevice) bool { return dev.lost })
	switch d.rng.IntN(4) {
	case 0:
		t.any, req.Any, j.claim = true, true, true
		if len(d.devices) == 2 && d.rng.IntN(2) == 0 {
			slices.Reverse(from)
			req.Devices = []int{1, 0}
		}
	case 1:
		one, _ := pickOf(d, d.devices)
		from, req.Devices, j.on = []*refDevice{one}, []int{one.index}, []int{one.index}
	}
	if named := len(req.Devices) > 0 && !t.any; named && from[0].lost || len(from) == 0 && (t.any || j.claim || j.exclusive || j.min > 0) {
		_, err := d.arb.OpenJob(d.world.now, req)
		d.noDevice(err)
		return
	}
	if !t.any && len(from) > 0 && len(from) < len(d.devices) && len(req.Devices) == 0 { // the job has the devices that are not lost
		for _, dev := range from {
			j.on = append(j.on, dev.index)
		}
	}
	j.request = req
	d.choose(t, from)
	d.jobs = append(d.jobs, j)
	info, err := d.arb.OpenJob(d.world.now, req)
	got := answer{ticket: info.Waiting, refused: reasonOf(err)}
	j.id = info.ID
	d.logf("job %d: %+v devices %v any %v exclusive %v claim %v min %d max %d wait %v no %v timeout %v prio %d -> %+v %v", j.id, uid, req.Devices, req.Any,
		req.Exclusive, j.claim, j.min, j.max, j.wait, j.noWait, req.Timeout, j.priority, got, info.Devices)
	if j.timeout = req.Timeout; j.timeout == 0 {
		j.timeout = 10 * time.Minute
	}
	f := d.request(t, got)
	if f != nil && f.reason != arbiter.ReasonNone {
		d.forget(j)
	}
	if f != nil && f.reason == arbiter.ReasonNone && t.any && !d.afterwards && (len(info.Devices) != 1 || info.Devices[0] != f.device) {
		d.fail("job %d was given %v, not %d", j.id, info.Devices, f.device)
	}
}

// choose records on which devices of from a job takes a slot or reserves memory at its start.
func (d *drive) choose(t *refTicket, from []*refDevice) {
	t.choice = nil
	for _, dev := range from {
		if t.any || d.keeps(t.job, dev) || t.job.min > 0 {
			t.choice = append(t.choice, dev)
		}
	}
}

func (d *drive) forget(j *refJob) {
	d.jobs = slices.DeleteFunc(d.jobs, func(x *refJob) bool { return x == j })
}

// answer is the arbiter's reply to a request: granted, a ticket if it waits, or the reason of its refusal.
type answer struct {
	granted bool
	ticket  arbiter.TicketID
	refused arbiter.Reason
}

func reasonOf(err error) arbiter.Reason {
	var r *arbiter.Result
	if errors.As(err, &r) {
		return r.Reason
	}
	return arbiter.ReasonNone
}

// lease returns a random living lease with a thread that does not wait. It attaches one if needed.
func (d *drive) lease() (*refLease, uint32) {
	s, ok := pickOf(d, d.sessions())
	if !ok {
		return nil, 0
	}
	dev, _ := pickOf(d, d.devices)
	thread := uint32(1 + d.rng.IntN(3))
	for _, t := range d.tickets {
		if t.lease != nil && t.lease.session == s && t.thread == thread {
			return nil, 0
		}
	}
	for _, l := range s.leases {
		if l.device == dev {
			return l, thread
		}
	}
	x := d.words.add(0, 0)
	info, err := d.arb.Attach(d.world.now, s.id, dev.index, x)
	if dev.lost {
		d.attachLost(err)
		return nil, 0
	}
	if !s.job.uses(dev) {
		if reasonOf(err) != arbiter.ReasonDenied {
			d.fail("a lease on a device that is not the job's: %v", err)
		}
		return nil, 0
	}
	if err != nil {
		d.fail("%v", err)
	}
	c := &client{w: d.world, session: s.id, lease: info.ID, word: x}
	l := &refLease{client: c, session: s, device: dev, opened: d.world.now}
	s.leases = append(s.leases, l)
	return l, thread
}

func (d *drive) alloc() {
	l, thread := d.lease()
	if l == nil {
		return
	}
	n := accounting.Bytes(1 + d.rng.IntN(60))
	if d.rng.IntN(3) == 0 {
		n = accounting.Bytes(1 + d.rng.IntN(12))
	}
	l.request++
	noWait := d.rng.IntN(8) == 0
	managed := d.rng.IntN(6) == 0
	if managed && d.rng.IntN(2) == 0 {
		n *= 10 // more than the device has
	}
	o := d.askLease(arbiter.Request{Lease: l.lease, What: arbiter.WantsBytes, Bytes: n, Managed: managed, Thread: thread, NoWait: noWait})
	d.logf("session %d of job %d thread %d device %d: alloc %d (managed: %v, no wait: %v) -> %v %d %v %d", l.session.id, l.session.job.id, thread, l.device.index, n, managed, noWait,
		o.Granted, o.Waiting, o.Reason, o.Remaining)
	t := &refTicket{kind: 'a', job: l.session.job, lease: l, thread: thread, n: n, managed: managed}
	d.ask(t, answer{o.Granted, o.Waiting, o.Reason}, noWait)
}

func (d *drive) object(kind byte, count int) {
	l, thread := d.lease()
	if l == nil {
		return
	}
	t := &refTicket{kind: kind, job: l.session.job, lease: l, thread: thread, count: count}
	what := arbiter.WantsStreams
	if kind == 'c' {
		what = arbiter.WantsContexts
	}
	o := d.askLease(arbiter.Request{Lease: l.lease, What: what, Count: count, Thread: thread})
	got := answer{o.Granted, o.Waiting, o.Reason}
	d.logf("session %d thread %d device %d: %c -> %+v", l.session.id, thread, l.device.index, kind, got)
	d.ask(t, got, false)
}

// askLease makes a request of a lease. If the arbiter wants a reading first, it notes that, and asks again as if no reading had shown any
// context.
func (d *drive) askLease(r arbiter.Request) arbiter.Result {
	o := d.arb.Ask(d.world.now, r)
	if d.toldToRead = o.Reason == arbiter.ReasonReading; d.toldToRead {
		r.Read = true
		o = d.arb.Ask(d.world.now, r)
	}
	return o
}

func (d *drive) ask(t *refTicket, got answer, noWait bool) {
	was := t.job.noWait
	t.job.noWait = was || noWait
	d.request(t, got)
	t.job.noWait = was
}

// request decides a request in the reference too, and compares. It returns the decision; nil: the request waits.
func (d *drive) request(t *refTicket, got answer) *outcome {
	d.arrivals++
	t.arrival, t.since = d.arrivals, d.reference.now
	t.deadline = t.since.Add(t.job.timeout)
	return d.decided(t, got)
}

// decided does the work of request for a ticket that already has a place in the queue.
func (d *drive) decided(t *refTicket, got answer) *outcome {
	d.afterwards = false
	t.parked, t.id = d.reference.now, got.ticket
	d.changed()
	f := d.decide(t)
	if d.mustRead != d.toldToRead {
		d.fail("a reading was to be asked for: %v", d.mustRead)
	}
	d.toldToRead = false
	if f == nil {
		f = d.settled(t)
	} else {
		d.settled(nil)
	}
	switch {
	case f != nil && d.afterwards: // it was compared
	case f == nil && got.ticket == 0:
		d.fail("it was to wait: %+v", got)
	case f != nil && f.reason == arbiter.ReasonNone && got.ticket+arbiter.TicketID(got.refused) != 0:
		d.fail("it was to be served: %+v", got)
	case f != nil && f.reason != got.refused:
		d.fail("it was to be refused for %v: %+v", f.reason, got)
	}
	return f
}

// decide evaluates a new request; nil: it waits.
func (d *drive) decide(t *refTicket) *outcome {
	r := d.reference
	d.mustRead = false
	if why := r.never(t); why != arbiter.ReasonNone {
		return &outcome{ticket: t, reason: why}
	}
	r.add(t)
	needs, at, ok := r.evaluate(t, r.current(t))
	if ok {
		f := r.serve(t, at)
		return &f
	}
	slots, shared := t.kind == 'j', false
	for _, n := range needs {
		slots = slots || n.slot || n.wish
		shared = shared || n.shared || n.user || n.cgroups != 0
	}
	why := arbiter.ReasonNone
	switch {
	case !slots && !t.job.wait && shared:
		why = arbiter.ReasonSharedFull
	case !slots && !t.job.wait:
		why = arbiter.ReasonDeviceFull
	case t.job.noWait:
		why = arbiter.ReasonBusy
	}
	d.mustRead = (why != arbiter.ReasonNone || !d.resubmits) && r.mustRead(t, needs[0])
	if why == arbiter.ReasonNone {
		return nil
	}
	r.drop(t)
	return &outcome{ticket: t, reason: why}
}

// settled runs the reference until no request can be decided, and compares its decisions with the arbiter's. It returns the decision on the
// ticket new.
func (d *drive) settled(new *refTicket) *outcome {
	d.arb.Finish(d.world.now)
	d.trim()
	d.changed()
	var mine *outcome
	got := map[arbiter.TicketID]arbiter.Result{}
	var order []arbiter.TicketID
	for _, x := range append(d.held, d.arb.Decisions()...) {
		if x.Notice == nil {
			if _, twice := got[x.Ticket]; twice {
				d.fail("ticket %d was decided twice", x.Ticket)
			}
			got[x.Ticket] = x
			order = append(order, x.Ticket)
			d.logf("  decided: ticket %d: %v", x.Ticket, reasonIn(x))
		}
	}
	d.held = nil
	d.arb.Events()
	take := func(f outcome) {
		d.apply(f)
		x, ok := got[f.ticket.id]
		if f.ticket == new {
			mine, d.afterwards = &f, ok
			if !ok {
				return
			}
		}
		if !ok {
			d.fail("ticket %d of job %d was to be decided: %v", f.ticket.id, f.ticket.job.id, f.reason)
		}
		if why := reasonIn(x); why != f.reason {
			d.fail("ticket %d was decided %v, not %v", f.ticket.id, why, f.reason)
		}
		delete(got, f.ticket.id)
	}
	for again := true; again; {
		again = false
		for _, f := range d.runCycles() {
			take(f)
		}
		for _, id := range order {
			if _, waits := got[id]; !waits {
				continue
			}
			t := d.find(id)
			if t == nil {
				d.fail("ticket %d was decided, and is not known", id)
			}
			if f, ok := d.ended(t); ok {
				d.deadlocksBroken++
				take(f)
				again = true
				break
			}
		}
	}
	for id, x := range got {
		d.fail("ticket %d was decided %v, and was to wait", id, reasonIn(x))
	}
	return mine
}

// ended returns the outcome of a ticket when a deadlock was broken.
func (d *drive) ended(t *refTicket) (outcome, bool) {
	mayMove := d.reference.now.Sub(t.parked) >= d.grace
	if !mayMove {
		return outcome{}, false
	}
	return d.breakDeadlock(false, t)
}

// trim ends the slot that a released job's processes share when their last object is gone.
func (d *drive) trim() {
	for _, j := range d.jobs {
		j.tail = slices.DeleteFunc(j.tail, func(index int) bool {
			for _, s := range j.sessions {
				for _, l := range s.leases {
					if !s.dead && !l.gone && l.device.index == index && l.objects() {
						return false
					}
				}
			}
			return true
		})
	}
}

func (d *drive) find(id arbiter.TicketID) *refTicket {
	for _, t := range d.tickets {
		if t.id == id {
			return t
		}
	}
	return nil
}

// apply applies a decision to the jobs and leases of the reference.
func (d *drive) apply(f outcome) {
	d.changed()
	if f.ticket.kind == 'j' && f.reason != arbiter.ReasonNone {
		d.forget(f.ticket.job)
	}
}

func reasonIn(x arbiter.Result) arbiter.Reason {
	return x.Reason
}

// withdrawn removes tickets from the reference that the arbiter decided without serving them: cancelled tickets, and tickets past their
// deadline.
func (d *drive) withdrawn(why arbiter.Reason, of func(*refTicket) bool) {
	var out []*refTicket
	for _, t := range d.tickets {
		if of(t) {
			out = append(out, t)
		}
	}
	if len(out) == 0 {
		return
	}
	for _, x := range d.arb.Decisions() {
		i := slices.IndexFunc(out, func(t *refTicket) bool { return t.id == x.Ticket })
		if i < 0 {
			d.held = append(d.held, x)
			continue
		}
		if got := reasonIn(x); got != why {
			d.fail("ticket %d: %v, not %v", x.Ticket, got, why)
		}
		d.drop(out[i])
		d.apply(outcome{ticket: out[i], reason: why})
		out = slices.Delete(out, i, i+1)
	}
	if len(out) > 0 {
		d.fail("ticket %d was to go: %v", out[0].id, why)
	}
}

func (d *drive) free() {
	if s, ok := pickOf(d, d.sessions()); ok {
		d.freeOf(s)
	}
}

func (d *drive) freeOf(s *refSession) {
	l, ok := pickOf(d, s.leases)
	if !ok || l.used == 0 {
		return
	}
	n := accounting.Bytes(1 + d.rng.IntN(int(l.used)))
	if d.rng.IntN(2) == 0 {
		n = l.used
	}
	if l.managed > 0 { // one call frees memory of one kind
		if plain := l.used - l.managed; plain > 0 && d.rng.IntN(2) == 0 {
			n = min(n, plain)
		} else {
			n = min(n, l.managed)
			l.managed -= n
			l.word.told.Managed = l.managed
		}
	}
	if l.used -= n; l.used == 0 {
		for i := range l.threads {
			l.threads[i].bytes = false
		}
	}
	d.logf("session %d device %d: free %d of %d, told: %v", s.id, l.device.index, n, l.used+n, l.word.state.Load()&notifyBit != 0)
	l.free(n)
	d.settled(nil)
}

func (d *drive) unmake() {
	if s, ok := pickOf(d, d.sessions()); ok {
		d.unmakeOf(s)
	}
}

func (d *drive) unmakeOf(s *refSession) {
	l, ok := pickOf(d, s.leases)
	if !ok {
		return
	}
	for thread := range l.threads {
		m := &l.threads[thread]
		if m.contexts > 0 && d.rng.IntN(2) == 0 {
			l.costs = l.costs / accounting.Bytes(l.contexts()) * accounting.Bytes(l.contexts()-1)
			m.contexts--
			d.logf("session %d thread %d device %d: context gone", s.id, thread, l.device.index)
			d.arb.Ask(d.world.now, arbiter.Request{Lease: l.lease, What: arbiter.WantsContexts, Count: -1, Thread: uint32(thread)})
			d.settled(nil)
			return
		}
		if m.streams > 0 {
			m.streams--
			d.logf("session %d thread %d device %d: stream gone", s.id, thread, l.device.index)
			d.arb.Ask(d.world.now, arbiter.Request{Lease: l.lease, What: arbiter.WantsStreams, Count: -1, Thread: uint32(thread)})
			d.settled(nil)
			return
		}
	}
}

func (d *drive) die() {
	s, ok := pickOf(d, d.sessions())
	if !ok {
		return
	}
	d.logf("session %d dies", s.id)
	d.arb.EndSession(d.world.now, s.id)
	s.dead = true
	for _, l := range s.leases {
		l.gone = l.gone || l.lost
	}
	d.withdrawn(arbiter.ReasonCancelled, func(t *refTicket) bool { return t.lease != nil && t.lease.session == s })
	d.tidy()
	d.settled(nil)
}

// tidy removes ended jobs and leases.
func (d *drive) tidy() {
	for _, j := range slices.Clone(d.jobs) {
		for _, s := range slices.Clone(j.sessions) {
			if s.dead && !slices.ContainsFunc(s.leases, func(l *refLease) bool { return !l.gone }) {
				j.sessions = slices.DeleteFunc(j.sessions, func(x *refSession) bool { return x == s })
			}
		}
		if !j.alive() {
			j.kept, j.spare = nil, nil
			if len(j.sessions) == 0 {
				d.forget(j)
			}
		}
	}
}

func (d *drive) gone() {
	for _, j := range slices.Clone(d.jobs) {
		for _, s := range slices.Clone(j.sessions) {
			for _, l := range s.leases {
				if s.dead && !l.gone && d.rng.IntN(2) == 0 {
					d.logf("the memory of session %d on device %d is back", s.id, l.device.index)
					l.gone = true
					d.tidy()
					d.arb.Gone(d.world.now, s.id, l.device.index)
					delete(d.words.all, l.lease)
					d.settled(nil)
				}
			}
		}
	}
}

func (d *drive) endJob() {
	j, ok := pickOf(d, slices.DeleteFunc(slices.Clone(d.jobs), func(j *refJob) bool { return !j.run || j.closed }))
	if !ok {
		return
	}
	own := func(t *refTicket) bool { return t.kind == 'j' && t.job == j }
	if d.rng.IntN(3) == 0 {
		d.logf("job %d is released", j.id)
		d.arb.ReleaseJob(d.world.now, j.id)
		if !j.pending && !j.released {
			j.released, j.tail, j.kept, j.spare = true, j.kept, nil, nil
		}
		d.withdrawn(arbiter.ReasonCancelled, own)
	} else {
		d.logf("the runner of job %d is gone", j.id)
		d.arb.CloseJob(d.world.now, j.id)
		if !j.pending {
			j.closed = true
		}
		d.withdrawn(arbiter.ReasonCancelled, own)
	}
	d.tidy()
	d.settled(nil)
}

func (d *drive) cancel() {
	t, ok := pickOf(d, d.tickets)
	if !ok {
		return
	}
	if t.job.run && d.rng.IntN(3) == 0 {
		d.logf("the tickets of job %d are cancelled", t.job.id)
		d.arb.CancelJob(d.world.now, t.job.id)
		d.withdrawn(arbiter.ReasonCancelled, func(x *refTicket) bool { return x.job == t.job })
	} else {
		d.logf("ticket %d is cancelled", t.id)
		if !d.arb.Cancel(d.world.now, t.id, arbiter.ReasonCancelled) {
			d.fail("ticket %d does not wait", t.id)
		}
		d.withdrawn(arbiter.ReasonCancelled, func(x *refTicket) bool { return x == t })
	}
	d.settled(nil)
}

func (d *drive) setThreads() {
	if s, ok := pickOf(d, d.sessions()); ok {
		d.setThreadsOf(s, d.rng.IntN(4))
	}
}

func (d *drive) setThreadsOf(s *refSession, n int) {
	s.threads = n
	d.logf("session %d has %d threads", s.id, n)
	d.arb.Threads(d.world.now, s.id, n)
	d.settled(nil)
}

func (d *drive) limits() {
	if d.capped && d.rng.IntN(3) == 0 {
		if d.rng.IntN(2) == 0 {
			d.limitUser()
		} else {
			d.limitCgroup()
		}
		return
	}
	if d.rng.IntN(2) == 0 {
		dev, _ := pickOf(d, d.devices)
		dev.slots = d.rng.IntN(4)
		d.logf("device %d has %d slots", dev.index, dev.slots)
		if err := d.arb.SetSlots(d.world.now, dev.index, dev.slots); err != nil {
			d.fail("%v", err)
		}
		d.settled(nil)
		return
	}
	j, ok := pickOf(d, slices.DeleteFunc(slices.Clone(d.jobs), func(j *refJob) bool { return !j.run || j.pending || !j.alive() || j.min > 0 }))
	if !ok {
		return
	}
	most := accounting.Bytes(d.rng.IntN(80))
	d.logf("the budget of job %d is %d", j.id, most)
	if err := d.arb.SetJobLimits(d.world.now, j.id, rules.Change{Device: rules.AllDevices, Max: ptr(size(most))}); err != nil {
		d.fail("%v", err)
	}
	j.max, j.live = most, true
	d.settled(nil)
}

// limitUser sets or removes the cap of a user. It is never less than what one job may reserve, and is not lowered while something is
// reserved.
func (d *drive) limitUser() {
	uid := append(d.users[:len(d.users):len(d.users)], 0)[d.rng.IntN(len(d.users)+1)]
	if slices.ContainsFunc(d.jobs, func(j *refJob) bool { return j.uid == uid && j.min > 0 }) {
		return
	}
	most := accounting.Bytes(50 + d.rng.IntN(60))
	limit := size(most)
	d.caps[uid] = most
	if d.rng.IntN(4) == 0 {
		limit = unlimited()
		delete(d.caps, uid)
	}
	d.logf("user %d may hold %v in all", uid, limit)
	if err := d.arb.SetUserLimits(d.world.now, uid, "", rules.Change{Device: rules.AllDevices, Max: &limit}); err != nil {
		d.fail("%v", err)
	}
	d.settled(nil)
}

// limitCgroup sets or removes the cap of a cgroup.
func (d *drive) limitCgroup() {
	c := d.rng.IntN(len(refCgroups) - 1)
	most := accounting.Bytes(20 + d.rng.IntN(80))
	limit := size(most)
	d.cgroups[c] = most
	if d.rng.IntN(4) == 0 {
		limit = unlimited()
		delete(d.cgroups, c)
	}
	d.logf("what runs in %s may hold %v", refCgroups[c], limit)
	if err := d.arb.SetCgroupLimits(d.world.now, refCgroups[c], rules.Change{Device: rules.AllDevices, Max: &limit}); err != nil {
		d.fail("%v", err)
	}
	d.settled(nil)
}

// pass lets time pass.
func (d *drive) pass() {
	last := d.world.now // after this time requests are decided by their deadlines only
	d.after(time.Duration(d.rng.IntN(40)) * time.Second / time.Duration(1+d.rng.IntN(20)))
	if d.world.now.Sub(last) < d.grace {
		return
	}
	if f, ok := d.breakDeadlock(false, nil); ok {
		d.fail("nothing has moved for long, and ticket %d still waits in a circle", f.ticket.id)
	}
}

func (d *drive) after(pause time.Duration) {
	d.arb.MeasurePressure(d.world.now)
	d.world.now = d.world.now.Add(pause)
	d.reference.now = d.world.now
	d.logf("it is %v", d.world.now.Sub(start))
	d.weigh(pause)
	d.checkPressures()
	d.arb.Tick(d.world.now)
	d.withdrawn(arbiter.ReasonTimeout, func(t *refTicket) bool { return !t.deadline.After(d.world.now) })
	d.settled(nil)
}

// checkSums compares the arbiter's figures with what the clients really use.
func (d *drive) checkSums() {
	d.changed()
	s := d.arb.Snapshot(d.world.now)
	away, managed := map[int]accounting.Bytes{}, map[int]accounting.Bytes{}
	for i := range s.Leases {
		away[s.Leases[i].Device] += s.Leases[i].Away
	}
	for _, j := range d.jobs {
		for _, x := range j.sessions {
			for _, l := range x.leases {
				if !l.gone {
					managed[l.device.index] += l.managed
				}
			}
		}
	}
	for k, n := range managed {
		if n == 0 && away[k] == 0 {
			delete(managed, k)
			delete(away, k)
		}
	}
	if !maps.Equal(away, managed) {
		d.fail("%v of managed memory are away, want %v", away, managed)
	}
	for i, dev := range d.devices {
		var used, sum, beside accounting.Bytes
		for _, j := range d.jobs {
			used += usedBy(j, dev, false)
			sum += committedThere(j, dev)
			beside += costOf(j, dev, false) + d.headroom(j, dev)
		}
		state := s.Devices[i]
		if state.Capacity != dev.total-beside || state.Overhead != beside {
			d.fail("device %d: contexts cost %d, or are to: %+v", i, beside, state)
		}
		if state.Used != used || sum > dev.total || state.Committed > state.Capacity {
			d.fail("device %d: %d used, %d committed: %+v", i, used, sum, state)
		}
		holders := d.holdersOf(dev)
		alone := slices.ContainsFunc(holders, func(h refHolder) bool {
			return h.job.exclusive && slices.Contains(h.job.kept, dev.index)
		})
		for _, h := range holders {
			if alone && !h.job.exclusive {
				d.fail("device %d: job %d is there, and another has it alone", i, h.job.id)
			}
		}
		if state.SlotsCurrent < len(holders) {
			d.fail("device %d: %d holders, %d counted", i, len(holders), state.SlotsCurrent)
		}
	}
	if len(s.Queue) != len(d.tickets) {
		d.fail("%d in the queue, not %d", len(s.Queue), len(d.tickets))
	}
	for _, q := range s.Queue { // all at once, and each by itself
		// A client is told too where its program would have room; a row has that device in RoomOn.
		n := d.arb.Notice(d.world.now, arbiter.TicketID(q.Ticket))
		if said, more := strings.CutPrefix(n.Text, q.Text); !more || n.Position != q.Pos || (q.RoomOn != nil) != strings.Contains(said, "--device emptiest") {
			d.fail("ticket %d in the queue: %d, %q; asked for: %d, %q", q.Ticket, q.Pos, q.Text, n.Position, n.Text)
		}
	}
}

// finish ends all processes, and checks that no request waits.
func (d *drive) finish() {
	for len(d.jobs) > 0 {
		for _, j := range slices.Clone(d.jobs) {
			for _, s := range slices.Clone(j.sessions) {
				forget(d.arb, d.world.now, s.id)
			}
			d.arb.CloseJob(d.world.now, j.id)
		}
		d.jobs = nil
	}
	s := d.arb.Snapshot(d.world.now)
	if len(s.Queue)+len(s.Jobs)+len(s.Leases) > 0 {
		d.fail("left: %+v", s)
	}
	for _, dev := range s.Devices {
		if dev.SlotsCurrent+dev.Claims != 0 || dev.Leased || dev.Committed != 0 {
			d.fail("left: %+v", dev)
		}
	}
}

// TestQueueAgainstReference takes some hundred thousand random steps, half of them with contexts that have a cost.
func TestQueueAgainstReference(t *testing.T) { againstReference(t, 80) }

// againstReference compares the arbiter with the reference over random steps. seeds is the number of sequences, and even.
func againstReference(t *testing.T, seeds uint64) {
	const steps = 2000
	for part := range uint64(2) {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			for i := range seeds / 2 {
				d := newDrive(t, i*2+part, accounting.Bytes(5*(i%2)))
				d.capped = i%3 == 0
				d.run(steps)
			}
		})
	}
}
