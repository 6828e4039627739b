package arbiter

import (
	"fmt"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file computes how many bytes of a device the processes of a cgroup's job may hold, contexts included. The daemon makes it a limit of
// the kernel or the vendor's driver (driverlimits.go).

// roomMargin is added to each CgroupRoom, with a tenth of the rest: drivers round up, and a context grows while it is used. A limit that
// is too narrow would fail programs that are inside their budgets.
const roomMargin = 256 << 20

// CgroupRoom is the memory of a device that the processes of a cgroup's job may hold together.
type CgroupRoom struct {
	Job    JobID
	Cgroup string
	Device int
	Bytes  accounting.Bytes
}

// CgroupRooms returns the room of each open job of a cgroup with a budget, on each GPU. The room is a sum: the budget, the overhead that is
// not charged to it, one more context, a tenth of the sum so far, and roomMargin. One more context counts because the daemon learns of a
// context only shortly before the driver makes it. The room of a job inside another job is at most the room of the outer job.
func (a *Arbiter) CgroupRooms() (rooms []CgroupRoom) {
	for _, id := range a.Jobs() {
		j := a.jobs[id]
		if j.request.Cgroup == "" || j.pending || j.closed || j.released {
			continue
		}
		for _, d := range a.devices {
			if !d.IsGPU() || j.limits(d).Max == accounting.Max {
				continue
			}
			rooms = append(rooms, CgroupRoom{Job: id, Cgroup: j.request.Cgroup, Device: d.Index, Bytes: a.cgroupRoom(j, d)})
		}
	}
	return rooms
}

// cgroupRoom returns the room of a job on a device; accounting.Max for nil.
func (a *Arbiter) cgroupRoom(j *job, d *device) accounting.Bytes {
	if j == nil {
		return accounting.Max
	}
	around := a.cgroupRoom(j.around, d)
	budget := j.limits(d).Max
	if budget == accounting.Max {
		return around
	}
	for s := range j.clients {
		if l := s.leaseOn(d); l != nil {
			budget = budget.Plus(l.uncharged())
		}
	}
	if !a.chargesOverhead(j) {
		budget = budget.Plus(d.contextRoom())
	}
	return min(around, budget.Plus(budget/10).Plus(roomMargin))
}

// ContextChanges returns a number that changes when a client is granted a context.
func (a *Arbiter) ContextChanges() uint64 { return a.contextChanges }

// NoProcessCame records the event that a job of a cgroup has been open for the time after, and that no process was in its cgroup in that
// time. It does nothing if the job is not known.
func (a *Arbiter) NoProcessCame(now time.Time, id JobID, cgroup string, after time.Duration) {
	if j := a.jobs[id]; j != nil {
		e := Event{Time: now, Kind: EventNoProcess, Device: -1, Text: fmt.Sprintf(wording.NoProcess, j.name(), cgroup, wording.Span(after))}
		e.about(&j.request.Process)
		e.in(j)
		a.event(e)
	}
}

// NoWall records the event that setting or putting back the limit of a cgroup on a device has failed, and why. id is the cgroup's job; 0: none.
func (a *Arbiter) NoWall(now time.Time, id JobID, cgroup string, device int, why string) {
	d := a.device(device)
	if d == nil {
		return
	}
	e := Event{Time: now, Kind: EventNoWall, Device: device, Text: fmt.Sprintf(wording.NoWall, cgroup, d, why)}
	if j := a.jobs[id]; j != nil {
		e.about(&j.request.Process)
		e.in(j)
	}
	a.event(e)
}
