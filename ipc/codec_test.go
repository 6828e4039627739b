package ipc

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"unsafe"
)

// This file checks the encoding of each message: a decoded message encodes to the same bytes again, one message
// equals bytes that were worked out by hand, and malformed messages are refused. The samples here also feed
// fuzz_test.go and validate_test.go, which has wrong values in well-formed messages.

// This line compiles only if the page's structure fits into its file.
const _ = PageSize - unsafe.Sizeof(Page{})

var (
	goodAlloc = AllocRequest{Slot: 31, Kind: MemoryAsync, Bytes: 1 << 30, Flags: FlagRetry}
	goodHello = HelloRequest{Kind: KindShim, Job: Token{1, 15: 2}, Memory: NoLimit, Streams: 9, Share: 1000,
		OnFull: OnFullWait, Slots: 2, SlotScope: ScopeThread, StreamReserve: 256 << 20}
	goodResume = ResumeRequest{Session: Token{7}, Hello: goodHello, Count: 2, HasPage: 1, Leases: [PageSlots]ResumeLease{
		{Device: UUID{1}, Used: CreditLimit, Streams: 3, Contexts: 1, Slot: 31}, {Device: UUID{2}, Slot: 0}}}
	goodBind   = BindRequest{Job: JobOpenRequest{Memory: 1 << 30, Min: NoLimit, Flags: JobNoWait}, Cgroup: MakeText("/a.slice"), Name: MakeName("ns/pod/web"), Until: UntilIdle, IdleMillis: 1000}
	goodCgroup = CgroupRequest{Limit: LimitRequest{Target: LimitCgroup, Set: SetMax, Device: AllDevices, Max: 1 << 30}, Path: MakeText("/a.slice")}
	goodLimit  = LimitRequest{Target: LimitJob, Set: SetMax | SetMin | SetStreams, ID: 7, Device: AllDevices,
		Max: NoLimit, Min: 5, MaxShare: 500, Streams: 8}
	goodJob = JobOpenRequest{Memory: 5, Min: 4, MemoryShare: 1000, MinShare: 10, Streams: 2, Flags: JobPerProcess | JobAny | JobRetry,
		WaitMillis: 600_000, Priority: -3, Devices: 2, Device: [PageSlots]uint32{5, 1}, Command: MakeText("train --x")}
	goodOpened = JobOpenReply{Job: Token{1}, ID: 4, Budget: 5, Devices: 1, Device: [PageSlots]JobDevice{
		{Index: 5, Vendor: VendorIntel, Ordinal: 1, UUID: UUID{9}}}}
	goodWaiting = WaitingReply{Ticket: 7, Position: 2, Waited: 1500, Text: MakeText("4 GiB of GPU 0")}
)

// sample is a valid message of one body type, with that type's decoder.
type sample struct {
	name  string
	typ   Type
	reply bool
	msg   []byte
	again func(body []byte) ([]byte, error) // decodes a body and encodes it again
}

func sampleOf[T Body](name string, typ Type, reply bool, body T) sample {
	h := Header{Type: typ, Request: 0x0102030405060708}
	if reply {
		h.Type |= ReplyBit
	}
	return sample{name, typ, reply, Marshal(nil, h, &body), func(src []byte) ([]byte, error) {
		var got T
		if err := Unmarshal(src, &got); err != nil {
			return nil, err
		}
		return Marshal(nil, h, &got)[HeaderSize:], nil
	}}
}

func samples() []sample {
	return []sample{
		sampleOf("Hello", TypeHello, false, goodHello),
		sampleOf("Join", TypeJoin, false, JoinRequest{Session: Token{3}}),
		sampleOf("Resume", TypeResume, false, goodResume),
		sampleOf("Attach", TypeAttach, false, AttachRequest{Device: UUID{9}}),
		sampleOf("Alloc", TypeAlloc, false, goodAlloc),
		sampleOf("Freed", TypeFreed, false, FreedNotice{Slot: 31}),
		sampleOf("Stream", TypeStream, false, StreamRequest{Slot: 31, Count: -2, Flags: FlagNoWait, Thread: 3}),
		sampleOf("Context", TypeContext, false, ContextRequest{Slot: 1, Count: math.MaxInt32, Flags: FlagNoticed | FlagHold, Thread: 1}),
		sampleOf("Query", TypeQuery, false, QueryRequest{Device: UUID{9}}),
		sampleOf("Driver", TypeDriver, false, DriverRequest{Name: DriverName{'p'}}),
		sampleOf("Copies", TypeCopies, false, CopiesRequest{Held: Path{'/', 'a'}, Beside: Path{'/', 'b'}}),
		sampleOf("Room", TypeRoom, false, RoomRequest{Device: UUID{9}}),
		sampleOf("Objects", TypeObjects, false, ObjectsRequest{Slot: 31, Flags: ObjectsMore, Count: 1, Makers: [ObjectsMakers]ObjectsMaker{{Thread: 9, Contexts: 1, Streams: 2, Holds: 3}}}),
		sampleOf("Bye", TypeBye, false, Empty{}),
		sampleOf("JobOpen", TypeJobOpen, false, goodJob),
		sampleOf("Snapshot", TypeSnapshot, false, SnapshotRequest{}),
		sampleOf("Events", TypeEvents, false, EventsRequest{Daemon: 5, Offset: NoLimit, Flags: EventsFollow}),
		sampleOf("Metrics", TypeMetrics, false, Empty{}),
		sampleOf("Cancel", TypeCancel, false, CancelRequest{Job: Token{2}}),
		sampleOf("JobClose", TypeJobClose, false, JobCloseRequest{Job: Token{2}}),
		sampleOf("JobTally", TypeJobTally, false, JobTallyRequest{Job: Token{2}}),
		sampleOf("Beside", TypeBeside, false, BesideRequest{Job: Token{2}}),
		sampleOf("Warnings", TypeWarnings, false, WarningsRequest{Job: Token{2}}),
		sampleOf("Exited", TypeExited, false, ExitedRequest{Job: Token{2}, Code: 3}),
		sampleOf("Account", TypeAccount, false, AccountRequest{Job: Token{2}}),
		sampleOf("Limit", TypeLimit, false, goodLimit),
		sampleOf("Cgroup", TypeCgroup, false, goodCgroup),
		sampleOf("Bind", TypeBind, false, goodBind),
		sampleOf("Unbind", TypeUnbind, false, UnbindRequest{Name: MakeName("slurm-6_1")}),
		sampleOf("Suspend", TypeSuspend, false, SuspendRequest{Job: 7, Resume: 1}),
		sampleOf("GiveUp", TypeGiveUp, false, Empty{}),
		sampleOf("HelloReply", TypeHello, true, HelloReply{Session: Token{1}, Devices: 2, InJob: 1, OnLoss: LossClosed, HostMax: NoLimit}),
		sampleOf("JoinReply", TypeJoin, true, JoinReply{}),
		sampleOf("ResumeReply", TypeResume, true, HelloReply{Session: Token{1}}),
		sampleOf("AttachReply", TypeAttach, true, AttachReply{Slot: 31, Index: 5, Total: 8 << 30, Budget: 4 << 30, StreamsMax: 256}),
		sampleOf("AllocReply", TypeAlloc, true, AllocReply{Granted: 1, Requested: 2, Remaining: 3, Limit: 4, Text: MakeText("no")}),
		sampleOf("StreamReply", TypeStream, true, StreamReply{Current: 1, Max: 2, Text: MakeText("cap 2")}),
		sampleOf("ContextReply", TypeContext, true, ContextReply{Current: 3, Requested: 9, Remaining: 8, Text: MakeText("full")}),
		sampleOf("QueryReply", TypeQuery, true, QueryReply{Total: 3, Used: 2, Room: 1}),
		sampleOf("DriverReply", TypeDriver, true, DriverReply{Device: UUID{9}}),
		sampleOf("RoomReply", TypeRoom, true, RoomReply{Total: 3, Used: 2, Room: 1, Word: 7, Slot: 31, Flags: RoomLimited}),
		sampleOf("ObjectsReply", TypeObjects, true, Empty{}),
		sampleOf("CopiesReply", TypeCopies, true, Empty{}),
		sampleOf("ByeReply", TypeBye, true, Empty{}),
		sampleOf("JobOpenReply", TypeJobOpen, true, goodOpened),
		sampleOf("SnapshotPart", TypeSnapshot, true, SnapshotPart{Last: 1}),
		sampleOf("EventsPart", TypeEvents, true, EventsPart{Daemon: 5, Next: 7, Last: 1}),
		sampleOf("MetricsPart", TypeMetrics, true, SnapshotPart{Last: 1}),
		sampleOf("CancelReply", TypeCancel, true, CancelReply{Cancelled: 3}),
		sampleOf("JobCloseReply", TypeJobClose, true, Empty{}),
		sampleOf("JobTallyReply", TypeJobTally, true, JobTallyReply{Waits: 1, Waited: 2, Refused: 3, Since: 4, Devices: 1,
			Device: [PageSlots]JobTallyDevice{{Index: 1, Peak: 5, Max: NoLimit}}}),
		sampleOf("BesideReply", TypeBeside, true, BesideReply{Count: 1, More: 2,
			Process: [BesideMost]BesideProcess{{PID: 7, Device: 1, Peak: 5, Program: MakeShortText("python3"), Bypass: MakeShortText("disabled")}}}),
		sampleOf("ExitedReply", TypeExited, true, Empty{}),
		sampleOf("SuspendReply", TypeSuspend, true, Empty{}),
		sampleOf("AccountReply", TypeAccount, true, AccountReply{Text: MakeText("used at most 1 GiB on GPU 0")}),
		sampleOf("WarningsReply", TypeWarnings, true, WarningsReply{Idle: 2, Aged: 1, IdleText: MakeText("idle"), AgedText: MakeText("old")}),
		sampleOf("LimitReply", TypeLimit, true, Empty{}),
		sampleOf("CgroupReply", TypeCgroup, true, Empty{}),
		sampleOf("BindReply", TypeBind, true, goodOpened),
		sampleOf("UnbindReply", TypeUnbind, true, AccountReply{Text: MakeText("used nothing")}),
	}
}

func TestRoundTrip(t *testing.T) {
	seen := make(map[Type]int)
	for _, s := range samples() {
		parse := ParseRequest
		if s.reply {
			parse = ParseReply
		}
		h, body, err := parse(s.msg, len(s.msg))
		if err != nil {
			t.Errorf("%s: %v", s.name, err)
			continue
		}
		if h.Type&^ReplyBit != s.typ || h.Request != 0x0102030405060708 || int(h.Length) != len(s.msg) {
			t.Errorf("%s: header %+v", s.name, h)
		}
		again, err := s.again(body)
		if err != nil || !bytes.Equal(again, body) {
			t.Errorf("%s: decoded and encoded again it differs (%v)", s.name, err)
		}
		seen[s.typ]++
	}
	for typ, s := range messageFormats { // every message of the table has its samples above
		want := 2
		if s.noReply {
			want = 1
		}
		if seen[typ] != want {
			t.Errorf("%v: %d samples, want %d", typ, seen[typ], want)
		}
	}
}

// TestWireBytes compares the encoding with bytes that were worked out by hand.
func TestWireBytes(t *testing.T) {
	got := Marshal(nil, Header{Type: TypeAlloc, Request: 0x1122334455667788}, &AllocRequest{Slot: 2, Kind: 4, Bytes: 0xA1B2C3D4E5, Flags: 1})
	want := "GARB" + "\x01\x00" + "\x05\x00" + "\x30\x00\x00\x00" + "\x00\x00\x00\x00" + "\x88\x77\x66\x55\x44\x33\x22\x11" +
		"\x02\x00\x00\x00" + "\x04\x00\x00\x00" + "\xE5\xD4\xC3\xB2\xA1\x00\x00\x00" + "\x01\x00\x00\x00" + "\x00\x00\x00\x00"
	if string(got) != want {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

func TestReadSize(t *testing.T) {
	longest := 0
	for _, s := range messageFormats {
		longest = max(longest, HeaderSize+s.request)
		if s.reply+HeaderSize > replySize {
			t.Errorf("%s: a reply of %d bytes does not fit", s.name, s.reply)
		}
	}
	if readSize < longest || longest > MaxRequest {
		t.Errorf("readSize %d, the longest request has %d, the protocol allows %d", readSize, longest, MaxRequest)
	}
	if HeaderSize+size[ErrorReply]() > replySize {
		t.Errorf("an error reply does not fit")
	}
}

// wantRefusal checks that an error has a status and names the wrong value.
func wantRefusal(t *testing.T, name string, err error, status Status, words ...string) {
	t.Helper()
	var p *ProtocolError
	if !errors.As(err, &p) {
		t.Errorf("%s: %v, not a ProtocolError", name, err)
		return
	}
	if p.Status != status || !errors.Is(err, status) {
		t.Errorf("%s: %v, want %v", name, err, status)
	}
	for _, w := range words {
		if !strings.Contains(p.Text, w) {
			t.Errorf("%s: %q does not say %q", name, p.Text, w)
		}
	}
}

func TestParseRequestRefuses(t *testing.T) {
	alloc := Marshal(nil, Header{Type: TypeAlloc, Request: 77}, &goodAlloc)
	unknown := edit(alloc, 6, uint16(16))
	for _, c := range []struct {
		name    string
		msg     []byte
		full    int // length of the message before the buffer cut it; 0: len(msg)
		status  Status
		request uint64 // number of the request in the returned header, for the error reply; 0: not readable
		words   []string
	}{
		{"nothing", nil, 0, StatusMalformed, 0, []string{"0 bytes", "24"}},
		{"short header", alloc[:23], 0, StatusMalformed, 0, []string{"23 bytes"}},
		{"header alone", edit(alloc[:24], 8, uint32(24)), 0, StatusMalformed, 77, []string{"Alloc", "48", "24"}},
		{"one byte short", edit(alloc[:47], 8, uint32(47)), 0, StatusMalformed, 77, []string{"48", "47"}},
		{"one byte long", edit(append(alloc, 0), 8, uint32(49)), 0, StatusMalformed, 77, []string{"48", "49"}},
		{"length too small", edit(alloc, 8, uint32(47)), 0, StatusMalformed, 77, []string{"47", "48"}},
		{"length too large", edit(alloc, 8, uint32(math.MaxUint32)), 0, StatusMalformed, 77, []string{"4294967295"}},
		{"cut by the buffer", edit(alloc, 8, uint32(9000)), 9000, StatusMalformed, 77, []string{"9000"}},
		{"the right length, not all of it read", alloc[:30], 48, StatusMalformed, 77, []string{"30 of 48"}},
		{"magic", edit(alloc, 0, uint32(0xdead)), 0, StatusMalformed, 0, []string{"0xdead"}},
		{"older version", edit(alloc, 4, uint16(0)), 0, StatusVersion, 77, []string{"version 0", "version 1"}},
		{"newer version", edit(alloc, 4, uint16(9)), 0, StatusVersion, 77, []string{"version 9", "version 1"}},
		{"newer version, another length", edit(alloc[:30], 4, uint16(9)), 0, StatusVersion, 77, nil},
		{"type 0", edit(alloc, 6, uint16(0)), 0, StatusUnknownType, 77, []string{"type 0"}},
		{"type 16", unknown, 0, StatusUnknownType, 77, []string{"type 16"}},
		{"type 63", edit(alloc, 6, uint16(63)), 0, StatusUnknownType, 77, nil},
		{"type 64", edit(alloc, 6, uint16(64)), 0, StatusUnknownType, 77, nil},
		{"a reply's type", edit(alloc, 6, uint16(TypeAlloc|ReplyBit)), 0, StatusUnknownType, 77, nil},
		{"type 65535", edit(alloc, 6, uint16(math.MaxUint16)), 0, StatusUnknownType, 77, nil},
		{"status", edit(alloc, 12, uint32(5)), 0, StatusMalformed, 77, []string{"5"}},
	} {
		full := c.full
		if full == 0 {
			full = len(c.msg)
		}
		h, body, err := ParseRequest(c.msg, full)
		wantRefusal(t, c.name, err, c.status, c.words...)
		if h.Request != c.request || body != nil {
			t.Errorf("%s: request %d, body %v", c.name, h.Request, body)
		}
	}
}

func TestParseReplyRefuses(t *testing.T) {
	alloc := Marshal(nil, Header{Type: TypeAlloc | ReplyBit}, &AllocReply{})
	failed := Marshal(nil, Header{Type: TypeAlloc | ReplyBit, Status: StatusNoLease}, &ErrorReply{})
	waiting := Marshal(nil, Header{Type: TypeAlloc | ReplyBit, Status: StatusWaiting}, &goodWaiting)
	for _, c := range []struct {
		name   string
		msg    []byte
		status Status
	}{
		{"a request", edit(alloc, 6, uint16(TypeAlloc)), StatusUnknownType},
		{"a reply to a notice", edit(alloc, 6, uint16(TypeFreed|ReplyBit)), StatusUnknownType},
		{"short", edit(alloc[:len(alloc)-1], 8, uint32(len(alloc)-1)), StatusMalformed},
		{"long", edit(append(alloc, 0), 8, uint32(len(alloc)+1)), StatusMalformed},
		{"an error's length with a good status", edit(failed, 12, uint32(0)), StatusMalformed},
		{"a good reply's length with an error", edit(alloc, 12, uint32(100)), StatusMalformed},
		{"the last policy status takes the reply's own body", edit(failed, 12, uint32(98)), StatusMalformed},
		{"a notice of another length", edit(failed, 12, uint32(99)), StatusMalformed},
		{"a notice of what never waits", edit(waiting, 6, uint16(TypeQuery|ReplyBit)), StatusOrder},
		{"version", edit(alloc, 4, uint16(2)), StatusVersion},
	} {
		_, _, err := ParseReply(c.msg, len(c.msg))
		wantRefusal(t, c.name, err, c.status)
	}
	if _, _, err := ParseReply(edit(alloc, 8, uint32(9000)), 9000); err == nil {
		t.Error("a reply that the buffer cut was taken")
	}
	for _, good := range [][]byte{edit(failed, 6, uint16(ReplyBit)), edit(alloc, 12, uint32(98)), edit(failed, 12, uint32(100)), waiting,
		append(marshalPart(nil, Header{Type: TypeSnapshot | ReplyBit}, &SnapshotPart{}, 3), "{ }"...)} {
		if _, _, err := ParseReply(good, len(good)); err != nil {
			t.Errorf("good reply: %v", err)
		}
	}
}

func TestCodecAllocatesNothing(t *testing.T) {
	buf := make([]byte, 0, 2048)
	alloc := Marshal(nil, Header{Type: TypeAlloc}, &goodAlloc)
	stream := Marshal(nil, Header{Type: TypeStream}, &StreamRequest{Slot: 1, Count: 1})
	freed := Marshal(nil, Header{Type: TypeFreed}, &FreedNotice{Slot: 1})
	query := Marshal(nil, Header{Type: TypeQuery}, &QueryRequest{})
	if n := testing.AllocsPerRun(100, func() {
		var a AllocRequest
		var s StreamRequest
		var f FreedNotice
		var q QueryRequest
		mustDecode(t, alloc, &a)
		mustDecode(t, stream, &s)
		mustDecode(t, freed, &f)
		mustDecode(t, query, &q)
		reply := AllocReply{Granted: a.Bytes}
		buf = Marshal(buf[:0], Header{Type: TypeAlloc | ReplyBit}, &reply)
		buf = Marshal(buf[:0], Header{Type: TypeStream | ReplyBit}, &StreamReply{Current: uint32(s.Count)})
		buf = Marshal(buf[:0], Header{Type: TypeQuery | ReplyBit}, &QueryReply{Total: 1})
	}); n != 0 {
		t.Errorf("%v allocations a run", n)
	}
}

func mustDecode[T Body](t *testing.T, msg []byte, body *T) {
	_, b, err := ParseRequest(msg, len(msg))
	if err == nil {
		err = Unmarshal(b, body)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestJobNameInCommand: a job's name travels behind its command's NUL, where an earlier daemon ignores it.
func TestJobNameInCommand(t *testing.T) {
	long := strings.Repeat("é", 300)
	for _, c := range []struct{ command, name, wantCommand, wantName string }{
		{"python train.py", "train-a", "python train.py", "train-a"},
		{"python train.py", "", "python train.py", ""},
		{"python train.py", "a/b", "python train.py", ""},
		{"", "train-a", "", "train-a"},
		{long, strings.Repeat("n", MaxName), strings.Repeat("é", (TextSize-2-MaxName)/2), strings.Repeat("n", MaxName)},
		{long, strings.Repeat("n", MaxName+1), strings.Repeat("é", (TextSize-1)/2), ""},
	} {
		text := MakeCommand(c.command, c.name)
		if text.String() != c.wantCommand || text.Name() != c.wantName || text[TextSize-1] != 0 {
			t.Errorf("%q, %q: %q, %q", c.command, c.name, text.String(), text.Name())
		}
	}
	for i := range TextSize {
		text := MakeCommand(strings.Repeat("c", i), "train-a")
		if text.Name() != "train-a" || !strings.HasPrefix(text.String(), strings.Repeat("c", min(i, TextSize-10))) {
			t.Fatalf("a command of %d bytes: %q, %q", i, text.String(), text.Name())
		}
	}
}

func TestCheckName(t *testing.T) {
	for _, good := range []string{"train-a", "nightly run 3", "größe", "7b", strings.Repeat("x", MaxName)} {
		if err := CheckName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", " a", "a ", "-a", "a/b", "a\nb", "a\x1bb", "1532", "\xff", "\u202ea", strings.Repeat("x", MaxName+1)} {
		if CheckName(bad) == nil {
			t.Errorf("%q is a name", bad)
		}
	}
}
