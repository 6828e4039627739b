package ipc

// This file is the only source of the protocol's layouts and constants: messages, statuses, the lease page and the
// credit word. genlayout makes cshim/core/wire.h from it, for the C library. bodies.go lists which body belongs to
// which message, and docs/reference/protocol.md explains the protocol.

//go:generate go run ./genlayout -o ../cshim/core/wire.h -page ../docs/reference/protocol.md

// The constants of the protocol. A change of any layout below requires a new Version.
const (
	Magic       = 0x42524147 // "GARB" as it lies in memory
	Version     = 1
	MaxRequest  = 4096       // bytes of the longest message that a client may send
	MaxReply    = 65536      // bytes of the longest message that the daemon sends
	HeaderSize  = 24         // bytes
	TokenSize   = 16         // bytes of a session or job token
	UUIDSize    = 16         // bytes of a device's UUID
	TextSize    = 512        // bytes of a text for users, NUL-terminated
	PathSize    = 256        // bytes of a file's path, NUL-terminated
	PageSize    = 4096       // bytes of the lease page
	PageSlots   = 32         // leases (devices) that one session can have
	SlotSize    = 64         // bytes of one lease's slot in the page: one cache line
	NoLimit     = ^uint64(0) // in fields of bytes: no limit, or no limit requested
	PageMagic   = 0x45474150 // "PAGE" as it lies in memory
	PageVersion = 1
)

// The credit word (LeaseSlot.Credit) is one 64-bit atomic.
//
//	bits  0..47  credit in bytes
//	bits 48..61  epoch: the number of changes by the daemon, modulo 1<<EpochBits
//	bit  62      NOTIFY: a request waits, and the client must report each free (FreedNotice)
//	bit  63      CLOSED: the client must ask the daemon for every allocation
//
// Clients change only the credit bits, and keep the epoch and the flags. They take credit by compare-and-swap, and give
// it back by compare-and-swap or, if the credit cannot overflow, by addition. LeaseSlot.Low has the same layout without
// flags: the least credit since the daemon's last change, with the epoch in which the client saw it.
const (
	CreditBits  = 48
	CreditMask  = 1<<CreditBits - 1
	EpochShift  = CreditBits
	EpochBits   = 14
	EpochMask   = (1<<EpochBits - 1) << EpochShift
	FlagNotify  = 1 << 62
	FlagClosed  = 1 << 63
	CreditLimit = CreditMask // the most bytes of credit in a word
)

// Type identifies a message. A reply has its request's type plus ReplyBit. A refused or failed request gets that
// reply type with a non-zero Header.Status.
type Type uint16

// The message types. A session begins with Hello on its first connection, with Join on a further one, and with Resume
// on a new one after a break. All other messages follow.
const (
	TypeHello   Type = 1  // HelloRequest → HelloReply (with the page's memfd for a shim)
	TypeJoin    Type = 2  // JoinRequest → JoinReply: adds this connection to a session
	TypeResume  Type = 3  // ResumeRequest (with the page's memfd) → HelloReply (with a memfd if the daemon made a new page)
	TypeAttach  Type = 4  // AttachRequest → AttachReply: opens the lease on a device
	TypeAlloc   Type = 5  // AllocRequest → AllocReply
	TypeFreed   Type = 6  // FreedNotice, no reply: a free found NOTIFY in the credit word
	TypeStream  Type = 7  // StreamRequest → StreamReply
	TypeContext Type = 8  // ContextRequest → ContextReply
	TypeQuery   Type = 9  // QueryRequest → QueryReply: the figures for cuMemGetInfo
	TypeBye     Type = 10 // Empty → Empty: ends the session
	TypeRoom    Type = 11 // RoomRequest → RoomReply: as Query, with the credit word used for the sums (AbleRoom)
	// 12 was Measure. Earlier libraries send it only to a daemon whose HelloReply.Flags have bit 2.
	TypeObjects  Type = 13 // ObjectsRequest → Empty: after Resume, the threads' contexts, streams and holds (AbleObjects)
	TypeDriver   Type = 14 // DriverRequest → DriverReply: the device that is charged for a driver that computes on the processor (AbleDriver)
	TypeCopies   Type = 15 // CopiesRequest → Empty: the client uses two copies of a driver's library, one of them without limits (AbleCopies)
	TypeJobOpen  Type = 20 // JobOpenRequest → JobOpenReply: the job ends with this connection and its processes
	TypeSnapshot Type = 21 // SnapshotRequest → SnapshotPart…: JSON in parts; Last marks the last part
	TypeCancel   Type = 22 // CancelRequest → CancelReply: removes waiting requests from the queue
	TypeJobClose Type = 23 // JobCloseRequest → Empty: gives back the job's claim, slots and reservation
	TypeLimit    Type = 24 // LimitRequest → Empty: changes limits of running programs
	TypeGiveUp   Type = 25 // Empty, no reply: the daemon must answer the waiting request of this connection now
	TypeJobTally Type = 26 // JobTallyRequest → JobTallyReply: a job's peak memory, waiting time and refusals
	TypeEvents   Type = 27 // EventsRequest → EventsPart…: lines of the event history in parts; Last marks the last part
	TypeMetrics  Type = 28 // Empty → SnapshotPart…: metrics in Prometheus' text format, in parts; Last marks the last part
	TypeCgroup   Type = 29 // CgroupRequest → Empty: changes the limit of all programs in a cgroup together
	TypeBeside   Type = 30 // BesideRequest → BesideReply: the processes of a job that used a device without the library
	TypeWarnings Type = 31 // WarningsRequest → WarningsReply: the warnings of a job by idle.warn and age.warn
	TypeExited   Type = 32 // ExitedRequest → Empty: how the command of a job has ended
	TypeAccount  Type = 33 // AccountRequest → AccountReply: a sentence about what a job has used, waited for and was refused
	TypeBind     Type = 34 // BindRequest → JobOpenReply: opens a job for all processes of a cgroup
	TypeUnbind   Type = 35 // UnbindRequest → AccountReply: closes such a job
	TypeSuspend  Type = 36 // SuspendRequest → Empty: asks a job to give its memory back, or to take it again
	ReplyBit     Type = 0x8000
)

// Status is the result of a request, in its reply. Numbers are never reused.
type Status uint32

// The statuses. 1 to 98: a refusal by policy. 99: the request waits, and its reply follows later. 100 and more: an
// error.
const (
	StatusOK           Status = 0
	StatusOverBudget   Status = 1  // more than the budget of the lease, process or job has left
	StatusDeviceFull   Status = 2  // the device lacks free memory
	StatusTooLarge     Status = 3  // larger than could ever fit
	StatusStreams      Status = 4  // streams.max reached
	StatusSharedFull   Status = 5  // a budget shared by several jobs (user, cgroup, rule) is used up
	StatusDeviceLost   Status = 6  // the device fell off the bus
	StatusDenied       Status = 7  // asked for more than a rule allows
	StatusBusy         Status = 8  // the request would wait, and has FlagNoWait or JobNoWait
	StatusTimeout      Status = 9  // the longest wait has passed
	StatusCancelled    Status = 10 // the waiting request was cancelled
	StatusDeadlock     Status = 11 // the youngest request of a deadlock; the text names the others
	StatusSlots        Status = 12 // slots.max is reached, and this device's requests do not wait
	StatusCrowded      Status = 13 // the request may wait, but the queue is full: see CrowdedMillis
	StatusWaiting      Status = 99 // a notice before the reply: WaitingReply has the reason
	StatusMalformed    Status = 100
	StatusVersion      Status = 101 // the text names both versions
	StatusOrder        Status = 102 // the message's type is not allowed at this point
	StatusUnknownType  Status = 103
	StatusNoSession    Status = 104 // unknown token
	StatusNoDevice     Status = 105
	StatusNoLease      Status = 106 // slot not attached
	StatusPermission   Status = 107
	StatusUnsupported  Status = 108 // known, but not supported by this daemon
	StatusTooMany      Status = 109 // too many sessions, connections or devices
	StatusInternal     Status = 110
	StatusShuttingDown Status = 111
	StatusRange        Status = 112 // a value out of range
)

// CrowdedMillis is the interval in milliseconds at which a client repeats a request that StatusCrowded answered. The
// client repeats it until the request's longest wait has passed since the first attempt. The reply has the longest
// wait in milliseconds, in a field that is otherwise unused: AllocReply.Limit, ContextReply.Remaining and
// JobOpenReply.Budget (NoLimit: unlimited), StreamReply.Max (2³²−1: unlimited).
const CrowdedMillis = 100

// Header is the first part of every message.
type Header struct {
	Magic   uint32
	Version uint16
	Type    Type
	Length  uint32 // bytes of the whole message, this header included
	Status  Status // replies; 0 in requests
	Request uint64 // number chosen by the client, unique in its session; the reply repeats it
}

// Text is a sentence for users: UTF-8, NUL-terminated, cut to TextSize−1 bytes.
type Text [TextSize]byte

// Token is a secret that identifies a session or a job.
type Token [TokenSize]byte

// UUID is a device's 16 bytes, in the order of cuDeviceGetUuid.
type UUID [UUIDSize]byte

// ErrorReply is the body of every reply with a Status of 100 or more.
type ErrorReply struct {
	Text Text
}

// Kinds of clients (HelloRequest.Kind).
const (
	KindShim uint32 = 1 // the C library in a program: has a lease page
	KindTool uint32 = 2 // a command or a Go program: has no lease page and no leases
)

// HelloRequest opens a session. Its limits can only lower those of the rules; NoLimit and 0 request nothing. The
// request waits if the rule reserves memory.
type HelloRequest struct {
	Kind          uint32
	Features      uint32 // none are defined; must be 0
	Job           Token  // the job of `gpuarb run`; zero: none
	Memory        uint64 // bytes per device, or NoLimit
	Streams       uint32 // streams per device, or 0
	Share         uint32 // per mille of each device; used when Memory is NoLimit and this is not 0
	OnFull        uint32 // OnFullDeny or OnFullWait; 0: as the rule says
	Slots         uint32 // most other slots in use on a device while this client has its own; 0: no limit requested
	SlotScope     uint32 // ScopeJob, ScopeProcess or ScopeThread; 0: as the device's rule says
	Reserved      uint32 // must be 0
	StreamReserve uint64 // bytes charged for each stream, or NoLimit: as the rule says
}

// Reactions to a full device (HelloRequest.OnFull).
const (
	OnFullDeny uint32 = 1
	OnFullWait uint32 = 2
)

// The owner of one slot (HelloRequest.SlotScope).
const (
	ScopeJob     uint32 = 1
	ScopeProcess uint32 = 2
	ScopeThread  uint32 = 3
)

// HelloReply answers Hello and Resume. With KindShim the page's memfd comes with it.
type HelloReply struct {
	Session Token
	Devices uint32 // number of devices that the daemon knows
	InJob   uint32 // 1: the session belongs to a job of `gpuarb run`. To a tool: HelloRequest.Job is a job's token
	OnLoss  uint32 // what a client does without a daemon: LossOpen or LossClosed
	Flags   uint32 // abilities of the daemon: Able*, for a tool only AbleEmptiest. Unknown flags must be ignored
	HostMax uint64 // bytes of pinned host memory that the process may hold, or NoLimit; the client enforces it
}

// Abilities of a daemon beyond this version's first messages (HelloReply.Flags).
const (
	AbleRoom       uint32 = 1   // answers Room; 2 was Measure
	AbleObjects    uint32 = 4   // answers Objects, and lets the client count streams: LeaseSlot.Streams
	AbleDriver     uint32 = 8   // answers Driver
	AbleCopies     uint32 = 16  // answers Copies
	AbleAside      uint32 = 32  // accepts FlagAside and FlagAgain
	AbleEmptiest   uint32 = 64  // accepts JobEmptiest; told to tools
	AbleFirst      uint32 = 128 // accepts FlagFresh, FlagCaches, FlagNoCaches and FlagChosen
	AbleDriverFull uint32 = 256 // accepts FlagDriverFull and FlagDriverFullAgain
)

// WaitingReply has the state of a waiting request. The daemon sends it with StatusWaiting each time that its content
// changes, after the first one at most once a second. Until the reply comes, the client may send only GiveUp and
// Freed on this connection. The end of the connection removes the request from the queue.
type WaitingReply struct {
	Ticket   uint64
	Position uint32 // place in the queue of the limit that refused; 1: first; 0: Text says what was got
	Reserved uint32
	Waited   uint64 // milliseconds since the request arrived
	Text     Text   // the missing thing, its holder, and since when
}

// CancelRequest removes waiting requests from the queue; the daemon answers each with StatusCancelled. A process may
// cancel its own requests and those of its user's processes; root may cancel any. If it names neither a ticket nor a
// job, it cancels those of the sender's descendants.
type CancelRequest struct {
	Ticket uint64 // a ticket's number; 0: none
	Job    Token  // all requests of a job; zero: none
}

// CancelReply answers Cancel.
type CancelReply struct {
	Cancelled uint64 // number of removed requests
}

// A client's behaviour without a daemon (HelloReply.OnLoss).
const (
	LossOpen   uint32 = 0 // continues without any GPU memory limit
	LossClosed uint32 = 1 // refuses device memory
)

// JoinRequest makes this connection part of a session, for a thread that must ask while another thread's request
// waits.
type JoinRequest struct {
	Session Token
}

// JoinReply answers Join.
type JoinReply struct{}

// ResumeLease has the client's own counts of one device.
type ResumeLease struct {
	Device   UUID
	Used     uint64 // bytes of live blocks and of allocations in flight, and pending bytes
	Streams  uint32
	Contexts uint32
	Slot     uint32 // the lease's slot in the page
	Reserved uint32
}

// ResumeRequest continues a session with a restarted daemon, or after the connection broke. The page's memfd comes
// with it if the client still has it.
type ResumeRequest struct {
	Session Token
	Hello   HelloRequest
	Count   uint32 // valid entries in Leases
	HasPage uint32 // 1: the memfd comes with the request
	Leases  [PageSlots]ResumeLease
}

// ObjectsMaker counts the objects of one thread on a lease.
type ObjectsMaker struct {
	Thread   uint32 // numbered as AllocRequest.Thread; several entries of one thread add up
	Contexts uint32
	Streams  uint32
	Holds    uint32 // number of holds, see FlagHold
}

// ObjectsRequest follows a Resume, once for each lease, before any other request. It has all contexts, streams and
// holds that the client has not given back, by the threads that made them. The daemon replaces its own counts by
// these.
type ObjectsRequest struct {
	Slot   uint32
	Flags  uint32 // ObjectsMore
	Count  uint32 // valid entries in Makers
	Pad    uint32
	Makers [ObjectsMakers]ObjectsMaker
}

// ObjectsMore in ObjectsRequest.Flags announces another ObjectsRequest for this lease.
const ObjectsMore uint32 = 1

// ObjectsMakers is the most threads in one ObjectsRequest.
const ObjectsMakers = 64

// AttachRequest opens the lease on a device, at a program's first context, memory or stream call there.
type AttachRequest struct {
	Device UUID
}

// AttachReply answers Attach.
type AttachReply struct {
	Slot       uint32 // index of the lease's slot in the page, from 0
	Index      uint32 // the device's index in /gpu/devices
	Total      uint64 // bytes of the device's memory
	Budget     uint64
	StreamsMax uint32
	SlotScope  uint32 // the owner of one slot: ScopeJob, ScopeProcess or ScopeThread
}

// Kinds of memory (AllocRequest.Kind), for statistics and messages only.
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
	// FlagRetry: the request was sent before on a connection that died, with this Header.Request. It takes its old
	// place in the queue. In a request that gives something back, FlagRetry means that another daemon may have
	// carried it out; a library that sends Objects never sets it there.
	FlagRetry uint32 = 1
	// FlagNoWait: the daemon refuses with StatusBusy instead of making the request wait.
	FlagNoWait uint32 = 2
	// FlagNoticed (Context): the contexts exist already. The request is never refused and never waits.
	FlagNoticed uint32 = 4
	// FlagHold (Context): the request counts no context, but one more thread that holds a shared context. The thread
	// needs a slot of its own if threads own slots.
	FlagHold uint32 = 8
	// FlagAside: the daemon answers StatusCrowded instead of making the request wait, because the client has no
	// connection left for the wait. Only a daemon with AbleAside knows it.
	FlagAside uint32 = 16
	// FlagAgain: StatusCrowded answered the request before. If the requests of its job have been cancelled since
	// then, the answer is StatusCancelled. Only a daemon with AbleAside knows it.
	FlagAgain uint32 = 32
	// FlagFresh (Alloc): the thread has been granted memory of the device since its last refusal there, or was never
	// refused there. So the thread's burst of refusals is over (wait_after in the configuration). Only a daemon with
	// AbleFirst knows this flag and the next three.
	FlagFresh uint32 = 64
	// FlagCaches (Alloc): the process has loaded an allocator that keeps freed memory until a refusal. The daemon
	// refuses the first request of a burst that would wait, unless the rule sets wait_after. To look for allocators
	// only then, a client sends the request with FlagAside, and without FlagCaches and FlagNoCaches. If StatusCrowded
	// answers it, the client looks, and sends it again with one of the two.
	FlagCaches uint32 = 128
	// FlagNoCaches (Alloc): the process has loaded no such allocator.
	FlagNoCaches uint32 = 256
	// FlagChosen (Alloc): FlagCaches or FlagNoCaches is the choice of the program's environment, and holds whatever
	// the rule says.
	FlagChosen uint32 = 512
	// FlagDriverFull (Alloc, Context): the driver had no memory for these bytes, or for the context, after the daemon
	// had granted them. The client has released them. The daemon reads the device first. If the request may wait, it
	// waits until the device shows room. Only a daemon with AbleDriverFull knows this flag and the next one.
	FlagDriverFull uint32 = 1024
	// FlagDriverFullAgain (Alloc, Context): the driver had no memory for what a request with FlagDriverFull was
	// granted. The answer is always a refusal. Its text names the programs that the device shows.
	FlagDriverFullAgain uint32 = 2048
)

// AllocRequest asks for bytes that the credit does not cover. Granted bytes belong to the asking thread; they never
// appear in the credit word.
type AllocRequest struct {
	Slot   uint32
	Kind   uint32
	Bytes  uint64
	Flags  uint32 // FlagRetry, FlagNoWait, FlagAside, FlagAgain, FlagFresh, FlagCaches, FlagNoCaches, FlagChosen, FlagDriverFull, FlagDriverFullAgain
	Thread uint32 // the asking thread, numbered by the client from 1; 0: unknown
}

// AllocReply answers Alloc. With Status 0, Granted equals the requested bytes. Otherwise Granted is 0 and the other
// fields have the reason. Text is for the program's stderr under `gpuarb run`; if it is empty, the client prints
// nothing.
type AllocReply struct {
	Granted   uint64
	Requested uint64
	Remaining uint64 // bytes that the refusing limit would still grant
	Limit     uint64 // bytes of the refusing limit
	Text      Text
}

// FreedNotice reports a free that found NOTIFY in the credit word.
type FreedNotice struct {
	Slot uint32
	Pad  uint32
}

// StreamRequest asks for streams (Count > 0) or gives them back (Count < 0).
type StreamRequest struct {
	Slot   uint32
	Count  int32
	Flags  uint32 // FlagRetry, FlagNoWait, FlagAside, FlagAgain
	Thread uint32 // the asking thread; if Count < 0, the thread that made the objects
}

// StreamReply answers Stream. With StatusStreams the count is unchanged.
type StreamReply struct {
	Current uint32
	Max     uint32
	Text    Text
}

// ContextRequest asks before contexts are made (Count > 0), or reports contexts that were destroyed or could not be
// made (Count < 0). With FlagNoticed it reports existing contexts.
type ContextRequest struct {
	Slot   uint32
	Count  int32
	Flags  uint32 // FlagRetry, FlagNoWait, FlagNoticed, FlagHold, FlagAside, FlagAgain, FlagDriverFull, FlagDriverFullAgain
	Thread uint32 // the asking thread; if Count < 0, the thread that made the objects
}

// ContextReply answers Context. After a refusal the count is unchanged.
type ContextReply struct {
	Current   uint32
	Reserved  uint32
	Requested uint64 // expected bytes of the context
	Remaining uint64 // bytes that the device would still grant
	Text      Text
}

// QueryRequest asks for the figures of cuMemGetInfo and cuDeviceTotalMem. It opens no lease.
type QueryRequest struct {
	Device UUID
}

// QueryReply answers Query, in bytes. Total is the device's size for the program: its budget, or the device's total
// if it has no budget. Used is the use of that budget. Room is the memory that the device could still grant.
type QueryReply struct {
	Total uint64
	Used  uint64
	Room  uint64
}

// RoomRequest asks for the figures of Query, with the credit word that belongs to them.
type RoomRequest struct {
	Device UUID
}

// RoomReply has the figures of QueryReply together with the session's credit word at that moment. While the word's
// epoch stays unchanged, the client can correct the figures itself by the change of its credit.
type RoomReply struct {
	Total uint64
	Used  uint64
	Room  uint64
	Word  uint64 // the credit word that Used and Room are based on; 0: no lease
	Slot  uint32 // the slot of the word; NoSlot: the session has no lease on the device
	Flags uint32 // RoomLimited
}

// Flags of RoomReply.
const (
	RoomLimited uint32 = 1 // a memory.max in force is smaller than the memory that the device can grant
)

// DriverRequest asks which device is charged for the memory of a driver that computes on the processor.
type DriverRequest struct {
	Name DriverName
}

// DriverName is a driver's name in the configuration, NUL-padded.
type DriverName [UUIDSize]byte

// DriverReply has the UUID of that device: the processor, unless the configuration names another one. An Attach then
// shows whether the device exists.
type DriverReply struct {
	Device UUID
}

// CopiesRequest names two copies of one driver's library that a process uses at a time. Calls through the second copy
// have no limits. The daemon records the request as an event and changes no count.
type CopiesRequest struct {
	Held   Path // the copy whose calls the daemon admits
	Beside Path // the copy whose calls bypass the daemon
}

// Path is a file's path, NUL-terminated. A path that is too long loses its beginning.
type Path [PathSize]byte

// NoSlot in RoomReply.Slot stands for no lease.
const NoSlot = ^uint32(0)

// Flags of JobOpenRequest.
const (
	JobPerProcess uint32 = 1  // the limits apply to each process separately
	JobWait       uint32 = 2  // the job's processes wait if the device is full, whatever on_full says
	JobNoWait     uint32 = 4  // the job's requests never wait: StatusBusy instead
	JobExclusive  uint32 = 8  // no other job uses the device until this job ends
	JobAny        uint32 = 16 // any one of Devices, in order of preference; if there are none, of all devices
	JobOnlyIfNone uint32 = 32 // StatusBusy if another job of the user holds a claim
	JobClaim      uint32 = 64 // a claim: takes a slot even without slots.max, counted as leased
	// JobRetry: the request was sent before on a connection that died, with this Header.Request. It takes its old
	// place in the queue, or gets the reply of the job that was opened.
	JobRetry uint32 = 128
	// JobProcessor: the client knows VendorCPU. Without it no job gets the processor, which older clients do not
	// know.
	JobProcessor uint32 = 256
	// JobEmptiest: the job gets the one of Devices, or of all devices, with the most free memory, and shares it with
	// others. Only a daemon with AbleEmptiest knows it.
	JobEmptiest uint32 = 512
)

// JobOpenRequest opens a job for a command of `gpuarb run`, or claims a device. Zero and NoLimit mean "as the rules
// say". The job takes its slot and its reservation before the reply, which waits for them.
type JobOpenRequest struct {
	Memory      uint64 // bytes per device or NoLimit; see MemoryShare
	Min         uint64 // bytes reserved per device or NoLimit; see MinShare
	MemoryShare uint32 // per mille of each device; used when Memory is NoLimit and this is not 0
	MinShare    uint32 // per mille of each device; used when Min is NoLimit and this is not 0
	Streams     uint32 // streams per lease, or 0
	Flags       uint32
	WaitMillis  uint64            // milliseconds of the longest wait of the job's requests, or NoLimit; 0: as the rules say
	Priority    int32             // added to the rule's priority for the job's tickets; only root may give more than 0
	Devices     uint32            // valid entries in Device
	Device      [PageSlots]uint32 // indices; without JobAny the only devices that the job may use
	Command     Text              // shown to users; see MakeCommand
}

// JobDevice is a device that a job may use.
type JobDevice struct {
	Index   uint32
	Vendor  uint32 // VendorNVIDIA, VendorAMD, VendorIntel or VendorCPU
	Ordinal uint32 // the device's number among the vendor's devices, as in CUDA_VISIBLE_DEVICES
	Kind    uint32 // 0, or JobDeviceMIG
	UUID    UUID
}

// JobDeviceMIG in JobDevice.Kind is a MIG instance of a GPU. In text, its UUID begins with MIG.
const JobDeviceMIG uint32 = 1

// The vendors (JobDevice.Vendor).
const (
	VendorNVIDIA uint32 = 1
	VendorAMD    uint32 = 2
	VendorIntel  uint32 = 3
	VendorCPU    uint32 = 4 // the processor, which cannot be claimed
)

// JobOpenReply answers JobOpen. After a refusal only Text has a meaning. The client puts the token into GPUARB_JOB as
// 32 hexadecimal digits.
type JobOpenReply struct {
	Job      Token
	ID       uint64
	Budget   uint64 // memory.max in force on the largest of the job's devices, bytes
	Devices  uint32 // valid entries in Device; 0: the job may use all devices
	Reserved uint32
	Device   [PageSlots]JobDevice
	Text     Text // after a refusal the reason and the holder; otherwise the build of the library that the rule chooses: BuildNoExports or empty
}

// BindRequest opens a job for all processes in a cgroup and in the cgroups below it: a binding. The daemon replies when
// the job has its reservation. Only a privileged user may send it. If the cgroup has a job with the same name, limits and options, the
// reply is that of this job.
type BindRequest struct {
	// Job has the limits and the command. Its WaitMillis and JobNoWait are about the opening alone. The other flags
	// that are accepted are JobWait, JobPerProcess, JobProcessor and JobRetry.
	Job        JobOpenRequest
	Cgroup     Text      // path as in /proc/PID/cgroup, or below the mount point of a hierarchy
	Name       ShortText // see CheckBindingName
	Container  ShortText // ID of the container, by which Unbind finds the job; empty: none
	Until      uint32    // UntilGone, UntilClosed or UntilIdle
	Flags      uint32    // BindLossOpen (1), BindContextsInside (2); BindAllowClaim (4), …Reserve (8), …Exclusive (16), …Priority (32)
	IdleMillis uint64    // with UntilIdle: milliseconds without a process after which the job is closed
}

// The end of a binding (BindRequest.Until). Unbind ends each binding. The removal of the cgroup's folder ends a binding
// with UntilGone or UntilIdle.
const (
	UntilGone   uint32 = 0 // when the cgroup's folder is removed, or removed and made again
	UntilClosed uint32 = 1 // only with Unbind
	UntilIdle   uint32 = 2 // also when no process was in the cgroup for IdleMillis
)

// Flags of BindRequest.
const (
	BindLossOpen       uint32 = 1 // without a daemon, programs continue without limits; otherwise they get no device memory
	BindContextsInside uint32 = 2 // contexts are charged to the job's budget
	// The following flags allow programs inside more than to use the budget. BindAllows lists them.
	BindAllowClaim     uint32 = 4  // claim devices
	BindAllowReserve   uint32 = 8  // reserve more than the job's own reservation
	BindAllowExclusive uint32 = 16 // use devices exclusively
	BindAllowPriority  uint32 = 32 // raise their priority, if they may do so outside
	// BindAllowsAll has all of them.
	BindAllowsAll = BindAllowClaim | BindAllowReserve | BindAllowExclusive | BindAllowPriority
)

// UnbindRequest closes a binding. One field names the binding; the other fields are zero. Programs of the job keep what
// they use.
type UnbindRequest struct {
	ID        uint64 // the job's number
	Cgroup    Text   // as in BindRequest
	Name      ShortText
	Container ShortText
}

// SuspendRequest asks a job to give its memory back, or lets a suspended job take it again as soon as there is room.
// The user of the job may ask, and who is privileged.
type SuspendRequest struct {
	Job      uint64 // the job's number
	Resume   uint32 // 1: take the memory again; 0: give it back
	Reserved uint32 // must be 0
}

// JobCloseRequest gives back a job's claim, slots and reservation. The job itself ends with its last process.
type JobCloseRequest struct {
	Job Token
}

// JobTallyRequest asks for a job's figures so far, including its ended processes.
type JobTallyRequest struct {
	Job Token
}

// JobTallyDevice has a job's figures on one device.
type JobTallyDevice struct {
	Index  uint32
	Vendor uint32 // as in JobDevice; 0: unknown, from an earlier daemon
	Peak   uint64 // bytes, the most that its processes used together at any moment
	Max    uint64 // bytes, the job's present memory.max, or NoLimit
}

// JobTallyReply answers JobTally. If the daemon was restarted while the job ran, Since is the time since then: the
// counts begin there, and peaks may have been higher before. 0: no restart.
type JobTallyReply struct {
	Waits   uint64                    // requests that waited and have ended
	Waited  uint64                    // milliseconds that those requests waited, in total
	Refused uint64                    // refused requests
	Since   uint64                    // milliseconds since the restart; 0: no restart
	Job     uint64                    // the job's number
	Devices uint32                    // valid entries in Device
	Unknown uint32                    // number of devices that the job used and that this daemon does not know
	Device  [PageSlots]JobTallyDevice // the devices that the job used
}

// BesideRequest asks which processes of a job, including ended ones, used a device without the library.
type BesideRequest struct {
	Job Token
}

// ExitedRequest tells how the command of a job has ended, for the history.
type ExitedRequest struct {
	Job    Token
	Code   uint32 // exit code; with a signal: 0
	Signal uint32 // 0: none
}

// WarningsRequest asks for the warnings of a job so far.
type WarningsRequest struct {
	Job Token
}

// WarningsReply answers Warnings. Each text is that of the last warning of its kind, without the name of the job.
type WarningsReply struct {
	Idle     uint64 // number of warnings by idle.warn, one for each idle period
	Aged     uint64 // 1 after the warning by age.warn
	IdleText Text
	AgedText Text
}

// AccountRequest asks for the account of a job so far.
type AccountRequest struct {
	Job Token
}

// AccountReply answers Account with a sentence for users, without the name of the job: what the job used and its
// contexts took, how many of its requests waited and were refused, and why the last one was refused.
type AccountReply struct {
	Text Text
}

// ShortText is a short text or a name, UTF-8, NUL-padded.
type ShortText [64]byte

// BesideProcess is a process that used a device without a lease. It belongs to the job by its token, its parents or
// its cgroup.
type BesideProcess struct {
	PID     uint32
	Device  uint32    // index
	Peak    uint64    // bytes, the most in any reading of the device
	Program ShortText // the program's name without folder and arguments
	Bypass  ShortText // how the program avoids the library: figures.Bypass; empty: unknown
}

// BesideReply answers Beside. It lacks processes that ended between two readings of their device.
type BesideReply struct {
	Count   uint32 // valid entries in Process
	More    uint32 // number of further such processes, not in Process
	Process [BesideMost]BesideProcess
}

// BesideMost is the most processes in one BesideReply.
const BesideMost = 8

// The object whose limits change (LimitRequest.Target).
const (
	LimitProcess uint32 = 1 // ID is the process's PID
	LimitJob     uint32 = 2 // ID is the job's number
	LimitDevice  uint32 = 3 // Device is the index, ID is unused; allows SetSlots
	LimitUser    uint32 = 4 // ID is the UID; limits of all programs of the user; allows SetMax and SetStreams
	LimitRule    uint32 = 5 // ID is the rule's in the snapshot; allows SetMax and SetStreams
	LimitCgroup  uint32 = 6 // only in a CgroupRequest, which has the path; allows SetMax
)

// The limits that change (LimitRequest.Set). All others stay.
const (
	SetMax     uint32 = 1
	SetMin     uint32 = 2
	SetStreams uint32 = 4
	SetSlots   uint32 = 8

	SetWithFolder uint32 = 16 // cgroups only: the limit ends when the cgroup's present folder is removed
)

// AllDevices in LimitRequest.Device stands for every device.
const AllDevices = ^uint32(0)

// NoStreams in LimitRequest.Streams removes the limit.
const NoStreams = 1<<31 - 1

// LimitRequest changes limits. The owner of a process or a job may lower its limits, and a user may lower the limit
// of all of the user's programs. Root may change all limits. If Streams is NoStreams, a user's limit is removed.
type LimitRequest struct {
	Target   uint32
	Set      uint32
	ID       uint64
	Device   uint32 // index, or AllDevices
	Slots    uint32 // slots.max; 0: no limit
	Max      uint64 // bytes or NoLimit; see MaxShare
	Min      uint64 // bytes or NoLimit; see MinShare
	MaxShare uint32 // per mille of each device; used when Max is NoLimit and this is not 0
	MinShare uint32 // per mille of each device; used when Min is NoLimit and this is not 0
	Streams  uint32 // streams.max of each lease, on every device
	Reserved uint32 // must be 0
}

// CgroupRequest changes the limit of all programs in a cgroup and in the cgroups below it, together. Only root may
// send it.
type CgroupRequest struct {
	Limit LimitRequest // its Target is LimitCgroup
	Path  Text         // path of a cgroup v2, in the form of /proc/PID/cgroup
}

// SnapshotRequest asks for the whole state as JSON (figures.Snapshot).
type SnapshotRequest struct{}

// SnapshotPart is the head of each part of the answer to Snapshot or Metrics; bytes of the JSON or of the text follow
// it.
type SnapshotPart struct {
	Last     uint32 // 1 on the last part
	Reserved uint32
}

// EventsRequest asks for the event history: lines of JSON, each with an offset in bytes from the daemon's start. A
// client that continues after a break repeats Daemon and Next of the last part that it received.
type EventsRequest struct {
	Daemon   uint64 // EventsPart.Daemon; if it is 0 or of another daemon, Offset is ignored and all kept lines come
	Offset   uint64 // offset of the first line: EventsPart.Next; NoLimit: only new lines
	Flags    uint32 // EventsFollow
	Reserved uint32 // must be 0
}

// EventsFollow in EventsRequest.Flags asks for new lines as they are written, without a last part, until GiveUp or
// the end of the connection.
const EventsFollow uint32 = 1

// EventsPart is the head of each part of the answer; whole lines follow it. If requested lines were lost, a line in
// their place reports that.
type EventsPart struct {
	Daemon   uint64 // number that distinguishes this daemon from others; never 0
	Next     uint64 // offset of the first line after this part
	Last     uint32 // 1 on the last part
	Reserved uint32
}

// LeaseSlot is one lease's part of the page, a cache line. The daemon uses the client's fields only within bounds
// that it knows itself.
type LeaseSlot struct {
	Credit   uint64 // the credit word; written by both sides, atomically
	Low      uint64 // least credit since the daemon's last change, with its epoch; the client lowers it, the daemon resets it
	Pending  uint64 // pending bytes; written by the client, for information only
	Limit    uint64 // memory.max in force, bytes; written by the daemon, for information only
	Counts   uint64 // blocks, pools and contexts: see CountsTold; written by the client
	Imported uint64 // bytes imported from other processes; written by the client
	Streams  uint64 // number of streams and its limit: see StreamsOpen; written by both sides, atomically
	Managed  uint64 // bytes of managed memory in blocks, which may be away from the device; written by the client
}

// LeaseSlot.Streams has the number of the lease's streams while the client counts them.
//
//	bits  0..29  number of streams
//	bits 30..59  most streams (streams.max)
//	bit  63      OPEN: the client counts streams here and sends no messages
//
// Without OPEN the daemon counts, and the client asks for each stream and gives it back by a message. A client or a
// daemon of an earlier version works in that way. Only the daemon sets and clears OPEN and writes the limit. While
// OPEN is set, only the client changes the number of streams.
const (
	StreamsOpen     = 1 << 63
	StreamsMask     = 1<<30 - 1
	StreamsMaxShift = 30
)

// LeaseSlot.Counts describes a client's blocks, so that the daemon can separate the driver's rounding from memory
// that no call explains. The counts can only lower the charge of this client. 0: unknown, from an earlier library.
//
//	bits  0..31  upper bound of live blocks
//	bits 32..47  upper bound of memory pools in use
//	bits 48..61  MAKING: contexts that the client is asking for, or that the driver is making
//	bit  62      SOFT: some used bytes may not be on the device (managed memory, a heap)
//	bit  63      TOLD: the other bits are valid
const (
	CountsTold        = 1 << 63
	CountsSoft        = 1 << 62
	CountsPoolsShift  = 32
	CountsPoolsMax    = 1<<16 - 1
	CountsMakingShift = 48
	CountsMakingMax   = 1<<14 - 1
	CountsBlocksMax   = 1<<32 - 1
)

// Shown is the answer to a program's memory queries, so that the program need not ask each time. Only the daemon
// writes it: each second and with each change of the credit word, until a minute after the client's last Room
// request.
//
// A client loads the credit word, then Shown, then the word again. Shown is valid if both words and Room have one
// epoch, the word is open, and At is at most ShownMs ago. Then free = Room's bytes + credit, and used = Used −
// credit.
type Shown struct {
	Room  uint64 // in a credit word's layout: grantable bytes beyond the credit, the epoch, and ShownTold and ShownLimited
	Used  uint64 // bytes used of Total, including the lease's credit
	Total uint64 // bytes of the budget
	At    uint64 // CLOCK_MONOTONIC_COARSE, milliseconds
}

// Bits of Shown.Room, at the place of a credit word's flags.
const (
	ShownTold    = 1 << 63 // the other fields are valid
	ShownLimited = 1 << 62 // the meaning of RoomLimited
	ShownMs      = 2500    // milliseconds of validity: two and a half intervals of the daemon's writes
)

// Page is the lease page: one sealed memfd for each session, made by the daemon. The fields from Memory on are for a
// later daemon that has no record of the session and must rely on the clients' pages.
type Page struct {
	Magic    uint32 // PageMagic
	Version  uint16 // PageVersion
	Slots    uint16 // PageSlots
	Ended    uint32 // daemon: 1: the session has ended and the page is invalid
	Threads  uint32 // client: live threads that have made an intercepted call
	Pad      uint64
	Host     uint64 // client: bytes of pinned host memory, for information only
	Memory   uint64 // daemon: memory.max of the job, bytes on each device, or NoLimit; see Share
	Share    uint32 // daemon: per mille of each device; used when Memory is NoLimit and this is not 0
	Streams  uint32 // daemon: streams.max of each lease
	Said     uint32 // daemon: 1: Memory, Share, Streams and Job are valid
	Job      uint32 // daemon: JobPerProcess, JobWait and JobNoWait of the session's job
	Reserved uint64
	Lease    [PageSlots]LeaseSlot
	Shown    [PageSlots]Shown  // element i belongs to Lease[i]
	Called   [PageSlots]uint32 // 1: the client has made a call for Lease[i] since the daemon last swapped the element for 0
}
