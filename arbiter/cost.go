package arbiter

import "github.com/gpuarb/gpuarb/accounting"

// This file computes the extra usage of leases, in addition to granted bytes: contexts, stream pools, and memory that no call asked for.
// observe.go finds it by readings, and charge.go charges it to budgets.

// mostContext returns the largest cost of a context that is accepted, in bytes.
func (d *device) mostContext() accounting.Bytes { return d.Total / 16 }

// contextCost returns the expected cost of the next context in bytes: what earlier contexts cost, else the configured estimate.
func (d *device) contextCost() accounting.Bytes {
	if seen := d.contexts.Expected(); seen > 0 {
		return min(seen, d.mostContext())
	}
	guess := d.policy.ContextReserve
	switch {
	case d.rule.ContextReserve != nil:
		guess = *d.rule.ContextReserve
	case !d.IsGPU(): // a context on the processor is a few allocations of the program itself
		return 0
	}
	return min(guess.Of(d.Total), d.mostContext())
}

// contextRoom returns the bytes that a new context counts as until a reading shows it: the expected cost (contextCost), or a guess if that
// is not known. The guess is 0 if readings do not name processes, because no reading would correct it.
func (d *device) contextRoom() accounting.Bytes {
	if cost := d.contextCost(); cost > 0 || d.rule.ContextReserve != nil || !d.IsGPU() || d.unnamed {
		return cost
	}
	return min(d.policy.ContextGuess.Of(d.Total), d.mostContext())
}

// assumed returns the bytes that count on a device for contexts that no reading has shown yet. They are an assumption. A request that lacks
// room only because of them is not refused before the daemon has waited for readings (awaitsReading).
func (a *Arbiter) assumed(d *device) (sum accounting.Bytes) {
	for l := range a.leasesOn(d) {
		if l.session.alive() && !l.lost {
			sum = sum.Plus(l.extra.Assumed())
		}
	}
	return sum
}

// makesContexts reports whether the driver of a lease's process may be making granted contexts: fewer contexts wait for room or for
// a reading than the client asks for or makes. Making a context can take a driver any time, and readings taken meanwhile cannot show it yet.
func (a *Arbiter) makesContexts(l *lease) bool {
	if l.extra.Confirmed() || !l.session.alive() {
		return false
	}
	n := l.word.Report().Making - l.undecided
	for _, t := range l.session.job.tickets {
		if t.lease == l && t.kind == WantsContexts {
			n -= t.count
		}
	}
	return n > 0
}

// streamCharge returns the bytes that the streams of a lease are charged with.
func (l *lease) streamCharge() accounting.Bytes {
	return l.session.streamReserve().Times(uint64(l.Streams()))
}

// excessOf returns the excess of a lease's process, whichever of its leases is charged with it.
func (a *Arbiter) excessOf(l *lease) (sum accounting.Bytes) {
	for _, l := range l.device.byPID[l.session.process.PID] {
		sum = sum.Plus(l.extra.Excess)
	}
	return sum
}

// chargeOf returns the extra usage of a lease that is charged to its budgets: excess, stream pools, and with charge_overhead, or in a job of
// a cgroup whose contexts lie inside, all overhead.
func (a *Arbiter) chargeOf(l *lease) accounting.Bytes {
	streams := l.streamCharge()
	if a.chargesOverhead(l.session.job) {
		return max(l.extra.Cost(), streams)
	}
	return l.extra.Excess.Plus(streams)
}

// explainUsage subtracts bytes that a client has just reported from what the last readings could not explain. It changes no credit word.
func (a *Arbiter) explainUsage(l *lease, n accounting.Bytes) {
	for _, l := range l.device.byPID[l.session.process.PID] {
		l.extra.Explain(n)
		l.Charge(a.chargeOf(l))
		l.SetOverhead(l.uncharged())
	}
	a.changed()
}
