package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file answers a program's memory query. It changes nothing.

// Query answers a program's memory query. It opens no lease. What of the asker's own
// credit is in it was read once (Credit), so that what its process takes or gives back from
// then on can be added by the process itself. ErrNoSession, ErrNoDevice; a *Result when the
// device is lost.
func (a *Arbiter) Query(now time.Time, id SessionID, device int) (Room, error) {
	s, d := a.sessions[id], a.device(device)
	if s == nil || !s.alive() {
		return Room{}, noSession(id)
	}
	if d == nil {
		return Room{}, noDevice(device)
	}
	if d.lost {
		return Room{}, lostRefusal(d)
	}
	l := a.probe(s, d)
	own := a.idle(l)
	r := Room{Lease: l.id, Credit: own}
	r.Total, r.Used = a.budgetUse(l, own)
	r.Limited = r.Total < d.grantable()
	r.Room = min(own.Plus(a.wouldGrant(now, l, d.grantable())), d.grantable())
	return r, nil
}

// probe is the lease of a session on a device, or one that stands for it and that nobody
// else knows of.
func (a *Arbiter) probe(s *session, d *device) *lease {
	if l := s.leaseOn(d); l != nil {
		return l
	}
	l := &lease{session: s, device: d}
	_ = a.ledger.Probe(l, s.budget, d.Index)
	return l
}

// budgetUse is the smallest budget above a lease, or the device's total when there is
// none, and what of it is in use. Total − Used is what the budgets have left, idle credit in
// them included.
func (a *Arbiter) budgetUse(l *lease, own accounting.Bytes) (total, used accounting.Bytes) {
	d := l.device
	idle := func(b *accounting.Budget) accounting.Bytes {
		sum := own
		for other := range owners(b.Leases(d.Index)) {
			if other != l {
				sum = sum.Plus(a.idle(other))
			}
		}
		return sum
	}
	total, left := accounting.Max, accounting.Max
	for b := range l.session.budget.Chain() {
		if sums := b.Account(d.Index); sums.Limit != accounting.Max {
			total = min(total, sums.Limit)
			left = min(left, sums.Limit.Less(sums.Held.Less(idle(b))))
		}
	}
	if total > d.Total {
		total = d.Total
		if left == accounting.Max {
			j := l.session.job // without a budget's limit the device is the limit, and memory that is away takes nothing of it
			left = total.Less(j.budget.Account(d.Index).Held.Less(idle(j.budget)).Less(j.away(d)))
		}
	}
	return total, total.Less(left)
}
