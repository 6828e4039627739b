package arbiter

import (
	"fmt"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file warns of jobs that hold memory or a device and do nothing with it (idle.warn), and of old jobs (age.warn). A warning is an event;
// it also stays with the job (tally.go), so that `gpuarb run` can print it. tick.go calls this file once a second.

// Warnings returns the warnings of a job; none if the job is unknown.
func (a *Arbiter) Warnings(id JobID) Warnings {
	if j := a.jobs[id]; j != nil {
		return j.counted().Warnings
	}
	return Warnings{}
}

// warn gives all jobs the warnings that are due.
func (a *Arbiter) warn(now time.Time) {
	for _, j := range a.jobs {
		a.warnJob(now, j)
	}
}

// warnJob gives a job its warnings that are due. A job that holds nothing, or that waits to start, gets none. If a restored job is older
// than age.warn when it is first checked, the earlier daemon has given that warning, and it is not given again.
func (a *Arbiter) warnJob(now time.Time, j *job) {
	was := j.counted()
	idleSince, begun := a.times(j)
	idle := j.Rule.IdleWarn > 0 && now.Sub(idleSince) >= j.Rule.IdleWarn && !idleSince.Equal(was.idleSince) && len(j.tickets) == 0
	aged := j.Rule.AgeWarn > 0 && now.Sub(begun) >= j.Rule.AgeWarn && !was.aged
	if !was.since.IsZero() && !was.checked {
		w := j.counts()
		w.checked, w.aged, aged = true, aged, false
	}
	if !idle && !aged || j.pending || j.ended {
		return
	}
	bytes, device, holds := a.allHeld(j)
	if holds == "" {
		return
	}
	w := j.counts()
	if idle {
		w.idleSince = idleSince
		w.Idle++
		w.IdleText = fmt.Sprintf(wording.IsIdle, wording.Span(now.Sub(idleSince)), holds, j.Rule.Key)
		a.warnEvent(now, j, Event{Kind: EventIdle, Device: device, Bytes: bytes, IdleMs: now.Sub(idleSince).Milliseconds(), Text: w.IdleText})
	}
	if aged {
		w.aged = true
		w.Aged++
		w.AgedText = fmt.Sprintf(wording.IsOld, wording.Span(now.Sub(begun)), holds, j.Rule.Key)
		a.warnEvent(now, j, Event{Kind: EventAged, Device: device, Bytes: bytes, AgeMs: now.Sub(begun).Milliseconds(), Text: w.AgedText})
	}
}

// times returns since when a job is idle, and when it began. A job is idle since the last use of a device by any of its living processes
// (use.go). Time before this daemon knew the job does not count as idle.
func (a *Arbiter) times(j *job) (idle, begun time.Time) {
	idle, begun = later(j.opened, j.counted().since), j.opened
	for _, s := range j.sessions {
		for _, l := range s.leases {
			if l.opened.Before(begun) { // the lease is older than this daemon
				begun = l.opened
			}
			if s.alive() {
				idle = later(idle, l.touched)
			}
		}
	}
	return idle, begun
}

// later returns the later of two times.
func later(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}

// allHeld returns what a job holds: the bytes in all, the device (-1: none or several), and a text; "": the job holds nothing. On each
// device the larger of used and reserved bytes counts, and the overhead of its living processes. A device of which the job keeps a slot is
// named even if it holds no bytes there.
func (a *Arbiter) allHeld(j *job) (bytes accounting.Bytes, device int, text string) {
	var parts []string
	device = -1
	for _, d := range a.devices {
		var used, overhead accounting.Bytes
		for l := range j.leasesOn(d) {
			if l.session.alive() && !l.gone() {
				used = used.Plus(a.readUsage(l))
				overhead = overhead.Plus(l.extra.Overhead)
			}
		}
		part := ""
		if n := max(used, j.budget.Reserved(d.Index)).Plus(overhead); n > 0 {
			bytes = bytes.Plus(n)
			part = fmt.Sprintf(wording.OnDevice, n.Human(), d)
		} else if h := d.holder(owner{Job: j}); h != nil && h.kept {
			part = d.String()
		}
		if part == "" {
			continue
		}
		if parts = append(parts, part); len(parts) == 1 {
			device = d.Index
		} else {
			device = -1
		}
	}
	return bytes, device, wording.List(parts[:min(len(parts), namedHolders)], len(parts))
}

// warnEvent stores the event of a warning about a job.
func (a *Arbiter) warnEvent(now time.Time, j *job, e Event) {
	e.Time, e.Text = now, j.owned()+" "+e.Text
	e.about(&j.request.Process)
	e.in(j)
	a.event(e)
}
