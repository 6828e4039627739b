package statefile

// The sizes of the tables. The file is sparse: these are limits, not costs.
const (
	MaxJobs     = 16384
	MaxSessions = 16384
	MaxLeases   = 32768
	ringSize    = 32 // answered requests remembered per session
	textSize    = 128
)

const (
	fileMagic   = 0x5441545342524147 // "GARBSTAT" as it lies in memory
	fileVersion = 1
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
	Pad        uint32
	BootID     [16]byte

	HighJob, HighSession, HighLease uint32 // records from here on were never used
}

// Job is a job as it must survive the daemon. All fields but Live are written
// once. PerMille and Max as in arbiter.Size: Max is bytes, ^0 for none.
type Job struct {
	Live        uint32 // 0: free record
	Run         uint32 // opened by `gpuarb run`
	ID          uint64
	Token       [16]byte
	UID         uint32
	GID         uint32
	PerProcess  uint32
	Streams     uint32
	Max         uint64
	MaxPerMille uint32
	RunnerPID   uint32
	RunnerStart uint64
	Command     [textSize]byte
}

// Session is one client process.
type Session struct {
	Live        uint32
	PID         uint32
	StartTicks  uint64
	Token       [16]byte
	UID         uint32
	GID         uint32
	Job         uint64
	PageDev     uint64 // of the memfd, with PageInode: only the page made for it is taken back
	PageInode   uint64
	Max         uint64 // the client's own wish, bytes, ^0 for none
	MaxPerMille uint32
	Streams     uint32
	RingNext    uint32
	Pad         uint32
	Ring        [ringSize]Answered
}

// Answered is a request that was carried out and whose answer may have been lost.
type Answered struct {
	Request uint64
	Bytes   uint64
	Lease   uint32 // index of the lease record
	Kind    uint32
}

// What was answered.
const (
	AnsweredGrant   uint32 = 0
	AnsweredStreams uint32 = 1
	// AnsweredBefore is AnsweredStreams from before the session was last taken up
	// again: it can come once more.
	AnsweredBefore uint32 = 2
)

// The kinds of an announced change.
const (
	ChangeNone  uint32 = 0
	ChangeTake  uint32 = 1 // idle credit back out of the word
	ChangeGive  uint32 = 2 // idle credit into the word
	ChangeGrant uint32 = 3 // bytes to a thread, no word involved
	ChangeFlag  uint32 = 4 // flags only; granted stays
	// ChangeStreams: After streams, by the request; no word involved.
	ChangeStreams uint32 = 5
)

// Lease is what a session holds on one device, with at most one announced change.
type Lease struct {
	Live     uint32
	Session  uint32 // index of its session record
	Slot     uint32 // in the session's page
	Device   uint32 // index when it was opened; UUID decides
	UUID     [16]byte
	Granted  uint64
	Peak     uint64
	Streams  uint32
	Contexts uint32
	OpenedAt int64 // Unix nanoseconds

	Open    uint32 // the announced change's kind
	Epoch   uint32 // the epoch of the word once the change is done
	After   uint64 // Granted (or Streams) once the change is done
	Request uint64 // ChangeGrant, ChangeStreams: the request
	Bytes   uint64 // ChangeGrant: its bytes
}
