package top

import (
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file checks what the screen says of devices: history, bars, an overcommitted device, an older daemon, the
// device that has room, and reservations alone. top_test.go has the machine lab and whole screens.

// TestHistory checks that the history is by time, however often the daemon is asked. It is unknown
// while the daemon did not answer.
func TestHistory(t *testing.T) {
	const _____ = unknown
	var h history
	at := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		after   time.Duration
		share   float32
		wasAway bool
		want    []float32 // the last 8 seconds
	}{
		{0, .1, false, []float32{_____, _____, _____, _____, _____, _____, _____, .1}},
		{500 * time.Millisecond, .2, false, []float32{_____, _____, _____, _____, _____, _____, _____, .2}},
		{3 * time.Second, .4, false, []float32{_____, _____, _____, _____, .2, .2, .2, .4}},
		{3 * time.Second, .5, true, []float32{_____, .2, .2, .2, .4, _____, _____, .5}},
		{-time.Hour, .3, false, []float32{_____, _____, _____, _____, _____, _____, _____, .3}},
		{time.Hour, .6, false, []float32{.3, .3, .3, .3, .3, .3, .3, .6}},
	} {
		at = at.Add(c.after)
		h.add(at, c.share, c.wasAway)
		if diff := cmp.Diff(c.want, h.columns(int(historySeconds))[historySeconds-8:]); diff != "" {
			t.Errorf("%v later: -want +got\n%s", c.after, diff)
		}
	}
}

// TestHistoryOfTheDaemon checks that seconds of which top knows nothing are filled in with what the
// daemon recorded, and that others keep what top saw.
func TestHistoryOfTheDaemon(t *testing.T) {
	const _____ = unknown
	var h history
	at := time.Unix(1_000_002, 0) // a span begins 2 s before
	h.add(at, .1, false)
	h.fill(at, []int8{figures.RecentUnknown, 40, 90})
	want := []float32{_____, _____, .4, .4, .4, .4, .4, .9, .9, .1}
	if diff := cmp.Diff(want, h.columns(int(historySeconds))[historySeconds-10:]); diff != "" {
		t.Errorf("at first: -want +got\n%s", diff)
	}
	at = at.Add(4 * time.Second)
	h.add(at, .2, true)
	h.fill(at, []int8{30, 30, 70})
	want = []float32{.4, .4, .4, .4, .9, .9, .1, .3, .3, .7, .2}
	if diff := cmp.Diff(want, h.columns(int(historySeconds))[historySeconds-11:]); diff != "" {
		t.Errorf("after the daemon was away: -want +got\n%s", diff)
	}
}

// TestOvercommitted checks that the bar of a device shows each kind of use if programs hold more
// than the device has.
func TestOvercommitted(t *testing.T) {
	s := lab()
	s.Devices[0].Used, s.Devices[0].Committed, s.Devices[0].Free = 90*gib, 90*gib, 0
	for _, width := range []int{40, 80, 120} {
		m := screen(&answers{}, width, 24, Options{})
		m.Update(snapshot{state: s, at: begin})
		drawn := m.draw()
		for _, want := range []string{"120%", "╱", "▓", "free 0B"} {
			if !strings.Contains(drawn, want) {
				t.Errorf("%d columns: there is no %q in\n%s", width, want, shown(drawn))
			}
		}
	}
}

// TestRoomElsewhere checks that the screen of a waiting row names the device that has room, with the
// command.
func TestRoomElsewhere(t *testing.T) {
	const hint = "GPU 2 has 23GiB free: gpuarb run --device 2, or --device emptiest"
	m := screen(&answers{}, 80, 24, Options{})
	m.Update(snapshot{state: three(), at: begin})
	if drawn := m.draw(); strings.Contains(drawn, hint) {
		t.Errorf("a row that does not wait is shown another device:\n%s", shown(drawn))
	}
	pressKey(m, "down")
	if drawn := m.draw(); !strings.Contains(drawn, hint) || strings.Count(drawn, "\n") != 23 {
		t.Errorf("there is no %q in\n%s", hint, shown(drawn))
	}
}

// TestOlderDaemon checks that of a daemon that does not tell what is free, the rest of the capacity
// is shown.
func TestOlderDaemon(t *testing.T) {
	s := lab()
	for i := range s.Devices {
		s.Devices[i].RecentPercent = nil
	}
	m := screen(&answers{}, 80, 24, Options{})
	m.Update(snapshot{state: s, at: begin})
	if drawn := ansi.Strip(m.draw()); !strings.Contains(drawn, "free 5GiB of 80GiB") {
		t.Errorf("what is free is not shown:\n%s", drawn)
	}
}

// TestCommand checks that the table has a command without the folders of its program and script.
func TestCommand(t *testing.T) {
	for command, want := range map[string]string{
		"vllm serve":                            "vllm serve",
		"/usr/bin/python3 /srv/a/train.py -n 3": "python3 train.py -n 3",
		"ffmpeg -i /srv/a.mp4":                  "ffmpeg -i /srv/a.mp4",
		"/opt/x/":                               "-",
		"bash /":                                "bash ",
		"":                                      "-",
	} {
		if got := (&row{command: command}).commandCell(); got != want {
			t.Errorf("%q is shown as %q, want %q", command, got, want)
		}
	}
}

// TestBar checks that each part of a bar gets its share of the cells, at least one as far as there
// is room, and that the bar is as long as it should be.
func TestBar(t *testing.T) {
	g := asciiGlyphs
	for _, c := range []struct {
		used, kept, overhead, unmanaged, total accounting.Bytes
		cells                                  int
		want                                   string
	}{
		{0, 0, 0, 0, 100, 10, ".........."},
		{50, 0, 0, 0, 100, 10, "#####....."},
		{50, 20, 10, 10, 100, 10, "#####==+/."},
		{1, 1, 1, 1, 1000, 10, "#=+/......"},
		{1000, 1, 1, 1, 1003, 10, "#######=+/"},
		{100, 0, 0, 100, 100, 10, "#####/////"},
		{300, 0, 0, 1, 100, 10, "#########/"},
		{1, 1, 1, 1, 4, 2, "#="},
		{1, 0, 0, 0, 0, 4, "####"},
	} {
		d := figures.DeviceState{Used: c.used, Committed: c.used + c.kept, Overhead: c.overhead, Unmanaged: c.unmanaged}
		if got := ansi.Strip(bar(parts(g, &d), c.total, c.cells)); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// TestReserved checks that a job that has only reserved memory gets a row on its device. A job with
// another row gets no such row.
func TestReserved(t *testing.T) {
	s := lab()
	s.Jobs = append(s.Jobs, figures.JobState{ID: 99, PID: 4999, User: "eve", Command: "nightly", State: figures.StateRunning,
		Devices: []figures.JobDeviceState{{Device: 0, Max: accounting.Max}, {Device: 1, Reserved: 3 << 30, Min: 3 << 30, Max: 4 << 30}}})
	for i := range s.Jobs[:len(s.Jobs)-1] {
		s.Jobs[i].Devices = append(s.Jobs[i].Devices, figures.JobDeviceState{Device: 1, Reserved: 1, Max: accounting.Max})
	}
	var found []row
	for _, r := range rowsOf(&s) {
		if r.state == "reserved" {
			found = append(found, r)
		}
	}
	if len(found) != 1 || found[0].pid != 4999 || found[0].device != 1 || found[0].min != 3<<30 || found[0].budget != 4<<30 {
		t.Errorf("rows of reservations: %+v", found)
	}
	m := screen(&answers{}, 120, 40, Options{})
	m.Update(snapshot{state: s, at: begin})
	if drawn := m.draw(); !strings.Contains(drawn, "nightly") || !strings.Contains(drawn, "reserved") {
		t.Errorf("it is not shown:\n%s", drawn)
	}
}
