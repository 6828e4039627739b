package ipc

//go:generate go run ./genlayout -o ../cshim/wire.h

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
	TypeHello    Type = 1  // HelloRequest → HelloReply (+ the page's memfd for a shim)
	TypeJoin     Type = 2  // JoinRequest → JoinReply: this connection belongs to a session too
	TypeResume   Type = 3  // ResumeRequest (+ the page's memfd) → HelloReply (+ memfd if a new page was made)
	TypeAttach   Type = 4  // AttachRequest → AttachReply: opens the lease on a device
	TypeAlloc    Type = 5  // AllocRequest → AllocReply
	TypeFreed    Type = 6  // FreedNotice, no reply: a free saw NOTIFY
	TypeStream   Type = 7  // StreamRequest → StreamReply
	TypeContext  Type = 8  // ContextRequest → ContextReply
	TypeQuery    Type = 9  // QueryRequest → QueryReply: what cuMemGetInfo should say
	TypeBye      Type = 10 // Empty → Empty: the session ends in good order
	TypeJobOpen  Type = 20 // JobOpenRequest → JobOpenReply: the job ends with this connection and its processes
	TypeSnapshot Type = 21 // SnapshotRequest → SnapshotPart…: JSON, in parts, the last one marked
	ReplyBit     Type = 0x8000
)

// Status says in a reply how a request ended. Numbers are never reused.
type Status uint32

// The statuses. A status of 1 to 99 is a refusal by policy; from 100 on it is an error.
const (
	StatusOK           Status = 0
	StatusOverBudget   Status = 1 // more than the budget of the lease, process or job has left
	StatusDeviceFull   Status = 2 // the device has no room
	StatusTooLarge     Status = 3 // larger than could ever fit
	StatusStreams      Status = 4 // streams.max reached
	StatusSharedFull   Status = 5 // a budget shared with others (user, cgroup) has no room
	StatusDeviceLost   Status = 6 // the device fell off the bus
	StatusDenied       Status = 7 // asked for more than a rule allows
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

// HelloRequest opens a session. Memory, Share and Streams can only lower what the
// rules give; NoLimit and 0 stand for "no wish".
type HelloRequest struct {
	Kind     uint32
	Features uint32 // none are defined; must be 0
	Job      Token  // zero: not below `gpuarb run`
	Memory   uint64 // bytes per device, or NoLimit
	Streams  uint32 // streams per device, or 0
	Share    uint32 // per mille of each device; used when Memory is NoLimit and this is not 0
}

// HelloReply answers Hello and Resume. With KindShim the page's memfd comes along.
type HelloReply struct {
	Session Token
	Devices uint32 // devices the daemon knows
	InJob   uint32 // 1 when the session belongs to a job of `gpuarb run`
	OnLoss  uint32 // what to do when the daemon is gone: LossOpen or LossClosed
	Flags   uint32 // none are defined
}

// What a client does without a daemon (HelloReply.OnLoss).
const (
	LossOpen   uint32 = 0 // goes on unarbitrated
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
	Reserved   uint32
}

// What is being taken (AllocRequest.Kind): for statistics and messages only.
const (
	MemoryPlain   uint32 = 1
	MemoryPitched uint32 = 2
	MemoryManaged uint32 = 3
	MemoryAsync   uint32 = 4
)

// AllocRetry in AllocRequest.Flags: the request was sent before on a connection
// that died; Header.Request is the same as then.
const AllocRetry uint32 = 1

// AllocRequest asks for bytes that the credit did not cover. What is granted
// belongs to the asking thread; it does not pass through the credit word.
type AllocRequest struct {
	Slot  uint32
	Kind  uint32
	Bytes uint64
	Flags uint32
	Pad   uint32
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
	Slot  uint32
	Count int32
}

// StreamReply answers Stream; with StatusStreams nothing was taken.
type StreamReply struct {
	Current uint32
	Max     uint32
	Text    Text
}

// ContextRequest tells of contexts made (Count > 0) or destroyed (Count < 0).
type ContextRequest struct {
	Slot  uint32
	Count int32
}

// ContextReply answers Context.
type ContextReply struct {
	Current  uint32
	Reserved uint32
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

// JobOpenRequest opens a job for what `gpuarb run` starts. Zero and NoLimit
// mean "as the rules say".
type JobOpenRequest struct {
	Memory      uint64 // bytes per device or NoLimit; see MemoryShare
	MemoryShare uint32 // per mille of each device; used when Memory is NoLimit and this is not 0
	Streams     uint32 // streams per lease, or 0
	PerProcess  uint32 // 1: each process has the budget for itself
	Reserved    uint32 // must be 0
	Command     Text   // for people
}

// JobOpenReply answers JobOpen. The token goes into GPUARB_JOB as 32 hex digits.
type JobOpenReply struct {
	Job    Token
	ID     uint64
	Budget uint64 // bytes in force on the largest device
}

// SnapshotRequest asks for the whole state as JSON (accounting.Snapshot).
type SnapshotRequest struct{}

// SnapshotPart starts each part of the answer; the JSON bytes follow it.
type SnapshotPart struct {
	Last     uint32 // 1 on the last part
	Reserved uint32
}

// LeaseSlot is one lease's line in the page. The daemon believes none of it
// beyond what it can clamp.
type LeaseSlot struct {
	Credit   uint64 // the credit word; both sides, atomically
	Low      uint64 // least credit since the daemon's last change, with its epoch; the client lowers, the daemon resets
	Pending  uint64 // bytes freed in stream order and not yet executed; client, information only
	Limit    uint64 // memory.max in force, bytes; daemon, information only
	Reserved [4]uint64
}

// Page is the lease page: one sealed memfd per session, made by the daemon.
type Page struct {
	Magic    uint32 // PageMagic
	Version  uint16 // PageVersion
	Slots    uint16 // PageSlots
	Ended    uint32 // daemon: 1 when the session is over and the page means nothing any more
	Threads  uint32 // client: threads alive that ever made an intercepted call
	Waiting  uint32 // client: of those, how many wait for the daemon
	Pad      uint32
	Reserved [5]uint64
	Lease    [PageSlots]LeaseSlot
}
