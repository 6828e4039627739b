package arbiter

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// rankAfter is the waiting time that raises the priority of a request by one.
const rankAfter = time.Minute

// rank returns a ticket's priority, raised by one for each rankAfter that it has waited.
func (a *Arbiter) rank(now time.Time, t *ticket) int {
	return t.priority + int(max(0, now.Sub(t.place.Since))/rankAfter)
}

// compare orders requests by rank (the higher first), then by arrival. It takes the ranks of the time at which the queue was sorted last, so
// that the order does not change in between.
func (a *Arbiter) compare(x, y *ticket) int {
	if x.priority != y.priority {
		if c := cmp.Compare(a.rank(a.sorted, y), a.rank(a.sorted, x)); c != 0 {
			return c
		}
	}
	return byArrival(x, y)
}

// ask decides a new request, or has it wait. Before it refuses a request or has it wait, it takes back slots that nothing needs (tidy) and
// idle credit of others (helps), and judges the request again.
func (a *Arbiter) ask(now time.Time, t *ticket) {
	a.asking = t
	defer func() { a.asking = nil }()
	a.sort(now)
	a.arrive(now, t)
	if t.absent() {
		a.enqueue(now, t)
		return
	}
	if l := t.lease; l != nil && (width(l.scope) > 0 || l.session.slots > 0 || l.device.waiting > 0 || l.device.overfull()) {
		a.left(now, l)
	}
	v := a.judge(t)
	if t.lease != nil && t.lacks(full.ofBytes) || v.final {
		a.countLimit(t)
	}
	if v.final {
		a.refuseTicket(now, t, v.reason, "")
		return
	}
	if v.spot == nil || t.any && (v.spot != &t.spots[0] || len(v.spot.device.permits[permit.Slot]) > 0) {
		a.tidy(now, t)
		v = a.judge(t)
	}
	if !v.final && a.helps(t) {
		v = a.judge(t)
	}
	if v.spot != nil {
		if v = a.admit(now, t, v); v.spot != nil {
			if slices.ContainsFunc(a.queue, t.narrows) {
				a.changed()
			}
			return
		}
	}
	if v.final {
		a.refuseTicket(now, t, v.reason, "")
		return
	}
	if why := a.mayWait(now, t); why != ReasonNone {
		a.refuseTicket(now, t, why, "")
		return
	}
	if t.asked && t.job.cancelled.After(now.Add(-askedAgain)) { // the cancellation meant it as well
		text := fmt.Sprintf(wording.NotServed, t.name(), a.requestText(t), t.gpu(), wording.Span(0), wording.Cancelled)
		a.refuseTicket(now, t, ReasonCancelled, text)
		return
	}
	if why := a.crowded(t); why != "" && (t.aside || !t.again) {
		a.turnAway(now, t, why)
		return
	}
	if t.lease != nil { // while it waits, its job keeps no slot that no object of it needs
		a.left(now, t.lease)
		a.judge(t)
	}
	a.park(now, t)
}

// tidy takes back slots that no object needs any more, though no message of the client said so: on the devices on which a request lacks a slot, and
// on all that it may choose from. A request that only lacks bytes keeps the slot of its own lease, because it may be refused, and with
// the slot its lease would lose its idle credit.
func (a *Arbiter) tidy(now time.Time, t *ticket) {
	for i := range t.spots {
		if t.any || t.spots[i].lacks(func(f full) bool { return f.hard && f.ofPermits() }) {
			a.sweep(now, t.spots[i].device)
		}
	}
	if t.lease != nil && t.lacks(full.ofPermits) {
		a.left(now, t.lease)
	}
}

// askedAgain is how long after a cancellation the clients of requests that are not in the queue are sure to have asked again.
const askedAgain = 2 * time.Second

// turnAway answers a request that may wait, but for which there is no place in the queue. This answer is not a refusal, and no counter of
// refusals rises: the client asks again until the request has waited as long as it may.
func (a *Arbiter) turnAway(now time.Time, t *ticket, why string) {
	a.leaveIdle(t)
	a.finish(now, t, Result{Reason: ReasonCrowded, Requested: t.bytes, Explain: why, Patience: t.job.timeout()})
	if t.lease == nil {
		a.abandon(now, t)
	}
}

// arrive gives a request its place: the one that it had, if it comes again, else a new one.
func (a *Arbiter) arrive(now time.Time, t *ticket) {
	t.again = t.place.Arrival != 0
	t.priority = t.job.Rule.Priority + t.job.request.Priority
	if t.again {
		a.arrival = max(a.arrival, t.place.Arrival) // an earlier daemon may have given it out
	} else {
		a.arrival++
		t.place.Arrival, t.place.Since = a.arrival, now
	}
	if t.place.Absent {
		t.place.Absent, t.until = false, now.Add(AbsentFor)
	}
	if t.place.Since.IsZero() || t.place.Since.After(now) {
		t.place.Since = now
	}
	if t.lease != nil {
		t.spots = []spot{{device: t.lease.device}}
	}
	a.noteSince(t)
}

// mayWait returns ReasonNone if a request that cannot be served may wait, else the reason for which it is refused.
func (a *Arbiter) mayWait(now time.Time, t *ticket) Reason {
	slots := t.lease == nil || t.lacks(full.ofPermits)
	switch {
	case !slots && !t.waitsForBytes():
		return t.shortOf()
	case t.noWait || t.job.request.NoWait:
		return ReasonBusy
	case slots:
		return ReasonNone
	case t.kind == WantsBytes && !t.again && t.lease.burst(now, t.thread, t.job.Rule.WaitAfter):
		return t.shortOf()
	}
	return ReasonNone
}

// shortOf returns the limit that a request is refused for. If several limits refuse it, that is the narrowest one at which calling back
// idle credit would not have made room.
func (t *ticket) shortOf() Reason {
	if t.short != nil {
		return reasonOf(t.short)
	}
	return t.why.reason
}

// The bounds on requests that wait: in all, of one user, and of one process. The bound of a user does not hold for a
// privileged one.
const (
	MaxTickets          = 1024
	MaxTicketsOfUser    = 512
	MaxTicketsOfProcess = 64
)

// crowded returns the message of a request for which there is no place in the queue, because a bound is reached, which the message names;
// "": there is one.
func (a *Arbiter) crowded(t *ticket) string {
	switch p := t.process(); {
	case t.aside:
		return wording.CrowdedAside
	case a.ticketsOfPID[p.PID] >= MaxTicketsOfProcess:
		return fmt.Sprintf(wording.CrowdedByProcess, MaxTicketsOfProcess)
	case !p.MayPass() && a.ticketsOf[p.UID] >= MaxTicketsOfUser:
		return fmt.Sprintf(wording.CrowdedByUser, p.UID, MaxTicketsOfUser)
	case len(a.tickets) >= MaxTickets:
		return fmt.Sprintf(wording.Crowded, MaxTickets)
	}
	return ""
}

// countTicket counts a ticket that begins to wait (by is 1) or stops waiting (by is -1).
func (a *Arbiter) countTicket(t *ticket, by int) {
	p := t.process()
	count(a.ticketsOfPID, p.PID, by)
	count(a.ticketsOf, p.UID, by)
}

// count adds by to one of some counts, and deletes the entry when the count is 0.
func count[K comparable](counts map[K]int, of K, by int) {
	if counts[of] += by; counts[of] <= 0 {
		delete(counts, of)
	}
}

// waitsForBytes reports whether requests of a ticket's process wait for memory: by on_full of the process, of its job, or of the rule.
func (t *ticket) waitsForBytes() bool {
	switch {
	case t.session != nil && t.session.onFull != "":
		return t.session.onFull == rules.OnFullWait
	case t.job.request.Wait:
		return true
	}
	return t.job.Rule.OnFull == rules.OnFullWait
}

// burst counts a thread's refusals that follow each other closely. The first wait_after of them come at once, so that the program's allocator
// can release what it caches; requests after these wait.
type burst struct {
	count int
	last  time.Time
}

// burstLasts is how long after a refusal another refusal still belongs to the same burst.
const burstLasts = 10 * time.Second

// burst reports whether a request of a thread is refused at once, because its burst has had fewer than most refusals, and counts that refusal.
func (l *lease) burst(now time.Time, thread uint32, most int) bool {
	if most <= 0 {
		return false
	}
	b := l.bursts[thread]
	if now.Sub(b.last) > burstLasts {
		b.count = 0
	}
	if b.count >= most {
		return false
	}
	if l.bursts == nil || len(l.bursts) >= MaxThreads { // threads that are forgotten begin a new burst
		l.bursts = make(map[uint32]burst)
	}
	l.bursts[thread] = burst{b.count + 1, now}
	return true
}

// enqueue enters a request among those that wait.
func (a *Arbiter) enqueue(now time.Time, t *ticket) {
	a.lastTicket++
	t.id, t.parked = a.lastTicket, now
	if wait := t.job.timeout(); wait >= 0 {
		t.deadline = t.place.Since.Add(wait)
	}
	a.tickets[t.id] = t
	a.countTicket(t, 1)
	countWaiting(t, 1)
	t.job.tickets = append(t.job.tickets, t)
	at, _ := slices.BinarySearchFunc(a.queue, t, a.compare)
	a.queue = slices.Insert(a.queue, at, t)
	for i := range t.spots {
		t.spots[i].device.waiting++
	}
	if l := t.lease; l != nil {
		l.waits++
	}
	if len(t.job.tickets) == 1 { // from the job's first ticket on its processes report what they free
		for _, s := range t.job.sessions {
			for _, l := range s.leases {
				a.collect(l)
			}
		}
	}
	a.changed()
}

// park enters a request among those that wait, tells of it, and runs a cycle.
func (a *Arbiter) park(now time.Time, t *ticket) {
	a.enqueue(now, t)
	a.stats.Waited++
	a.event(a.eventOf(now, t, EventQueued, fmt.Sprintf(wording.Queued, t.name(), a.requestText(t), t.gpu(), a.moment(now).positions[t], t.why.reason.plain())))
	if !t.deadline.IsZero() && !t.deadline.After(now) { // its time was over before it came again
		a.cancel(now, t, ReasonTimeout)
		return
	}
	a.cycle(now)
}

// timeout returns how long a job's requests wait; negative: without end.
func (j *job) timeout() time.Duration {
	switch {
	case j.request.Forever:
		return rules.NoTimeout
	case j.request.Timeout > 0:
		return j.request.Timeout
	}
	return j.Rule.WaitTimeout
}

// unpark takes a ticket out of the queue.
func (a *Arbiter) unpark(now time.Time, t *ticket) {
	delete(a.tickets, t.id)
	a.countTicket(t, -1)
	countWaiting(t, -1)
	remove := func(from []*ticket) []*ticket {
		at := slices.Index(from, t)
		return slices.Delete(from, at, at+1)
	}
	t.job.tickets, a.queue = remove(t.job.tickets), remove(a.queue)
	for i := range t.spots {
		d := t.spots[i].device
		d.waiting--
		d.lines(t.shares, func(l *limit) { l.watched = l.watched && d.waiting > 0 })
	}
	if l := t.lease; l != nil {
		l.waits--
	}
}

// sort brings the queue into the order in which requests are served now.
func (a *Arbiter) sort(now time.Time) {
	if now.After(a.sorted) {
		a.sorted = now
		slices.SortFunc(a.queue, a.compare)
	}
}

// collect tells a lease's client to report what it frees from now on, and then takes back the lease's idle credit.
func (a *Arbiter) collect(l *lease) {
	a.reflag(l)
	a.recallAll(l)
}

// recallAll takes back all idle credit of a lease.
func (a *Arbiter) recallAll(l *lease) {
	if idle := a.idle(l); idle > 0 {
		a.stats.RecalledBytes += uint64(a.take(l, idle))
	}
}

// wanted reports whether a request waits that could go on by what a lease frees.
func (l *lease) wanted() bool {
	return l.contended() || l.device.entry[permit.Slot].watched && l.slotByBytes()
}

// slotByBytes reports whether a lease may keep a slot for nothing but memory, so that a free may give the slot back.
func (l *lease) slotByBytes() bool {
	if l.scope != rules.ScopeThread || l.slot != nil {
		return l.contexts == 0 && l.Streams() == 0
	}
	return l.makers.ByBytes()
}

// contended reports whether a request waits for bytes at a limit above a lease, or a request of its own job waits. The idle credit of a
// waiting job must be taken back, or the job would seem to hold memory in the search for deadlocks.
func (l *lease) contended() bool {
	if len(l.session.job.tickets) > 0 {
		return true
	}
	for sh := range l.session.shares {
		if sh.limitOn(l.device).watched {
			return true
		}
	}
	return l.device.bytes.watched
}

// reflag sets NOTIFY in a lease's credit word if a waiting request could go on by what the lease frees. Freed clears the flag, when a free is
// reported that no request waits for.
func (a *Arbiter) reflag(l *lease) {
	if l.notify || l.lost || !l.session.alive() || !l.wanted() {
		return
	}
	l.notify = true
	a.flag(l)
}
