package ipc

// This file lists the messages with their bodies. codec.go encodes and decodes them; layout.go has their layouts.

import "unsafe"

// Empty is the body of a message that is only its header: Bye and its reply.
type Empty struct{}

// Body is the set of fixed-size message bodies: what follows a Header. All of
// them are little-endian structures without padding, so that on the machines
// this package builds for (see endian.go) a body in memory is a body on the wire.
type Body interface {
	Empty | ErrorReply | HelloRequest | HelloReply | JoinRequest | JoinReply | ResumeRequest |
		AttachRequest | AttachReply | AllocRequest | AllocReply | FreedNotice | StreamRequest |
		StreamReply | ContextRequest | ContextReply | QueryRequest | QueryReply | RoomRequest | RoomReply |
		ObjectsRequest | DriverRequest | DriverReply | CopiesRequest |
		JobOpenRequest | JobOpenReply | SnapshotRequest | SnapshotPart | EventsRequest | EventsPart |
		WaitingReply | CancelRequest | CancelReply | JobCloseRequest | JobTallyRequest | JobTallyReply | BesideRequest | BesideReply | LimitRequest | CgroupRequest
}

// messageFormat is the entry of one type in the table of messages.
type messageFormat struct {
	name      string
	request   int  // bytes of the request's body
	reply     int  // bytes of the reply's body when Status < 100
	noReply   bool // a notice: nothing answers it
	more      bool // the reply's body is followed by bytes of any number
	waits     bool // Waiting notices may come before the reply
	requestFD bool // one descriptor may come with the request
	replyFD   bool // one descriptor may come with the reply
}

// messageFormats is the table of all messages: the types that there are, how long each message is, and
// where a descriptor belongs. A type that is not in the table is unknown.
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
	TypeGiveUp:   {name: "GiveUp", request: size[Empty](), noReply: true},
}

// formatByType is messageFormats as an array, so that the hot path does not hash.
var formatByType = func() (a [32]*messageFormat) {
	for t, s := range messageFormats {
		a[t] = &s
	}
	return a
}()

func lookup(t Type) *messageFormat {
	if int(t) < len(formatByType) {
		return formatByType[t]
	}
	return nil
}

func size[T Body]() int {
	var body T
	return int(unsafe.Sizeof(body))
}
