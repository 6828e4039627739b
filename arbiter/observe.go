package arbiter

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/reading"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file compares a reading of a device with the ledger: overhead of clients, processes without a lease, and memory of ended processes.
// reading.go calls it for each reading, and tick.go calls expire.

// sumLeases sums the leases of a process on a device at the end of a reading, and returns those of living sessions.
func (a *Arbiter) sumLeases(leases []*lease) (p reading.Process, living []*lease) {
	for _, l := range leases {
		switch {
		case !l.session.alive():
			p.AddEnded(l.Granted())
		case !l.lost:
			m := reading.Member{Extra: &l.extra, Lease: uint64(l.id), Used: a.readUsage(l),
				Contexts: l.contexts, Streams: l.streamCharge(), Report: l.word.Report(), Spoiled: l.spoiled}
			if !l.spoiled {
				m.Peak = min(l.word.Recent(l.Granted()), l.Granted())
			}
			p.Add(m)
			living = append(living, l)
		}
	}
	return p, living
}

// keptAfter is how long the memory of an ended process may stay on the device before it counts as unmanaged.
const keptAfter = time.Second

// reads reports whether p is about the lease's process, and not about a later process with the same PID.
func (l *lease) reads(p ProcessUsage) bool {
	mine := l.session.process.StartTicks
	return p.StartTicks == 0 || mine == 0 || p.StartTicks == mine
}

// readOverhead compares the reading of a client's process with what its leases use.
func (a *Arbiter) readOverhead(now time.Time, d *device, pid int) {
	leases := d.byPID[pid]
	p, living := a.sumLeases(leases)
	if len(living) == 0 {
		return
	}
	first := living[0]
	figure, listed := d.figures[pid]
	if listed = listed && first.reads(figure); !listed {
		figure.Bytes = 0
	}
	if listed && first.unverified && figure.Bytes >= p.Used() {
		a.confirmLeases(now, leases)
	}
	resetMark := p.Read(reading.Device{Costs: &d.contexts, Began: d.began, MaxContext: d.mostContext(), Early: d.early}, first.session.process.UID, figure.Bytes, listed)
	for i, n := range p.Away(figure.Bytes) {
		if l := living[i]; l.device.IsGPU() && !d.early && (n > 0 || l.awayShown) {
			l.SetAway(n)
			a.publishAway(l)
		}
	}
	a.trimHeadroom(first)
	for _, l := range living {
		l.noteOverhead()
		if resetMark && !l.spoiled {
			a.showFlags(l)
		}
		if a.chargesOverhead(l.session.job) || l.extra.Excess > 0 || l.Charged() > 0 {
			a.charge(now, l)
		}
	}
}

// confirmLeases records that the device confirms what restored leases hold.
func (a *Arbiter) confirmLeases(now time.Time, leases []*lease) {
	for _, l := range leases {
		if l.unverified {
			l.unverified = false
			a.leaseEvent(now, l, Event{Kind: EventVerified, Bytes: l.Granted(), Text: fmt.Sprintf(wording.Confirmed, l.device, l.session.name())})
		}
	}
}

// readUnmanaged sums the usage of processes without a lease (strangers), and records events for new ones.
func (a *Arbiter) readUnmanaged(now time.Time, d *device, strangers []ProcessUsage) {
	before := d.unmanagedBy
	d.unmanaged, d.unmanagedBy = 0, nil
	for _, figure := range strangers {
		u := a.addUnmanaged(now, d, figure)
		known := func(b figures.UnmanagedState) bool { return b.PID == u.PID && b.StartTicks == u.StartTicks }
		i := slices.IndexFunc(before, known)
		if i >= 0 {
			u.Since = before[i].Since
		}
		j := a.jobs[figure.Job]
		if j != nil {
			j.counts().recordUnmanaged(d, u, i < 0)
		}
		if i < 0 || u.Job != before[i].Job || u.Charged != before[i].Charged {
			a.unmanagedEvent(now, d, u, j)
		}
	}
	slices.SortFunc(d.unmanagedBy, func(x, y figures.UnmanagedState) int {
		return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(x.PID, y.PID))
	})
	a.chargeUnmanaged(now, d)
}

// unmanagedEvent records the event that a process without a lease uses a device. j is the job of the process; nil: none.
func (a *Arbiter) unmanagedEvent(now time.Time, d *device, u *figures.UnmanagedState, j *job) {
	e := Event{Time: now, Kind: EventUnmanaged, Device: d.Index, PID: u.PID, UID: u.UID, User: u.User, Command: u.Command, Bytes: u.Bytes}
	who := wording.Owned(u.User, wording.Stranger(u.Command, u.PID))
	switch {
	case j == nil:
		e.Text = fmt.Sprintf(wording.Unmanaged, who, u.Bytes.Human(), d)
	case u.Charged:
		e.Text = fmt.Sprintf(wording.UnmanagedIn, who, j.name(), u.Bypass.Without(), u.Bytes.Human(), d)
	default:
		e.Text = fmt.Sprintf(wording.UnmanagedOf, who, j.name(), u.Bypass.Without(), u.Bytes.Human(), d)
	}
	if j != nil {
		e.Job, e.Name = j.id, j.request.Name
	}
	a.event(e)
}

// HasLease reports whether a process has a lease on a device.
func (a *Arbiter) HasLease(device, pid int) bool {
	d := a.device(device)
	return d != nil && len(d.byPID[pid]) > 0
}

// isClient reports whether a process in a reading has a lease on the device.
func (d *device) isClient(figure ProcessUsage) bool {
	return slices.ContainsFunc(d.byPID[figure.PID], func(l *lease) bool { return l.reads(figure) })
}

// addUnmanaged counts a process as unmanaged, of the job that the reading found for it. If another process keeps its memory, that process is
// in its name. The caller calls chargeUnmanaged after the last process.
func (a *Arbiter) addUnmanaged(now time.Time, d *device, p ProcessUsage) *figures.UnmanagedState {
	d.unmanaged = d.unmanaged.Plus(p.Bytes)
	name := p.Command
	if p.Keeper != "" && p.Keeper != p.Command {
		name = fmt.Sprintf(wording.Keeps, p.Keeper, p.Command)
	}
	u := figures.UnmanagedState{PID: p.PID, StartTicks: p.StartTicks, UID: p.UID, User: p.User, Command: name, Bytes: p.Bytes, Since: now}
	if j := a.jobs[p.Job]; j != nil {
		u.Job, u.JobName, u.Bypass, u.Charged = uint64(j.id), j.request.Name, p.Bypass, a.chargesUnmanaged(j)
	}
	d.unmanagedBy = append(d.unmanagedBy, u)
	return &d.unmanagedBy[len(d.unmanagedBy)-1]
}

// goneLeases returns the draining leases that the last reading does not list.
func (a *Arbiter) goneLeases(d *device) []*lease {
	var gone []*lease
	for _, s := range a.draining {
		for _, l := range s.leases {
			if l.device == d && !d.lists(l) && !d.began.Before(s.ended) {
				gone = append(gone, l)
			}
		}
	}
	return gone
}

// lists reports whether the last reading lists the lease's process.
func (d *device) lists(l *lease) bool {
	figure, listed := d.figures[l.session.process.PID]
	return listed && figure.Bytes > 0 && l.reads(figure)
}

// expire counts memory of an ended process as unmanaged if the device has not freed it in time. It closes the lease, so that the bytes are
// charged to no budget.
func (a *Arbiter) expire(now time.Time) {
	var kept []*lease
	for _, s := range a.draining {
		if now.Sub(s.ended) <= keptAfter {
			continue
		}
		for _, l := range s.leases {
			if l.device.lists(l) && !l.device.began.Before(s.ended) {
				kept = append(kept, l)
			}
		}
	}
	for _, l := range kept {
		d, figure := l.device, l.device.figures[l.session.process.PID]
		if slices.ContainsFunc(d.byPID[figure.PID], func(x *lease) bool { return x.session.alive() }) {
			a.closeDrained(now, l) // the process lives in another session, and the reading is about that session
			continue
		}
		who := cmp.Or(wording.Plain(figure.Keeper), wording.SomebodyKeeps)
		a.leaseEvent(now, l, Event{Kind: EventKept, Bytes: figure.Bytes, Text: fmt.Sprintf(wording.Kept, l.session.name(), who, figure.Bytes.Human(), d)})
		a.addUnmanaged(now, d, figure)
		a.chargeUnmanaged(now, d)
		a.closeLease(now, l)
	}
}

// TwoCopies records the event that a process uses two copies of a driver's library. held is the path of the copy whose calls are admitted,
// and beside the path of the copy whose calls are not. Unknown sessions are ignored.
func (a *Arbiter) TwoCopies(now time.Time, id SessionID, held, beside string) {
	s := a.sessions[id]
	if s == nil {
		return
	}
	e := Event{Time: now, Kind: EventTwoCopies, Device: -1, Text: fmt.Sprintf(wording.TwoCopies, s.name(), held, beside)}
	e.about(s.process)
	e.in(s.job)
	a.event(e)
}

// Clamped records that a credit word had an invalid value and was clamped. From then on the word is not used: everything granted to the
// lease counts as used, nothing is recalled from it, and further usage of its process is charged to its own budget. Methods of a CreditWord
// may call it. Unknown leases are ignored.
func (a *Arbiter) Clamped(now time.Time, id LeaseID) {
	a.stats.ClampedWords++
	l := a.leases[id]
	if l == nil || l.spoiled {
		return
	}
	a.changed()
	l.spoiled = true
	l.extra.Distrust()
	a.leaseEvent(now, l, Event{Kind: EventClamped, Text: fmt.Sprintf(wording.Clamped, l.session.name(), l.device)})
}
