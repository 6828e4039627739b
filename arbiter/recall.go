package arbiter

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file recalls idle credit from leases, to make room for a request of another lease or after the capacity has fallen. Idle credit is
// bytes that are granted to a lease and not used by its client. This file also computes how much a request could get by a recall, and gives
// leases some surplus credit. evaluate.go, serve.go and query.go call it.

// donor is a lease whose idle credit would make room at a limit.
type donor struct {
	lease *lease
	gain  accounting.Bytes // bytes by which the sum at the limit falls if this donor gives its credit after the donors before it
}

// donors returns the leases other than asker whose idle credit would make room at the limit that refused, and how much room all of it would
// make. It changes nothing. It reads every lease below the limit, so that it is called only before a request is refused or has to wait.
func (a *Arbiter) donors(asker *lease, r *accounting.Refusal) (found []donor, total accounting.Bytes) {
	for l := range a.leasesBelow(r.Budget, r.Device) {
		if l == asker {
			continue
		}
		if idle := a.idle(l); idle > 0 {
			if gain := r.Yield(&l.Lease, idle); gain > 0 {
				found = append(found, donor{l, gain})
				total = total.Plus(gain)
			}
		}
	}
	return found, total
}

// recall recalls as much idle credit as the limit is short of. It takes the donors with the largest gain first, to change few credit words.
func (a *Arbiter) recall(asker *lease, from []donor, r *accounting.Refusal) {
	slices.SortStableFunc(from, func(x, y donor) int { return cmp.Compare(y.gain, x.gain) })
	short, e := r.Short, Event{Kind: EventRecalled, Device: r.Device}
	for _, c := range from {
		if short == 0 {
			break
		}
		got := a.recallIdle(c.lease, min(c.gain, short))
		a.stats.RecalledBytes += uint64(got)
		if short = short.Less(got); got > 0 {
			e.Bytes = e.Bytes.Plus(got)
			e.Leases++
		}
	}
	a.recalled(asker, e)
}

// recalled records an event with the number of leases that gave credit, and the lease that the credit was recalled for.
func (a *Arbiter) recalled(asker *lease, e Event) {
	if e.Bytes == 0 {
		return
	}
	if asker != nil {
		e.about(asker.session.process)
		e.in(asker.session.job)
		e.Lease, e.program = asker.id, asker.session.name()
	}
	a.event(e)
}

// recallFor recalls idle credit of leases other than asker, at one limit after the other, until check returns nil. At a limit at which all
// idle credit would not make enough room, it recalls nothing and returns false.
func (a *Arbiter) recallFor(asker *lease, check func() *accounting.Refusal) bool {
	for range 8 {
		r := check()
		if r == nil {
			return true
		}
		from, gain := a.donors(asker, r)
		if gain < r.Short {
			return false
		}
		a.recall(asker, from, r)
	}
	return check() == nil
}

// makeRoom recalls idle credit of other leases until each limit that refuses a ticket has room. It returns nil, or the refusal with the
// bytes that would have been granted. If it can tell beforehand that there is not enough credit, it recalls nothing.
func (a *Arbiter) makeRoom(t *ticket) *accounting.Refusal {
	l, need := t.lease, t.memory(t.bytes)
	r := a.shortage(t)
	if r == nil && !a.recallFor(l, func() *accounting.Refusal { return l.Check(need) }) { // clients have allocated the idle credit that shortage counted
		if r = l.Check(need); r != nil {
			r = completeRefusal(r, t.bytes, 0)
		}
	}
	return r
}

// shortage returns nil if idle credit of other leases would make room for a ticket's bytes. Otherwise it returns the refusal of the first
// limit without enough credit, with the bytes that would have been granted there. It recalls nothing.
func (a *Arbiter) shortage(t *ticket) *accounting.Refusal {
	for r := range a.shortages(t) {
		return r
	}
	return nil
}

// shortages yields the refusals at all limits at which idle credit of other leases would not make enough room.
func (a *Arbiter) shortages(t *ticket) iter.Seq[*accounting.Refusal] {
	return func(yield func(*accounting.Refusal) bool) {
		for r := range t.lease.Refusals(t.memory(t.bytes)) {
			_, gain := a.donors(t.lease, r)
			if gain < r.Short && !yield(completeRefusal(r, t.bytes, gain)) {
				return
			}
		}
	}
}

// completeRefusal completes the refusal of n bytes. It sets Remaining to the bytes that would have been granted after a recall of all idle credit,
// which would have made room for gain bytes.
func completeRefusal(r *accounting.Refusal, n, gain accounting.Bytes) *accounting.Refusal {
	r.Requested, r.Remaining = n, min(max(r.Remaining, n.Plus(gain).Less(r.Short)), n-1)
	return r
}

// wouldGrant returns the most bytes, up to n, that a new request of a lease would be granted now, after a recall of other leases' idle
// credit and behind all tickets. It does not count the credit in the lease's own word, and changes nothing.
func (a *Arbiter) wouldGrant(now time.Time, l *lease, n accounting.Bytes) accounting.Bytes {
	most := a.roomFor(l, n)
	// A new request ranks behind all tickets. They do not block the part of it that lies in reservations.
	t := &ticket{job: l.session.job, session: l.session, lease: l, candidates: []candidate{{device: l.device}},
		priority: l.session.job.priority(),
		place:    Place{Arrival: ^uint64(0), Since: now}}
	a.noteHeldSince(t)
	if a.blocked(&l.device.bytes, t, t.only().heldSince) {
		most = min(most, n-l.Growth(n, nil))
	}
	for sh := range t.shares {
		if a.blocked(sh.limitOn(l.device), t, t.only().heldSince) {
			most = min(most, n-l.Growth(n, sh.budget))
		}
	}
	return most
}

// roomFor returns the most bytes, up to n, that the limits of a lease have room for, after a recall of other leases' idle credit.
func (a *Arbiter) roomFor(l *lease, n accounting.Bytes) accounting.Bytes {
	most := n
	for r := range l.Refusals(accounting.OnDevice(n)) {
		_, gain := a.donors(l, r)
		most = min(most, max(r.Remaining, n.Plus(gain).Less(r.Short)))
	}
	return most
}

// free returns the most bytes that a new job without a reservation would be granted now on a device, beside the context that its program
// needs there. It is 0 if the device is lost or divided, if its permits keep new jobs out, or if a waiting request is ahead of new jobs.
func (a *Arbiter) free(now time.Time, d *device) accounting.Bytes {
	if !a.isOpen(now, d) {
		return 0
	}
	l := &lease{device: d}
	_ = a.ledger.Probe(l, nil, d.Index) // the device exists
	return a.roomFor(l, d.grantable()).Less(d.contextRoom())
}

// freeBeside returns what free does without a recall of idle credit. It does not read the leases of the device.
func (a *Arbiter) freeBeside(now time.Time, d *device) accounting.Bytes {
	if !a.isOpen(now, d) {
		return 0
	}
	return a.ledger.Available(nil, d.Index).Less(d.contextRoom())
}

// isOpen reports whether a new job that needs no more than there is free on a device could begin there at once.
func (a *Arbiter) isOpen(now time.Time, d *device) bool {
	newcomer := &ticket{place: Place{Arrival: ^uint64(0), Since: now}}
	return !d.lost && !a.divided(d) && !d.permits.Full(nil, justSlot, d.caps()) &&
		!a.blocked(&d.permitLimits[permit.Slot], newcomer, time.Time{}) && !a.blocked(&d.bytes, newcomer, neverHeld)
}

// countLimit counts that limits refused a request at first, even if a recall then made room.
func (a *Arbiter) countLimit(t *ticket) {
	if t.lease == nil || t.bytes == 0 || !a.chargedToBudgets(t) {
		return
	}
	for _, b := range t.lease.FullLimits(t.memory(t.bytes)) {
		if b != nil {
			t.lease.atMax++
		} else {
			t.lease.device.atMax++
		}
	}
}

// updateCapacity recomputes the capacity of a device, and recalls idle credit if the capacity has fallen below what is committed.
func (a *Arbiter) updateCapacity(now time.Time, d *device) {
	_ = a.ledger.SetCapacity(d.Index, d.grantable().Less(d.unmanaged.Less(d.chargedUnmanaged()))) // the device exists
	if over := a.ledger.Overload(d.Index); over != nil && !d.lost {
		from, _ := a.donors(nil, over)
		a.recall(nil, from, over)
	}
}

// surplus gives a lease credit in addition to its request, at most an eighth of the remaining room, so that its next allocations need no
// message to the daemon.
func (a *Arbiter) surplus(l *lease) {
	if a.policy.Surplus == rules.NoSurplus || l.closed || l.spoiled || l.Away() > 0 {
		return
	}
	n := min(a.policy.Surplus, l.Room()/8).Less(a.idle(l)) &^ 4095
	if n < leastSurplus {
		return
	}
	l.addCredit(n)
}

// leastSurplus is the smallest surplus that is worth a change of the credit word.
const leastSurplus accounting.Bytes = 64 << 10
