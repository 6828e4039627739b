package ipc

// This file lists the messages with the lengths of their bodies. codec.go encodes and decodes messages; layout.go has
// the bodies' layouts.

import "unsafe"

// Empty is the body of a message that consists of a header only: Bye, its reply, Metrics, GiveUp, and the replies of
// several other requests.
type Empty struct{}

// Body is the set of fixed-size message bodies: the bytes after a Header. All bodies are little-endian structures
// without padding. On the machines for which this package builds (see endian.go) they have one form in memory and on
// the wire.
type Body interface {
	Empty | ErrorReply | HelloRequest | HelloReply | JoinRequest | JoinReply | ResumeRequest |
		AttachRequest | AttachReply | AllocRequest | AllocReply | FreedNotice | StreamRequest |
		StreamReply | ContextRequest | ContextReply | QueryRequest | QueryReply | RoomRequest | RoomReply |
		ObjectsRequest | DriverRequest | DriverReply | CopiesRequest |
		JobOpenRequest | JobOpenReply | SnapshotRequest | SnapshotPart | EventsRequest | EventsPart |
		WaitingReply | CancelRequest | CancelReply | JobCloseRequest | JobTallyRequest | JobTallyReply | BesideRequest | BesideReply | ExitedRequest | WarningsRequest | WarningsReply | AccountRequest | AccountReply | LimitRequest | CgroupRequest | BindRequest | UnbindRequest | SuspendRequest
}

// messageFormat describes one message type.
type messageFormat struct {
	name      string
	request   int  // bytes of the request's body
	reply     int  // bytes of the reply's body when Status < 100
	noReply   bool // a notice: the daemon sends no reply
	more      bool // a variable number of bytes follows the reply's body
	waits     bool // WaitingReply notices may come before the reply
	requestFD bool // one descriptor may come with the request
	replyFD   bool // one descriptor may come with the reply
}

// messageFormats has one entry for each known message type. A type without an entry is unknown.
var messageFormats = map[Type]messageFormat{
	TypeHello:    {name: "Hello", request: size[HelloRequest](), reply: size[HelloReply](), waits: true, replyFD: true},
	TypeJoin:     {name: "Join", request: size[JoinRequest](), reply: size[JoinReply]()},
	TypeResume:   {name: "Resume", request: size[ResumeRequest](), reply: size[HelloReply](), requestFD: true, replyFD: true},
	TypeAttach:   {name: "Attach", request: size[AttachRequest](), reply: size[AttachReply]()},
	TypeAlloc:    {name: "Alloc", request: size[AllocRequest](), reply: size[AllocReply](), waits: true},
	TypeFreed:    {name: "Freed", request: size[FreedNotice](), noReply: true},
	TypeStream:   {name: "Stream", request: size[StreamRequest](), reply: size[StreamReply](), waits: true},
	TypeContext:  {name: "Context", request: size[ContextRequest](), reply: size[ContextReply](), waits: true},
	TypeQuery:    {name: "Query", request: size[QueryRequest](), reply: size[QueryReply]()},
	TypeRoom:     {name: "Room", request: size[RoomRequest](), reply: size[RoomReply]()},
	TypeObjects:  {name: "Objects", request: size[ObjectsRequest](), reply: size[Empty]()},
	TypeDriver:   {name: "Driver", request: size[DriverRequest](), reply: size[DriverReply]()},
	TypeCopies:   {name: "Copies", request: size[CopiesRequest](), reply: size[Empty]()},
	TypeBye:      {name: "Bye", request: size[Empty](), reply: size[Empty]()},
	TypeJobOpen:  {name: "JobOpen", request: size[JobOpenRequest](), reply: size[JobOpenReply](), waits: true},
	TypeSnapshot: {name: "Snapshot", request: size[SnapshotRequest](), reply: size[SnapshotPart](), more: true},
	TypeEvents:   {name: "Events", request: size[EventsRequest](), reply: size[EventsPart](), more: true},
	TypeMetrics:  {name: "Metrics", request: size[Empty](), reply: size[SnapshotPart](), more: true},
	TypeCancel:   {name: "Cancel", request: size[CancelRequest](), reply: size[CancelReply]()},
	TypeJobClose: {name: "JobClose", request: size[JobCloseRequest](), reply: size[Empty]()},
	TypeLimit:    {name: "Limit", request: size[LimitRequest](), reply: size[Empty]()},
	TypeCgroup:   {name: "Cgroup", request: size[CgroupRequest](), reply: size[Empty]()},
	TypeJobTally: {name: "JobTally", request: size[JobTallyRequest](), reply: size[JobTallyReply]()},
	TypeBeside:   {name: "Beside", request: size[BesideRequest](), reply: size[BesideReply]()},
	TypeExited:   {name: "Exited", request: size[ExitedRequest](), reply: size[Empty]()},
	TypeWarnings: {name: "Warnings", request: size[WarningsRequest](), reply: size[WarningsReply]()},
	TypeAccount:  {name: "Account", request: size[AccountRequest](), reply: size[AccountReply]()},
	TypeBind:     {name: "Bind", request: size[BindRequest](), reply: size[JobOpenReply](), waits: true},
	TypeUnbind:   {name: "Unbind", request: size[UnbindRequest](), reply: size[AccountReply]()},
	TypeSuspend:  {name: "Suspend", request: size[SuspendRequest]()},
	TypeGiveUp:   {name: "GiveUp", request: size[Empty](), noReply: true},
}

// formatByType holds messageFormats as an array, because a map lookup would cost a hash for each message.
var formatByType = func() (a [64]*messageFormat) {
	for t, s := range messageFormats {
		a[t] = &s
	}
	return a
}()

// lookup returns the format of a request type; nil: unknown.
func lookup(t Type) *messageFormat {
	if int(t) < len(formatByType) {
		return formatByType[t]
	}
	return nil
}

// size returns the bytes of a body.
func size[T Body]() int {
	var body T
	return int(unsafe.Sizeof(body))
}
