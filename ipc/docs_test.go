package ipc

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unsafe"
)

// This file compares the tables in docs/reference/protocol.md and docs/reference/lease-page.md with the sizes,
// numbers and offsets in the code.

// TestProtocolPage compares the tables of docs/reference/protocol.md with the code.
func TestProtocolPage(t *testing.T) {
	page := readDoc(t, "reference/protocol.md")
	comma := func(n int) string {
		if n < 1000 {
			return itoa(n)
		}
		return fmt.Sprintf("%d,%03d", n/1000, n%1000)
	}
	sized := func(n int) string {
		if n == 0 {
			return "header only"
		}
		return comma(n)
	}
	for typ, s := range messageFormats {
		row := regexp.MustCompile(fmt.Sprintf(`(?m)^\| %d \| %s \| ([^|]*) \| ([^|]*) \|`, typ, s.name)).FindStringSubmatch(page)
		if row == nil {
			t.Errorf("no row for %v (%d)", typ, typ)
			continue
		}
		reply := sized(s.reply)
		if s.noReply {
			reply = "none"
		}
		if !mentions(row[1], sized(s.request)) || !mentions(row[2], reply) {
			t.Errorf("%v: the page says %q and %q, it is %d and %d bytes", typ, row[1], row[2], s.request, s.reply)
		}
		if strings.Contains(row[1], "memfd") != s.requestFD || strings.Contains(row[2], "memfd") != s.replyFD {
			t.Errorf("%v: descriptors are not where the page says", typ)
		}
	}
	for status, name := range statusNames {
		if status != StatusOK && !strings.Contains(page, fmt.Sprintf("\n| %d | ", status)) {
			t.Errorf("no row for status %d, %s", status, name)
		}
	}
	tables := regexp.MustCompile(`(?m)^\| \d+ \| [a-zA-Z]`).FindAllString(page, -1)
	if len(tables) != len(messageFormats)+len(statusNames)-1 {
		t.Errorf("%d rows for %d types and %d statuses", len(tables), len(messageFormats), len(statusNames)-1)
	}
	for _, want := range []string{comma(MaxRequest), comma(MaxReply), fmt.Sprintf("%#x", uint32(Magic)),
		comma(newConnLimits(Limits{}).PerPID), comma(newConnLimits(Limits{}).PerUID), comma(newConnLimits(Limits{}).Total),
		fmt.Sprintf("at least %d bytes", HeaderSize+size[AllocReply]()), "keep their meaning", SystemSocket} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// TestBodyTables compares the tables of bodies in docs/reference/protocol.md with the structures that the compiler has
// laid out, and with the sizes of the messages.
func TestBodyTables(t *testing.T) {
	page := readDoc(t, "reference/protocol.md")
	sizes := make(map[int]bool)
	for _, body := range []any{ErrorReply{}, HelloRequest{}, HelloReply{}, JoinRequest{}, ResumeRequest{}, ResumeLease{}, AttachRequest{}, AttachReply{},
		AllocRequest{}, AllocReply{}, FreedNotice{}, StreamRequest{}, StreamReply{}, ContextRequest{}, ContextReply{}, QueryRequest{}, QueryReply{},
		RoomRequest{}, RoomReply{}, ObjectsRequest{}, ObjectsMaker{}, DriverRequest{}, DriverReply{}, CopiesRequest{}, JobOpenRequest{}, JobOpenReply{},
		JobDevice{}, SnapshotPart{}, EventsRequest{}, EventsPart{}, WaitingReply{}, CancelRequest{}, CancelReply{}, JobCloseRequest{}, JobTallyRequest{},
		JobTallyReply{}, JobTallyDevice{}, BesideRequest{}, BesideReply{}, BesideProcess{}, ExitedRequest{}, WarningsRequest{}, WarningsReply{}, AccountRequest{}, AccountReply{}, LimitRequest{}, CgroupRequest{}, BindRequest{}, UnbindRequest{}, SuspendRequest{}} {
		typ := reflect.TypeOf(body)
		sizes[int(typ.Size())] = true
		var want strings.Builder
		for i := range typ.NumField() {
			f := typ.Field(i)
			fmt.Fprintf(&want, `\| %d \| %d \| %s \| [^|]+ \| .*\|\n`, f.Offset, f.Type.Size(), f.Name)
		}
		head := fmt.Sprintf(`\n\*\*%s\*\*: %d bytes\n\n\| offset [^\n]*\n[^\n]*\n`, typ.Name(), typ.Size())
		if !regexp.MustCompile(head + want.String() + `\n`).MatchString(page) {
			t.Errorf("no table for %s, or not what the compiler lays out:\n%s", typ.Name(), want.String())
		}
	}
	for typ, s := range messageFormats {
		if s.request > 0 && !sizes[s.request] || s.reply > 0 && !sizes[s.reply] {
			t.Errorf("%v: a body of %d or %d bytes is not checked here", typ, s.request, s.reply)
		}
	}
}

func mentions(cell, number string) bool {
	return regexp.MustCompile(`(^|\D)` + number + `(\D|$)`).MatchString(cell)
}

// TestLeasePagePage compares the offsets in docs/reference/lease-page.md with the code.
func TestLeasePagePage(t *testing.T) {
	page := readDoc(t, "reference/lease-page.md")
	var p Page
	var s LeaseSlot
	for name, offset := range map[string]uintptr{
		"4 | Magic": unsafe.Offsetof(p.Magic), "2 | Version": unsafe.Offsetof(p.Version), "2 | Slots": unsafe.Offsetof(p.Slots),
		"4 | Ended": unsafe.Offsetof(p.Ended), "4 | Threads": unsafe.Offsetof(p.Threads),
		"8 | zeros": unsafe.Offsetof(p.Pad), "8 | Host": unsafe.Offsetof(p.Host), "8 | Memory": unsafe.Offsetof(p.Memory),
		"4 | Share": unsafe.Offsetof(p.Share), "4 | Streams": unsafe.Offsetof(p.Streams), "4 | Said": unsafe.Offsetof(p.Said),
		"4 | Job": unsafe.Offsetof(p.Job), "8 | zeros |": unsafe.Offsetof(p.Reserved), "Credit": unsafe.Offsetof(s.Credit), "Low": unsafe.Offsetof(s.Low),
		"Pending": unsafe.Offsetof(s.Pending), "Limit": unsafe.Offsetof(s.Limit),
		"Counts": unsafe.Offsetof(s.Counts), "Imported": unsafe.Offsetof(s.Imported), "Managed": unsafe.Offsetof(s.Managed),
	} {
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^\| %d \| %s(\W|$)`, offset, regexp.QuoteMeta(name))).MatchString(page) {
			t.Errorf("no row for %s at offset %d", name, offset)
		}
	}
	for _, want := range []string{"4,096 bytes", fmt.Sprintf("%d,%03d are used", unsafe.Sizeof(p)/1000, unsafe.Sizeof(p)%1000),
		fmt.Sprintf("from offset %d on, %d bytes each", unsafe.Offsetof(p.Lease), unsafe.Sizeof(s)), fmt.Sprintf("%#x", uint32(PageMagic)),
		fmt.Sprintf("| 0 to %d | credit", CreditBits-1), fmt.Sprintf("| %d to %d | epoch", EpochShift, EpochShift+EpochBits-1),
		"| 62 | NOTIFY", "| 63 | CLOSED", "| 62 | SOFT", "| 63 | TOLD", PageName} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

func readDoc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
