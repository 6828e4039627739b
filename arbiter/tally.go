package arbiter

import (
	"fmt"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file counts what became of a job's requests, for the event at its end and the summary of `gpuarb run`. end.go adds that up from the books.

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

// tally counts what became of a job's requests, those of processes that have ended included.
type tally struct {
	waits, refused uint64
	waited         time.Duration
	since          time.Time // when counting began, where that was after the job did
	unknown        []string  // UUIDs of devices that processes of the job use and the daemon does not know, up to mostUnknown
	besides        []Beside  // processes of the job that used a device past the library, up to mostBeside
	more           int       // such processes beyond those
}

// mostBeside is how many processes a job's account names that used a device past the library.
const mostBeside = 8

// mostUnknown bounds how many unknown devices of a job are reported.
const mostUnknown = 64
