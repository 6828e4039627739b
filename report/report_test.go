package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/gpuarb/gpuarb/accounting"
)

var update = flag.Bool("update", false, "write the golden files anew")

const gib = accounting.Bytes(1 << 30)

// hostile are names that try to look like something else.
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

func sample() accounting.Snapshot {
	s := accounting.Snapshot{
		Devices: []accounting.DeviceState{
			{Index: 0, Vendor: "nvidia", Name: "NVIDIA H200", PCI: "0000:01:00.0", UUID: "GPU-1", Total: 141 * gib,
				Capacity: 140 * gib, Used: 3*gib + gib/2, Committed: 4 * gib, Unmanaged: 300 << 20, Overhead: 512 << 20,
				Streams: 130, SlotsMax: 2, SlotsCurrent: 1},
			{Index: 11, Vendor: "amd", Name: "evil\nname", PCI: "0000:43:00.0", Total: 24 * gib, Lost: true},
		},
		Queue: []accounting.TicketState{
			{Pos: 1, Ticket: 18446744073709551615, PID: 7, User: "two words\n", Device: 11, Wants: "1 GiB", WantsBytes: gib,
				WaitedMs: 59999, Reason: "device_full", Command: "evil\n1 root"},
			{Pos: 10, Ticket: 3, PID: 4194304, Device: -1, Wants: "a GPU of its own", WaitedMs: 999, Reason: "slots"},
		},
		Stats: accounting.Stats{QueueDepth: 2, Admitted: 18446744073709551615},
	}
	for i, command := range hostile {
		s.Leases = append(s.Leases, accounting.LeaseState{PID: 10 + 1000*i, User: "ann", Device: 0,
			State: accounting.StateRunning, Used: gib << i, Budget: accounting.Max, AgeSeconds: int64(i), Command: command})
	}
	s.Leases[1].User, s.Leases[2].User, s.Leases[3].User = "two words\n", "", `DOMAIN\ann`
	s.Leases[1].State, s.Leases[1].Slot, s.Leases[1].Budget, s.Leases[1].Streams = accounting.StateUnverified, true, gib, 128
	return s
}

func printed(t *testing.T, print func(io.Writer, accounting.Snapshot) error, s accounting.Snapshot) string {
	t.Helper()
	var b bytes.Buffer
	if err := print(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGolden(t *testing.T) {
	for name, print := range map[string]func(io.Writer, accounting.Snapshot) error{
		"leases": Leases, "devices": Devices, "queue": Queue,
	} {
		got := printed(t, print, sample())
		path := filepath.Join("testdata", name+".golden")
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

// TestRows checks what a script relies on: as many lines as leases, and fields that awk finds.
func TestRows(t *testing.T) {
	s := sample()
	lines := strings.Split(strings.TrimSuffix(printed(t, Leases, s), "\n"), "\n")
	if len(lines) != 1+len(s.Leases) {
		t.Fatalf("%d lines for %d leases", len(lines), len(s.Leases))
	}
	const header = "PID USER GPU STATE USED BUDGET MIN PEAK OVERHEAD STREAMS SLOT AGE COMMAND"
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
	if got := printed(t, Leases, accounting.Snapshot{}); got != header+"\n" {
		t.Errorf("without leases: %q", got)
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
		if w := word(a); strings.ContainsAny(w, " \t\n") || w == "" {
			t.Errorf("%q as a word is %q", a, w)
		}
	})
}

func TestSize(t *testing.T) {
	for in, want := range map[accounting.Bytes]string{
		0: "0 B", 1: "1 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1<<20 - 1: "1.0 MiB", 4 * gib: "4.0 GiB",
		4*gib - 1: "4.0 GiB", 1023*gib + 1000<<20: "1.0 TiB", 1 << 60: "1.0 EiB", accounting.Max - 1: "16.0 EiB", accounting.Max: "max",
	} {
		if got := Size(in); got != want {
			t.Errorf("%d: %q, want %q", in, got, want)
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
	fields := reflect.TypeFor[accounting.LeaseState]()
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
	if got := printed(t, LeasesJSON, accounting.Snapshot{}); got != "[]\n" {
		t.Errorf("without leases: %q", got)
	}
}

func TestStats(t *testing.T) {
	text := printed(t, Stats, sample())
	if !strings.HasPrefix(text, "queue_depth 2\nin_flight 0\n") || !strings.Contains(text, "\nadmitted 18446744073709551615\n") {
		t.Error(text)
	}
	if got, want := strings.Count(text, "\n"), reflect.TypeFor[accounting.Stats]().NumField(); got != want {
		t.Errorf("%d lines, want %d", got, want)
	}
}

// failing takes some bytes and then no more.
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
	for _, print := range []func(io.Writer, accounting.Snapshot) error{Leases, LeasesJSON, Stats, Devices} {
		if err := print(&failing{left: 10}, sample()); !errors.Is(err, errFull) {
			t.Errorf("the writer's error was lost: %v", err)
		}
	}
}

// TestQueueJSON checks that a script gets the numbers as they are.
func TestQueueJSON(t *testing.T) {
	var rows []accounting.TicketState
	if err := json.Unmarshal([]byte(printed(t, QueueJSON, sample())), &rows); err != nil || !reflect.DeepEqual(rows, sample().Queue) {
		t.Errorf("%v: %+v", err, rows)
	}
	if got := printed(t, QueueJSON, accounting.Snapshot{}); got != "[]\n" {
		t.Errorf("an empty queue: %q", got)
	}
}
