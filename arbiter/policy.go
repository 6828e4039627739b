package arbiter

import (
	"fmt"
	"maps"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file puts a new configuration in force. The daemon calls SetPolicy after a reload; renew.go does most of the work.

// keepHeadrooms sets the headroom of each reservation under a new policy: none if contexts are charged to the reservation.
func (a *Arbiter) keepHeadrooms(now time.Time) {
	keep := func(b *accounting.Budget) {
		for _, d := range a.devices {
			_ = a.ledger.ReserveOverhead(b, d.Index, 0) // cannot fail: the device exists
			_ = a.ledger.ReserveOverhead(b, d.Index, d.headroomFor(b, b.Limits(d.Index).Least()))
		}
	}
	for _, s := range a.sessions {
		keep(s.budget)
	}
	for _, j := range a.jobs {
		keep(j.budget)
	}
	for _, d := range a.devices {
		a.updateCapacity(now, d)
	}
}

// SetPolicy puts a new configuration in force, also for running leases. Live limits stay, except those of rules, which the new
// configuration replaces. If a limit falls below what is held, credit is recalled as in SetLimits.
func (a *Arbiter) SetPolicy(now time.Time, p rules.Policy) {
	defer a.cycle(now)
	charged, unmanaged := a.policy.ChargeOverhead, a.policy.ChargeUnmanaged
	maps.DeleteFunc(a.limits, func(of rules.Owner, _ *rules.Limits) bool { return of.Kind == rules.OfRule })
	a.policy = p.InForce(a.limits)
	var under func(*job) bool // nil: jobs whose rule has changed
	for _, d := range a.devices {
		was, most := d.bounds(), d.grantable()
		if a.configure(d); d.bounds() != was || d.grantable() != most {
			under = allJobs
		}
		a.updateCapacity(now, d)
		a.slotsChanged(now, d)
	}
	a.renew(now, under, false)
	if charged != a.policy.ChargeOverhead {
		a.keepHeadrooms(now)
	}
	if unmanaged != a.policy.ChargeUnmanaged {
		a.chargeUnmanagedAgain(now)
	}
	a.event(Event{Time: now, Kind: EventPolicy, Device: -1, Text: fmt.Sprintf(wording.Configured, len(p.Rules))})
}
