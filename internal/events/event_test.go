package events_test

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gpuarb/gpuarb/internal/events"
)

// An event is one line of JSON of bounded length, whatever names it contains, and reads back to the
// same event. log_test.go tests which lines are kept.

// TestLine checks that an event is one line of bounded length, also with long names, and can be
// read back.
func TestLine(t *testing.T) {
	t.Parallel()
	zero, uid := 0, uint32(1000)
	e := events.Event{Time: now.In(time.FixedZone("", 3600)), Kind: events.Refused, Device: &zero, UUID: "GPU-1", Job: 3, PID: 7, UID: &uid, User: "ann",
		Command: "x <&> \n\x1b[31m", Reason: "device_full", Requested: math.MaxUint64, Text: "no"}
	line := string(e.Line())
	if strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "\n") || strings.Contains(line, "\x1b") || !strings.Contains(line, `"time":"2026-11-25T12:00:00.123456Z"`) ||
		!strings.Contains(line, `"command":"x <&> \n\u001b[31m"`) || !strings.Contains(line, `"device":0`) {
		t.Errorf("%q", line)
	}
	if again, err := events.Parse([]byte(line)); err != nil || !reflect.DeepEqual(again, e) {
		t.Errorf("%v\n%+v\n%+v", err, again, e)
	}
	long := strings.Repeat("\x01ä", 100_000)
	e.Command, e.JobName, e.User, e.Whose, e.Text = long, long, long, long, long
	for range 100 {
		e.Parties = append(e.Parties, events.Party{Command: long, User: long, Holds: []events.Hold{}})
	}
	line = string(e.Line())
	if len(line) > events.MaxLine || !utf8.ValidString(line) {
		t.Errorf("%d bytes", len(line))
	}
	if _, err := events.Parse([]byte(line)); err != nil {
		t.Error(err)
	}
}

// TestLostLineFits checks that every line is at least as long as the line that replaces dropped
// lines.
func TestLostLineFits(t *testing.T) {
	t.Parallel()
	if n := len(events.LostLine(now, math.MaxInt64)); n > events.MinLine {
		t.Errorf("%d bytes", n)
	}
	e := events.Event{Time: now, Kind: events.Over}
	line := e.Line()
	if len(line) != events.MinLine {
		t.Errorf("%d bytes: %q", len(line), line)
	}
	if _, err := events.Parse(line); err != nil {
		t.Error(err)
	}
}

// FuzzParse checks that any bytes are an error, or an event of this version, whose line is bounded
// and can be parsed again.
func FuzzParse(f *testing.F) {
	f.Add(events.LostLine(now, 5))
	e := events.Event{Time: now, Kind: events.Deadlock, Parties: []events.Party{{Job: 1, Holds: []events.Hold{{Device: 1, Slot: true}}}}}
	f.Add(e.Line())
	f.Add([]byte(`{"v":2}`))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := events.Parse(line)
		if err != nil {
			return
		}
		once := e.Line()
		if len(once) > events.MaxLine || strings.Count(string(once), "\n") != 1 {
			t.Fatalf("%q became %q", line, once)
		}
		if y := e.Time.Year(); y < 0 || y > 9999 {
			return // JSON cannot hold this time
		}
		if _, err := events.Parse(once); err != nil {
			t.Fatalf("%q: %v", once, err)
		}
	})
}
