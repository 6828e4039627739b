package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file reads and changes what a lease holds, and its credit word: idle bytes, recalls, flags, and managed memory that is away from the
// device. Nearly all other files call it. recall.go and overlimit.go choose the leases to recall credit from.

// gone reports whether the device of a lease is lost, or was lost at some time since the lease was opened.
func (l *lease) gone() bool { return l.lost || l.device.lost }

// mayUse reports whether the job of a lease may use its device now, or was allowed to when the lease was opened.
func (l *lease) mayUse() bool { return !l.outside || l.session.job.uses(l.device) }

// maxInForce returns the memory.max that the client sees: never more than the device can grant.
func (l *lease) maxInForce() accounting.Bytes { return min(l.Max(), l.device.grantable()) }

// uncharged returns the part of a lease's extra usage that is charged to the device and not to its budgets.
func (l *lease) uncharged() accounting.Bytes { return l.extra.Cost().Less(l.Charged()) }

// info returns the description of a lease for its client.
func (a *Arbiter) info(l *lease) LeaseInfo {
	return LeaseInfo{
		ID: l.id, Budget: l.maxInForce(), Streams: l.Streams(),
		StreamsMax: l.StreamsMax(), Total: l.device.Total, SlotScope: l.scope,
	}
}

// idle returns the bytes of a lease's credit word that can be recalled or count as unused. A spoiled word counts as 0.
func (a *Arbiter) idle(l *lease) accounting.Bytes {
	granted := l.Granted()
	if l.spoiled || l.lost || !l.session.alive() || granted == 0 {
		return 0
	}
	credit := min(l.word.Credit(granted), granted)
	if l.spoiled { // Credit found an invalid value just now, and called Clamped
		return 0
	}
	return credit
}

// foldLowWater passes the recent peak of the bytes in use to l.extra. The low-water mark of the credit word shows this peak. Callers are
// about to change the word, which resets the mark. l.extra needs the peak because a reading of the device that is under way may still show
// bytes that the client has freed since.
func (a *Arbiter) foldLowWater(l *lease) {
	if granted := l.Granted(); granted > 0 && l.session.alive() && !l.lost && !l.spoiled {
		l.extra.Used(min(l.word.Recent(granted), granted))
	}
}

// readUsage reads how many bytes a lease uses, updates the peaks, and returns the bytes.
func (a *Arbiter) readUsage(l *lease) accounting.Bytes {
	granted := l.Granted()
	used := granted - a.idle(l)
	high := used
	if l.session.alive() && !l.lost && !l.spoiled && granted > 0 {
		if p := l.word.Peak(granted); p > l.peak {
			high = max(high, p)
		}
	}
	l.peak = max(l.peak, high)
	l.device.peak.update(l.lastUsed, used, high)
	l.updateUse(used, high)
	a.countUsage(l)
	l.extra.Used(used)
	return used
}

// noteOverhead updates the peaks of what the contexts of the lease's job take: what the device shows, and what is assumed.
func (l *lease) noteOverhead() {
	l.setOverhead(l.extra.Overhead.Less(l.extra.Excess), l.extra.Cost().Less(l.extra.Excess))
}

// setOverhead replaces the lease's part of the two sums that noteOverhead keeps, and updates their peaks.
func (l *lease) setOverhead(shown, assumed accounting.Bytes) {
	u := l.session.job.useOf(l.device)
	u.overhead.update(l.lastOverhead, shown, shown)
	u.assumed.update(l.lastAssumed, assumed, assumed)
	for j := l.session.job; j != nil; j = j.around {
		w := &j.useOf(l.device).whole
		w.overhead.update(l.lastOverhead, shown, shown)
		w.assumed.update(l.lastAssumed, assumed, assumed)
	}
	l.lastOverhead, l.lastAssumed = shown, assumed
}

// updateUse replaces what the lease uses in the sums of its job, and of the jobs around that. high is the most that it used in between.
func (l *lease) updateUse(used, high accounting.Bytes) {
	l.session.job.useOf(l.device).update(l.lastUsed, used, high)
	for j := l.session.job; j != nil; j = j.around {
		j.useOf(l.device).whole.used.update(l.lastUsed, used, high)
	}
	l.lastUsed = used
}

// recallIdle takes up to most idle bytes out of a lease's credit word, and returns how many it released in the ledger. It updates the peaks
// before and after.
func (a *Arbiter) recallIdle(l *lease, most accounting.Bytes) accounting.Bytes {
	a.readUsage(l)
	granted := l.Granted()
	if most == 0 || l.spoiled || l.lost || granted == 0 {
		return 0
	}
	away := l.Away()
	a.foldLowWater(l)
	got := l.Release(accounting.Memory, min(l.word.Take(granted, most), most, granted))
	if l.awayShown {
		// Release took the bytes that are away first. But as far as the client reports managed memory, it has freed other memory, and its
		// managed memory is still away.
		l.SetAway(max(l.Away(), min(away, l.word.Report().Managed)))
		a.publishAway(l)
	}
	a.readUsage(l)
	return got
}

// recallAll recalls all idle credit of a lease.
func (a *Arbiter) recallAll(l *lease) {
	if idle := a.idle(l); idle > 0 {
		a.stats.RecalledBytes += uint64(a.recallIdle(l, idle))
	}
}

// addCredit reserves n bytes and adds them to a lease's credit word as idle credit. If there is no room, or the word cannot take them, it
// changes nothing.
func (l *lease) addCredit(n accounting.Bytes) {
	granted := l.Granted()
	if l.Reserve(accounting.OnDevice(n)) == nil && !l.word.Give(granted, n) {
		l.Release(accounting.Memory, n)
	}
}

// showFlags writes a lease's flags into its credit word. This resets the low-water mark of the word.
func (a *Arbiter) showFlags(l *lease) {
	if l.awayShown = l.Away() > 0; l.awayShown {
		l.device.leasesAway[l] = struct{}{}
	} else {
		delete(l.device.leasesAway, l)
	}
	closed := l.closed || l.awayShown
	l.word.Flag(closed, closed || l.notify)
}

// updateFlags writes a lease's flags into its credit word, and keeps the usage peak that the word showed.
func (a *Arbiter) updateFlags(l *lease) {
	a.foldLowWater(l)
	a.showFlags(l)
}

// publishAway publishes how many bytes of a lease are away from its device, and keeps the credit word closed while there are any. With an
// open word, bytes that the client frees become credit that it may use again without asking. If these bytes were managed memory that is
// away, the device would have no room for what is allocated instead.
func (a *Arbiter) publishAway(l *lease) {
	l.word.SetAway(l.Away())
	if l.awayShown != (l.Away() > 0) {
		a.updateFlags(l)
	}
}

// recallWhileAway recalls the idle credit of a lease while some of its memory is away from the device.
func (a *Arbiter) recallWhileAway(l *lease) {
	if l.Away() > 0 && l.session.alive() {
		a.recallIdle(l, a.idle(l))
	}
}

// moveManagedAway makes room on the device for n bytes of a lease: it counts as much of the lease's own managed memory as away as is
// missing, because the driver then moves managed memory to the host. The next reading of the device shows how much of it is still there.
func (a *Arbiter) moveManagedAway(l *lease, n accounting.Bytes) {
	if !l.device.IsGPU() || l.spoiled {
		return
	}
	r := l.Check(accounting.OnDevice(n))
	if r == nil || r.Budget != nil {
		return
	}
	managed := l.word.Report().Managed
	if managed == 0 {
		return
	}
	there := min(managed, l.Granted().Less(a.idle(l))).Less(l.Away())
	if there == 0 {
		return
	}
	l.SetAway(l.Away().Plus(min(there, r.Short)))
	a.publishAway(l)
}

// touch notes that a client asked for something or freed something.
func (a *Arbiter) touch(now time.Time, l *lease) {
	l.touched, l.noted = now, notNoted
	if j := l.session.job; len(j.tickets) > 0 {
		j.lastActive = now
	}
}
