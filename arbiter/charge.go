package arbiter

import (
	"fmt"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file charges what leases take beyond their bytes (cost.go) to their budgets and devices. Readings and new or ended contexts and streams call it.

// charge puts that against the lease's own budget.
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

// recost changes what a lease costs beyond its bytes, and has its budget and the
// device's capacity show it.
func (a *Arbiter) recost(now time.Time, l *lease, change func()) {
	d, before := l.device, l.uncharged()
	change()
	a.charge(now, l)
	if after := l.uncharged(); after != before {
		l.SetOverhead(after)
		a.recap(now, d)
	}
}
