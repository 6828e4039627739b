package ipc

import (
	"math"
	"strings"
	"testing"
)

// This file checks, for each message, which values in a well-formed body are refused and what the refusal says, and
// the limits of texts, tokens and names. codec_test.go has the valid messages that these tests change.

// bad is the error from decoding a body with one invalid value, with the expected status and a word of the expected
// text.
type bad struct {
	name   string
	err    error
	status Status
	word   string
}

func broken[T Body](name string, good T, status Status, word string, change func(*T)) bad {
	change(&good)
	var into T
	return bad{name, Unmarshal(bytesOf(&good), &into), status, word}
}

func TestValuesRefused(t *testing.T) {
	noNUL := Text{}
	for i := range noNUL {
		noNUL[i] = 'x'
	}
	stream := StreamRequest{Count: 1}
	context := ContextRequest{Count: 1}
	for _, c := range []bad{
		broken("alloc slot", goodAlloc, StatusRange, "slot 32", func(m *AllocRequest) { m.Slot = PageSlots }),
		broken("alloc kind 0", goodAlloc, StatusRange, "Kind is 0", func(m *AllocRequest) { m.Kind = 0 }),
		broken("alloc kind 8", goodAlloc, StatusRange, "Kind is 8", func(m *AllocRequest) { m.Kind = 8 }),
		broken("alloc of nothing", goodAlloc, StatusRange, "Bytes is 0", func(m *AllocRequest) { m.Bytes = 0 }),
		broken("alloc flags", goodAlloc, StatusRange, "0x5", func(m *AllocRequest) { m.Flags = FlagRetry | FlagNoticed }),
		broken("freed slot", FreedNotice{}, StatusRange, "slot 99", func(m *FreedNotice) { m.Slot = 99 }),
		broken("freed pad", FreedNotice{}, StatusMalformed, "Pad", func(m *FreedNotice) { m.Pad = 1 }),
		broken("stream slot", stream, StatusRange, "slot 32", func(m *StreamRequest) { m.Slot = 32 }),
		broken("stream count 0", stream, StatusRange, "Count is 0", func(m *StreamRequest) { m.Count = 0 }),
		broken("stream count without a positive", stream, StatusRange, "-2147483648", func(m *StreamRequest) { m.Count = math.MinInt32 }),
		broken("stream flags", stream, StatusRange, "0x8", func(m *StreamRequest) { m.Flags = FlagHold }),
		broken("context flags", context, StatusRange, "0x40", func(m *ContextRequest) { m.Flags = 64 }),
		broken("context slot", context, StatusRange, "slot", func(m *ContextRequest) { m.Slot = 32 }),
		broken("context count 0", context, StatusRange, "ContextRequest.Count", func(m *ContextRequest) { m.Count = 0 }),
		broken("hello kind 0", goodHello, StatusRange, "Kind is 0", func(m *HelloRequest) { m.Kind = 0 }),
		broken("hello kind 3", goodHello, StatusRange, "Kind is 3", func(m *HelloRequest) { m.Kind = 3 }),
		broken("hello features", goodHello, StatusMalformed, "Features", func(m *HelloRequest) { m.Features = 1 }),
		broken("hello share", goodHello, StatusRange, "1001", func(m *HelloRequest) { m.Share = 1001 }),
		broken("hello on full", goodHello, StatusRange, "OnFull is 3", func(m *HelloRequest) { m.OnFull = 3 }),
		broken("hello scope", goodHello, StatusRange, "SlotScope is 4", func(m *HelloRequest) { m.SlotScope = 4 }),
		broken("hello reserved", goodHello, StatusMalformed, "Reserved", func(m *HelloRequest) { m.Reserved = 1 }),
		broken("resume of a tool", goodResume, StatusRange, "shim", func(m *ResumeRequest) { m.Hello.Kind = KindTool }),
		broken("resume hello", goodResume, StatusRange, "1001", func(m *ResumeRequest) { m.Hello.Share = 1001 }),
		broken("resume page", goodResume, StatusRange, "HasPage is 2", func(m *ResumeRequest) { m.HasPage = 2 }),
		broken("resume count", goodResume, StatusRange, "Count is 33", func(m *ResumeRequest) { m.Count = 33 }),
		broken("resume count, wrapped", goodResume, StatusRange, "4294967295", func(m *ResumeRequest) { m.Count = math.MaxUint32 }),
		broken("resume leftovers", goodResume, StatusMalformed, "Leases[1]", func(m *ResumeRequest) { m.Count = 1 }),
		broken("resume slot", goodResume, StatusRange, "slot 32", func(m *ResumeRequest) { m.Leases[1].Slot = 32 }),
		broken("resume slot twice", goodResume, StatusRange, "slot 31 comes twice", func(m *ResumeRequest) { m.Leases[1].Slot = 31 }),
		broken("resume device twice", goodResume, StatusRange, "device", func(m *ResumeRequest) { m.Leases[1].Device = UUID{1} }),
		broken("resume used", goodResume, StatusRange, "281474976710656", func(m *ResumeRequest) { m.Leases[0].Used = CreditLimit + 1 }),
		broken("resume reserved", goodResume, StatusMalformed, "Reserved", func(m *ResumeRequest) { m.Leases[0].Reserved = 1 }),
		broken("job share", goodJob, StatusRange, "1001", func(m *JobOpenRequest) { m.MemoryShare = 1001 }),
		broken("job share of min", goodJob, StatusRange, "1001", func(m *JobOpenRequest) { m.MinShare = 1001 }),
		broken("job flags", goodJob, StatusRange, "Flags is 0x400", func(m *JobOpenRequest) { m.Flags = 0x400 }),
		broken("job emptiest and alone", goodJob, StatusRange, "shared", func(m *JobOpenRequest) { m.Flags = JobEmptiest | JobExclusive }),
		broken("job waits and not", goodJob, StatusRange, "both", func(m *JobOpenRequest) { m.Flags = JobWait | JobNoWait }),
		broken("job devices", goodJob, StatusRange, "Devices is 33", func(m *JobOpenRequest) { m.Devices = 33 }),
		broken("job device twice", goodJob, StatusRange, "device 5 comes twice", func(m *JobOpenRequest) { m.Device[1] = 5 }),
		broken("job leftovers", goodJob, StatusMalformed, "Device[1]", func(m *JobOpenRequest) { m.Devices = 1 }),
		broken("limit of nothing", goodLimit, StatusRange, "Target is 0", func(m *LimitRequest) { m.Target = 0 }),
		broken("limit of a job's slots", goodLimit, StatusRange, "Set is 0x8", func(m *LimitRequest) { m.Set = SetSlots }),
		broken("limit of a device's streams", goodLimit, StatusRange, "Set is 0x4", func(m *LimitRequest) { m.Target, m.Set = LimitDevice, SetStreams }),
		broken("limit of no user", goodLimit, StatusRange, "LimitRequest.ID is 4294967296", func(m *LimitRequest) { m.Target, m.Set, m.ID = LimitUser, SetMax, 1<<32 }),
		broken("limit share", goodLimit, StatusRange, "1001", func(m *LimitRequest) { m.MaxShare = 1001 }),
		broken("limit slots", goodLimit, StatusRange, "Slots is 4294967295", func(m *LimitRequest) { m.Slots = math.MaxUint32 }),
		broken("limit reserved", goodLimit, StatusMalformed, "Reserved", func(m *LimitRequest) { m.Reserved = 1 }),
		broken("limit of a cgroup without its path", goodLimit, StatusRange, "Target is 6", func(m *LimitRequest) { m.Target = LimitCgroup }),
		broken("cgroup of a job", goodCgroup, StatusRange, "Target is 2", func(m *CgroupRequest) { m.Limit.Target = LimitJob }),
		broken("cgroup's streams", goodCgroup, StatusRange, "Set is 0x4", func(m *CgroupRequest) { m.Limit.Set = SetStreams }),
		broken("binding that claims", goodBind, StatusRange, "Job.Flags is 0x", func(m *BindRequest) { m.Job.Flags |= JobClaim }),
		broken("binding without a name", goodBind, StatusRange, "it is empty", func(m *BindRequest) { m.Name = ShortText{} }),
		broken("binding's path", goodBind, StatusMalformed, "NUL", func(m *BindRequest) { m.Cgroup = noNUL }),
		broken("binding that is idle at once", goodBind, StatusRange, "IdleMillis", func(m *BindRequest) { m.IdleMillis = 0 }),
		broken("binding that ends in no way", goodBind, StatusRange, "Until is 3", func(m *BindRequest) { m.Until = 3 }),
		broken("binding to close", UnbindRequest{}, StatusMalformed, "NUL", func(m *UnbindRequest) { m.Cgroup = noNUL }),
		broken("cgroup's path", goodCgroup, StatusMalformed, "NUL", func(m *CgroupRequest) { m.Path = noNUL }),
		broken("opened devices", goodOpened, StatusRange, "Devices is 33", func(m *JobOpenReply) { m.Devices = 33 }),
		broken("opened leftovers", goodOpened, StatusMalformed, "Device[0]", func(m *JobOpenReply) { m.Devices = 0 }),
		broken("opened vendor", goodOpened, StatusRange, "Vendor is 5", func(m *JobOpenReply) { m.Device[0].Vendor = 5 }),
		broken("opened kind", goodOpened, StatusRange, "Kind is 2", func(m *JobOpenReply) { m.Device[0].Kind = 2 }),
		broken("opened text", goodOpened, StatusMalformed, "NUL", func(m *JobOpenReply) { m.Text = noNUL }),
		broken("opened reserved", goodOpened, StatusMalformed, "Reserved", func(m *JobOpenReply) { m.Reserved = 1 }),
		broken("waiting reserved", goodWaiting, StatusMalformed, "Reserved", func(m *WaitingReply) { m.Reserved = 1 }),
		broken("waiting text", goodWaiting, StatusMalformed, "NUL", func(m *WaitingReply) { m.Text = noNUL }),
		broken("context text", ContextReply{}, StatusMalformed, "NUL", func(m *ContextReply) { m.Text = noNUL }),
		broken("job command", goodJob, StatusMalformed, "NUL", func(m *JobOpenRequest) { m.Command = noNUL }),
		broken("error text", ErrorReply{}, StatusMalformed, "NUL", func(m *ErrorReply) { m.Text = noNUL }),
		broken("alloc text", AllocReply{}, StatusMalformed, "NUL", func(m *AllocReply) { m.Text = noNUL }),
		broken("stream text", StreamReply{}, StatusMalformed, "NUL", func(m *StreamReply) { m.Text = noNUL }),
		broken("hello in job", HelloReply{}, StatusRange, "InJob is 2", func(m *HelloReply) { m.InJob = 2 }),
		broken("hello on loss", HelloReply{}, StatusRange, "OnLoss is 2", func(m *HelloReply) { m.OnLoss = 2 }),
		broken("room slot", RoomReply{}, StatusRange, "slot 32", func(m *RoomReply) { m.Slot = 32 }),
		broken("room word", RoomReply{Slot: NoSlot}, StatusMalformed, "Word", func(m *RoomReply) { m.Word = 1 }),
		broken("objects slot", ObjectsRequest{}, StatusRange, "slot 32", func(m *ObjectsRequest) { m.Slot = 32 }),
		broken("objects flags", ObjectsRequest{}, StatusRange, "0x2", func(m *ObjectsRequest) { m.Flags = 2 }),
		broken("objects count", ObjectsRequest{}, StatusRange, "Count is 65", func(m *ObjectsRequest) { m.Count = 65 }),
		broken("objects pad", ObjectsRequest{}, StatusMalformed, "Pad", func(m *ObjectsRequest) { m.Pad = 1 }),
		broken("objects beyond", ObjectsRequest{Count: 1}, StatusMalformed, "Makers[63]", func(m *ObjectsRequest) { m.Makers[63].Holds = 1 }),
		broken("attach slot", AttachReply{}, StatusRange, "slot", func(m *AttachReply) { m.Slot = 32 }),
		broken("attach scope", AttachReply{}, StatusRange, "SlotScope", func(m *AttachReply) { m.SlotScope = 4 }),
		broken("context reserved", ContextReply{}, StatusMalformed, "Reserved", func(m *ContextReply) { m.Reserved = 1 }),
		broken("events flags", EventsRequest{}, StatusRange, "EventsRequest.Flags", func(m *EventsRequest) { m.Flags = 2 }),
		broken("events reserved", EventsRequest{}, StatusMalformed, "Reserved", func(m *EventsRequest) { m.Reserved = 1 }),
		broken("events part last", EventsPart{}, StatusRange, "Last is 2", func(m *EventsPart) { m.Last = 2 }),
		broken("events part reserved", EventsPart{}, StatusMalformed, "Reserved", func(m *EventsPart) { m.Reserved = 1 }),
		broken("part last", SnapshotPart{}, StatusRange, "Last is 2", func(m *SnapshotPart) { m.Last = 2 }),
		broken("part reserved", SnapshotPart{}, StatusMalformed, "Reserved", func(m *SnapshotPart) { m.Reserved = 1 }),
	} {
		wantRefusal(t, c.name, c.err, c.status, c.word)
	}
}

func TestValuesAccepted(t *testing.T) {
	for name, err := range map[string]error{
		"the largest request": broken("", goodAlloc, 0, "", func(m *AllocRequest) { m.Bytes = math.MaxUint64 }).err,
		"slot 0":              broken("", goodAlloc, 0, "", func(m *AllocRequest) { m.Slot = 0; m.Kind = MemoryPlain }).err,
		"streams given back":  broken("", StreamRequest{}, 0, "", func(m *StreamRequest) { m.Count = -math.MaxInt32 }).err,
		"no leases to resume": broken("", ResumeRequest{Hello: goodHello}, 0, "", func(*ResumeRequest) {}).err,
		"a full text":         broken("", ErrorReply{}, 0, "", func(m *ErrorReply) { m.Text = MakeText(strings.Repeat("x", 511)) }).err,
		"no wishes":           broken("", HelloRequest{Kind: KindTool}, 0, "", func(*HelloRequest) {}).err,
		"a resume of all of 32": broken("", ResumeRequest{Hello: goodHello, Count: 32}, 0, "", func(m *ResumeRequest) {
			for i := range m.Leases {
				m.Leases[i] = ResumeLease{Device: UUID{byte(i)}, Slot: uint32(31 - i)}
			}
		}).err,
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                              "",
		"plain":                         "plain",
		strings.Repeat("x", 511):        strings.Repeat("x", 511),
		strings.Repeat("x", 512):        strings.Repeat("x", 511),
		strings.Repeat("x", 5000):       strings.Repeat("x", 511),
		strings.Repeat("x", 510) + "é":  strings.Repeat("x", 510),
		strings.Repeat("x", 509) + "é":  strings.Repeat("x", 509) + "é",
		"a\xffb":                        "a\uFFFDb",
		"a\x00b":                        "a\uFFFDb",
		strings.Repeat("x", 1023) + "é": strings.Repeat("x", 511),
	} {
		text := MakeText(in)
		if got := text.String(); got != want || text[TextSize-1] != 0 {
			t.Errorf("MakeText(%.20q… %d bytes) = %.20q… %d bytes", in, len(in), got, len(got))
		}
	}
	wild := Text{'a', 0xff, 'b', 0, 'c'}
	if got := wild.String(); got != "a\uFFFDb" {
		t.Errorf("wild text is %q", got)
	}
}

func TestToken(t *testing.T) {
	a, b := NewToken(), NewToken()
	if a == b || a.IsZero() || !(Token{}).IsZero() {
		t.Errorf("tokens %v and %v", a.Hex(), b.Hex())
	}
	if got, err := ParseToken(a.Hex()); err != nil || got != a {
		t.Errorf("ParseToken(%s) = %v, %v", a.Hex(), got, err)
	}
	if s := a.String(); strings.Contains(s, a.Hex()[:8]) || !strings.Contains(s, a.Hex()[:6]) {
		t.Errorf("%s gives the secret %s away", s, a.Hex())
	}
	for _, s := range []string{"", a.Hex()[1:], a.Hex() + "0", strings.Repeat("g", 32), strings.Repeat(" ", 32)} {
		if _, err := ParseToken(s); err == nil {
			t.Errorf("ParseToken(%q) took it", s)
		}
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		TypeAlloc.String():                  "Alloc",
		(TypeAlloc | ReplyBit).String():     "Alloc reply",
		Type(99).String():                   "type 99",
		StatusDeviceFull.String():           "device full",
		Status(77).String():                 "status 77",
		UUID{0xde, 0xad, 15: 0xff}.String(): "dead0000-0000-0000-0000-0000000000ff",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if StatusDenied.IsError() || Status(99).IsError() || StatusWaiting.IsError() || !Status(100).IsError() || !StatusRange.IsError() {
		t.Error("errors begin at 100")
	}
	fatal := map[Status]bool{StatusMalformed: true, StatusVersion: true}
	for s, name := range statusNames {
		if (&ProtocolError{Status: s}).Fatal() != fatal[s] || name == "" {
			t.Errorf("%v: fatal %v", s, !fatal[s])
		}
	}
}
