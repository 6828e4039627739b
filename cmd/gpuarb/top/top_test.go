package top

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file checks the screens of `gpuarb top` against golden files in testdata, and its answers to
// keys, the mouse, slow daemons and changing rows. The machine lab and a daemon that notes its
// requests take the place of gpuarbd; topdaemon_test.go in cmd/gpuarb has the connection.

var update = flag.Bool("update", false, "write the golden files anew")

const (
	gib = accounting.Bytes(1) << 30
	mib = accounting.Bytes(1) << 20
)

// begin is the time of the snapshots; the tests use UTC.
var begin = time.Date(2026, 11, 25, 14, 3, 22, 0, time.UTC)

func init() { time.Local = time.UTC }

// lab returns a machine with two devices: ann trains on the first and waits for more memory there;
// bob has a job on both. A program whose command contains terminal sequences runs without gpuarb.
func lab() figures.Snapshot {
	return figures.Snapshot{
		TimeUnixNano: begin.UnixNano(), Version: "1.2.3",
		Devices: []figures.DeviceState{
			{Index: 0, Vendor: "nvidia", Name: "NVIDIA H100 80GB HBM3", UUID: "GPU-a", RecentPercent: unread, Total: 80 * gib, Reserve: gib, Capacity: 73 * gib, Used: 60 * gib,
				Committed: 68 * gib, Overhead: 2 * gib, Unmanaged: 4 * gib, Queue: 1, SlotsMax: 4, SlotsCurrent: 3,
				Pressure:    figures.PressureState{Some: figures.PressureLine{Avg10: 34}},
				UnmanagedBy: []figures.UnmanagedState{{PID: 999, UID: 1002, User: "eve", Command: "./x\x1b]0;owned\a\x1b[2J \u202e火", Bytes: 4 * gib, AgeMs: 7200_000}}},
			{Index: 1, Vendor: "nvidia", Name: "NVIDIA L4", UUID: "GPU-b", RecentPercent: unread, Total: 24 * gib, Capacity: 24 * gib, Used: 3 * gib, Committed: 3 * gib,
				Leased: true, Holders: []figures.HolderState{{Job: 9, PID: 5000, UID: 1001, User: "bob", Command: "bash", Kind: figures.HoldsClaim, AgeMs: 60_000}}},
		},
		Leases: []figures.LeaseState{
			{PID: 4711, User: "ann", UID: 1000, Device: 0, State: figures.StateWaiting, Used: 12 * gib, Budget: 40 * gib, BudgetBy: "rule students", Peak: 14 * gib, Min: 8 * gib, MinBy: "gpuarb run --min",
				Overhead: 600 * mib, Streams: 3, StreamsMax: 256, Contexts: 1, Job: 7, JobName: "train-a", AgeSeconds: 600, Admitted: 31, UnusedMs: 185_000, Util: percent(0), Command: "/usr/bin/python3 train.py --epochs 90"},
			{PID: 4801, User: "bob", UID: 1001, Device: 0, State: figures.StateRunning, Used: 48 * gib, Budget: accounting.Max, Peak: 48 * gib, StreamsMax: 256, Streams: 17, Job: 8, AgeSeconds: 86400, UnusedMs: 200, Util: percent(87), Command: "vllm serve"},
			{PID: 4801, User: "bob", UID: 1001, Device: 1, State: figures.StateOver, Used: 3 * gib, Budget: 2 * gib, Peak: 3 * gib, StreamsMax: 256, Job: 8, AgeSeconds: 86400, UnusedMs: 7200_000, Util: percent(0), Command: "vllm serve"},
		},
		Processes: []figures.ProcessState{{PID: 4711, UID: 1000, User: "ann", Job: 7}, {PID: 4801, UID: 1001, User: "bob", Job: 8}},
		Jobs: []figures.JobState{
			{ID: 7, Name: "train-a", UID: 1000, User: "ann", Command: "/usr/bin/python3 train.py --epochs 90", State: figures.StateWaiting, Run: true, StreamsMax: 256, Rule: "rule 1 (students)", PID: 4700, AgeMs: 600_000, Processes: []int{4711},
				Devices: []figures.JobDeviceState{{Device: 0, Min: 8 * gib, Max: 40 * gib, MaxBy: "rule students", MinBy: "gpuarb run --min", Used: 12 * gib, Peak: 14 * gib, Reserved: 8 * gib}}},
			{ID: 8, UID: 1001, User: "bob", Command: "vllm serve", State: figures.StateRunning, Rule: "the defaults", StreamsMax: 256, PID: 4801, AgeMs: 86400_000, Processes: []int{4801},
				Devices: []figures.JobDeviceState{{Device: 0, Max: accounting.Max, Used: 48 * gib, Peak: 48 * gib}, {Device: 1, Max: 2 * gib, MaxBy: "root", Used: 3 * gib, Peak: 3 * gib}}},
			{ID: 9, UID: 1001, User: "bob", Command: "bash", Rule: "the defaults", PID: 5000, AgeMs: 60_000, Devices: []figures.JobDeviceState{{Device: 1, Max: accounting.Max}}},
		},
		Queue: []figures.TicketState{{Pos: 1, Ticket: 42, PID: 4711, User: "ann", UID: 1000, Device: 0, Wants: "16 GiB", WantsBytes: 16 * gib, WaitedMs: 185_000, Reason: "device_full",
			Text: "waits for 16 GiB on GPU 0, position 1: 5 GiB free; holds: bob's vllm[4801] 48 GiB for 24 h", Job: 7, JobName: "train-a", Command: "/usr/bin/python3 train.py --epochs 90"}},
	}
}

// unread is the record of a device that was never read.
var unread = []int8{figures.RecentUnknown}

// three returns the lab with a third device, which has room for the request that waits.
func three() figures.Snapshot {
	s := lab()
	s.Devices = append(s.Devices, figures.DeviceState{Index: 2, Vendor: "nvidia", Name: "NVIDIA L4", UUID: "GPU-c", RecentPercent: unread, Total: 24 * gib, Capacity: 24 * gib, Free: 23 * gib})
	s.Queue[0].RoomOn = &s.Devices[2].Index
	return s
}

func percent(n int) *int { return &n }

// answers is a daemon that records its requests.
type answers struct {
	did  []Action
	fail error
}

func (a *answers) Snapshot(context.Context) (figures.Snapshot, error) { return lab(), a.fail }

func (a *answers) Check(action Action) error {
	if action.Limit != "memory.max" {
		return fmt.Errorf("%q is no limit of a process", action.Limit)
	}
	return nil
}

func (a *answers) Do(_ context.Context, action Action) error {
	a.did = append(a.did, action)
	return a.fail
}

// screen returns a model with ann as its user, after some minutes.
func screen(d Daemon, width, height int, options Options) *Model {
	options.UID = 1000
	m := New(d, options)
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	for i := range 200 {
		s := lab()
		for k := range s.Devices {
			s.Devices[k].Used = s.Devices[k].Used * accounting.Bytes(i%97) / 97
		}
		at := begin.Add(time.Duration(i-200) * time.Second)
		s.TimeUnixNano = at.UnixNano()
		m.Update(snapshot{state: s, at: at})
	}
	m.Update(snapshot{state: lab(), at: begin})
	return m
}

// pressKey presses keys one after another. Results of commands are passed back to the model.
func pressKey(m *Model, keys ...string) {
	for _, name := range keys {
		k := tea.KeyPressMsg{Text: name}
		switch name {
		case "enter":
			k = tea.KeyPressMsg{Code: tea.KeyEnter}
		case "esc":
			k = tea.KeyPressMsg{Code: tea.KeyEscape}
		case "down":
			k = tea.KeyPressMsg{Code: tea.KeyDown}
		case "home":
			k = tea.KeyPressMsg{Code: tea.KeyHome}
		case "end":
			k = tea.KeyPressMsg{Code: tea.KeyEnd}
		}
		_, command := m.Update(k)
		if command == nil {
			continue
		}
		if message, ok := command().(actionDone); ok {
			m.Update(message)
		}
	}
}

// golden compares a text with testdata/NAME.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: -want +got; `go test ./cmd/gpuarb/top -update` writes it anew:\n%s", name, diff)
	}
}

// shown returns a screen without attributes, and without spaces at the ends of lines.
func shown(drawn string) string {
	var b strings.Builder
	for _, line := range strings.Split(ansi.Strip(drawn), "\n") {
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

func TestScreens(t *testing.T) {
	for _, c := range []struct {
		name          string
		width, height int
		options       Options
		keys          string
	}{
		{"80x24", 80, 24, Options{}, ""},
		{"120x40", 120, 40, Options{}, "down"},
		{"ascii", 80, 24, Options{ASCII: true}, ""},
		{"compact", 80, 24, Options{Compact: true}, ""},
		{"ascii-details", 80, 24, Options{ASCII: true, Sort: "pid"}, "enter"},
		{"tree", 100, 24, Options{Tree: true}, ""},
		{"filter", 80, 24, Options{}, "/ a n n"},
		{"nothing-passes", 80, 24, Options{Filter: "nobody"}, ""},
		{"own", 80, 24, Options{}, "u"},
		{"sort", 80, 24, Options{}, "s r"},
		{"details", 80, 24, Options{}, "down enter"},
		{"details-120x40", 120, 40, Options{}, "down enter"},
		{"details-unmanaged", 80, 24, Options{Sort: "pid"}, "enter"},
		{"limit", 80, 24, Options{}, "down l 2 G"},
		{"limit-question", 80, 24, Options{}, "down l 2 G enter"},
		{"limit-wrong", 80, 24, Options{}, "down l x enter"},
		{"cancel-question", 80, 24, Options{}, "down c"},
		{"cancel-nothing", 80, 24, Options{}, "c"},
		{"suspend-question", 80, 24, Options{}, "f"},
		{"signal", 80, 24, Options{}, "k"},
		{"signal-question", 80, 24, Options{}, "down k t"},
		{"help", 80, 24, Options{}, "?"},
		{"tiny", 40, 10, Options{}, ""},
		{"40x24", 40, 24, Options{}, "down"},
		{"60x24", 60, 24, Options{}, ""},
		{"200x50", 200, 50, Options{}, ""},
	} {
		m := screen(&answers{}, c.width, c.height, c.options)
		pressKey(m, strings.Fields(c.keys)...)
		drawn := m.draw()
		golden(t, c.name+".txt", shown(drawn))
		lines := strings.Split(drawn, "\n")
		if len(lines) != c.height {
			t.Errorf("%s: %d lines on a screen of %d", c.name, len(lines), c.height)
		}
		for _, line := range lines {
			if ansi.StringWidth(line) > c.width {
				t.Errorf("%s: a line is wider than the screen: %q", c.name, line)
			}
		}
		if rest := withoutSGR(drawn); strings.ContainsAny(rest, "\x1b\a\u009b\u202e\t\r") {
			t.Errorf("%s: something of a program controls the terminal: %q", c.name, rest)
		}
	}
}

// withoutSGR returns a text without SGR sequences.
func withoutSGR(text string) string {
	for {
		before, rest, found := strings.Cut(text, "\x1b[")
		if !found {
			return text
		}
		end := strings.IndexFunc(rest, func(r rune) bool { return r != ';' && (r < '0' || r > '9') })
		if end < 0 || rest[end] != 'm' {
			return text
		}
		text = before + rest[end+1:]
	}
}

// visible replaces escape characters by ␛.
func visible(text string) string { return strings.ReplaceAll(text, "\x1b", "␛") + "\n" }

// TestColours checks that without colours the parts still differ, and that the selection and the
// rows of other users are still marked.
func TestColours(t *testing.T) {
	drawn := screen(&answers{}, 80, 24, Options{}).draw()
	golden(t, "colour.txt", visible(drawn))
	var plain bytes.Buffer
	if _, err := (&colorprofile.Writer{Forward: &plain, Profile: colorprofile.ASCII}).WriteString(drawn); err != nil {
		t.Fatal(err)
	}
	golden(t, "no-colour.txt", visible(plain.String()))
}

// TestPictures checks the golden files from which `make pictures` makes pictures.
func TestPictures(t *testing.T) {
	for _, c := range []struct {
		name          string
		width, height int
		keys          []string
	}{
		{"top", 120, 20, []string{"down"}}, {"top-80", 80, 20, []string{"down"}}, {"top-40", 40, 20, []string{"down"}},
		{"top-tree", 100, 24, []string{"t", "down"}}, {"top-details", 100, 24, []string{"down", "enter"}},
	} {
		m := screen(&answers{}, c.width, c.height, Options{})
		m.Update(snapshot{state: three(), at: begin})
		pressKey(m, c.keys...)
		golden(t, "picture-"+c.name+".txt", visible(m.draw()))
	}
}

// TestAway checks that the last state stays while the daemon does not answer, with the time since
// then, until it answers again.
func TestAway(t *testing.T) {
	m := screen(&answers{}, 80, 24, Options{})
	m.Update(tick(begin.Add(time.Second)))
	m.Update(snapshot{err: errors.New("no gpuarb daemon at /run/gpuarb/gpuarb.sock:\n  connection refused"), at: begin.Add(12 * time.Second)})
	golden(t, "away.txt", shown(m.draw()))
	pressKey(m, "down", "enter")
	if got := m.draw(); !strings.Contains(got, "process 4711") {
		t.Errorf("keys are not answered while the daemon is away:\n%s", got)
	}
	pressKey(m, "esc")
	m.Update(snapshot{state: lab(), at: begin.Add(20 * time.Second)})
	if got := m.draw(); strings.Contains(got, "no daemon") {
		t.Errorf("the daemon is back:\n%s", got)
	}
}

// TestSlow checks that while an answer is missing no further question is sent, keys are handled,
// and the title says so.
func TestSlow(t *testing.T) {
	m := screen(&answers{}, 80, 24, Options{})
	m.now = begin
	if m.ask() == nil || m.ask() != nil {
		t.Error("the daemon must be asked once")
	}
	m.Update(tick(begin.Add(5 * time.Second)))
	pressKey(m, "t")
	if got := m.draw(); !strings.Contains(got, "no answer for 5s") || !strings.Contains(got, "└─") {
		t.Errorf("the answer is missing for 5s, and a tree is wanted:\n%s", got)
	}
}

// TestChanges checks that each change asks first, and is made only after yes.
func TestChanges(t *testing.T) {
	for _, c := range []struct {
		keys string
		want Action
	}{
		{"down l 2 G enter y", Action{Kind: SetLimit, PID: 4711, Job: 7, Device: 0, Limit: "memory.max", Value: "2G"}},
		{"t home down l 1 G enter y", Action{Kind: SetLimit, PID: 4801, Job: 8, Device: 0, Limit: "memory.max", Value: "1G"}},
		{"t home l 1 G enter y", Action{Kind: SetLimit, Job: 8, Device: AllDevices, Limit: "memory.max", Value: "1G"}},
		{"down c y", Action{Kind: CancelTicket, PID: 4711, Job: 7, Device: 0, Ticket: 42}},
		{"k k y", Action{Kind: SendSignal, PID: 4801, Job: 8, Device: 0, Signal: "KILL"}},
		{"f y", Action{Kind: Suspend, Job: 8, Device: AllDevices}},
	} {
		d := &answers{}
		m := screen(d, 80, 24, Options{})
		keys := strings.Fields(c.keys)
		pressKey(m, keys...)
		if diff := cmp.Diff([]Action{c.want}, d.did); diff != "" {
			t.Errorf("%s: -want +got\n%s", c.keys, diff)
		}
		if got := m.foot()[0]; !strings.Contains(got, "done: ") {
			t.Errorf("%s: the screen says %q", c.keys, got)
		}
		for _, no := range []string{"n", "esc", "enter"} {
			d.did = nil
			m = screen(d, 80, 24, Options{})
			pressKey(m, append(keys[:len(keys)-1:len(keys)-1], no)...)
			if len(d.did) > 0 {
				t.Errorf("%s and then %s: %v was done", c.keys, no, d.did)
			}
		}
	}
	d := &answers{fail: errors.New("you may not: it is bob's\x1b[2J")}
	m := screen(d, 80, 24, Options{})
	pressKey(m, "k", "t", "y")
	if got := m.foot()[0]; !strings.Contains(got, `you may not: it is bob's\x1b[2J`) {
		t.Errorf("after a refusal the screen says %q", got)
	}
}

// TestMouse checks that the mouse selects, opens details, sorts and scrolls.
func TestMouse(t *testing.T) {
	m := screen(&answers{}, 80, 24, Options{})
	header := 1 + len(m.drawDevices())
	m.Update(tea.MouseClickMsg{X: 5, Y: header + 2})
	if m.at != 1 || m.page != table {
		t.Errorf("a click on the second row selects row %d", m.at)
	}
	m.Update(tea.MouseClickMsg{X: 5, Y: header + 2})
	if m.page != details {
		t.Error("a second click opens no details")
	}
	pressKey(m, "esc")
	m.Update(tea.MouseClickMsg{X: 8, Y: header})
	if m.sortKey().name != "user" || m.reversed {
		t.Errorf("a click on USER sorts by %s", m.sortKey().name)
	}
	m.Update(tea.MouseClickMsg{X: 8, Y: header})
	if !m.reversed {
		t.Error("a second click on USER does not turn the order round")
	}
	pressKey(m, "end")
	at := m.at
	m.Update(tea.MouseWheelMsg{Button: tea.MouseWheelUp})
	if m.at != at-3 {
		t.Errorf("the wheel moves from row %d to %d, want three rows", at, m.at)
	}
}

// TestSelectionStays checks that the selected row stays selected while other rows come and go.
func TestSelectionStays(t *testing.T) {
	m := screen(&answers{}, 80, 24, Options{})
	pressKey(m, "down")
	s := lab()
	s.Leases[0].Used = 70 * gib
	m.Update(snapshot{state: s, at: begin})
	if m.at != 0 || m.selected().pid != 4711 {
		t.Errorf("row %d (PID %d) is selected, want ann's", m.at, m.selected().pid)
	}
	s = lab()
	s.Leases, s.Queue = s.Leases[1:], nil
	m.Update(snapshot{state: s, at: begin})
	if m.selected() == nil {
		t.Error("no row is selected after the selected one ended")
	}
	m.Update(snapshot{state: figures.Snapshot{}, at: begin})
	pressKey(m, "enter", "l", "k", "c", "down", "end")
	if m.selected() != nil || m.page != table || m.dialog.prompt != noPrompt {
		t.Error("something of an empty table is selected")
	}
}

// TestUnusual checks that a lost device and its programs are marked, and that a machine without a
// device shows advice.
func TestUnusual(t *testing.T) {
	s := lab()
	s.Devices[0].Lost = true
	for i := range s.Leases {
		if s.Leases[i].Device == 0 {
			s.Leases[i].State = figures.StateLost
		}
	}
	m := screen(&answers{}, 80, 24, Options{})
	m.Update(snapshot{state: s, at: begin})
	golden(t, "lost.txt", shown(m.draw()))
	if drawn := m.draw(); !strings.Contains(drawn, paint(alarm, "lost")) {
		t.Errorf("the lost device is not painted as an alarm:\n%q", drawn)
	}
	pressKey(m, "C")
	golden(t, "lost-compact.txt", shown(m.draw()))
	pressKey(m, "C", "down", "enter")
	golden(t, "lost-details.txt", shown(m.draw()))
	pressKey(m, "esc", "up")
	s.Devices[0].Vendor = "cpu"
	m.Update(snapshot{state: s, at: begin})
	pressKey(m, "down", "enter")
	if drawn := m.draw(); !strings.Contains(drawn, "the processor: process 4711") || !strings.Contains(drawn, "Who holds the processor") {
		t.Errorf("of a lease on the processor the details say:\n%s", drawn)
	}
	m = screen(&answers{}, 80, 24, Options{})
	m.Update(snapshot{state: figures.Snapshot{TimeUnixNano: begin.UnixNano()}, at: begin})
	golden(t, "no-device.txt", shown(m.draw()))
}

func TestOnce(t *testing.T) {
	for name, c := range map[string]struct {
		options       Options
		width, height int
	}{
		"once.txt":         {Options{}, 120, 0},
		"once-compact.txt": {Options{Compact: true, Tree: true}, 80, 8},
	} {
		var b bytes.Buffer
		if err := Once(&colorprofile.Writer{Forward: &b, Profile: colorprofile.NoTTY}, lab(), c.options, c.width, c.height); err != nil {
			t.Fatal(err)
		}
		golden(t, name, b.String())
	}
}

// TestDetailsStay checks that the details stay those of the chosen row. If the row ends they say
// so; if its request is granted they show its lease.
func TestDetailsStay(t *testing.T) {
	m := screen(&answers{}, 80, 24, Options{})
	pressKey(m, "down", "enter")
	s := lab()
	s.Leases = s.Leases[1:]
	m.Update(snapshot{state: s, at: begin})
	if r := m.selected(); r == nil || r.kind != ticketRow || r.pid != 4711 {
		t.Errorf("of a process whose lease ended, and that waits still, %+v is shown", r)
	}
	m.Update(snapshot{state: lab(), at: begin})
	if r := m.selected(); r == nil || r.kind != leaseRow || r.pid != 4711 {
		t.Errorf("of a process whose request was granted %+v is shown", r)
	}
	s.Queue = nil
	m.Update(snapshot{state: s, at: begin})
	pressKey(m, "k", "k", "l", "c")
	if got := m.draw(); m.dialog.prompt != noPrompt || !strings.Contains(got, "It has ended") {
		t.Errorf("of a row that is gone is shown:\n%s", got)
	}
	m.Update(snapshot{state: lab(), at: begin})
	if got := m.draw(); !strings.Contains(got, "process 4711") {
		t.Errorf("of a row that is back is shown:\n%s", got)
	}
}

// TestPause checks that the pause grows if an update uses much processor time.
func TestPause(t *testing.T) {
	var spent time.Duration
	m := New(&answers{}, Options{Interval: time.Second, Spent: func() time.Duration { return spent }})
	for _, c := range []struct{ spent, want time.Duration }{
		{5 * time.Millisecond, time.Second}, {100 * time.Millisecond, 5 * time.Second}, {time.Second, maxPause}, {0, time.Second},
	} {
		spent += c.spent
		if got := m.pause(); got != c.want {
			t.Errorf("after a look of %v: %v until the next, want %v", c.spent, got, c.want)
		}
	}
}

// TestSuspended checks that a job that gave its memory back has a row although no process of it uses a device, and that the key for suspending
// lets it return. A process without gpuarb cannot be suspended.
func TestSuspended(t *testing.T) {
	s := lab()
	s.Jobs = append(s.Jobs, figures.JobState{ID: 12, UID: 1000, User: "ann", Command: "ollama serve", State: figures.StateSuspended, Residence: figures.Suspended,
		Devices: []figures.JobDeviceState{{Device: 1, Max: accounting.Max, Suspended: 20 * gib}}})
	for _, c := range []struct {
		residence figures.Residence
		want      Kind
	}{{figures.Suspended, Resume}, {figures.Stuck, Resume}, {figures.Suspending, Resume}, {figures.Resuming, Suspend}} {
		s.Jobs[len(s.Jobs)-1].Residence = c.residence
		d := &answers{}
		m := screen(d, 100, 24, Options{Filter: "ollama"})
		m.Update(snapshot{state: s, at: begin})
		if got := m.draw(); !strings.Contains(got, string(c.residence)) || !strings.Contains(got, "ollama serve") {
			t.Errorf("a job that is %s:\n%s", c.residence, got)
		}
		pressKey(m, "f", "y")
		if want := []Action{{Kind: c.want, Job: 12, Device: AllDevices}}; !cmp.Equal(want, d.did) {
			t.Errorf("a job that is %s: %v was done, want %v", c.residence, d.did, want)
		}
	}
	d := &answers{}
	m := screen(d, 100, 24, Options{Filter: "eve"})
	pressKey(m, "f", "y")
	if got := m.draw(); len(d.did) > 0 || !strings.Contains(got, "runs without gpuarb: it cannot be suspended") {
		t.Errorf("%v was done:\n%s", d.did, got)
	}
}
