package arbiter

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// line is where those wait that a shared budget has no room for on a device.
func (s *shared) line(d *device) *line {
	l := s.lines[d]
	if l == nil {
		l = &line{}
		if s.lines == nil {
			s.lines = make(map[*device]*line)
		}
		s.lines[d] = l
	}
	return l
}

// rankAfter is how long a request has to wait for one more of priority.
const rankAfter = time.Minute

// rank is a ticket's priority with what waiting has added to it.
func (a *Arbiter) rank(now time.Time, t *ticket) int {
	return t.priority + int(max(0, now.Sub(t.place.Since))/rankAfter)
}

// compare orders requests by which is served first if both can be, as of when the queue was sorted last.
func (a *Arbiter) compare(x, y *ticket) int {
	if x.priority != y.priority {
		if c := cmp.Compare(a.rank(a.sorted, y), a.rank(a.sorted, x)); c != 0 {
			return c
		}
	}
	return byArrival(x, y)
}

// ask decides a request, or has it wait.
func (a *Arbiter) ask(now time.Time, t *ticket) {
	a.asking = t
	defer func() { a.asking = nil }()
	a.sort(now)
	a.arrive(now, t)
	if l := t.lease; l != nil && (width(l.scope) > 0 || l.session.slots > 0 || l.device.waiting > 0 || l.device.overfull()) {
		a.left(now, l)
	}
	if t.lease != nil {
		if why := a.threadCrowded(t.lease, t.thread); why != "" {
			a.refuseTicket(now, t, ReasonThreads, &accounting.Refusal{Device: t.lease.device.Index, Requested: t.bytes}, why)
			return
		}
	}
	v := a.judge(t)
	if t.lease != nil && t.at()&(atBytes|atBudgets) != 0 || v.final {
		a.countLimit(t)
	}
	if v.final {
		a.refuseNow(now, t, v.reason)
		return
	}
	if v.spot == nil || t.any && (v.spot != &t.spots[0] || len(v.spot.device.permits[permit.Slot]) > 0) {
		a.tidy(now, t)
		v = a.judge(t)
	}
	if !v.final && a.helps(t) {
		v = a.judge(t)
	}
	if v.final {
		a.refuseNow(now, t, v.reason)
		return
	}
	if v.spot != nil {
		if a.serve(now, t, v.spot) {
			if slices.ContainsFunc(a.queue, t.narrows) {
				a.changed()
			}
			return
		}
		// Its own threads took from its word meanwhile what it was to be served from.
		if r := t.short; r != nil && (reasonOf(r) == ReasonOverBudget || !a.judge(t).waits()) {
			a.refuseNow(now, t, reasonOf(r))
			return
		}
	}
	a.disown(t)
	if why := a.mayWait(now, t); why != ReasonNone {
		a.refuseNow(now, t, why)
		return
	}
	if !t.again && a.crowded(t) != "" {
		a.refuseNow(now, t, ReasonCrowded)
		return
	}
	if t.lease != nil { // who waits keeps no slot that nothing of its is in
		a.left(now, t.lease)
		a.judge(t)
	}
	a.park(now, t)
}

// tidy has those give their slots back who have no object left and did not say so, where a
// slot is wanted or a device that nobody is on. Whoever is only short of bytes may be
// refused, and keeps its own: with the slot would go what it has idle.
func (a *Arbiter) tidy(now time.Time, t *ticket) {
	for i := range t.spots {
		if t.any || t.spots[i].hard&(atSlots|atWish) != 0 {
			a.sweep(now, t.spots[i].device)
		}
	}
	if t.lease != nil && t.at()&(atSlots|atWish) != 0 {
		a.left(now, t.lease)
	}
}

// refuseNow refuses a request that did not wait: with the figures as they would be had all
// idle credit been called back.
func (a *Arbiter) refuseNow(now time.Time, t *ticket, why Reason) {
	r := t.short
	if r == nil && t.lease != nil && a.chained(t) && t.bytes > 0 && why != ReasonTooLarge {
		_, r = a.shortage(t)
	}
	if r == nil || why != ReasonBusy && reasonOf(r) != why {
		r = a.refusal(t, why)
	}
	text := ""
	if why == ReasonCrowded {
		text = a.crowded(t)
	}
	a.refuseTicket(now, t, why, r, text)
}

// ArriveAfter ranks later requests behind one with this arrival number, which came to the daemon before this one.
func (a *Arbiter) ArriveAfter(arrival uint64) { a.arrival = max(a.arrival, arrival) }

// arrive gives a request its place.
func (a *Arbiter) arrive(now time.Time, t *ticket) {
	t.again = t.place.Arrival != 0
	t.priority = t.job.Rule.Priority + t.job.request.Priority
	if t.again {
		a.ArriveAfter(t.place.Arrival)
	} else {
		a.arrival++
		t.place = Place{Arrival: a.arrival, Since: now}
	}
	if t.place.Since.IsZero() || t.place.Since.After(now) {
		t.place.Since = now
	}
	if t.lease != nil {
		t.spots = []spot{{device: t.lease.device}}
	}
	a.noteSince(t)
}

// mayWait tells whether a request that is not served may wait: ReasonNone, or why not.
func (a *Arbiter) mayWait(now time.Time, t *ticket) Reason {
	slots := t.lease == nil || t.at()&(atSlots|atWish) != 0
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

// shortOf is the limit that a request is refused for: where several refuse, the narrowest
// that idle credit would not have made room at.
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

// crowded returns the message of a request that may not wait because a bound is reached, which the message names; "": it may wait.
func (a *Arbiter) crowded(t *ticket) string {
	switch p := t.process(); {
	case a.ticketsOfPID[p.PID] >= MaxTicketsOfProcess:
		return fmt.Sprintf(wording.CrowdedByProcess, t.name(), MaxTicketsOfProcess)
	case !p.MayPass() && a.ticketsOf[p.UID] >= MaxTicketsOfUser:
		return fmt.Sprintf(wording.CrowdedByUser, p.UID, MaxTicketsOfUser)
	case len(a.tickets) >= MaxTickets:
		return fmt.Sprintf(wording.Crowded, MaxTickets)
	}
	return ""
}

// countTicket counts a ticket that begins to wait (by 1), or does no longer (by -1).
func (a *Arbiter) countTicket(t *ticket, by int) {
	p := t.process()
	count(a.ticketsOfPID, p.PID, by)
	count(a.ticketsOf, p.UID, by)
}

// count adds to one of some counts, and forgets it when it comes to nothing.
func count[K comparable](counts map[K]int, of K, by int) {
	if counts[of] += by; counts[of] <= 0 {
		delete(counts, of)
	}
}

// waitsForBytes tells whether a request of a lease waits for room beyond memory.min.
func (t *ticket) waitsForBytes() bool {
	switch {
	case t.session != nil && t.session.onFull != "":
		return t.session.onFull == rules.OnFullWait
	case t.job.request.Wait:
		return true
	}
	return t.job.Rule.OnFull == rules.OnFullWait
}

// burst counts refusals of a thread that come one after the other, so that it drops what
// it keeps: more than the first few of them wait.
type burst struct {
	count int
	last  time.Time
}

// burstLasts is how long after a refusal the next one is of the same burst.
const burstLasts = 10 * time.Second

// burst tells whether a refusal is to come at once, and counts it.
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
	if l.bursts == nil || len(l.bursts) >= MaxThreads { // those who are forgotten are refused at once again
		l.bursts = make(map[uint32]burst)
	}
	l.bursts[thread] = burst{b.count + 1, now}
	return true
}

// park has a request wait.
func (a *Arbiter) park(now time.Time, t *ticket) {
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
	if len(t.job.tickets) == 1 { // from then on what its processes free is told
		for _, s := range t.job.sessions {
			for _, l := range s.leases {
				a.collect(l)
			}
		}
	}
	a.changed()
	a.stats.Waited++
	a.event(a.eventOf(now, t, EventQueued, fmt.Sprintf(wording.Queued, t.name(), a.requestText(t), t.gpu(), a.position(t), t.why.reason.plain())))
	if !t.deadline.IsZero() && !t.deadline.After(now) { // it waited long enough before it came again
		a.cancel(now, t, ReasonTimeout)
		return
	}
	a.cycle(now)
}

// timeout is how long a job's requests wait; below 0: without end.
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
		d.lines(t.shares, func(l *line) { l.watched = l.watched && d.waiting > 0 })
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

// collect flags a lease and takes back what it has idle.
func (a *Arbiter) collect(l *lease) {
	a.reflag(l)
	a.recallAll(l)
}

// recallAll takes back all that a lease has idle.
func (a *Arbiter) recallAll(l *lease) {
	if idle := a.idle(l); idle > 0 {
		a.stats.RecalledBytes += uint64(a.take(l, idle))
	}
}

// wanted tells whether somebody waits who wants to know what a lease frees.
func (l *lease) wanted() bool {
	return l.contended() || l.device.entry[permit.Slot].watched && l.slotByBytes()
}

// slotByBytes reports whether memory alone may keep a slot: what is freed gives it back.
func (l *lease) slotByBytes() bool {
	if l.scope != rules.ScopeThread || l.slot != nil {
		return l.contexts == 0 && l.Streams() == 0
	}
	return l.makers.ByBytes()
}

// contended tells whether somebody waits for bytes at a limit above a lease, or its own
// job waits: what that has idle must not look as if it held something.
func (l *lease) contended() bool {
	if len(l.session.job.tickets) > 0 {
		return true
	}
	for sh := range l.session.shares {
		if sh.lines[l.device] != nil && sh.lines[l.device].watched {
			return true
		}
	}
	return l.device.bytes.watched
}

// reflag has a lease's word report frees where somebody wants to know. It is not
// cleared before a free has reported itself in vain.
func (a *Arbiter) reflag(l *lease) {
	if l.notify || l.lost || !l.session.alive() || !l.wanted() {
		return
	}
	l.notify = true
	a.flag(l)
}
