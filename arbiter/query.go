package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file answers memory queries of programs. It changes no state. recall.go computes what a request would get.

// Query returns the answer to a program's memory query on a device. It opens no lease. The answer includes the credit in the client's own
// word as it was read once (Credit). The client adds what it takes or returns afterwards. Errors: ErrNoSession, ErrNoDevice, and a *Result
// if the device is lost.
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

// probe returns the lease of a session on a device, or a stand-in that is in no list.
func (a *Arbiter) probe(s *session, d *device) *lease {
	if l := s.leaseOn(d); l != nil {
		return l
	}
	l := &lease{session: s, device: d}
	_ = a.ledger.Probe(l, s.budget, d.Index)
	return l
}

// budgetUse returns the smallest budget above a lease and what of it is used; without a budget, the total of the device. total less used is
// what the budgets have left, including idle credit in them.
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
			j := l.session.job // without a budget the device is the limit, and memory that is away takes nothing of it
			left = total.Less(j.budget.Account(d.Index).Held.Less(idle(j.budget)).Less(j.away(d)))
		}
	}
	return total, total.Less(left)
}
