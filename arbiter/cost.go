package arbiter

import "github.com/gpuarb/gpuarb/accounting"

// This file says what leases take of a device beyond their bytes: contexts, the pools of streams, and what no call named. observe.go finds that out by
// readings, charge.go charges it to budgets.

// mostContext bounds what a context is believed to cost.
func (d *device) mostContext() accounting.Bytes { return d.Total / 16 }

// contextCost is what the next context is expected to cost: what others cost, else the configured guess.
func (d *device) contextCost() accounting.Bytes {
	if seen := d.contexts.Expected(); seen > 0 {
		return min(seen, d.mostContext())
	}
	guess := d.policy.ContextReserve
	switch {
	case d.rule.ContextReserve != nil:
		guess = *d.rule.ContextReserve
	case !d.IsGPU(): // a context of its is a few allocations of the program's own
		return 0
	}
	return min(guess.Of(d.Total), d.mostContext())
}

// makesContexts reports whether the driver of a lease's process may be making contexts that were
// granted: of those that it asks for or makes, some do not wait. Making one takes a driver as long as
// it likes, and readings go on meanwhile, which cannot show it yet.
func (a *Arbiter) makesContexts(l *lease) bool {
	if l.extra.Confirmed() || !l.session.alive() {
		return false
	}
	n := l.word.Report().Making
	for _, t := range l.session.job.tickets {
		if t.lease == l && t.kind == WantsContexts {
			n -= t.count
		}
	}
	return n > 0
}

// streamCharge is what the streams of a lease are charged with.
func (l *lease) streamCharge() accounting.Bytes {
	return l.session.streamReserve().Times(uint64(l.Streams()))
}

// excessOf is the excess of a lease's process, whichever of its leases is charged with it.
func (a *Arbiter) excessOf(l *lease) (sum accounting.Bytes) {
	for _, l := range l.device.byPID[l.session.process.PID] {
		sum = sum.Plus(l.extra.Excess)
	}
	return sum
}

// chargeOf is what a process uses beyond its bytes and nobody else should pay for: its
// excess, the pools of its streams, and all overhead where the configuration says so.
func (a *Arbiter) chargeOf(l *lease) accounting.Bytes {
	streams := l.streamCharge()
	if a.policy.ChargeOverhead {
		return max(l.extra.Cost(), streams)
	}
	return l.extra.Excess.Plus(streams)
}

// explainUsage takes bytes that a client has just accounted for off what the last readings could
// not explain, and touches no word.
func (a *Arbiter) explainUsage(l *lease, n accounting.Bytes) {
	for _, l := range l.device.byPID[l.session.process.PID] {
		l.extra.Explain(n)
		l.Charge(a.chargeOf(l))
		l.SetOverhead(l.uncharged())
	}
	a.changed()
}
