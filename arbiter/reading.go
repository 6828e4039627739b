package arbiter

import (
	"maps"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/steps"
)

// Reading is a reading of a device that is taken into the books in parts: of thousands of processes that
// takes longer than anybody should hold the daemon's lock. All but Figures wants the lock.
//
// What a client's process uses beyond its bytes is its lease's overhead; what processes use that have no lease
// there is unmanaged; both lower the capacity, but for the part of the overhead that is charged to the lease's own
// budget (cost.go). A dead process that the reading does not list any more is reclaimed. Readings of a lost device
// are ignored.
//
// An allocation or a free that is under way during the reading is in one of the two figures and not in the other.
// So the larger of the used bytes before and after the reading is subtracted, and of the last two readings'
// overheads the smaller one counts: a transient has to last from one reading to the next to be believed. The price
// is that real overhead counts from the second reading on.
type Reading struct {
	a      *Arbiter
	device *device
	leases []*lease // that are to be looked at before the device is

	usage     Usage
	figures   map[int]ProcessUsage
	begun     bool
	clients   []int          // processes that are to be compared with their figures yet
	listed    []int          // processes of which it is to be seen yet whose they are
	strangers []ProcessUsage // of those seen, those of nobody's lease
	summed    bool
	gone      []*lease // that are to be reclaimed yet
}

// Reading begins a reading of a device; nil for one that is not known.
func (a *Arbiter) Reading(device int) *Reading {
	d := a.device(device)
	if d == nil {
		return nil
	}
	return &Reading{a: a, device: d, leases: slices.Collect(a.leasesOn(d))}
}

// Note notes what up to so many leases use, before the device is read. False: that was all.
func (r *Reading) Note(most int) (more bool) {
	steps.Part(most, &r.leases, func(l *lease) { l.beyond.Begin(l.Granted()-r.a.idle(l), r.a.makesContexts(l)) })
	return len(r.leases) > 0
}

// Figures takes what the device said. It needs no lock.
func (r *Reading) Figures(u Usage) {
	r.usage, r.figures = u, make(map[int]ProcessUsage, len(u.Processes))
	for _, p := range u.Processes {
		if known, twice := r.figures[p.PID]; twice { // graphics and compute are listed apart
			p.Bytes = max(p.Bytes, known.Bytes)
		}
		r.figures[p.PID] = p
	}
	r.listed = slices.Collect(maps.Keys(r.figures))
}

// Book takes up to so many processes into the books. False: that was all.
func (r *Reading) Book(now time.Time, most int) (more bool) {
	a, d := r.a, r.device
	if d.lost {
		return false
	}
	if d.unnamed = r.usage.Unnamed; d.unnamed {
		return false
	}
	defer a.serveQueues(now)
	if !r.begun {
		r.begin(now)
	}
	cost := d.contextCost()
	most = steps.Part(most, &r.clients, func(pid int) { r.client(now, pid) })
	if d.contextCost() != cost { // those who wait need more, or less
		a.searchAgain()
	}
	most = steps.Part(most, &r.listed, func(pid int) {
		if p := r.figures[pid]; p.Bytes > 0 && !d.isClient(p) {
			r.strangers = append(r.strangers, p)
		}
	})
	if most > 0 && !r.summed {
		r.sum(now)
	}
	steps.Part(most, &r.gone, func(l *lease) {
		if a.leases[l.id] == l {
			a.reclaim(now, l)
		}
	})
	return !r.summed || len(r.gone) > 0
}

// begin has the figures be those that the device showed last.
func (r *Reading) begin(now time.Time) {
	d := r.device
	if d.began, d.figures = r.usage.Began, r.figures; d.began.IsZero() {
		d.began = now
	}
	r.begun, r.clients = true, slices.Collect(maps.Keys(d.byPID))
}

// client compares the figure of a client's process with what it uses, and has the sums of the device follow.
func (r *Reading) client(now time.Time, pid int) {
	leases := r.device.byPID[pid]
	was := make([]accounting.Bytes, 0, 4) // nearly always enough, and not on the heap
	for _, l := range leases {
		was = append(was, l.free())
	}
	r.a.readOverhead(now, r.device, pid)
	for i, l := range leases {
		l.recharge(was[i], l.free())
	}
}

// sum has the capacity follow, when all processes are in the books.
func (r *Reading) sum(now time.Time) {
	r.summed = true
	r.a.sumOverheads(r.device)
	r.a.readUnmanaged(now, r.device, r.strangers)
	r.a.recap(now, r.device)
	r.gone = r.a.absent(r.device)
}
