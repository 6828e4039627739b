package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/archive/rows"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// Tables and JSON show a snapshot in a fixed form that scripts can rely on, and no name can forge a
// row or exceed the terminal. The golden files in testdata have the expected tables; go test
// -update writes them. fields_test.go tests single values.

var update = flag.Bool("update", false, "write the golden files anew")

const gib = accounting.Bytes(1 << 30)

// hostile has names that try to look like other output.
var hostile = []string{
	"evil\n1 root 0 running 0 0 0 0 0 0 - 0 init",
	"tab\there\r\v\f\x00\x7f\x1b[2Jclear",
	"back\\nslash",
	"lines\u2028\u2029\u0085",
	"right\u202eto left\u2066\u200f",
	"zero\u200bwidth\ufeff, no\u00a0break",
	"broken \xff\xc0\xaf utf-8, whole \ufffd",
	"",
	" leading and trailing ",
	"plain: Grüße, 世界, 🎉 '\"$`",
}

func sample() figures.Snapshot {
	s := figures.Snapshot{
		Devices: []figures.DeviceState{
			{Index: 0, Vendor: "nvidia", Name: "NVIDIA H200", PCI: "0000:01:00.0", UUID: "GPU-1", Total: 141 * gib,
				Capacity: 140 * gib, Used: 3*gib + gib/2, Committed: 4 * gib, Unmanaged: 300 << 20, Overhead: 512 << 20,
				Streams: 130, SlotsMax: 2, SlotsCurrent: 1},
			{Index: 11, Vendor: "amd", Name: "evil\nname", PCI: "0000:43:00.0", Total: 24 * gib, Lost: true},
		},
		Queue: []figures.TicketState{
			{Pos: 1, Ticket: 18446744073709551615, PID: 7, User: "two words\n", Device: 11, Wants: "1 GiB", WantsBytes: gib,
				WaitedMs: 59999, Reason: "device_full", Command: "evil\n1 root"},
			{Pos: 10, Ticket: 3, PID: 4194304, Device: -1, Wants: "a GPU of its own", WaitedMs: 999, Reason: "slots"},
		},
		Stats: figures.Stats{QueueDepth: 2, Admitted: 18446744073709551615},
	}
	for i, command := range hostile {
		s.Leases = append(s.Leases, figures.LeaseState{PID: 10 + 1000*i, User: "ann", Device: 0,
			State: figures.StateRunning, Used: gib << i, Budget: accounting.Max, AgeSeconds: int64(i), Command: command})
	}
	s.Leases[1].User, s.Leases[2].User, s.Leases[3].User = "two words\n", "", `DOMAIN\ann`
	s.Leases[1].State, s.Leases[1].Slot, s.Leases[1].Budget, s.Leases[1].Streams = figures.StateUnverified, true, gib, 128
	return s
}

func printed(t *testing.T, print func(io.Writer, figures.Snapshot) error, s figures.Snapshot) string {
	t.Helper()
	var b bytes.Buffer
	if err := print(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// crowd returns a machine that exceeds a terminal: 200 leases, long names, waiting requests,
// claims, and programs without gpuarb.
func crowd() figures.Snapshot {
	s := sample()
	s.Devices[0].Holders = []figures.HolderState{
		{Job: 1000, PID: 900, UID: 1000, User: "ann", Command: "/bin/bash -i", Kind: figures.HoldsClaim, Slots: 1, AgeMs: 7_300_000},
		{Job: 1, PID: 4000, UID: 1001, User: "somebody-with-a-long-name", Command: "python3 train.py", Kind: figures.HoldsSlot, Slots: 1},
	}
	s.Devices[0].Leased, s.Devices[0].Claims, s.Devices[0].Reserved = true, 1, 2*gib
	s.Devices[0].UnmanagedBy = []figures.UnmanagedState{
		{PID: 77, UID: 0, User: "root", Command: "/usr/lib/xorg/Xorg :0 -nolisten tcp vt1 -keeptty -auth /tmp/serverauth.fGLkr5T8Xq", Bytes: 200 << 20, AgeMs: 200_000_000},
		{PID: 78, Command: "?", Bytes: 100 << 20, AgeMs: 61_000},
	}
	s.Leases = nil
	job := figures.JobState{ID: 1000, PID: 900, UID: 1000, User: "ann", Command: "/bin/bash -i", Devices: []figures.JobDeviceState{{Max: 2 * gib}, {Device: 11}}}
	s.Jobs = []figures.JobState{job}
	for i := range 200 {
		j := figures.JobState{ID: uint64(i + 1), PID: 4000 + i, UID: 1001, User: "somebody-with-a-long-name", AgeMs: int64(i) * 90_000,
			Command: fmt.Sprintf("/opt/conda/envs/experiment-%d/bin/python3 -m torch.distributed.run --nproc-per-node 8 train.py", i), Processes: []int{4000 + i},
			Devices: []figures.JobDeviceState{{Used: accounting.Bytes(i) * 12345678, Reserved: accounting.Bytes(i%3) * gib}, {Device: 11}}}
		s.Jobs = append(s.Jobs, j)
		s.Leases = append(s.Leases, figures.LeaseState{PID: j.PID, User: j.User, Job: j.ID, State: figures.StateUnverified,
			Used: j.Devices[0].Used, Budget: 100 * gib, Min: j.Devices[0].Reserved, Peak: 140 * gib, Overhead: 314572800,
			Streams: i, AgeSeconds: int64(i) * 90, Slot: i == 0, Command: j.Command})
	}
	s.Queue = append(s.Queue, figures.TicketState{Pos: 1, Ticket: 12, PID: 4005, User: "somebody-with-a-long-name", Job: 6, Wants: "512 MiB", WantsBytes: gib / 2,
		WaitedMs: 61_500, Reason: "device_full", Text: "waits for 512 MiB on GPU 0", Command: "世界 世界 世界 世界 世界 世界 世界 世界 世界"})
	return s
}

type golden struct {
	name  string
	print func(io.Writer, figures.Snapshot) error
	of    figures.Snapshot
}

// goldens returns the tables as files have them, and as users see them: without a terminal, and
// with 80 and 120 columns.
func goldens() (list []golden) {
	for suffix, style := range map[string]Style{
		"": {}, "-human": {Human: true}, "-80": {Human: true, Width: 80}, "-120": {Human: true, Width: 120},
	} {
		of := sample()
		if suffix != "" {
			of = crowd()
		}
		list = append(list, golden{"leases" + suffix, style.Leases, of}, golden{"devices" + suffix, style.Devices, of},
			golden{"queue" + suffix, style.Queue, of}, golden{"ps" + suffix, style.Programs, crowd()},
			golden{"holders" + suffix, style.Holders, crowd()}, golden{"unmanaged" + suffix, style.Unmanaged, crowd()})
	}
	return list
}

func TestGolden(t *testing.T) {
	for _, g := range goldens() {
		got := printed(t, g.print, g.of)
		path := filepath.Join("testdata", g.name+".golden")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs (go test -update writes it anew):\n%s", path, got)
		}
	}
}

// TestFits checks that no line is longer than the terminal, and that each row has a line with its
// owner.
func TestFits(t *testing.T) {
	s := crowd()
	for width := 20; width <= 200; width += 20 {
		style := Style{Human: true, Width: width}
		for _, print := range []func(io.Writer, figures.Snapshot) error{style.Leases, style.Programs, style.Queue, style.Devices, style.Holders, style.Unmanaged} {
			for _, text := range strings.Split(printed(t, print, s), "\n") {
				if cells := ansi.StringWidth(text); cells > width {
					t.Errorf("%d cells on %d: %s", cells, width, text)
				}
			}
		}
		rows := strings.Split(strings.TrimSuffix(printed(t, style.Programs, s), "\n"), "\n")
		if len(rows) != 1+200+1 {
			t.Errorf("%d lines on %d columns", len(rows), width)
		}
		for _, row := range rows[1:] {
			if f := strings.Fields(row); len(f) < 2 || !strings.HasPrefix("somebody-with-a-long-name", strings.TrimSuffix(f[1], "…")) && f[1] != "ann" {
				t.Errorf("no user on %d columns: %s", width, row)
			}
		}
	}
}

// TestRows checks what scripts rely on: one line per lease, and fields that awk finds.
func TestRows(t *testing.T) {
	s := sample()
	lines := strings.Split(strings.TrimSuffix(printed(t, Style{}.Leases, s), "\n"), "\n")
	if len(lines) != 1+len(s.Leases) {
		t.Fatalf("%d lines for %d leases", len(lines), len(s.Leases))
	}
	const header = "PID USER GPU STATE USED BUDGET MIN PEAK OVERHEAD STREAMS SLOT AGE UTIL IDLE COMMAND"
	if got := strings.Join(strings.Fields(lines[0]), " "); got != header {
		t.Errorf("header %q", got)
	}
	for i, l := range s.Leases {
		fields := strings.Fields(lines[i+1])
		if len(fields) < 13 || fields[4] != Value(l.Used) || fields[3] != string(l.State) {
			t.Errorf("line %q", lines[i+1])
		}
		for _, r := range lines[i+1] {
			if !unicode.IsPrint(r) {
				t.Errorf("%U is in %q", r, lines[i+1])
			}
		}
	}
	if got := printed(t, Style{}.Leases, figures.Snapshot{}); got != header+"\n" {
		t.Errorf("without leases: %q", got)
	}
}

// TestCSV checks that a key which a user chose cannot become a formula in a spreadsheet or move a cursor.
func TestCSV(t *testing.T) {
	for key, want := range map[string]string{"train": "train", `=HYPERLINK("x")`: `"'=HYPERLINK(""x"")"`, " =1+1": "' =1+1", "@x": "'@x", "+1": "'+1", "-1": "'-1",
		"a=1": "a=1", "evil\x1b[2J\n": `evil\x1b[2J\n`} {
		var out strings.Builder
		if err := SumsCSV(&out, []rows.Sum{{Key: key}}); err != nil {
			t.Fatal(err)
		}
		if _, line, _ := strings.Cut(out.String(), "\n"); !strings.HasPrefix(line, want+",0,") {
			t.Errorf("%q is printed as %s", key, line)
		}
	}
}

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"a b":              "a b",
		"a\nb":             `a\nb`,
		"a\\nb":            `a\\nb`,
		"\x00\x1b\x7f":     `\x00\x1b\x7f`,
		"\u202e\U000e0001": `\u202e\U000e0001`,
		"\xff":             `\xff`,
		"\ufffd":           "\ufffd",
		"Grüße 世界 🎉":       "Grüße 世界 🎉",
	} {
		if got := Escape(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func FuzzEscape(f *testing.F) {
	for _, s := range hostile {
		f.Add(s, s+"x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		got := Escape(a)
		if !utf8.ValidString(got) || strings.IndexFunc(got, func(r rune) bool { return !unicode.IsPrint(r) && r != utf8.RuneError }) >= 0 {
			t.Errorf("%q became %q", a, got)
		}
		if (a == b) != (got == Escape(b)) {
			t.Errorf("%q and %q became %q and %q", a, b, got, Escape(b))
		}
		if w := cell(a); strings.ContainsAny(w, " \t\n") || w == "" {
			t.Errorf("%q as a word is %q", a, w)
		}
	})
}

func TestAmount(t *testing.T) {
	for in, want := range map[accounting.Bytes]string{
		0: "0B", 1: "1B", 1023: "1023B", 1024: "1KiB", 1536: "1.5KiB", 1<<20 - 1: "1023KiB", 4 * gib: "4GiB",
		4*gib - 1: "3.9GiB", 1 << 60: "1EiB", accounting.Max: "max",
	} {
		if got := (Style{Human: true}).amount(in); got != want {
			t.Errorf("%d: %q, want %q", in, got, want)
		}
		if got := (Style{}).amount(in); got != Value(in) {
			t.Errorf("%d: %q in a file", in, got)
		}
	}
}

func TestLeasesJSON(t *testing.T) {
	s := sample()
	text := printed(t, LeasesJSON, s)
	if strings.Count(text, "\n") != len(s.Leases)+2 {
		t.Errorf("not a line per lease:\n%s", text)
	}
	var rows []map[string]any
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		t.Fatal(err)
	}
	fields := reflect.TypeFor[Lease]()
	for i, row := range rows {
		if len(row) != fields.NumField() {
			t.Errorf("%d fields, want %d: %v", len(row), fields.NumField(), row)
		}
		for f := range fields.NumField() {
			if _, ok := row[fields.Field(f).Tag.Get("json")]; !ok {
				t.Errorf("%s is missing", fields.Field(f).Name)
			}
		}
		limited := s.Leases[i].Budget != accounting.Max
		if (row["budget_bytes"] != nil) != limited {
			t.Errorf("budget of lease %d: %v", i, row["budget_bytes"])
		}
	}
	if got := rows[0]["command"]; got != hostile[0] {
		t.Errorf("command %q", got)
	}
	if got := printed(t, LeasesJSON, figures.Snapshot{}); got != "[]\n" {
		t.Errorf("without leases: %q", got)
	}
}

func TestStats(t *testing.T) {
	text := printed(t, Stats, sample())
	if !strings.HasPrefix(text, "queue_depth 2\nin_flight 0\n") || !strings.Contains(text, "\nadmitted 18446744073709551615\n") {
		t.Error(text)
	}
	if got, want := strings.Count(text, "\n"), reflect.TypeFor[figures.Stats]().NumField(); got != want {
		t.Errorf("%d lines, want %d", got, want)
	}
	s := sample()
	s.Counts = figures.RequestCounts{Refused: []figures.ReasonCount{{Reason: "device_full", Count: 7}},
		Waits: []figures.WaitCount{{Outcome: "granted", Count: 3, SumMs: 90_061, UpTo: []figures.ClassWait{{Ms: 10, Count: 1}, {Ms: 60_000, Count: 2}}}}}
	const want = "\nrefused.device_full 7\nwait.granted.le_10ms 1\nwait.granted.le_60s 2\nwait.granted.count 3\nwait.granted.sum_ms 90061\n"
	if text := printed(t, Stats, s); !strings.HasSuffix(text, want) {
		t.Error(text)
	}
}

// failing is a writer that accepts some bytes and then fails.
type failing struct{ left int }

var errFull = errors.New("full")

func (f *failing) Write(p []byte) (int, error) {
	if len(p) > f.left {
		return 0, errFull
	}
	f.left -= len(p)
	return len(p), nil
}

func TestWriteErrors(t *testing.T) {
	for _, print := range []func(io.Writer, figures.Snapshot) error{Style{}.Leases, LeasesJSON, Stats, Style{Human: true}.Devices, Style{}.Holders, (Style{}).HoldersJSON} {
		if err := print(&failing{left: 10}, crowd()); !errors.Is(err, errFull) {
			t.Errorf("the writer's error was lost: %v", err)
		}
	}
}

// TestProgramsInContainers checks that the columns of containers come before COMMAND if a program
// runs in a container, and that no file has them.
func TestProgramsInContainers(t *testing.T) {
	s := figures.Snapshot{Leases: []figures.LeaseState{
		{PID: 7, User: "ann", Budget: accounting.Max, NSPID: 7, Command: "x"},
		{PID: 8, User: "bob", Budget: accounting.Max, NSPID: 1, Container: strings.Repeat("0123456789abcdef", 4), Command: "y"},
		{PID: 9, User: "old", Budget: accounting.Max, Command: "z"},
	}}
	var ps, file bytes.Buffer
	if err := errors.Join(Style{}.Programs(&ps, s), Style{}.Leases(&file, s)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{" IDLE CONTAINER    NSPID COMMAND\n", " -                7 x\n", " 0123456789ab     1 y\n", " -                - z\n"} {
		if !strings.Contains(ps.String(), want) {
			t.Errorf("no %q in\n%s", want, ps.String())
		}
	}
	if strings.Contains(file.String(), "CONTAINER") {
		t.Errorf("the file has\n%s", file.String())
	}
}

// TestListDevices checks that unknown values of a device leave no gap.
func TestListDevices(t *testing.T) {
	got := ListDevices([]figures.DeviceState{{Name: "Card", UUID: "GPU-1", PCI: "0000:01:00.0"}, {Index: 2, Name: "EPYC", UUID: "CPU-2"}})
	if want := "0 (Card, GPU-1, 0000:01:00.0), 2 (EPYC, CPU-2)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
