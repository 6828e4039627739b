package statefile

// This file has the sizes of the tables and the layout of their records, except the record of a cgroup's path
// (cgroup.go). layout.go arranges the tables in a file; leasechange.go and texts.go write fields whose order matters.

// Sizes of the tables, which bound what the daemon can have open.
const (
	MaxJobs     = 4096
	MaxSessions = 4096
	MaxLeases   = 16384
	MaxTickets  = 1024
	MaxLimits   = 4096
	MaxThreads  = 1 << 16 // threads that hold objects, of all leases
	MaxCgroups  = 1024    // cgroups with limits
	MaxBindings = 1024    // cgroups with jobs
	MaxDevices  = 32      // devices of a job
	textSize    = 128
	pathSize    = 512 // longest path of a cgroup, with the terminating NUL
)

const (
	fileMagic   = 0x5441545342524147 // "GARBSTAT" in memory
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

	// Numbers of records that were ever used: records from these indices on need not be read.
	HighJob, HighSession, HighLease, HighTicket, HighLimit, HighThread, HighCgroup uint32

	CgroupSize uint32
}

// Job is the part of a job that must survive the daemon. All fields are written once, except Live, RunnerPID and
// Released. PerMille and Max are encoded as in accounting.Size: Max is in bytes, ^0: none.
type Job struct {
	Live        uint32 // 0: free record
	Run         uint32 // 1: opened by `gpuarb run`
	ID          uint64
	Token       [16]byte
	UID         uint32
	GID         uint32
	Flags       uint32 // flags of the request
	Streams     uint32
	Max         uint64
	Min         uint64
	MaxPerMille uint32
	MinPerMille uint32
	WaitMillis  uint64 // longest wait of the request, in milliseconds
	Priority    int32
	RunnerPID   uint32
	RunnerStart uint64
	Request     uint64             // the runner's number of the request; the reply to a repeated request is this job
	Released    uint32             // 1: the job holds nothing but what its processes use; 2: its command has ended, and it still holds its reservation
	Asked       uint32             // number of valid entries in AskedFor
	Given       uint32             // number of valid entries in Devices; 0: all devices
	HeldSince   uint32             // uptime in seconds at which it got its reservation; 0: not known
	AskedFor    [MaxDevices]uint32 // indices of the requested devices, in order of preference
	Devices     [MaxDevices]JobDevice
	Command     [textSize]byte
}

// JobDevice is a device that a job was given, or on which it reserves a slot. UUID identifies it if the device has one,
// else Index.
type JobDevice struct {
	UUID  [16]byte
	Index uint32
	Keeps uint32 // marks (slotdevices.go)
}

// Ticket is a waiting request with its place in the queue. Since is an uptime in nanoseconds, by a clock that cannot
// be set.
type Ticket struct {
	Live       uint32
	PID        uint32 // PID of the client
	StartTicks uint64
	Type       uint16 // type of the message
	Lease      uint16 // index of the lease's record plus 1; 0: not known
	Amount     uint32 // requested MiB or pieces; 0: not known
	Request    uint64 // number of the request
	Arrival    uint64
	Since      int64
}

// Limit is a record of limits that were changed live. Target, ID, Device and the amounts are encoded as in
// ipc.LimitRequest. Start distinguishes a process from an earlier one with its PID.
type Limit struct {
	Live        uint32
	Target      uint32
	ID          uint64
	Start       uint64
	Device      int32  // index; negative: every device
	Set         uint32 // limits that are set, as in ipc.LimitRequest; LimitOverrides bits higher: limits that override the owner's
	Max         uint64
	Min         uint64
	MaxPerMille uint32
	MinPerMille uint32
	Streams     uint32
	Slots       uint32
	UID         uint32 // user who made the change
	Privileged  uint32 // 1: set by a privileged user, and may raise limits; 2: read from a client's page, and counts only if it lowers a limit; 0: neither
}

// LimitOverrides is the distance between two bits of Limit.Set for one limit. The higher bit says that the limit
// overrides, on its device, the limit that the owner had set on every device before.
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
	PageDev       uint64 // device number of the page's memfd; only a page with this number and PageInode is accepted
	PageInode     uint64
	Max           uint64 // memory limit that the client asked for, in bytes; ^0: none
	MaxPerMille   uint32
	Streams       uint32
	OnFull        uint32 // value from Hello, as are Slots and SlotScope
	Slots         uint32
	SlotScope     uint32
	Unreserved    uint32 // 1: its reservation had no room at recovery, and is still to be made
	StreamReserve uint64
}

// Kinds of an announced change of a credit word.
const (
	ChangeNone uint32 = 0
	ChangeTake uint32 = 1 // idle credit is taken out of the word
	ChangeGive uint32 = 2 // idle credit is put into the word
	ChangeFlag uint32 = 4 // flags are set; or a grant to a thread changes only the epoch of the word
)

// Lease is the part of a session's lease on one device that must survive the daemon, with at most one announced
// change.
type Lease struct {
	Live     uint32
	Session  uint32 // index of its session's record
	Slot     uint32 // slot of the session's page
	Device   uint32 // device index when the lease was opened, combined with LeaseLost if the device was lost; UUID identifies the device
	UUID     [16]byte
	Granted  uint64
	Peak     uint64
	Streams  uint32
	Contexts uint32
	OpenedAt int64 // Unix time in nanoseconds

	Open  uint32 // kind of the announced change
	Epoch uint32 // epoch of the word after the change
	After uint64 // value of Granted after the change
	Away  uint64 // part of Granted that does not count against the device
}

// LeaseLost is a flag in Lease.Device: the device was lost after the opening, and the lease holds nothing there any
// more, even if the device is back.
const LeaseLost = 1 << 31

// Maker is a thread of a client, with the numbers of objects that it made on a device and has not freed.
type Maker struct {
	Thread   uint32
	Contexts uint32
	Streams  uint32
	Holds    uint32
}

// Thread is a thread of a lease whose slots belong to threads, with its objects.
type Thread struct {
	Live  uint32
	Lease uint32 // index of the lease's record
	Maker Maker
}
