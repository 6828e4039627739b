package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file reads and changes what a lease holds, and the credit word that the lease shares with its client: how many bytes are idle, taking them
// back, the word's flags, and managed memory that is away from the device. recall.go and overlimit.go choose the leases to take from.

// gone tells that the device of a lease is lost, and with it what it held, now or a moment ago.
func (l *lease) gone() bool { return l.lost || l.device.lost }

// maxInForce is memory.max as its client is told it: never more than the
// device can grant.
func (l *lease) maxInForce() accounting.Bytes { return min(l.Max(), l.device.grantable()) }

// uncharged is the part of a lease's cost that the capacity lacks: what is not
// charged to its budget.
func (l *lease) uncharged() accounting.Bytes { return l.extra.Cost().Less(l.Charged()) }

// info describes a lease to its client.
func (a *Arbiter) info(l *lease) LeaseInfo {
	return LeaseInfo{
		ID: l.id, Budget: l.maxInForce(), Streams: l.Streams(),
		StreamsMax: l.StreamsMax(), Total: l.device.Total, SlotScope: l.scope,
	}
}

// idle returns the bytes of a lease's word that may be called back or counted
// as unused. What a spoiled word says is worth nothing.
func (a *Arbiter) idle(l *lease) accounting.Bytes {
	granted := l.Granted()
	if l.spoiled || l.lost || !l.session.alive() || granted == 0 {
		return 0
	}
	credit := min(l.word.Credit(granted), granted)
	if l.spoiled { // found out by this very look
		return 0
	}
	return credit
}

// foldLowWater notes the most bytes that a lease has used at once since its word was last changed. A change of the word restarts its
// low-water mark; if the device is being read at that moment, its figure may still show bytes that were freed since.
func (a *Arbiter) foldLowWater(l *lease) {
	if granted := l.Granted(); granted > 0 && l.session.alive() && !l.lost && !l.spoiled {
		l.extra.Used(min(l.word.Recent(granted), granted))
	}
}

// readUsage brings the peaks up to date with what a lease uses, and returns that.
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
	l.session.job.useOf(l.device).update(l.lastUsed, used, high)
	l.lastUsed = used
	l.extra.Used(used)
	return used
}

// update takes the place of what a lease was seen to use (was) by what it uses
// now; in between it used as much as high.
func (p *peak) update(was, now, high accounting.Bytes) {
	p.max = max(p.max, p.used-was+high)
	p.used += now - was
}

// useOf returns the job's use of a device.
func (j *job) useOf(d *device) *jobUse {
	for _, u := range j.used {
		if u.device == d {
			return u
		}
	}
	u := &jobUse{device: d}
	j.used = append(j.used, u)
	return u
}

// recallIdle calls back up to most idle bytes of a lease into the ledger, with the peaks up to date before and after, and
// returns how many.
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
		// Release took bytes that are away first. As far as the client still says that it has managed memory, it has freed
		// other memory, and what was away is so still.
		l.SetAway(max(l.Away(), min(away, l.word.Report().Managed)))
		a.publishAway(l)
	}
	a.readUsage(l)
	return got
}

// recallAll takes back all idle credit of a lease.
func (a *Arbiter) recallAll(l *lease) {
	if idle := a.idle(l); idle > 0 {
		a.stats.RecalledBytes += uint64(a.recallIdle(l, idle))
	}
}

// addCredit reserves n bytes and adds them to a lease's credit word as idle credit. If there is no room, or the word cannot take them, it changes nothing.
func (l *lease) addCredit(n accounting.Bytes) {
	granted := l.Granted()
	if l.Reserve(accounting.OnDevice(n)) == nil && !l.word.Give(granted, n) {
		l.Release(accounting.Memory, n)
	}
}

// showFlags shows a lease's flags in its word, so that the word's low-water mark restarts and what it showed is forgotten.
func (a *Arbiter) showFlags(l *lease) {
	if l.awayShown = l.Away() > 0; l.awayShown {
		l.device.leasesAway[l] = struct{}{}
	} else {
		delete(l.device.leasesAway, l)
	}
	closed := l.closed || l.awayShown
	l.word.Flag(closed, closed || l.notify)
}

// updateFlags shows a lease's flags in its word.
func (a *Arbiter) updateFlags(l *lease) {
	a.foldLowWater(l)
	a.showFlags(l)
}

// publishAway writes down how many of a lease's bytes are away from its device, and keeps the lease's word closed while there are any. With
// an open word, bytes that the client frees become credit, which it may use again without asking. If these were managed memory that is
// away, the device would have no room for what is allocated in their place.
func (a *Arbiter) publishAway(l *lease) {
	l.word.SetAway(l.Away())
	if l.awayShown != (l.Away() > 0) {
		a.updateFlags(l)
	}
}

// recallWhileAway takes back a lease's idle credit while some of the lease's memory is away from the device.
func (a *Arbiter) recallWhileAway(l *lease) {
	if l.Away() > 0 && l.session.alive() {
		a.recallIdle(l, a.idle(l))
	}
}

// moveManagedAway makes room on the device for n bytes that a lease asks for: it counts as much of the lease's own managed memory as away as is
// lacking, because the driver moves managed memory out then. The next reading of the device shows how much of it is still there.
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

// touch notes that a lease asked for something.
func (a *Arbiter) touch(now time.Time, l *lease) {
	l.touched = now
	if j := l.session.job; len(j.tickets) > 0 {
		j.lastActive = now
	}
}
