package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/reading"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/threads"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file has the types of the daemon's calls: IDs, requests and their results, readings of a device, restored jobs and leases, and
// CreditWord. result.go has the type Result and the reasons of refusals.

// SessionID identifies the session of a client process. 0 means none. An ID is never reused.
type SessionID uint64

// LeaseID identifies a lease: what one session holds on one device. 0 means none. An ID is never reused.
type LeaseID uint64

// JobID identifies a job. 0 means none. An ID is never reused, and [Arbiter.RestoreJob] keeps it over a restart.
type JobID uint64

// TicketID identifies a waiting request. 0 means none. An ID is never reused.
type TicketID uint64

// Place is the place of a request in the queue. A client that asks again, after a restart of the daemon or on a new connection, passes the
// place that it had and keeps it. The zero Place stands for a new place.
type Place struct {
	Arrival uint64
	Since   time.Time
	Absent  bool // the client has not asked again yet: the request waits and is not granted
}

// CreditWord gives access to the memory that a lease shares with its client. Package shim implements it on the sealed page, and announces
// each change in the state file before making it (Lease.change in package shim has one exception). All calls are made under the daemon's
// lock. If the page is gone, the word reads as 0 and changes nothing.
//
// granted is what the ledger holds for the lease at that moment, in bytes. Values are clamped to [0, granted]. An implementation that had
// to clamp a value calls [Arbiter.Clamped], from within any of these methods.
type CreditWord interface {
	// Opened sets the lease of the word. It is called before all other methods.
	Opened(id LeaseID)
	// Credit returns the idle bytes in the word.
	Credit(granted accounting.Bytes) accounting.Bytes
	// Take takes up to most idle bytes out of the word and returns their number. The ledger then holds granted less these bytes.
	Take(granted, most accounting.Bytes) accounting.Bytes
	// Give adds n idle bytes to the word. granted is the sum before that. If it returns false nothing has changed.
	Give(granted, n accounting.Bytes) bool
	// Grant records that n bytes were granted to a thread. granted is the sum before that.
	Grant(granted, n accounting.Bytes)
	// Free adds n granted bytes to the word as idle, as the client does when it frees them. If it returns false nothing has changed.
	Free(n accounting.Bytes) bool
	// Flag sets the two flags of the word, and returns after the word shows them.
	Flag(closed, notify bool)
	// Streams returns the stream count if it is delegated to the client, which may change it at any time. It returns false if the ledger
	// has the count.
	Streams() (int, bool)
	// CloseStreams revokes the stream count and returns its last value. It returns false if the count was not delegated.
	CloseStreams() (int, bool)
	// OpenStreams delegates the stream count n with its maximum. It returns false if there is no page.
	OpenStreams(n, most int) bool
	// SetAway publishes how many bytes of the lease do not count against its device.
	SetAway(n accounting.Bytes)
	// Limit publishes the memory.max in force, for information. It is never more than the device can grant.
	Limit(max accounting.Bytes)
	// Peak returns the most bytes used at once since the lease opened, by the low-water mark of the page. It is at least what is used now.
	// If a change of the word resets the mark, the implementation keeps the value of the mark.
	Peak(granted accounting.Bytes) accounting.Bytes
	// Pending returns the bytes that the client reports as freed in stream order, while the free has not executed.
	Pending() accounting.Bytes
	// Called reports whether the client has made a call for the lease since the last Called. An earlier library never says so.
	Called() bool
	// Recent returns the most bytes used at once since the arbiter last changed the word, by its low-water mark. It is at least what is
	// used now.
	Recent(granted accounting.Bytes) accounting.Bytes
	// Lost records that the device of the lease is gone, with everything that the lease held.
	Lost()
	// Report returns what the client reports about its memory; the zero ClientReport if it reports nothing.
	Report() reading.ClientReport
}

// Allowed says what programs inside the job of a cgroup may do besides using its budget.
type Allowed struct {
	Claim     bool // claim devices
	Reserve   bool // reserve more than the job's own reservation
	Exclusive bool // use devices exclusively
	Priority  bool // raise their priority; the daemon checks that
}

// names returns what is allowed, as `gpuarb job open --allow` names it.
func (w Allowed) names() (names []string) {
	for _, is := range []struct {
		set  bool
		name string
	}{{w.Claim, "claim"}, {w.Reserve, "reserve"}, {w.Exclusive, "exclusive"}, {w.Priority, "priority"}} {
		if is.set {
			names = append(names, is.name)
		}
	}
	return names
}

// JobRequest asks to open a job for `gpuarb run`.
type JobRequest struct {
	Process rules.Process    // process of the runner, for which the rule is chosen
	Max     *accounting.Size // memory.max per device; nil: as the rule says
	Min     *accounting.Size // memory.min per device; nil: as the rule says
	Streams int              // streams per lease; 0: as the rule says
	Command string           // command for messages; "": that of Process
	Name    string           // name that the user gave the job; "": none
	Key     string           // identifies the job over restarts of the daemon, for the history; "": none

	Timeout    time.Duration // longest wait of each request of the job; 0: as the rule says
	Priority   int           // added to the priority of the rule, and to that of the jobs inside; only root may ask for more than 0
	Wait       bool          // allocations wait if there is no room, whatever on_full says
	NoWait     bool          // no request of the job waits: it is refused with ReasonBusy
	Forever    bool          // requests wait without a time limit
	PerProcess bool          // Max, Min and Streams apply to each process separately
	Exclusive  bool          // no other job may use the job's devices until it ends
	Any        bool          // one device is enough: one of Devices, in that order of preference, or of all devices if there are none
	Emptiest   bool          // the one of Devices, or of all devices, with the most free memory; the job shares it with others
	OnlyIfNone bool          // refuse with ReasonBusy if the user has a claim already
	Claim      bool          // claim the device even if it has no slots.max
	Devices    []int         // without Any: the devices that the job may use; nil: all
	Place      Place         // place of a resubmitted request

	Around JobID              // job of a cgroup inside which this one is opened, and below whose budget it counts; 0: none
	Cgroup string             // cgroup to which the job is bound; "": a runner opened the job
	Terms  figures.BoundTerms // how the job of a cgroup was opened, for snapshots
	Allows Allowed            // with Cgroup: what programs inside may do
	// FromInside: with Cgroup, the opener runs inside Around, whose limits it may not pass.
	FromInside bool
	// ContextsInside: contexts are charged to the job's budget, as with charge_overhead, whatever the policy says.
	ContextsInside bool
	OpenNow        bool          // refuse with ReasonBusy instead of letting the opening wait; unlike NoWait, later requests of the job may wait
	OpenWithin     time.Duration // longest wait of the opening, in place of Timeout; negative: without a limit; 0: as Timeout says
}

// JobInfo describes an opened job. Budget is the memory.max in force on the largest device in bytes, and never more than that device can
// grant.
type JobInfo struct {
	ID      JobID
	Budget  accounting.Bytes
	Waiting TicketID // ticket with which the job waits to start; 0: the job is open
	Devices []int    // devices that the job may use; nil: all
	Keeps   []int    // devices of which the job keeps a slot until it ends; not nil if the job is open
}

// SessionRequest asks to open a client's session. Max and Streams come from the program's environment, and can only lower what the rules
// allow.
type SessionRequest struct {
	Process rules.Process
	Job     JobID // 0: the session gets a job of its own
	Max     *accounting.Size
	Streams int // 0: as the rule says

	OnFull        rules.OnFull      // "": as the rule says
	Slots         int               // own slot limit: a slot is taken only if fewer slots than this are taken; 0: none
	SlotScope     rules.Scope       // "": as the rule says; a scope wider than the rule's is ignored
	StreamReserve *accounting.Bytes // bytes charged for each stream; nil: as the rule says
	Place         Place             // place of a resubmitted request
	Unreserved    bool              // only for RestoreSession: Reserve makes the reservation later
}

// SessionInfo describes an opened session.
type SessionInfo struct {
	ID      SessionID
	Waiting TicketID // ticket with which the session waits for its memory.min; 0: it is reserved
}

// LeaseInfo describes an open lease.
type LeaseInfo struct {
	ID         LeaseID
	Budget     accounting.Bytes // memory.max in force; never more than the device can grant
	Streams    int              // number of streams of the lease
	StreamsMax int
	SlotScope  rules.Scope      // owner of the slots that the lease uses
	Total      accounting.Bytes // bytes of the device
}

// RequestKind is the kind of a request.
type RequestKind uint8

// Kinds of requests.
const (
	WantsBytes RequestKind = iota // bytes that the client's credit did not cover
	WantsStreams
	WantsContexts
	WantsHolds   // holds of threads on a shared context
	wantsJob     // start of a job
	wantsSession // reservation of a session at its start
	wantsReturn  // return of a suspended job, with all the memory that the job held
)

// Request asks for bytes, or for Count objects, on the device of a lease before the client takes them. A negative Count gives objects back,
// and 0 asks for their number.
type Request struct {
	Lease   LeaseID
	What    RequestKind
	Bytes   accounting.Bytes
	Managed bool // the bytes are managed memory, which the driver moves off the device if others need the room
	Count   int
	Thread  uint32 // thread of the client that asks, or that made the objects; 0: unknown
	NoWait  bool   // refuse with ReasonBusy instead of waiting
	Fresh   bool   // the thread was granted memory on the device since its last refusal, so that its burst is over
	Looked  bool   // Caches is known: by Chosen, or because the client has looked at its process after the answer ReasonCrowded
	Caches  bool   // an allocator of the process keeps freed memory until a refusal: wait_after is 1 unless the rule sets it
	Chosen  bool   // Caches is the choice of the program's environment, and overrides the rule
	Aside   bool   // refuse with ReasonCrowded instead of waiting, because the client has no connection left to wait on
	Again   bool   // the last answer was ReasonCrowded: refuse with ReasonCancelled if the requests of the job have just been cancelled
	Noticed bool   // the objects exist already: the request is never refused and never waits
	Read    bool   // the daemon has waited for readings: decide now, without ReasonReading
	Asked   bool   // the last answer was ReasonReading
	// The driver had no memory for these bytes, which had been granted, and the device has been read since. The request is not granted until
	// the device shows room.
	DriverFull bool
	// The driver had no memory again: the request is refused, with the programs that the device shows.
	DriverFullAgain bool
	Place           Place // place of a resubmitted request
}

// Room is the answer to a program's memory query, in bytes.
type Room struct {
	Total  accounting.Bytes // smallest budget, or the device's total if there is none
	Used   accounting.Bytes // Total less what the budgets above the session have left
	Room   accounting.Bytes // what the session could get now: its own credit, and what would be granted
	Lease  LeaseID          // lease of the credit word; 0: none
	Credit accounting.Bytes // credit in the word, which counts as free in Used and in Room
	// Limited reports whether a budget above the session is smaller than what the device can grant.
	Limited bool
}

// ProcessUsage is the usage of a device by one process, as the device reports it.
type ProcessUsage struct {
	PID        int
	StartTicks uint64 // 0: unknown
	Bytes      accounting.Bytes
	UID        uint32
	User       string // "": unknown, and UID is not valid either
	Command    string // command for messages
	// Keeper is the process that keeps the memory of an ended process, such as a forked child with the device open: "python3[4242]"; "":
	// unknown.
	Keeper string
	// Job is the job of a process without a lease; 0: none, or unknown.
	Job    JobID
	Bypass figures.Bypass // how the process uses the device without the library
}

// Usage is a complete reading of a device.
type Usage struct {
	Device    int
	Unnamed   bool // the device does not report single processes; Processes is empty
	Early     bool // it came less than a second after the last one: contexts were made (Arbiter.Unread), or a request awaits it
	Processes []ProcessUsage
	// Utilisation is the share of the device's processors that processes used of late, in percent, by PID. A process that is missing used
	// none. nil: the device does not tell.
	Utilisation map[int]int
	// Began is the time at which the reading began; zero: now. A draining lease is gone if a reading that began after the end of its
	// process does not list the process.
	Began time.Time
}

// RestoredLease describes the holdings of a lease that an earlier daemon opened.
type RestoredLease struct {
	Device     int
	Granted    accounting.Bytes
	Away       accounting.Bytes // part of Granted: managed memory that does not count against the device
	Streams    int
	Contexts   int
	Peak       accounting.Bytes
	Opened     time.Time // zero: now
	Unverified bool      // the client reported the sum, and no record of the daemon confirms it
	Lost       bool      // the device was lost, and the lease holds nothing
	Makers     []Maker   // objects by thread, if slots belong to threads; nil: unknown
}

// Maker is a thread of a client with the objects that it has made on a device.
type Maker = threads.Objects

// RestoredJob is a job to restore after a restart of the daemon, with the ID that it had.
type RestoredJob struct {
	ID      JobID
	Request JobRequest // request with which the job was opened; Wait and Place are ignored
	Since   time.Time  // when the job got its slots and reservation; zero: now

	Devices  []int // devices in JobInfo that still exist; nil: the job may use all GPUs
	Keeps    []int // devices of Keeps in JobInfo; nil: unknown, and chosen by the present limits
	Released bool  // ReleaseJob was called

	CommandEnded bool   // CommandEnded was called
	StillRuns    string // stillRuns in the call of CommandEnded
}

// Residence says where the memory of a job is.
type Residence = figures.Residence

// Values of Residence.
const (
	Resident   Residence = "" // it has its memory
	Suspending           = figures.Suspending
	Suspended            = figures.Suspended
	Resuming             = figures.Resuming
	Stuck                = figures.Stuck
)

// Person is a user who asks for a suspension or a return, and the process by which the user asks; PID 0: not known.
type Person struct {
	UID uint32
	PID int
}

// Errand is a task of the daemon: to ask a job to give its memory back, or to take it again. It runs the job's hook, or stops or starts its
// unit.
type Errand struct {
	ID      uint64 // for ErrandDone
	Job     JobID
	Resume  bool // take the memory again; false: give it back
	Evict   rules.Evict
	Unit    string           // unit of the job's processes; "": none
	Device  int              // device on which a request needs the room; -1: several devices, or no request (Wanted)
	Wanted  accounting.Bytes // bytes that the request asks for; 0: no request asks for room
	PIDs    []int            // living processes of the job
	Process rules.Process    // process for which the job's rule was chosen
}
