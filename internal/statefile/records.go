package statefile

// This file has the bounds of the tables and the layout of their records. cgroup.go has that of a cgroup's path; layout.go puts the tables into a
// file; leasechange.go and texts.go write what has to be written in an order.

// The sizes of the tables, which are the bounds of the daemon.
const (
	MaxJobs     = 4096
	MaxSessions = 4096
	MaxLeases   = 16384
	MaxTickets  = 1024
	MaxLimits   = 4096
	MaxThreads  = 1 << 16 // of all leases together, that hold something
	MaxCgroups  = 1024    // that have a limit
	MaxDevices  = 32      // of a job
	textSize    = 128
	pathSize    = 512 // of a cgroup's path, with the NUL behind it
)

const (
	fileMagic   = 0x5441545342524147 // "GARBSTAT" as it lies in memory
	fileVersion = 4
	headerSize  = 4096
)

// header is the first page of the file.
type header struct {
	Magic      uint64
	Version    uint32
	HeaderSize uint32
	JobSize    uint32
	SessSize   uint32
	LeaseSize  uint32
	TicketSize uint32
	LimitSize  uint32
	ThreadSize uint32
	BootID     [16]byte

	// Records from here on were never used.
	HighJob, HighSession, HighLease, HighTicket, HighLimit, HighThread, HighCgroup uint32

	CgroupSize uint32
}

// Job is a job as it must survive the daemon. All fields but Live, RunnerPID and Released
// are written once. PerMille and Max as in accounting.Size: Max is bytes, ^0 for none.
type Job struct {
	Live        uint32 // 0: free record
	Run         uint32 // opened by `gpuarb run`
	ID          uint64
	Token       [16]byte
	UID         uint32
	GID         uint32
	Flags       uint32 // as the request had them
	Streams     uint32
	Max         uint64
	Min         uint64
	MaxPerMille uint32
	MinPerMille uint32
	WaitMillis  uint64 // as the request had it
	Priority    int32
	RunnerPID   uint32
	RunnerStart uint64
	Request     uint64             // the runner's number for it: asked again, it is answered with this job
	Released    uint32             // 1: it holds nothing beyond its processes any more; 2: its command has ended, and it does
	Asked       uint32             // valid entries in AskedFor
	Given       uint32             // valid entries in Devices; 0: it may use any
	HeldSince   uint32             // when it got what it holds, in seconds of the boot's own clock; 0: not known
	AskedFor    [MaxDevices]uint32 // indices, in order of preference
	Devices     [MaxDevices]JobDevice
	Command     [textSize]byte
}

// JobDevice is a device that a job was given: UUID decides, where the device has one.
type JobDevice struct {
	UUID  [16]byte
	Index uint32
	Keeps uint32 // a word of the set of devices of which the job keeps a slot (slotdevices.go): it tells nothing about this device
}

// Ticket is a request that waits, with its place in the queue. Since is in nanoseconds of
// the boot's own clock, which no one sets.
type Ticket struct {
	Live       uint32
	PID        uint32 // of the process that asked
	StartTicks uint64
	Type       uint16 // of the message
	Lease      uint16 // index of the record of the lease that asks, and 1; 0: not known
	Amount     uint32 // what it asks for, in MiB or pieces; 0: not known
	Request    uint64 // its number
	Arrival    uint64
	Since      int64
}

// Limit is limits that were changed while a program ran. Target, ID, Device and the
// amounts are as in ipc.LimitRequest; Start tells a process from an earlier one.
type Limit struct {
	Live        uint32
	Target      uint32
	ID          uint64
	Start       uint64
	Device      int32  // index, or below 0: every device
	Set         uint32 // as in ipc.LimitRequest; LimitOverrides bits higher, which of these override the owner's own
	Max         uint64
	Min         uint64
	MaxPerMille uint32
	MinPerMille uint32
	Streams     uint32
	Slots       uint32
	UID         uint32 // who changed them
	Privileged  uint32 // 1: he might raise them; 2: whoever it was, they only lower
}

// LimitOverrides is how many bits above the bit of a limit in Limit.Set another bit says that, on its device, the limit overrides the one
// that the owner had set on every device before.
const LimitOverrides = 16

// Session is one client process.
type Session struct {
	Live          uint32
	PID           uint32
	StartTicks    uint64
	Token         [16]byte
	UID           uint32
	GID           uint32
	Job           uint64
	PageDev       uint64 // of the memfd, with PageInode: only the page made for it is taken back
	PageInode     uint64
	Max           uint64 // the client's own wish, bytes, ^0 for none
	MaxPerMille   uint32
	Streams       uint32
	OnFull        uint32 // this and the next: the client's wishes, as Hello had them
	Slots         uint32
	SlotScope     uint32
	Unreserved    uint32 // 1: what it is to reserve had no room when it was taken up, and is not reserved yet
	StreamReserve uint64
}

// The kinds of an announced change of a credit word.
const (
	ChangeNone uint32 = 0
	ChangeTake uint32 = 1 // idle credit back out of the word
	ChangeGive uint32 = 2 // idle credit into the word
	ChangeFlag uint32 = 4 // flags, or the epoch alone after a grant to a thread
)

// Lease is what a session holds on one device, with at most one announced change.
type Lease struct {
	Live     uint32
	Session  uint32 // index of its session record
	Slot     uint32 // in the session's page
	Device   uint32 // index when it was opened, LeaseLost; UUID decides which it is
	UUID     [16]byte
	Granted  uint64
	Peak     uint64
	Streams  uint32
	Contexts uint32
	OpenedAt int64 // Unix nanoseconds

	Open  uint32 // the announced change's kind
	Epoch uint32 // the epoch of the word once the change is done
	After uint64 // Granted once the change is done
	Away  uint64 // of Granted, what does not count against the device
}

// LeaseLost in Lease.Device: the device was lost since, and the lease holds nothing there any
// more, whether or not the device is back.
const LeaseLost = 1 << 31

// Maker is a thread of a client, and what it has made on a device and not given back.
type Maker struct {
	Thread   uint32
	Contexts uint32
	Streams  uint32
	Holds    uint32
}

// Thread is a thread of a lease whose slots are threads', with what it made there.
type Thread struct {
	Live  uint32
	Lease uint32 // index of its record
	Maker Maker
}
