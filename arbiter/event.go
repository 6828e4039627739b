package arbiter

import (
	"fmt"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file has the events, and makes the sentence of each. record.go stores them until the daemon reads them.

// Kind is the kind of an event, as /gpu/events shows it.
type Kind string

// Kinds of events.
const (
	EventGranted    Kind = "granted"        // a lease was opened, a job began, or the granted bytes of a lease have doubled
	EventRecalled   Kind = "recalled"       // idle credit was recalled
	EventDied       Kind = "died"           // a client ended, with what it held
	EventEnded      Kind = "ended"          // a job ended, with its tally
	EventDenied     Kind = "denied"         // a request was refused
	EventOver       Kind = "over"           // a budget exceeds its limit
	EventWithin     Kind = "within"         // a budget no longer exceeds its limit
	EventReclaimed  Kind = "reclaimed"      // the device has freed the memory of an ended process
	EventKept       Kind = "kept"           // the device has not freed the memory of an ended process: it is unmanaged from now on
	EventClamped    Kind = "clamped"        // an invalid value was found in a lease page
	EventExcess     Kind = "excess"         // a client uses memory that no allocation asked for, which is charged to its budget
	EventTwoCopies  Kind = "two_copies"     // a client uses two copies of a driver's library, and limits do not apply to one of them
	EventNoWall     Kind = "driver_limit"   // the limit of a cgroup could not be set in the kernel or the vendor's driver
	EventNoProcess  Kind = "no_process"     // no process was in the cgroup of a job for some time after the job was opened
	EventUnmanaged  Kind = "unmanaged"      // a process that is not a client uses a device
	EventVerified   Kind = "verified"       // the device confirms a restored lease
	EventDeviceLost Kind = "device_lost"    // a device fell off the bus
	EventDevice     Kind = "device"         // a device was found, or came back
	EventUnknown    Kind = "device_unknown" // a program uses a device that is not known
	EventHung       Kind = "device_hung"    // a device stopped answering, or answers again
	EventLimits     Kind = "limits"         // limits were changed
	EventPolicy     Kind = "policy"         // a new configuration is in force
	EventQueued     Kind = "queued"         // a request waits
	EventServed     Kind = "served"         // a request that waited was granted
	EventTimeout    Kind = "timeout"        // a request waited until its deadline
	EventCancelled  Kind = "cancelled"      // a request left the queue
	EventDeadlock   Kind = "deadlock"       // a deadlock was broken; the event has its parties
	EventIdle       Kind = "idle"           // a job holds something and has been idle for idle.warn
	EventAged       Kind = "aged"           // a job holds something and has run for age.warn
	EventSuspending Kind = "suspending"     // a job is asked to give its memory back
	EventSuspended  Kind = "suspended"      // a job gave memory back, which is in Bytes
	EventNotGiven   Kind = "suspend_failed" // a job was asked to give its memory back, and gave none
	EventResuming   Kind = "resuming"       // memory is reserved for a suspended job, and the job is asked to take it
	EventResumed    Kind = "resumed"        // a suspended job has its memory again
	EventStuck      Kind = "stuck"          // a suspended job was asked to take its memory, and failed
)

// Event is one decision or observation, for the log. Device is -1 if the event is about no device.
type Event struct {
	Time      time.Time        `json:"time"`
	Kind      Kind             `json:"event"`
	Device    int              `json:"device"`
	UUID      string           `json:"uuid,omitempty"`
	PID       int              `json:"pid,omitempty"`
	UID       uint32           `json:"uid"`
	User      string           `json:"user,omitempty"` // name of the user; "": unknown
	Command   string           `json:"command,omitempty"`
	Job       JobID            `json:"job,omitempty"`
	Name      string           `json:"name,omitempty"` // name that the user gave the job
	Lease     LeaseID          `json:"lease,omitempty"`
	Reason    Reason           `json:"reason,omitempty"`
	What      string           `json:"what,omitempty"` // what was asked for: AsksLease and so on
	Requested accounting.Bytes `json:"requested_bytes,omitempty"`
	Remaining accounting.Bytes `json:"remaining_bytes,omitempty"`
	Limit     accounting.Bytes `json:"limit_bytes,omitempty"`
	Bytes     accounting.Bytes `json:"bytes,omitempty"`
	Ticket    TicketID         `json:"ticket,omitempty"`
	WaitedMs  int64            `json:"waited_ms,omitempty"`
	IdleMs    int64            `json:"idle_ms,omitempty"` // how long the job has been idle; 0: the event is not about that
	AgeMs     int64            `json:"age_ms,omitempty"`  // how long the job has run; 0: the event is not about that
	TookMs    int64            `json:"took_ms,omitempty"` // how long the job took to give its memory back or to take it again; 0: the event is not about that
	Setting   string           `json:"setting,omitempty"` // file of the changed limit. The owner is in Whose, and the values in From and To.
	Whose     string           `json:"whose,omitempty"`
	From      string           `json:"from,omitempty"`
	To        string           `json:"to,omitempty"`
	By        *uint32          `json:"by_uid,omitempty"` // user who asked for a suspension or a return; nil: none did
	ByPID     int              `json:"by_pid,omitempty"` // process that changed the limit, or that asked for a suspension or a return
	Streams   int              `json:"streams,omitempty"`
	Contexts  int              `json:"contexts,omitempty"`
	Leases    int              `json:"leases,omitempty"`  // number of leases that credit was recalled from
	Parties   []Party          `json:"parties,omitempty"` // parties of a deadlock
	Text      string           `json:"text"`              // sentence for users; "": Sentence makes it
	processor bool             // Device is the processor
	bound     bool             // for Sentence: the event is about the job of a cgroup itself, not about one program; no user is named
	program   string           // for Sentence: name of the process or job; "": none
	why       string           // for Sentence: why the request was refused
	account   *Tally           // for Sentence: what a job used until it ended; nil: the event is not the end of a job
}

// Party is a job in a deadlock: what it holds, and what it asks for.
type Party struct {
	Job     JobID
	PID     int
	User    string
	Command string
	Holds   []Held
	What    string
	Wants   string // request for messages
	Device  int    // -1: any device
	Bytes   accounting.Bytes
	Ticket  TicketID
}

// Held has the holdings of a job on a device.
type Held struct {
	Device int
	Bytes  accounting.Bytes
	Slot   bool
}

// Values of Event.What.
const (
	AsksLease   = "lease"
	AsksMemory  = "memory"
	AsksStream  = "stream"
	AsksContext = "context"
	AsksHold    = "hold"
	AsksJob     = "job"
	AsksProcess = "process"
	AsksReturn  = "return"
)

// asked returns what a request asks for, as events show it.
func (w RequestKind) asked() string {
	return [...]string{WantsBytes: AsksMemory, WantsStreams: AsksStream, WantsContexts: AsksContext, WantsHolds: AsksHold,
		wantsJob: AsksJob, wantsSession: AsksProcess, wantsReturn: AsksReturn}[w]
}

// Sentence returns the event as a sentence for users. Frequent events get their text only here.
func (e *Event) Sentence() string {
	if e.Text != "" {
		return e.Text
	}
	device := accounting.DeviceName(e.Device, e.processor)
	who := ""
	if e.program != "" {
		who = wording.Owned(e.User, e.program)
	}
	if e.bound {
		who = e.program
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

// Notable reports whether the end of a job deserves a line in a log of exceptions: a request of the job waited or was refused, or a process
// used a device without the library. It is false for all other events.
func (e *Event) Notable() bool {
	return e.account != nil && (e.account.Waits > 0 || e.account.Refused > 0 || len(e.account.Unmanaged) > 0)
}

// about sets the process of an event.
func (e *Event) about(p *rules.Process) {
	e.PID, e.UID, e.User, e.Command = p.PID, p.UID, p.User, p.Command
}
