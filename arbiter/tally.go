package arbiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/figures"
)

// Tally is what became of a job so far.
type Tally struct {
	Waits   uint64        // requests that had to wait, and wait no more
	Waited  time.Duration // summed over them
	Refused uint64
	Since   time.Duration // how long ago counting began, where that was not with the job; else 0
	Devices []TallyDevice // those that it used
	Unknown int           // number of devices that it used and the daemon does not know
	Beside  []Beside      // its processes that used a device past the library, as readings of the device have shown
	More    int           // such processes beyond those
}

// Beside is a process of a job that used a device without a lease. A process that ended between two readings of the device
// is not among them.
type Beside struct {
	PID        int
	StartTicks uint64
	Device     int
	Command    string
	Peak       accounting.Bytes // the most that a reading has shown of it
	Bypass     figures.Bypass
}

// resumed takes a process that has a lease now off the list of those without one: after a restart without a state file, a
// reading of the device lists a client before the client resumes.
func (t *tally) resumed(d *device, p *rules.Process) {
	t.besides = slices.DeleteFunc(t.besides, func(b Beside) bool {
		return b.PID == p.PID && b.StartTicks == p.StartTicks && b.Device == d.Index && b.Bypass == figures.BypassPassed
	})
}

// mostBeside is how many processes a job's account names that used a device past the library.
const mostBeside = 8

// beside notes what a reading shows of a process of the job that has no lease on the device. isNew: the reading before did not
// list the process.
func (t *tally) beside(d *device, u *figures.UnmanagedState, isNew bool) {
	for i := range t.besides {
		if b := &t.besides[i]; b.PID == u.PID && b.StartTicks == u.StartTicks && b.Device == d.Index {
			b.Command, b.Bypass, b.Peak = u.Command, u.Bypass, max(b.Peak, u.Bytes)
			return
		}
	}
	if len(t.besides) < mostBeside {
		t.besides = append(t.besides, Beside{u.PID, u.StartTicks, d.Index, u.Command, u.Bytes, u.Bypass})
	} else if isNew {
		t.more++
	}
}

// TallyDevice is a job's account on a device.
type TallyDevice struct {
	Device int
	Peak   accounting.Bytes // the most that its processes used at once
	Max    accounting.Bytes // of the job as a whole; accounting.Max: none

	processor bool // the device is the processor
}

// sentence returns the account as users read it.
func (t *Tally) sentence() string {
	var used []wording.Use
	for _, d := range t.Devices {
		used = append(used, wording.Use{Device: accounting.DeviceName(d.Device, d.processor), Peak: d.Peak, Max: d.Max})
	}
	line := wording.Account(used, t.Unknown, t.Waits, t.Refused, t.Waited, t.Since)
	for _, b := range t.Beside {
		line += fmt.Sprintf(wording.UsedBeside, wording.Stranger(b.Command, b.PID), b.Peak.Human(), accounting.DeviceName(b.Device, false))
	}
	return line
}

// mostUnknown bounds how many unknown devices of a job are reported.
const mostUnknown = 64

// UnknownDevice notes that a process uses a device that the daemon does not know, by the UUID that its driver says. It returns
// the message for the process's user; "": the job has had it before.
func (a *Arbiter) UnknownDevice(now time.Time, id SessionID, uuid string) string {
	s := a.sessions[id]
	if s == nil || len(s.job.tally.unknown) >= mostUnknown || slices.Contains(s.job.tally.unknown, uuid) {
		return ""
	}
	s.job.tally.unknown = append(s.job.tally.unknown, uuid)
	format := wording.UnknownFree
	if s.job.run {
		format = wording.UnknownRefused
	}
	text := fmt.Sprintf(format, s.name(), uuid)
	e := Event{Time: now, Kind: EventUnknown, Device: -1, UUID: uuid, Text: text}
	e.about(&s.process)
	e.in(s.job)
	a.event(e)
	return text
}

// jobOver records the event of a job's end, with what the job used. There is none for a job that never began.
func (a *Arbiter) jobOver(now time.Time, j *job) {
	if !j.run || j.ended || j.pending {
		return
	}
	account, _ := a.Tally(now, j.id)
	e := Event{Time: now, Kind: EventEnded, What: AsksJob, Device: -1, WaitedMs: account.Waited.Milliseconds(), program: j.name(), account: &account}
	e.about(&j.request.Process)
	e.in(j)
	if len(account.Devices) == 1 {
		e.Device, e.Bytes = account.Devices[0].Device, account.Devices[0].Peak
	}
	a.event(e)
}

// Tally returns what became of a job so far; false where there is none.
func (a *Arbiter) Tally(now time.Time, id JobID) (Tally, bool) {
	j := a.jobs[id]
	if j == nil {
		return Tally{}, false
	}
	sum := Tally{Waits: j.tally.waits, Waited: j.tally.waited, Refused: j.tally.refused, Beside: slices.Clone(j.tally.besides), More: j.tally.more, Unknown: len(j.tally.unknown)}
	if !j.tally.since.IsZero() {
		sum.Since = max(now.Sub(j.tally.since), time.Millisecond)
	}
	for _, s := range j.sessions {
		for _, l := range s.leases {
			a.look(l)
		}
	}
	for _, p := range j.used {
		if p.most > 0 {
			sum.Devices = append(sum.Devices, TallyDevice{p.device.Index, p.most, j.limits(p.device).Max, !p.device.IsGPU()})
		}
	}
	return sum, true
}
