package arbiter

import (
	"fmt"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/usage"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file has the tally of a job: counts of its requests for the event at its end, and for the summary of `gpuarb run`. decision.go,
// refuse.go and record.go count; end.go makes the sum. It also has the warnings of a job, which warn.go gives.

// Tally is the counts of a job so far.
type Tally struct {
	Waits         uint64        // requests that had to wait and are decided
	Waited        time.Duration // sum of their waits
	Refused       uint64
	LastRefused   string             // why the last request was refused, as the end of a sentence; "": not known
	Since         time.Duration      // time since counting began, if that was after the start of the job; else 0
	Devices       []TallyDevice      // devices that the job used
	Unknown       int                // number of devices that the job used and the daemon does not know
	Unmanaged     []UnmanagedProcess // processes that used a device without the library, by readings of the device
	MoreUnmanaged int                // number of such processes that are not in Unmanaged
}

// UnmanagedProcess is a process of a job that used a device without a lease. It does not include processes that ended between two readings of the
// device.
type UnmanagedProcess struct {
	PID        int
	StartTicks uint64
	Device     int
	Command    string
	Peak       accounting.Bytes // largest usage in a reading
	Bypass     figures.Bypass
	Charged    bool // its usage counts against the budget of the job
}

// JobAccount has the totals of a job, for the history. Counts that belong to no device are those of the job less those of Devices.
type JobAccount struct {
	ID       JobID
	Process  rules.Process // process that opened the job
	Key      string        // that of its request
	Command  string
	Name     string
	Run      bool // opened by `gpuarb run`
	Claim    bool
	Restored bool // an earlier daemon opened it
	Opened   time.Time
	Ended    time.Time // zero: it goes on
	Exit     *Exit     // how its command ended; nil: not known
	Died     bool      // the process that ended last held something then
	Started  bool      // false: it was refused before it began
	Waits    uint64
	Waited   time.Duration
	Refused  uint64
	Reasons  map[Reason]uint64
	Lacked   accounting.Bytes // largest refused request for memory
	Denial   string           // last refused request and its reason; "": none
	Devices  []DeviceAccount
}

// DeviceAccount has the totals of a job on one device.
type DeviceAccount struct {
	Device  int
	UUID    string
	Sums    usage.Sums
	Held    accounting.Bytes // at present
	Peak    accounting.Bytes
	Waits   uint64
	Waited  time.Duration
	Refused uint64
	Idle    time.Duration // time in which memory was held and nothing was done
}

// Exit is the end of the command of a job, as its `gpuarb run` reports it.
type Exit struct {
	Code   int // exit code; with a signal: 0
	Signal int // 0: none
}

// TallyDevice is the usage of one device by a job.
type TallyDevice struct {
	Device int
	Peak   accounting.Bytes // most bytes that its processes used at once
	Max    accounting.Bytes // memory.max of the job as a whole; accounting.Max: none

	Contexts accounting.Bytes // most bytes that contexts of its processes took at once
	Kept     bool             // the device has shown no context, and Contexts is what was kept for them

	processor bool // Device is the processor
}

// Account returns the tally as a sentence for users. It leaves out processes that used a device without the library.
func (t *Tally) Account() string {
	var used []wording.Use
	for _, d := range t.Devices {
		used = append(used, wording.Use{Device: accounting.DeviceName(d.Device, d.processor), Peak: d.Peak, Max: d.Max, Contexts: d.Contexts, Kept: d.Kept})
	}
	return wording.Account(wording.Requests{Waits: t.Waits, Waited: t.Waited, Refused: t.Refused, LastRefused: t.LastRefused}, used, t.Unknown, t.Since)
}

// sentence returns the sentence of Account, and adds the processes that used a device without the library.
func (t *Tally) sentence() string {
	line := t.Account()
	for _, b := range t.Unmanaged {
		text := wording.UsedBeside
		if b.Charged {
			text = wording.UsedUnmanaged
		}
		line += fmt.Sprintf(text, wording.Stranger(b.Command, b.PID), b.Peak.Human(), accounting.DeviceName(b.Device, false))
	}
	return line
}

// tally counts the requests of a job, including those of ended processes, and has its warnings.
type tally struct {
	warned
	waits, refused uint64
	lastRefused    string // as in Tally
	waited         time.Duration
	since          time.Time          // when counting began, if that was after the start of the job; else zero
	inside         requestCounts      // of jobs inside the job that have ended
	unknown        []string           // UUIDs of devices that the job uses and the daemon does not know, up to maxUnknown
	unmanaged      []UnmanagedProcess // processes that used a device without the library, up to maxUnmanaged
	moreUnmanaged  int                // number of such processes that are not in unmanaged
	reasons        map[Reason]uint64  // refused requests by reason; nil: none
	lacked         accounting.Bytes   // largest refused request for memory
}

// requestCounts are counts of the requests of several jobs.
type requestCounts struct {
	waits, refused uint64
	waited         time.Duration
}

// add adds other counts.
func (c *requestCounts) add(of requestCounts) {
	c.waits, c.refused, c.waited = c.waits+of.waits, c.refused+of.refused, c.waited+of.waited
}

// countReason counts a refused request of the job by its reason.
func (t *tally) countReason(why Reason) {
	if t.reasons == nil {
		t.reasons = map[Reason]uint64{}
	}
	t.reasons[why]++
}

// maxUnmanaged is how many processes without a lease the tally names.
const maxUnmanaged = 8

// maxUnknown is how many unknown devices of a job are reported.
const maxUnknown = 64

// Warnings are the warnings of a job so far: their number, and the last sentence of each kind, without the name of the job.
type Warnings struct {
	Idle, Aged         uint64
	IdleText, AgedText string
}

// warned is the state of the warnings of a job.
type warned struct {
	Warnings
	idleSince time.Time // beginning of the idle period that was warned of; zero: none was
	aged      bool      // the age was warned of, by this daemon or an earlier one
	checked   bool      // warnJob has checked the job
}
