package arbiter

import (
	"cmp"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// Kind says what an event is about; the word is what /gpu/events shows.
type Kind string

// The kinds of events.
const (
	EventDenied     Kind = "denied"      // a request was refused
	EventOver       Kind = "over"        // a budget holds more than its limit
	EventWithin     Kind = "within"      // it does no longer
	EventReclaimed  Kind = "reclaimed"   // a dead process's memory is back
	EventKept       Kind = "kept"        // a dead process's memory is not back: unmanaged from now on
	EventClamped    Kind = "clamped"     // rubbish was found in a lease page
	EventExcess     Kind = "excess"      // a client uses what no allocation names: charged to its budget
	EventUnmanaged  Kind = "unmanaged"   // a process that is no client uses a device
	EventVerified   Kind = "verified"    // the device confirms a restored lease
	EventDeviceLost Kind = "device_lost" // a device fell off the bus
	EventDevice     Kind = "device"      // a device came, or came back
	EventHung       Kind = "device_hung" // a device does not answer, or does again
	EventLimits     Kind = "limits"      // limits were changed
	EventPolicy     Kind = "policy"      // a new configuration is in force
	EventQueued     Kind = "queued"      // a request waits
	EventServed     Kind = "served"      // a request that waited was granted
	EventTimeout    Kind = "timeout"     // a request waited as long as it may
	EventCancelled  Kind = "cancelled"   // a request left the queue
	EventDeadlock   Kind = "deadlock"    // a circle of waiters was broken: who held what, who wanted what
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
	Text      string           `json:"text"`
}

// about fills in which process an event is about.
func (e *Event) about(p *rules.Process) {
	e.PID, e.UID, e.User, e.Command = p.PID, p.UID, p.User, p.Command
}

// in fills in which job an event is about; what that runs is its command, where no process of it has one.
func (e *Event) in(j *job) {
	e.Job, e.Name = j.id, j.request.Name
	if e.PID == 0 || j.run && e.PID == j.request.Process.PID {
		e.Command = cmp.Or(j.request.Command, e.Command)
	}
}
