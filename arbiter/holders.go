package arbiter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file describes what jobs hold and what tickets ask for, in figures and in words. refuse.go, explain.go and notice.go use it for
// messages, and deadlock.go for the search.

// holdersWait reports whether several processes of a job hold something, and each of them has a waiting request.
func (j *job) holdersWait() bool {
	holding := j.holding()
	return len(holding) > 1 && !slices.ContainsFunc(holding, func(s *session) bool { return len(s.waits) == 0 })
}

// committed returns the bytes that a job takes on a device: what its living processes hold, with charged overhead, or its reservation if
// that is larger.
func (j *job) committed(d *device) accounting.Bytes {
	var held accounting.Bytes
	for l := range j.leasesOn(d) {
		if l.session.alive() {
			held = held.Plus(l.Granted()).Plus(l.Charged())
		}
	}
	return max(held, j.limits(d).Least())
}

// away returns how many bytes of a job's living processes are managed memory that is away from the device.
func (j *job) away(d *device) (away accounting.Bytes) {
	for l := range j.leasesOn(d) {
		if l.session.alive() {
			away = away.Plus(l.Away())
		}
	}
	return away
}

// holding returns the living processes of a job that hold something.
func (j *job) holding() (holding []*session) {
	for _, s := range j.sessions {
		if s.alive() && s.holds() {
			holding = append(holding, s)
		}
	}
	return holding
}

// holds reports whether a process holds anything that another job could wait for.
func (s *session) holds() bool {
	return slices.ContainsFunc(s.leases, func(l *lease) bool {
		return !l.lost && (s.budget.Account(l.device.Index).Committed > 0 || l.contexts > 0 || l.Streams() > 0 || l.holds > 0)
	})
}

// holdsNothing reports whether a job has neither memory in use nor a reservation.
func (a *Arbiter) holdsNothing(j *job) bool {
	for _, d := range a.devices {
		if j.budget.Account(d.Index).Committed == 0 {
			continue
		}
		if j.limits(d).Min > 0 {
			return false
		}
		for l := range j.leasesOn(d) {
			if l.Granted() > a.idle(l) || l.session.limits(d).Min > 0 {
				return false
			}
		}
	}
	return true
}

// holds reports whether a job holds anything that another job could wait for: memory in use, a reservation or a permit. Contexts and streams
// are not tested, because their owner takes a slot for the first of them.
func (a *Arbiter) holds(j *job) bool { return j.slots > 0 || !a.holdsNothing(j) }

// heldAt returns a text with the holders at a limit, for the program of a ticket.
func (a *Arbiter) heldAt(now time.Time, l *limit, t *ticket) string {
	if l.kind != limitsBytes {
		return slotsHeld(now, l.device, t.namesWithin())
	}
	return a.bytesHeldAt(now, l, t, a.topHolders(l.device, l.budget()))
}

// bytesHeldAt returns a text with the holders of bytes at a limit, for the program of a ticket.
func (a *Arbiter) bytesHeldAt(now time.Time, l *limit, t *ticket, held topHolders) string {
	d, b := l.device, l.budget()
	holders, free := held.text(a, now, asker{t.job, t.lease, t.namesWithin()}), a.ledger.Available(b, d.Index)
	text := fmt.Sprintf(wording.MemoryHeld, free.Human(), holders)
	switch {
	case holders != "":
	case b == nil && held.count == 0:
		return ""
	case free > 0:
		text = fmt.Sprintf(wording.Free, free.Human())
	default:
		text = wording.NothingFree
	}
	switch {
	case l.within != nil:
		return fmt.Sprintf(wording.BudgetHeld, t.job.limitAt(b, b.Limits(d.Index).Max), text)
	case l.shared != nil:
		return fmt.Sprintf(wording.BudgetHeld, l.shared.describeLimit(d, l.shared.limits(d).Max), text)
	}
	return text
}

// slotsHeld returns a text with the holders of a device's slots, and since when they have them. within limits the
// names, as in asker.
func slotsHeld(now time.Time, d *device, within *job) string {
	var names []string
	taken := len(d.permits[permit.Slot])
	for _, h := range oldestHolders(d) {
		if within == nil || h.Job == within || h.Job.isInside(within) {
			names = append(names, wording.Holder(h.owned(), 0, "", now, h.since))
		}
	}
	switch who := wording.List(names, taken); {
	case taken == 0:
		return ""
	case len(d.permits[permit.Sole]) > 0:
		return fmt.Sprintf(wording.HeldAlone, who)
	case d.slotsMax() == 0:
		return fmt.Sprintf(wording.DeviceHeld, who)
	default:
		return fmt.Sprintf(wording.SlotsHeld, taken, d.slotsMax(), who)
	}
}

// oldestHolders returns the oldest holders of a device's slots, as many as a message names, the oldest first.
func oldestHolders(d *device) []*holder {
	oldest := make([]*holder, 0, namedHolders+1)
	for _, h := range d.permits[permit.Slot] {
		at, _ := slices.BinarySearchFunc(oldest, h, oldestFirst)
		oldest = slices.Insert(oldest, at, h)
		oldest = oldest[:min(len(oldest), namedHolders)]
	}
	return oldest
}

// oldestFirst compares holders by the time since when they hold, then by job, process and thread.
func oldestFirst(x, y *holder) int {
	c := cmp.Or(x.since.Compare(y.since), cmp.Compare(x.Job.id, y.Job.id), cmp.Compare(x.Thread, y.Thread))
	if c == 0 && x.Process != nil && y.Process != nil {
		c = cmp.Compare(x.Process.id, y.Process.id)
	}
	return c
}

// memoryHolder holds memory of a device. who is a *lease, a *job or *shared with a reservation, or the *figures.UnmanagedState of a process
// without a lease.
type memoryHolder struct {
	bytes  accounting.Bytes
	holder any
}

// idleShown is how long a process must have done nothing before a sentence calls it idle.
const idleShown = time.Minute

// describe returns the holder as part of a sentence. It is called only for the few holders that the sentence names.
func (h *memoryHolder) describe(now time.Time) string {
	switch who := h.holder.(type) {
	case *lease:
		text := wording.Holder(wording.Owned(who.session.process.User, who.session.name()), h.bytes, "", now, who.opened)
		if !now.IsZero() {
			who.noteCalls(now)
			if idle := who.unused(now); idle >= idleShown {
				text += fmt.Sprintf(wording.IdleFor, wording.Span(idle))
			}
		}
		return text
	case *job:
		return wording.Holder(who.owned(), h.bytes, "reserved", now, who.opened)
	case *shared:
		return wording.Holder(who.describe(), h.bytes, "reserved", now, time.Time{})
	}
	u := h.holder.(*figures.UnmanagedState)
	return wording.Holder(wording.Owned(u.User, wording.Stranger(u.Command, u.PID)), h.bytes, "unmanaged", now, u.Since)
}

// topHolders are the largest holders of a budget on a device. There are two more of them than a message names, because a message does not
// name its own program: neither its lease nor the reservation of its job.
type topHolders struct {
	all   [namedHolders + 2]memoryHolder
	count int                // number of all holders: all has only the largest of them
	sum   accounting.Bytes   // bytes of the holders that count counts
	of    *accounting.Budget // nil: the device
}

// insert adds a holder.
func (top *topHolders) insert(h memoryHolder) {
	if h.bytes > 0 {
		top.count++
		top.sum = top.sum.Plus(h.bytes)
	}
	for i := range top.all {
		if h.bytes > top.all[i].bytes {
			h, top.all[i] = top.all[i], h
		}
	}
}

// holders returns a text with the largest holders of a budget on a device (nil: of the device), for the program of a lease.
func (a *Arbiter) holders(now time.Time, d *device, of *accounting.Budget, asks *lease) string {
	held := a.topHolders(d, of)
	return held.text(a, now, asker{asks.session.job, asks, asks.session.job.binding()})
}

// topHolders returns the largest holders of a budget on a device (nil: of the device): processes by usage, jobs and shared budgets by unused
// reservation, and processes without a lease.
func (a *Arbiter) topHolders(d *device, of *accounting.Budget) (top topHolders) {
	top.of = of
	for l := range a.leasesBelow(of, d.Index) {
		top.insert(memoryHolder{l.Granted() - a.idle(l), l})
	}
	for _, h := range a.reservations(d, of) {
		top.insert(h)
	}
	for i := range d.unmanagedBy {
		if u := &d.unmanagedBy[i]; of == nil || a.countsIn(u, of) {
			top.insert(memoryHolder{u.Bytes, u})
		}
	}
	return top
}

// asker is the program that a message is for.
type asker struct {
	job    *job
	lease  *lease // nil: the job itself asks
	within *job   // job of a cgroup: the message names no programs outside this job; nil: it may name all programs
}

// isTold reports whether a message to a program may name a holder. A job around the program's own may be named, but not the programs in
// that job.
func (by *asker) isTold(a *Arbiter, holder any) bool {
	if by.within == nil {
		return true
	}
	switch h := holder.(type) {
	case *lease:
		return h.session.job == by.within || h.session.job.isInside(by.within)
	case *job:
		return by.within.shows(h)
	case *figures.UnmanagedState:
		j := a.jobs[JobID(h.Job)]
		return j != nil && (j == by.within || j.isInside(by.within))
	}
	return false
}

// text returns the names of the largest holders, for a message to a program. It leaves out the program itself: its lease, and the
// reservation of its job. Of holders that the message does not name, it gives the number. If the program must not see the name of one of
// them, it also gives the sum of their bytes. If now is not zero, the text says since when the named holders hold their bytes.
func (top *topHolders) text(a *Arbiter, now time.Time, by asker) string {
	var names []string
	count, unnamed, hides := top.count, top.sum, false // unnamed: bytes of the holders that are not named
	endedJob := JobID(0)                               // first named job whose command has ended while its reservation stays; 0: none
	for _, h := range top.all[:min(count, len(top.all))] {
		if top.isOwn(h.holder, by) {
			count--
			unnamed = unnamed.Less(h.bytes)
			continue
		}
		if !by.isTold(a, h.holder) {
			hides = true
			continue
		}
		if len(names) == namedHolders {
			continue
		}
		names, unnamed = append(names, h.describe(now)), unnamed.Less(h.bytes)
		if j, ok := h.holder.(*job); ok && endedJob == 0 && j.stillRuns() != "" {
			endedJob = j.id
		}
	}
	text := wording.List(names, count)
	if hides {
		text += fmt.Sprintf(wording.WithBytes, unnamed.Human())
	}
	if endedJob != 0 {
		text += fmt.Sprintf(wording.GiveBack, endedJob, endedJob)
	}
	return text
}

// isOwn reports whether a holder is the program that asks: its lease, or the reservation of its job.
func (top *topHolders) isOwn(holder any, by asker) bool {
	switch h := holder.(type) {
	case *lease:
		return h == by.lease
	case *job:
		return h == by.job && top.of != by.job.budget // in the budget of the job, these are reservations of its other processes
	}
	return false
}

// has reports whether the program that asks is among the largest holders, as in isOwn.
func (top *topHolders) has(by asker) bool {
	return slices.ContainsFunc(top.all[:], func(h memoryHolder) bool { return top.isOwn(h.holder, by) })
}

// reservations returns the jobs with unused reservations in a budget on a device (nil: on the device), the oldest first. For the device the
// shared budgets with unused reservations follow, sorted by name.
func (a *Arbiter) reservations(d *device, of *accounting.Budget) (all []memoryHolder) {
	sums := a.ledger.Device(d.Index)
	held, promised := sums.Held, sums.Committed
	if of != nil {
		held, promised = of.Account(d.Index).Held, of.Load(d.Index)
	}
	if promised <= held { // nothing is reserved and unused
		return nil
	}
	for _, j := range a.jobs {
		if n := j.unused(d, of); n > 0 {
			all = append(all, memoryHolder{n, j})
		}
	}
	jobs := len(all)
	if of == nil {
		for _, s := range a.shareds {
			if n := s.unused(d); n > 0 {
				all = append(all, memoryHolder{n, s})
			}
		}
	}
	slices.SortFunc(all[:jobs], func(x, y memoryHolder) int { return cmp.Compare(x.holder.(*job).id, y.holder.(*job).id) })
	slices.SortFunc(all[jobs:], func(x, y memoryHolder) int {
		s, t := x.holder.(*shared), y.holder.(*shared)
		return cmp.Or(cmp.Compare(s.ownerName, t.ownerName), cmp.Compare(s.key.rule.String(), t.key.rule.String()))
	})
	return all
}

// unused returns how much more is reserved on a device for the shared budget itself than is held or reserved below it.
func (s *shared) unused(d *device) accounting.Bytes {
	return s.budget.Account(d.Index).Committed.Less(s.budget.Load(d.Index))
}

// unused returns how much more of a budget on a device (nil: of the device) is reserved for a job than the job holds. If only the job's
// processes are charged to the budget, and not the job as a whole, it is the sum of their unused reservations.
func (j *job) unused(d *device, of *accounting.Budget) (sum accounting.Bytes) {
	if of == nil || of != j.budget && countsAt(j.budget, of) {
		sum = unusedOf(j.budget, d)
		for _, in := range j.inside { // topHolders has the jobs inside as holders of their own
			sum = sum.Less(unusedOf(in.budget, d))
		}
		return sum
	}
	if sh := sharedOf(of); of != j.budget && (sh == nil || !sh.ofCgroup()) {
		return 0
	}
	for _, s := range j.sessions {
		if of != s.budget && countsAt(s.budget, of) {
			sum = sum.Plus(unusedOf(s.budget, d))
		}
	}
	return sum
}

// unusedOf returns how much more is reserved on a device for a budget and the budgets below it than they hold.
func unusedOf(b *accounting.Budget, d *device) accounting.Bytes {
	sums := b.Account(d.Index)
	return sums.Committed.Less(sums.Held)
}

// countsAt reports whether b is charged to of too.
func countsAt(b, of *accounting.Budget) bool {
	for above := range b.Chain() {
		if above == of {
			return true
		}
	}
	return false
}

// holdings returns a text with what a job holds.
func (a *Arbiter) holdings(j *job) string {
	var parts []string
	for _, d := range a.devices {
		var what []string
		if n := j.committed(d); n > 0 {
			what = append(what, n.Human())
		} else if j.budget.Account(d.Index).Overhead > 0 {
			what = append(what, wording.Context)
		}
		if j.occupies(d) {
			what = append(what, wording.Slot)
		}
		if what != nil {
			parts = append(parts, fmt.Sprintf(wording.OnDevice, strings.Join(what, " and "), d))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), wording.Nothing)
}

// reservedByOthers returns the bytes that are reserved on a device for others than a job, and for contexts of others. all is what is
// reserved there in all (allReserved).
func (j *job) reservedByOthers(d *device, all accounting.Bytes) accounting.Bytes {
	top := j.outermost()
	own := top.budget.Reserved(d.Index)
	if top.shared != nil {
		own = top.shared.budget.Reserved(d.Index)
	}
	return all.Less(own.Plus(top.headroom(d.Index)))
}

// allReserved returns the bytes that are reserved on a device for all jobs, shared budgets and contexts.
func (a *Arbiter) allReserved(d *device) accounting.Bytes {
	sum := a.reservedBelow(d)
	for _, j := range a.jobs {
		if j.around != nil {
			continue
		}
		if sum = sum.Plus(j.headroom(d.Index)); j.shared == nil {
			sum = sum.Plus(j.budget.Reserved(d.Index))
		}
	}
	return sum
}

// reservedBelow returns the bytes that the shared budgets of rules, and the budgets below them, reserve on a device.
func (a *Arbiter) reservedBelow(d *device) (sum accounting.Bytes) {
	for _, s := range a.shareds {
		if s.limit == nil {
			sum = sum.Plus(s.budget.Reserved(d.Index))
		}
	}
	return sum
}

// besideReserved returns a text if n bytes cannot fit on a device beside what a job uses there and what others reserve, even if all others
// free the rest; else "". all is as in reservedByOthers.
func (a *Arbiter) besideReserved(j *job, d *device, n, all accounting.Bytes) string {
	others := j.reservedByOthers(d, all)
	if others == 0 || n == 0 {
		return ""
	}
	used, context := accounting.Bytes(0), d.contextRoom()
	for l := range j.leasesOn(d) {
		if l.session.alive() {
			used = used.Plus(l.Granted()).Less(a.idle(l))
			context = max(context, l.extra.Cost())
		}
	}
	most := d.grantable().Less(others.Plus(context).Plus(used))
	if n <= most {
		return ""
	}
	also := ""
	if context > 0 {
		also = fmt.Sprintf(wording.AndContext, context.Human())
	}
	return fmt.Sprintf(wording.BesideKept, others.Human(), also, most.Human())
}

// gpu returns the device of a ticket as it follows the request in a sentence: " on GPU 0". For a ticket that any of several devices can
// serve, it returns "".
func (t *ticket) gpu() string {
	if t.any {
		return ""
	}
	return fmt.Sprintf(wording.OnDevice, "", t.narrowestLimit().device)
}

// requestText returns a text with what a ticket asks for.
func (a *Arbiter) requestText(t *ticket) string {
	n, r, what := a.wantsBytes(t), &t.job.request, wording.Slot
	switch {
	case t.kind == WantsBytes:
		return n.Human()
	case t.kind == wantsReturn:
		return fmt.Sprintf(wording.Return, n.Human())
	case t.kind == WantsStreams:
		return wording.Stream
	case a.isFurther(t):
		return wording.AnotherContext
	case t.lease != nil:
		return wording.Context
	case t.kind != wantsSession && r.Exclusive:
		what = wording.WholeDevice
	case t.kind != wantsSession && (r.Claim || r.Any):
		what = wording.Device
	case t.kind == wantsSession || n > 0 && !slices.ContainsFunc(t.candidates, func(s candidate) bool { return s.asks[permit.Slot] && s.device.slotsMax() > 0 }):
		return fmt.Sprintf(wording.Reservation, n.Human())
	}
	if n > 0 {
		return fmt.Sprintf(wording.WithAReservation, what, n.Human())
	}
	return what
}

// wantsBytes returns how many bytes a ticket asks for on a device. With several devices it is the largest number.
func (a *Arbiter) wantsBytes(t *ticket) (most accounting.Bytes) {
	if t.lease != nil || t.bytes > 0 { // serveSession stores the bytes of a reservation in t before it makes the reservation
		return t.bytes
	}
	for i := range t.candidates {
		n, _ := t.reserves(t.candidates[i].device)
		most = max(most, n)
	}
	return most
}

// heldBy returns what a job holds on each device.
func (a *Arbiter) heldBy(j *job) []Held {
	held := []Held{}
	for _, d := range a.devices {
		h := Held{Device: d.Index, Bytes: j.committed(d), Slot: j.occupies(d)}
		if h.Bytes > 0 || h.Slot {
			held = append(held, h)
		}
	}
	return held
}
