package arbiter

import (
	"fmt"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file has the events, and the sentence that tells of each. record.go keeps them until the daemon reads them.

// Kind says what an event is about; the word is what /gpu/events shows.
type Kind string

// The kinds of events.
const (
	EventGranted    Kind = "granted"        // a lease was opened, a job began, or a lease has much more than when that was last told
	EventRecalled   Kind = "recalled"       // idle credit was called back
	EventDied       Kind = "died"           // a client ended with what it held
	EventEnded      Kind = "ended"          // a job ended: what became of it
	EventDenied     Kind = "denied"         // a request was refused
	EventOver       Kind = "over"           // a budget holds more than its limit
	EventWithin     Kind = "within"         // it does no longer
	EventReclaimed  Kind = "reclaimed"      // a dead process's memory is back
	EventKept       Kind = "kept"           // a dead process's memory is not back: unmanaged from now on
	EventClamped    Kind = "clamped"        // rubbish was found in a lease page
	EventExcess     Kind = "excess"         // a client uses what no allocation names: charged to its budget
	EventTwoCopies  Kind = "two_copies"     // a client uses two copies of a driver's library, and one is not held to limits
	EventUnmanaged  Kind = "unmanaged"      // a process that is not a client uses a device
	EventVerified   Kind = "verified"       // the device confirms a restored lease
	EventDeviceLost Kind = "device_lost"    // a device fell off the bus
	EventDevice     Kind = "device"         // a device came, or came back
	EventUnknown    Kind = "device_unknown" // a program uses a device that is not known
	EventHung       Kind = "device_hung"    // a device does not answer, or does again
	EventLimits     Kind = "limits"         // limits were changed
	EventPolicy     Kind = "policy"         // a new configuration is in force
	EventQueued     Kind = "queued"         // a request waits
	EventServed     Kind = "served"         // a request that waited was granted
	EventTimeout    Kind = "timeout"        // a request waited as long as it may
	EventCancelled  Kind = "cancelled"      // a request left the queue
	EventDeadlock   Kind = "deadlock"       // a circle of waiters was broken: who held what, who wanted what
)

// Event is one decision, for the log. Device is -1 where none is concerned.
type Event struct {
	Time      time.Time        `json:"time"`
	Kind      Kind             `json:"event"`
	Device    int              `json:"device"`
	UUID      string           `json:"uuid,omitempty"`
	PID       int              `json:"pid,omitempty"`
	UID       uint32           `json:"uid"`
	User      string           `json:"user,omitempty"` // his name, and the command; "": not known
	Command   string           `json:"command,omitempty"`
	Job       JobID            `json:"job,omitempty"`
	Name      string           `json:"name,omitempty"` // of the job, that its user gave it
	Lease     LeaseID          `json:"lease,omitempty"`
	Reason    Reason           `json:"reason,omitempty"`
	What      string           `json:"what,omitempty"` // it is that was asked for: see asked
	Requested accounting.Bytes `json:"requested_bytes,omitempty"`
	Remaining accounting.Bytes `json:"remaining_bytes,omitempty"`
	Limit     accounting.Bytes `json:"limit_bytes,omitempty"`
	Bytes     accounting.Bytes `json:"bytes,omitempty"`
	Ticket    TicketID         `json:"ticket,omitempty"`
	WaitedMs  int64            `json:"waited_ms,omitempty"`
	Setting   string           `json:"setting,omitempty"` // which limit was changed, whose it is, and from what to what
	Whose     string           `json:"whose,omitempty"`
	From      string           `json:"from,omitempty"`
	To        string           `json:"to,omitempty"`
	ByPID     int              `json:"by_pid,omitempty"` // the process that changed it
	Streams   int              `json:"streams,omitempty"`
	Contexts  int              `json:"contexts,omitempty"`
	Leases    int              `json:"leases,omitempty"`  // how many something was taken from
	Parties   []Party          `json:"parties,omitempty"` // of a deadlock
	Text      string           `json:"text"`              // "": Sentence makes it
	processor bool             // the device is it
	program   string           // for Sentence: how the process is called; "": there is none
	why       string           // for Sentence: it was refused
	account   *Tally           // for Sentence: what a job used until it ended; nil: the event is not the end of a job
}

// Party is one of those who wait for each other: what its job holds, and what it wants.
type Party struct {
	Job     JobID
	PID     int
	User    string
	Command string
	Holds   []Held
	What    string
	Wants   string // for people
	Device  int    // -1: any
	Bytes   accounting.Bytes
	Ticket  TicketID
}

// Held is what a job has of a device.
type Held struct {
	Device int
	Bytes  accounting.Bytes
	Slot   bool
}

// What a request asks for, as an event has it.
const (
	AsksLease   = "lease"
	AsksMemory  = "memory"
	AsksStream  = "stream"
	AsksContext = "context"
	AsksHold    = "hold"
	AsksJob     = "job"
	AsksProcess = "process"
)

// asked is what a request asks for, as an event has it.
func (w What) asked() string {
	return [...]string{WantsBytes: AsksMemory, WantsStreams: AsksStream, WantsContexts: AsksContext, WantsHolds: AsksHold,
		wantsJob: AsksJob, wantsSession: AsksProcess}[w]
}

// Sentence is the event for people. What happens often has no text before somebody wants it.
func (e *Event) Sentence() string {
	if e.Text != "" {
		return e.Text
	}
	device := accounting.DeviceName(e.Device, e.processor)
	who := ""
	if e.program != "" {
		who = wording.Owned(e.User, e.program)
	}
	switch {
	case e.Kind == EventGranted && e.What == AsksLease:
		return fmt.Sprintf(wording.LeaseOpened, who, device)
	case e.Kind == EventGranted && e.What == AsksJob:
		return fmt.Sprintf(wording.JobBegun, who)
	case e.Kind == EventGranted:
		return fmt.Sprintf(wording.Granted, who, e.Requested.Human(), device, e.Bytes.Human())
	case e.Kind == EventRecalled && e.PID != 0:
		return fmt.Sprintf(wording.RecalledFor, e.Bytes.Human(), device, e.Leases, who)
	case e.Kind == EventRecalled:
		return fmt.Sprintf(wording.Recalled, e.Bytes.Human(), device, e.Leases)
	case e.Kind == EventDenied:
		return fmt.Sprintf(wording.Refused, who, e.why)
	case e.Kind == EventEnded:
		return fmt.Sprintf(wording.JobOver, who, e.account.sentence())
	case e.Kind == EventDied:
		return fmt.Sprintf(wording.Died, who, e.Bytes.Human(), e.Streams, e.Contexts, device)
	}
	return string(e.Kind)
}

// Notable reports whether the end of a job deserves a line in a log of exceptions: a request of the job waited or was refused, or
// a process of it ran past the library. It is false for all other events.
func (e *Event) Notable() bool {
	return e.account != nil && (e.account.Waits > 0 || e.account.Refused > 0 || len(e.account.Beside) > 0)
}

// about fills in which process an event is about.
func (e *Event) about(p *rules.Process) {
	e.PID, e.UID, e.User, e.Command = p.PID, p.UID, p.User, p.Command
}
