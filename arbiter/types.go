package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/reading"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/threads"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file has the types with which the daemon calls the arbiter: the IDs, the requests and what is told of what they opened, the readings of a
// device, what a restart restores, and Word, the memory that a lease shares with its client.

// SessionID names one client process's session. 0 is none. Never reused.
type SessionID uint64

// LeaseID names what one session holds on one device. 0 is none. Never reused.
type LeaseID uint64

// JobID names a job. 0 is none. Never reused; it survives a restart by [Arbiter.RestoreJob].
type JobID uint64

// TicketID names a request that waits. 0 is none. Never reused.
type TicketID uint64

// Place is a waiting request's place in the queue: the order of its arrival and when
// that was. A request that comes again with it, after a restart of the daemon or on a new
// connection, stands where it stood. The zero Place is a new one.
type Place struct {
	Arrival uint64
	Since   time.Time
	Absent  bool // the client has yet to ask again: the request waits, and is not granted
}

// CreditWord is what the arbiter may do to the memory that a lease shares with its client. The
// daemon implements it over the sealed page, and announces each change in the
// mapping that outlives it before making it. All calls are made under the daemon's
// one lock. A word whose page is gone reads as 0 and changes nothing.
//
// granted is always what the ledger holds for the lease at that moment, in bytes.
// Values read are clamped to [0, granted]; an implementation that had to clamp
// tells [Arbiter.Clamped], which may be called from within any of these methods.
type CreditWord interface {
	// Opened says which lease it is of, before anything else is asked.
	Opened(id LeaseID)
	// Credit returns the idle bytes of the lease's word.
	Credit(granted accounting.Bytes) accounting.Bytes
	// Take takes up to most idle bytes out of the word and returns how many it
	// got. The ledger's sum is then granted less those.
	Take(granted, most accounting.Bytes) accounting.Bytes
	// Give adds n idle bytes to the word; granted is the sum before the gift.
	// False: it could not, and nothing changed.
	Give(granted, n accounting.Bytes) bool
	// Grant notes that n bytes went to a thread; granted is the sum before it.
	Grant(granted, n accounting.Bytes)
	// Free adds n idle bytes to the word as its client does that frees them: they were
	// granted before. False: it could not, and nothing changed.
	Free(n accounting.Bytes) bool
	// Flag sets the word's two flags, and returns after the word shows them.
	Flag(closed, notify bool)
	// Streams returns how many streams the lease has, where their count is lent to its client:
	// whoever reads it later may read another. False: it is not, and the ledger has it.
	Streams() (int, bool)
	// CloseStreams takes the count back, and returns what it was then. False: it was not lent.
	CloseStreams() (int, bool)
	// OpenStreams lends a count that is not lent, with the most that there may be. False: there
	// is no page.
	OpenStreams(n, most int) bool
	// SetAway notes how many of the lease's bytes do not count against its device.
	SetAway(n accounting.Bytes)
	// Limit tells the client its memory.max in force (information only): never
	// more than the device can grant.
	Limit(max accounting.Bytes)
	// Peak returns the most bytes used at once since the lease opened, as the
	// page's low-water mark shows it; at least what is used now. Changes of the
	// word fold the mark that they reset.
	Peak(granted accounting.Bytes) accounting.Bytes
	// Pending returns the client's own word for bytes freed in stream order
	// whose free has not executed.
	Pending() accounting.Bytes
	// Recent returns the most bytes used at once since the word was last changed
	// from this side, as its low-water mark shows it; at least what is used now.
	Recent(granted accounting.Bytes) accounting.Bytes
	// Lost notes that the lease's device is gone, and all that it held there.
	Lost()
	// Report returns what the client says of what it holds; the zero reading.Told where it
	// says nothing.
	Report() reading.ClientReport
}

// JobRequest opens a job for what `gpuarb run` starts.
type JobRequest struct {
	Process rules.Process    // the runner; the rule is chosen by it
	Max     *accounting.Size // memory.max per device; nil: as the rule says
	Min     *accounting.Size // memory.min per device; nil: as the rule says
	Streams int              // streams per lease; 0: as the rule says
	Command string           // for people; the process's own when empty
	Name    string           // that its user gave it; "": none

	Timeout    time.Duration // the longest that anything of it waits; 0: as the rule says
	Priority   int           // added to the rule's; above 0 is only root's
	Wait       bool          // its allocations wait when there is no room, whatever on_full says
	NoWait     bool          // nothing of it waits: ReasonBusy instead
	Forever    bool          // no Timeout
	PerProcess bool          // Max, Min and Streams are each process's own
	Exclusive  bool          // nobody else gets anything on its devices until it ends
	Any        bool          // one of Devices (of all, when there are none), in that order of preference
	OnlyIfNone bool          // ReasonBusy when the user has a claim already
	Claim      bool          // counts as a holder though there is no cap
	Devices    []int         // without Any: these and no others; none: all
	Place      Place         // of a request that comes again
}

// JobInfo is an opened job. Budget is memory.max in force on the largest
// device, in bytes: never more than that device can grant.
type JobInfo struct {
	ID      JobID
	Budget  accounting.Bytes
	Waiting TicketID // the job is not open before its ticket is served
	Devices []int    // those that it may use; none: all
	Keeps   []int    // devices of which it keeps a slot until it ends; not nil if it is open
}

// SessionRequest opens a client's session. Max and Streams are the program's own
// wishes (from its environment): they only lower what the rules give.
type SessionRequest struct {
	Process rules.Process
	Job     JobID // 0: a job of its own
	Max     *accounting.Size
	Streams int // 0: no wish

	OnFull        rules.OnFull      // "": as the rule says
	Slots         int               // takes a slot only while fewer than these are taken; 0: no wish
	SlotScope     rules.Scope       // "": as the rule says; only a narrower one counts
	StreamReserve *accounting.Bytes // charged for each stream
	Place         Place             // of a request that comes again
	Unreserved    bool              // for RestoreSession alone: the reservation is made later, by Reserve
}

// SessionInfo is an opened session.
type SessionInfo struct {
	ID      SessionID
	Waiting TicketID // its memory.min is not reserved before its ticket is served
}

// LeaseInfo is an open lease.
type LeaseInfo struct {
	ID         LeaseID
	Budget     accounting.Bytes // memory.max in force; never more than the device can grant
	Streams    int              // that it has
	StreamsMax int
	SlotScope  rules.Scope      // whose one slot is
	Total      accounting.Bytes // bytes of the device
}

// What says of what a request is.
type What uint8

// What a client asks for.
const (
	WantsBytes What = iota // that the credit did not cover
	WantsStreams
	WantsContexts
	WantsHolds   // no contexts, but threads' holds on a shared one
	wantsJob     // what a job takes at its start
	wantsSession // what a process reserves
)

// Request asks for something on a lease's device before it is taken: Bytes, or Count of what is
// no bytes. A Count below 0 gives back; 0 asks how many there are.
type Request struct {
	Lease   LeaseID
	What    What
	Bytes   accounting.Bytes
	Managed bool // Bytes are of managed memory, which the driver moves out of the device if others need the room
	Count   int
	Thread  uint32 // which of the client's threads asks, or when giving back, whose they are; 0: not known
	NoWait  bool   // ReasonBusy rather than wait
	Aside   bool   // ReasonCrowded rather than wait, because the client has no connection left to wait on
	Again   bool   // ReasonCrowded was its answer before: ReasonCancelled if its job's requests have just been cancelled
	Noticed bool   // they exist already: never refused, never waits
	Place   Place  // of a request that comes again
}

// Room answers what a program's memory query should say. All in bytes.
type Room struct {
	Total  accounting.Bytes // the budget, or the device's total when there is none
	Used   accounting.Bytes // Total − Used is what the budgets above the session have left
	Room   accounting.Bytes // what the session could have now: its own credit, and what would be granted
	Lease  LeaseID          // whose word the credit is in; 0: it has no lease there
	Credit accounting.Bytes // of its own word, which counts as free in Used and in Room
	// Limited: a budget above the session is below what the device can grant.
	Limited bool
}

// ProcessUsage is what a device reports for one process.
type ProcessUsage struct {
	PID        int
	StartTicks uint64 // 0 when not known
	Bytes      accounting.Bytes
	UID        uint32
	User       string // "": not known, and UID neither
	Command    string // for people
	// Keeper names who keeps the memory of a process that is dead, such as a
	// forked child that still has the device open: "python3[4242]". Empty: not known.
	Keeper string
	// Job is the job that the process belongs to, though it has no lease; 0: none, or not known.
	Job    JobID
	Bypass figures.Bypass // how it runs past the library
}

// Usage is one complete reading of a device.
type Usage struct {
	Device    int
	Unnamed   bool // the device says nothing of single processes; Processes is empty
	Processes []ProcessUsage
	// Began is when the reading began. A draining lease is gone when a reading
	// that began after its process's death does not list it. Zero: now.
	Began time.Time
}

// RestoredLease is what a lease holds that the daemon before this one opened.
type RestoredLease struct {
	Device     int
	Granted    accounting.Bytes
	Away       accounting.Bytes // part of Granted: managed memory that does not count against the device
	Streams    int
	Contexts   int
	Peak       accounting.Bytes
	Opened     time.Time // zero: now
	Unverified bool      // the client's own sum; no record of ours confirms it
	Lost       bool      // its device was lost since: it holds nothing
	Makers     []Maker   // who made its objects, where slots are threads'; nil: not known
}

// Maker is a thread of a client and what it has made on a device and not given back.
type Maker = threads.Made

// RestoredJob is a job to take up again after a restart, under the ID that it had.
type RestoredJob struct {
	ID      JobID
	Request JobRequest // as it was opened; Wait and Place play no part
	Since   time.Time  // when it got what it holds beyond its processes; zero: now

	Devices  []int // as JobInfo said
	Keeps    []int // as JobInfo said; nil: not known, and judged by the limits of today
	Released bool  // by ReleaseJob: it has no claim, slot or reservation any more

	CommandEnded bool   // its command has ended
	StillRuns    string // the argument of [Arbiter.CommandEnded]
}
