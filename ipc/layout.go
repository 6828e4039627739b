package ipc

//go:generate go run ./genlayout -o ../cshim/core/wire.h

// The constants of the protocol. A change of any layout below is a new Version.
const (
	Magic       = 0x42524147 // "GARB" as it lies in memory
	Version     = 1
	MaxRequest  = 4096  // bytes; the longest message that a client may send
	MaxReply    = 65536 // bytes; the longest message that the daemon sends
	HeaderSize  = 24    // bytes
	TokenSize   = 16    // bytes of a session or job token
	UUIDSize    = 16    // bytes of a device's UUID
	TextSize    = 512   // bytes of a message for people, NUL-terminated
	PathSize    = 256   // bytes of a file's path, NUL-terminated
	PageSize    = 4096  // bytes of the lease page
	PageSlots   = 32    // leases (devices) that one session can have
	SlotSize    = 64    // bytes of one lease's slot in the page: one cache line
	NoLimit     = ^uint64(0)
	PageMagic   = 0x45474150 // "PAGE" as it lies in memory
	PageVersion = 1
)

// The credit word (LeaseSlot.Credit) is one 64-bit atomic.
//
//	bits  0..47  credit in bytes
//	bits 48..61  epoch: the daemon adds one with each change that it makes
//	bit  62      NOTIFY: somebody waits, a free reports itself (FreedNotice)
//	bit  63      CLOSED: the fast path is shut, every allocation asks
//
// Clients change only the credit bits, by compare-and-swap, and leave epoch and
// flags as they found them. The Low word has the same layout without flags: the
// least credit seen since the daemon's last change, with the epoch it was seen in.
const (
	CreditBits  = 48
	CreditMask  = 1<<CreditBits - 1
	EpochShift  = CreditBits
	EpochBits   = 14
	EpochMask   = (1<<EpochBits - 1) << EpochShift
	FlagNotify  = 1 << 62
	FlagClosed  = 1 << 63
	CreditLimit = CreditMask // the most bytes that a word can hold
)

// Type names a message. Replies have the type of their request plus ReplyBit;
// a refusal or failure of any request is answered with the reply type and a
// non-zero Header.Status.
type Type uint16

// The message types. The order of a session: Hello first, or Join or Resume on
// a further or renewed connection; everything else after that.
const (
	TypeHello   Type = 1  // HelloRequest → HelloReply (+ the page's memfd for a shim)
	TypeJoin    Type = 2  // JoinRequest → JoinReply: this connection belongs to a session too
	TypeResume  Type = 3  // ResumeRequest (+ the page's memfd) → HelloReply (+ memfd if a new page was made)
	TypeAttach  Type = 4  // AttachRequest → AttachReply: opens the lease on a device
	TypeAlloc   Type = 5  // AllocRequest → AllocReply
	TypeFreed   Type = 6  // FreedNotice, no reply: a free saw NOTIFY
	TypeStream  Type = 7  // StreamRequest → StreamReply
	TypeContext Type = 8  // ContextRequest → ContextReply
	TypeQuery   Type = 9  // QueryRequest → QueryReply: what cuMemGetInfo should say
	TypeBye     Type = 10 // Empty → Empty: the session ends in good order
	TypeRoom    Type = 11 // RoomRequest → RoomReply: the same, with the word that it was summed by (AbleRoom)
	// 12 was Measure. Earlier libraries send it only to a daemon whose HelloReply.Flags have bit 2.
	TypeObjects  Type = 13 // ObjectsRequest → Empty: after Resume, what is no bytes (AbleObjects)
	TypeDriver   Type = 14 // DriverRequest → DriverReply: on which device a driver is that computes on the processor (AbleDriver)
	TypeCopies   Type = 15 // CopiesRequest → Empty: the client uses two copies of a driver's library, and one is not held to limits (AbleCopies)
	TypeJobOpen  Type = 20 // JobOpenRequest → JobOpenReply: the job ends with this connection and its processes
	TypeSnapshot Type = 21 // SnapshotRequest → SnapshotPart…: JSON, in parts, the last one marked
	TypeCancel   Type = 22 // CancelRequest → CancelReply: waiting requests leave the queue
	TypeJobClose Type = 23 // JobCloseRequest → Empty: what the job itself holds goes back
	TypeLimit    Type = 24 // LimitRequest → Empty: limits change while programs run
	TypeGiveUp   Type = 25 // Empty, no reply: the request that waits on this connection is to have its reply now
	TypeJobTally Type = 26 // JobTallyRequest → JobTallyReply: what a job used at most, how long it waited, what it was refused
	TypeEvents   Type = 27 // EventsRequest → EventsPart…: lines of the event history, in parts, the last one marked
	TypeMetrics  Type = 28 // Empty → SnapshotPart…: metrics in Prometheus' text format, in parts, the last one marked
	TypeCgroup   Type = 29 // CgroupRequest → Empty: the limit changes of all programs in a cgroup
	TypeBeside   Type = 30 // BesideRequest → BesideReply: the processes of a job that used a device past the library
	ReplyBit     Type = 0x8000
)

// Status says in a reply how a request ended. Numbers are never reused.
type Status uint32

// The statuses. A status of 1 to 98 is a refusal by policy; 99 says that the request
// waits, and that the reply is yet to come; from 100 on it is an error.
const (
	StatusOK           Status = 0
	StatusOverBudget   Status = 1  // more than the budget of the lease, process or job has left
	StatusDeviceFull   Status = 2  // the device has no room
	StatusTooLarge     Status = 3  // larger than could ever fit
	StatusStreams      Status = 4  // streams.max reached
	StatusSharedFull   Status = 5  // a budget shared with others (user, cgroup, rule) has no room
	StatusDeviceLost   Status = 6  // the device fell off the bus
	StatusDenied       Status = 7  // asked for more than a rule allows
	StatusBusy         Status = 8  // it would have to wait, and is not to
	StatusTimeout      Status = 9  // it waited as long as it may
	StatusCancelled    Status = 10 // its ticket was cancelled
	StatusDeadlock     Status = 11 // it was the youngest of a circle of waiters; the text names them
	StatusSlots        Status = 12 // slots.max is reached, and nothing here waits
	StatusCrowded      Status = 13 // it may wait, and finds no place in the queue: see CrowdedMillis
	StatusWaiting      Status = 99 // not the reply: WaitingReply says what is waited for
	StatusMalformed    Status = 100
	StatusVersion      Status = 101 // the text names both versions
	StatusOrder        Status = 102 // a message that may not come now
	StatusUnknownType  Status = 103
	StatusNoSession    Status = 104 // unknown token
	StatusNoDevice     Status = 105
	StatusNoLease      Status = 106 // slot not attached
	StatusPermission   Status = 107
	StatusUnsupported  Status = 108 // understood, not supported yet
	StatusTooMany      Status = 109 // too many sessions, connections or devices
	StatusInternal     Status = 110
	StatusShuttingDown Status = 111
	StatusRange        Status = 112 // a value out of range
)

// CrowdedMillis is how long after StatusCrowded the client asks again, in milliseconds. It asks until the request has waited as long as it
// may, counted from the first time that it was sent. The reply has that time in milliseconds, in a field that means nothing else then:
// AllocReply.Limit, ContextReply.Remaining and JobOpenReply.Budget (NoLimit: without end), StreamReply.Max (2³²−1: without end).
const CrowdedMillis = 100

// Header starts every message.
type Header struct {
	Magic   uint32
	Version uint16
	Type    Type
	Length  uint32 // bytes of the whole message, this header included
	Status  Status // replies; 0 in requests
	Request uint64 // chosen by the asker, unique in its session, echoed in the reply
}

// Text is a sentence for people, UTF-8, NUL-terminated, cut at TextSize−1.
type Text [TextSize]byte

// Token is a secret that a session or a job is known by.
type Token [TokenSize]byte

// UUID is a device's 16 bytes, as cuDeviceGetUuid gives them.
type UUID [UUIDSize]byte

// ErrorReply is what any reply with a Status ≥ 100 carries after its header.
type ErrorReply struct {
	Text Text
}

// What a client is (HelloRequest.Kind).
const (
	KindShim uint32 = 1 // gets a lease page
	KindTool uint32 = 2 // command line or library user: no page, no lease
)

// HelloRequest opens a session. The wishes in it can only lower what the rules give;
// NoLimit and 0 stand for "no wish". It waits where the rule reserves memory.
type HelloRequest struct {
	Kind          uint32
	Features      uint32 // none are defined; must be 0
	Job           Token  // zero: not below `gpuarb run`
	Memory        uint64 // bytes per device, or NoLimit
	Streams       uint32 // streams per device, or 0
	Share         uint32 // per mille of each device; used when Memory is NoLimit and this is not 0
	OnFull        uint32 // 0: as the rule says; or OnFullDeny, OnFullWait
	Slots         uint32 // the most slots of a device that may be taken beside its own; 0: no wish
	SlotScope     uint32 // 0: as the device's rule says; or ScopeJob, ScopeProcess, ScopeThread
	Reserved      uint32 // must be 0
	StreamReserve uint64 // bytes charged for each stream, or NoLimit for no wish
}

// What a program that does not fit wants (HelloRequest.OnFull).
const (
	OnFullDeny uint32 = 1
	OnFullWait uint32 = 2
)

// Whose one slot is (HelloRequest.SlotScope).
const (
	ScopeJob     uint32 = 1
	ScopeProcess uint32 = 2
	ScopeThread  uint32 = 3
)

// HelloReply answers Hello and Resume. With KindShim the page's memfd comes along.
type HelloReply struct {
	Session Token
	Devices uint32 // devices the daemon knows
	InJob   uint32 // 1 when the session belongs to a job of `gpuarb run`; to a tool, that Job is one
	OnLoss  uint32 // what to do when the daemon is gone: LossOpen or LossClosed
	Flags   uint32 // what the daemon is able to, for shims: AbleRoom and so on. Ignore the others
	HostMax uint64 // bytes of pinned host memory that the process may hold, or NoLimit; the client keeps it
}

// What a daemon is able to beyond this version's first messages (HelloReply.Flags of a shim).
const (
	AbleRoom    uint32 = 1  // answers Room; 2 was Measure
	AbleObjects uint32 = 4  // answers Objects, and lends the count of streams: LeaseSlot.Streams
	AbleDriver  uint32 = 8  // answers Driver
	AbleCopies  uint32 = 16 // answers Copies
	AbleAside   uint32 = 32 // takes FlagAside and FlagAgain
)

// WaitingReply follows Status Waiting, as often as what it says changes, and at most
// once a second after the first. The asker sends nothing but GiveUp and Freed on this
// connection until the reply itself comes. The ticket is gone with the connection.
type WaitingReply struct {
	Ticket   uint64
	Position uint32 // 1: next at the limit that refused
	Reserved uint32
	Waited   uint64 // milliseconds since it arrived
	Text     Text   // what is waited for, who holds it and since when
}

// CancelRequest takes waiting requests out of the queue; each is answered with
// StatusCancelled. A process cancels its own and those of its user's processes, root any.
// With neither a ticket nor a job those of the asker's descendants are meant.
type CancelRequest struct {
	Ticket uint64 // or 0
	Job    Token  // or zero
}

// CancelReply answers Cancel.
type CancelReply struct {
	Cancelled uint64 // how many left
}

// What a client does without a daemon (HelloReply.OnLoss).
const (
	LossOpen   uint32 = 0 // goes on without any GPU memory limit
	LossClosed uint32 = 1 // refuses device memory
)

// JoinRequest makes this connection one of the session's, for a thread that
// must ask while another thread is waiting.
type JoinRequest struct {
	Session Token
}

// JoinReply answers Join.
type JoinReply struct{}

// ResumeLease is what the client itself counts on one device.
type ResumeLease struct {
	Device   UUID
	Used     uint64 // bytes: live blocks, calls in flight, pending
	Streams  uint32
	Contexts uint32
	Slot     uint32 // the slot that it had in the page
	Reserved uint32
}

// ResumeRequest takes a session up again with a daemon that was restarted, or
// after the connection broke. The page's memfd comes along when the client still has it.
type ResumeRequest struct {
	Session Token
	Hello   HelloRequest
	Count   uint32 // valid entries in Leases
	HasPage uint32 // 1: the memfd comes along
	Leases  [PageSlots]ResumeLease
}

// ObjectsMaker is what one thread has made and holds.
type ObjectsMaker struct {
	Thread   uint32 // as in the requests; entries of one thread add up
	Contexts uint32
	Streams  uint32
	Holds    uint32 // of FlagHold
}

// ObjectsRequest follows a Resume, for each lease, before anything else is asked for: all
// that the client has made there or holds, and has not given back, by the threads that made it.
// The daemon counts what it says.
type ObjectsRequest struct {
	Slot   uint32
	Flags  uint32 // ObjectsMore
	Count  uint32 // valid entries in Makers
	Pad    uint32
	Makers [ObjectsMakers]ObjectsMaker
}

// ObjectsMore in ObjectsRequest.Flags: another one of the same lease follows.
const ObjectsMore uint32 = 1

// ObjectsMakers is how many threads one ObjectsRequest can tell of.
const ObjectsMakers = 64

// AttachRequest opens the lease on a device: from a program's first context,
// memory or stream call there.
type AttachRequest struct {
	Device UUID
}

// AttachReply answers Attach. Budget is memory.max of the lease in bytes
// (never more than the device can hold).
type AttachReply struct {
	Slot       uint32 // index of the lease's slot in the page
	Index      uint32 // the device's index in /gpu/devices
	Total      uint64 // bytes of the device
	Budget     uint64
	StreamsMax uint32
	SlotScope  uint32 // whose one slot is: ScopeJob, ScopeProcess or ScopeThread
}

// What is being taken (AllocRequest.Kind): for statistics and messages only.
const (
	MemoryPlain   uint32 = 1
	MemoryPitched uint32 = 2
	MemoryManaged uint32 = 3
	MemoryAsync   uint32 = 4
	MemoryArray   uint32 = 5
	MemoryVirtual uint32 = 6
	MemoryGraph   uint32 = 7
)

// Flags of requests that may wait (AllocRequest, StreamRequest, ContextRequest).
const (
	// FlagRetry: the request was sent before on a connection that died; Header.Request is
	// the same as then. It takes its old place in the queue. With a give-back a library says
	// by it that another daemon may have carried it out: one that tells of Objects sends none.
	FlagRetry uint32 = 1
	// FlagNoWait: refuse with StatusBusy rather than wait.
	FlagNoWait uint32 = 2
	// FlagNoticed (Context): the contexts exist already; never refused, never waits.
	FlagNoticed uint32 = 4
	// FlagHold (Context): not a context, but one more hold of the thread on a shared
	// one, for a slot of its own where slots are the threads'.
	FlagHold uint32 = 8
	// FlagAside: StatusCrowded rather than wait, because the client has no connection left that it could wait on. Send it only to a daemon
	// that has AbleAside.
	FlagAside uint32 = 16
	// FlagAgain: the request was answered with StatusCrowded before. If the requests of its job have been cancelled meanwhile, it is
	// answered with StatusCancelled. Send it only to a daemon that has AbleAside.
	FlagAgain uint32 = 32
)

// AllocRequest asks for bytes that the credit did not cover. What is granted
// belongs to the asking thread; it does not pass through the credit word.
type AllocRequest struct {
	Slot   uint32
	Kind   uint32
	Bytes  uint64
	Flags  uint32 // FlagRetry, FlagNoWait, FlagAside, FlagAgain
	Thread uint32 // which of the client's threads asks: a number of its own from 1 on, or 0
}

// AllocReply answers Alloc. With Status 0, Granted equals the bytes asked for;
// else Granted is 0 and the rest says why. Text is for the program's stderr
// under `gpuarb run`; it is empty when nothing is to be printed.
type AllocReply struct {
	Granted   uint64
	Requested uint64
	Remaining uint64 // bytes that would have been granted at that limit
	Limit     uint64 // bytes of the limit that refused
	Text      Text
}

// FreedNotice reports a free that saw NOTIFY in the word it replaced.
type FreedNotice struct {
	Slot uint32
	Pad  uint32
}

// StreamRequest takes (Count > 0) or gives back (Count < 0) streams.
type StreamRequest struct {
	Slot   uint32
	Count  int32
	Flags  uint32 // FlagRetry, FlagNoWait, FlagAside, FlagAgain
	Thread uint32 // who asks; when giving back, who made them
}

// StreamReply answers Stream; with StatusStreams nothing was taken.
type StreamReply struct {
	Current uint32
	Max     uint32
	Text    Text
}

// ContextRequest asks before contexts are made (Count > 0), or tells of contexts that
// were noticed, destroyed, or not made after all (Count < 0).
type ContextRequest struct {
	Slot   uint32
	Count  int32
	Flags  uint32 // FlagRetry, FlagNoWait, FlagNoticed, FlagHold, FlagAside, FlagAgain
	Thread uint32 // who asks; when giving back, who made them
}

// ContextReply answers Context. With a refusal nothing was counted.
type ContextReply struct {
	Current   uint32
	Reserved  uint32
	Requested uint64 // bytes that the context was to cost
	Remaining uint64 // bytes that would have been granted
	Text      Text
}

// QueryRequest asks what cuMemGetInfo and cuDeviceTotalMem should answer.
// It opens no lease.
type QueryRequest struct {
	Device UUID
}

// QueryReply: all in bytes. Total is what the program should take for the
// device's size (its budget, or the device's total when there is none); Used is
// what its budget holds; Room is what the device could still give at this moment.
type QueryReply struct {
	Total uint64
	Used  uint64
	Room  uint64
}

// RoomRequest asks what Query asks.
type RoomRequest struct {
	Device UUID
}

// RoomReply: as QueryReply, for one moment of the session's own credit word. What the
// process has taken out of the word or given back since then it can reckon itself, as long
// as the word's epoch is the same.
type RoomReply struct {
	Total uint64
	Used  uint64
	Room  uint64
	Word  uint64 // the credit word that Used and Room were summed by; 0 without a lease
	Slot  uint32 // whose word; NoSlot: the session has no lease on the device
	Flags uint32 // RoomLimited
}

// Flags of RoomReply.
const (
	RoomLimited uint32 = 1 // a memory.max is in force that is below what the device can grant
)

// DriverRequest asks on which device is counted what a driver takes that computes on the processor.
type DriverRequest struct {
	Name DriverName
}

// DriverName is a driver as the configuration calls it, NUL-padded.
type DriverName [UUIDSize]byte

// DriverReply has the UUID of that device, which is the processor unless the configuration says
// another one. Whether there is a device with it, Attach says.
type DriverReply struct {
	Device UUID
}

// CopiesRequest names two copies of one driver's library that a process uses at a time. No limit holds for what the process
// takes through the second one. The request becomes an event, and changes no count.
type CopiesRequest struct {
	Held   Path // the copy whose calls are admitted
	Beside Path // the copy whose calls are not
}

// Path is the path of a file, NUL-terminated. Of a longer one the beginning is missing.
type Path [PathSize]byte

// NoSlot in RoomReply.Slot means that there is no lease.
const NoSlot = ^uint32(0)

// Flags of JobOpenRequest.
const (
	JobPerProcess uint32 = 1  // each process has the limits for itself
	JobWait       uint32 = 2  // its processes wait when the device is full, whatever on_full says
	JobNoWait     uint32 = 4  // nothing of it waits: StatusBusy instead
	JobExclusive  uint32 = 8  // nobody else uses the device until the job ends
	JobAny        uint32 = 16 // one of Devices (of all, when there are none), in that order of preference
	JobOnlyIfNone uint32 = 32 // the user's other jobs hold no claim, or StatusBusy
	JobClaim      uint32 = 64 // a claim: takes a slot though there is no cap, counted as leased
	// JobRetry: sent before on a connection that died; Header.Request is the same as then.
	// It takes its old place in the queue, or is answered with the job that was opened.
	JobRetry uint32 = 128
	// JobProcessor: who asks knows VendorCPU. Without it no job is given the processor, which older clients do not know.
	JobProcessor uint32 = 256
)

// JobOpenRequest opens a job for what `gpuarb run` starts, or claims a device. Zero and
// NoLimit mean "as the rules say". Slot and reservation are taken before the reply,
// which waits for them.
type JobOpenRequest struct {
	Memory      uint64 // bytes per device or NoLimit; see MemoryShare
	Min         uint64 // bytes reserved per device or NoLimit; see MinShare
	MemoryShare uint32 // per mille of each device; used when Memory is NoLimit and this is not 0
	MinShare    uint32 // likewise of Min
	Streams     uint32 // streams per lease, or 0
	Flags       uint32
	WaitMillis  uint64            // the longest that anything of it waits, or NoLimit; 0: as the rules say
	Priority    int32             // of its tickets, added to the rule's; only root's may be above 0
	Devices     uint32            // valid entries in Device
	Device      [PageSlots]uint32 // indices; without JobAny the job is to use these and no other
	Command     Text              // for people
}

// JobDevice is a device that a job was given.
type JobDevice struct {
	Index   uint32
	Vendor  uint32 // VendorNVIDIA, VendorAMD, VendorIntel or VendorCPU
	Ordinal uint32 // its place among the vendor's devices, as the vendor's own variables count
	Kind    uint32 // 0, or JobDeviceMIG
	UUID    UUID
}

// JobDeviceMIG in JobDevice.Kind: an instance that MIG made of a GPU. Its UUID begins with MIG where it is text.
const JobDeviceMIG uint32 = 1

// The vendors (JobDevice.Vendor).
const (
	VendorNVIDIA uint32 = 1
	VendorAMD    uint32 = 2
	VendorIntel  uint32 = 3
	VendorCPU    uint32 = 4 // the processor: no GPU, and never claimed
)

// JobOpenReply answers JobOpen; with a refusal only Text counts. The token goes into GPUARB_JOB as 32 hex digits.
type JobOpenReply struct {
	Job      Token
	ID       uint64
	Budget   uint64 // bytes in force on the largest of its devices
	Devices  uint32 // valid entries in Device; 0: any
	Reserved uint32
	Device   [PageSlots]JobDevice
	Text     Text // of a refusal: why, and who holds what was asked for; of a job: the build of the library that its rule chooses, BuildNoExports or nothing
}

// JobCloseRequest gives back what a job holds beyond its processes: its claim, slots and
// reservation. The job itself ends with its last process.
type JobCloseRequest struct {
	Job Token
}

// JobTallyRequest asks what became of a job so far, its processes that have ended included.
type JobTallyRequest struct {
	Job Token
}

// JobTallyDevice is a job's account on a device.
type JobTallyDevice struct {
	Index  uint32
	Vendor uint32 // as of a JobDevice; 0 from a daemon that does not say
	Peak   uint64 // bytes, the most that its processes used at once
	Max    uint64 // bytes, memory.max of the job as it is now, or NoLimit
}

// JobTallyReply answers JobTally. Since is 0, or where the daemon was restarted while the job
// ran, how long ago that was: the counts begin there, and peaks may have been higher before.
type JobTallyReply struct {
	Waits   uint64                    // requests that had to wait, and wait no more
	Waited  uint64                    // milliseconds that they waited, summed
	Refused uint64                    // requests that were refused
	Since   uint64                    // milliseconds
	Job     uint64                    // its number, as everywhere where jobs are shown
	Devices uint32                    // valid entries in Device
	Unknown uint32                    // devices that it used and the daemon does not know
	Device  [PageSlots]JobTallyDevice // those that it used
}

// BesideRequest asks which processes of a job used a device past the library, those that have ended included.
type BesideRequest struct {
	Job Token
}

// ShortText is a word or a name, UTF-8, NUL-padded.
type ShortText [64]byte

// BesideProcess is a process that used a device without a lease, and belongs to the job by its token, its parents or its cgroup.
type BesideProcess struct {
	PID     uint32
	Device  uint32    // index
	Peak    uint64    // bytes, the most that a reading of the device has shown
	Program ShortText // its name, without folder and arguments
	Bypass  ShortText // how it came past the library: figures.Bypass; empty: not known
}

// BesideReply answers Beside. A process that ended between two readings of its device is not in it.
type BesideReply struct {
	Count   uint32 // valid entries in Process
	More    uint32 // such processes beyond those
	Process [BesideMost]BesideProcess
}

// BesideMost is how many processes a BesideReply can name.
const BesideMost = 8

// Whose limits change (LimitRequest.Target).
const (
	LimitProcess uint32 = 1 // ID is its PID
	LimitJob     uint32 = 2 // ID is the job's number
	LimitDevice  uint32 = 3 // Device alone counts; it has SetSlots
	LimitUser    uint32 = 4 // ID is the user's number; of all of his programs, SetMax and SetStreams
	LimitRule    uint32 = 5 // ID is that of the rule in the snapshot; SetMax and SetStreams
	LimitCgroup  uint32 = 6 // in a CgroupRequest, which has its path; SetMax
)

// Which limits change (LimitRequest.Set); the rest stay.
const (
	SetMax     uint32 = 1
	SetMin     uint32 = 2
	SetStreams uint32 = 4
	SetSlots   uint32 = 8

	SetWithFolder uint32 = 16 // of a cgroup: the limit ends when the folder that the cgroup has now is removed
)

// AllDevices in LimitRequest.Device means every device.
const AllDevices = ^uint32(0)

// NoStreams in LimitRequest.Streams is no limit.
const NoStreams = 1<<31 - 1

// LimitRequest changes limits. The owner of a process or a job may lower its own, a user that of
// all of his programs; root may do anything. Streams of NoStreams takes a user's limit off.
type LimitRequest struct {
	Target   uint32
	Set      uint32
	ID       uint64
	Device   uint32 // index, or AllDevices
	Slots    uint32 // slots.max; 0: no limit
	Max      uint64 // bytes or NoLimit; see MaxShare
	Min      uint64 // bytes or NoLimit; see MinShare
	MaxShare uint32 // per mille of each device; used when Max is NoLimit and this is not 0
	MinShare uint32 // likewise of Min
	Streams  uint32 // of each lease, on every device
	Reserved uint32 // must be 0
}

// CgroupRequest changes what all programs in a cgroup, and in those below it, may hold together. Only root may.
type CgroupRequest struct {
	Limit LimitRequest // its Target is LimitCgroup
	Path  Text         // of cgroup v2, as /proc/PID/cgroup has it
}

// SnapshotRequest asks for the whole state as JSON (figures.Snapshot).
type SnapshotRequest struct{}

// SnapshotPart starts each part of the answer to Snapshot or Metrics; bytes of the JSON, or of the text, follow it.
type SnapshotPart struct {
	Last     uint32 // 1 on the last part
	Reserved uint32
}

// EventsRequest asks for the event history: lines of JSON, each with an offset in bytes that counts from the
// daemon's start. A client that reads on after a break gives back what the last part said.
type EventsRequest struct {
	Daemon   uint64 // EventsPart.Daemon; 0, or another daemon's: Offset does not count, and all lines come that are kept
	Offset   uint64 // where to begin: EventsPart.Next; NoLimit: with what happens from now on
	Flags    uint32 // EventsFollow
	Reserved uint32 // must be 0
}

// EventsFollow in EventsRequest.Flags: there is no last part; lines come as they are written, until GiveUp or the
// connection's end.
const EventsFollow uint32 = 1

// EventsPart starts each part of the answer; whole lines follow it. Where lines were lost that were asked for,
// a line says so in their place.
type EventsPart struct {
	Daemon   uint64 // tells this daemon from others; never 0
	Next     uint64 // the offset behind the last line
	Last     uint32 // 1 on the last part
	Reserved uint32
}

// LeaseSlot is one lease's line in the page. The daemon believes none of it
// beyond what it can clamp.
type LeaseSlot struct {
	Credit   uint64 // the credit word; both sides, atomically
	Low      uint64 // least credit since the daemon's last change, with its epoch; the client lowers, the daemon resets
	Pending  uint64 // bytes freed in stream order and not yet given back; client, information only
	Limit    uint64 // memory.max in force, bytes; daemon, information only
	Counts   uint64 // of what it holds: see CountsTold; client
	Imported uint64 // bytes of other processes' memory that it has imported; client
	Streams  uint64 // of how many there are, and may be: see StreamsOpen; both sides, atomically
	Managed  uint64 // bytes of its blocks that are managed memory, which may be away from the device; client
}

// LeaseSlot.Streams is the count of the lease's streams while it is lent to the client.
//
//	bits  0..29  streams that there are
//	bits 30..59  streams that there may be (streams.max)
//	bit  63      OPEN: the client takes and gives back streams here, and tells nobody
//
// Without OPEN the count is the daemon's, and each stream is asked for and given back by a message; so it is
// for whoever knows nothing of this word, on either side. The daemon alone sets and clears OPEN and says how many
// there may be; while OPEN is set the client alone changes how many there are.
const (
	StreamsOpen     = 1 << 63
	StreamsMask     = 1<<30 - 1
	StreamsMaxShift = 30
)

// LeaseSlot.Counts says what a client's blocks are, so that the daemon can tell what a
// driver rounds up from memory that no call names. It can only lower what the client
// itself is charged. Zero, as libraries leave it that know nothing of it: nothing is said.
//
//	bits  0..31  live blocks, or more
//	bits 32..47  pools that it takes memory from, or more
//	bits 48..61  MAKING: contexts that it asks for here, or that the driver makes at this moment
//	bit  62      SOFT: some of the used bytes may not be on the device (managed memory, a heap)
//	bit  63      TOLD: the rest means something
const (
	CountsTold        = 1 << 63
	CountsSoft        = 1 << 62
	CountsPoolsShift  = 32
	CountsPoolsMax    = 1<<16 - 1
	CountsMakingShift = 48
	CountsMakingMax   = 1<<14 - 1
	CountsBlocksMax   = 1<<32 - 1
)

// Shown is what a program is to be told of a device's memory, so that it need not ask each
// time: written by the daemon alone, for a minute after the client last asked (Room), anew
// each second and with each change of the credit word. Whoever reads it loads the credit word,
// these, and the word again; they hold when both words and Room have one epoch, the word
// is not closed, and At is no more than ShownMs ago. Then free = Room's bytes + credit, and
// used = Used − credit.
type Shown struct {
	Room  uint64 // as a credit word: bytes that could be had beyond the credit, the epoch, ShownTold, ShownLimited
	Used  uint64 // bytes, of Total, the lease's credit included
	Total uint64 // bytes, the budget
	At    uint64 // CLOCK_MONOTONIC_COARSE, milliseconds
}

// Bits of Shown.Room, where a credit word has its flags.
const (
	ShownTold    = 1 << 63 // the rest means something
	ShownLimited = 1 << 62 // as RoomLimited
	ShownMs      = 2500    // milliseconds that it holds for: two of the daemon's rounds and a half
)

// Page is the lease page: one sealed memfd per session, made by the daemon. From Memory
// on it is for the next daemon, should that know no more than what clients show it.
type Page struct {
	Magic    uint32 // PageMagic
	Version  uint16 // PageVersion
	Slots    uint16 // PageSlots
	Ended    uint32 // daemon: 1 when the session is over and the page means nothing any more
	Threads  uint32 // client: threads alive that ever made an intercepted call
	Pad      uint64
	Host     uint64 // client: bytes of pinned host memory it holds, information only
	Memory   uint64 // daemon: memory.max of the job, bytes on each device, or NoLimit; see Share
	Share    uint32 // daemon: per mille of each device; used when Memory is NoLimit and this is not 0
	Streams  uint32 // daemon: streams.max of each lease
	Said     uint32 // daemon: 1 when Memory, Share, Streams and Job mean something
	Job      uint32 // daemon: JobPerProcess, JobWait and JobNoWait, as its job was opened
	Reserved uint64
	Lease    [PageSlots]LeaseSlot
	Shown    [PageSlots]Shown // of the lease in the slot with the same number
}
