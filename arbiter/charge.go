package arbiter

import (
	"fmt"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file charges the extra usage of leases (cost.go) to their budgets and devices. Readings call it, and requests that make or end
// contexts and streams.

// charge charges the extra usage of a lease to its own budget.
func (a *Arbiter) charge(now time.Time, l *lease) {
	if excess := l.extra.Excess; excess > 0 && !l.announced {
		l.announced = true
		a.leaseEvent(now, l, Event{Kind: EventExcess, Bytes: excess, Text: fmt.Sprintf(wording.Excess, l.session.name(), excess.Human(), l.device)})
	}
	n := a.chargeOf(l)
	if n == l.Charged() {
		return
	}
	l.Charge(n)
	a.changed()
	a.noteChain(l)
	for b := range l.Budget().Chain() {
		a.enforce(now, b, l.device.Index)
	}
}

// updateCost calls change, which changes the extra usage of a lease, and updates the charge of the budget and the capacity of the device.
func (a *Arbiter) updateCost(now time.Time, l *lease, change func()) {
	d, before := l.device, l.uncharged()
	change()
	l.noteOverhead()
	a.charge(now, l)
	if after := l.uncharged(); after != before {
		l.SetOverhead(after)
		a.updateCapacity(now, d)
	}
}
