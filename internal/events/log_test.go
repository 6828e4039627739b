package events_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/internal/events"
)

// The history keeps each line at its offset until newer lines displace it, and says how much was
// dropped. An owner with many lines displaces only its own. event_test.go tests the lines.

var now = time.Date(2026, 11, 25, 12, 0, 0, 123456789, time.UTC)

// text returns a line of size bytes, which begins with its owner and its number.
func text(owner, number, size int) []byte {
	line := fmt.Appendf(nil, "%d %d ", owner, number)
	return append(append(line, bytes.Repeat([]byte("x"), size-len(line)-1)...), '\n')
}

// TestLogKeepsOffsets checks that an offset holds the bytes that were written there, or nothing.
// Sizes never shrink, and the log never exceeds its capacity.
func TestLogKeepsOffsets(t *testing.T) {
	t.Parallel()
	const capacity = 4000
	l := events.NewLog(capacity)
	rng := rand.New(rand.NewPCG(1, 2))
	var all []byte
	for i := range 2000 {
		owner := rng.IntN(4)
		line := text(owner, i, 160+rng.IntN(200))
		l.Add(now, events.Owner(owner-1), line)
		all = append(all, line...)
		if size, last := l.Size(); size != int64(len(all)) || !last.Equal(now) {
			t.Fatalf("the size is %d after %d bytes", size, len(all))
		}
		there := 0
		buffer := make([]byte, 1+rng.IntN(500))
		for at := int64(0); at < int64(len(all)); {
			n, next := l.ReadAt(buffer, at)
			if next <= at || next > int64(len(all)) || n > 0 && next != at+int64(n) {
				t.Fatalf("at %d of %d: %d bytes, next %d", at, len(all), n, next)
			}
			if !bytes.Equal(buffer[:n], all[at:at+int64(n)]) {
				t.Fatalf("at %d: %q, was written as %q", at, buffer[:n], all[at:at+int64(n)])
			}
			there, at = there+n, next
		}
		if there > capacity || i > 100 && there < capacity/2 {
			t.Fatalf("%d bytes are kept, there is room for %d", there, capacity)
		}
	}
	if n, next := l.ReadAt(make([]byte, 10), int64(len(all))); n != 0 || next != int64(len(all)) {
		t.Errorf("at the end: %d, %d", n, next)
	}
}

// TestLogIsFair checks that an owner with many lines displaces only its own lines.
func TestLogIsFair(t *testing.T) {
	t.Parallel()
	l := events.NewLog(4000)
	for i := range 5 {
		l.Add(now, 7, text(7, i, 200))
		l.Add(now, events.Daemon, text(0, i, 200))
	}
	for i := range 10_000 {
		l.Add(now, 8, text(8, i, 200))
	}
	got, at := "", int64(0)
	for size, _ := l.Size(); at < size; {
		var lines []byte
		lines, at = l.Lines(make([]byte, 0, events.MaxLine), now, at)
		got += string(lines)
	}
	for i := range 5 {
		if !strings.Contains(got, fmt.Sprintf("7 %d x", i)) || !strings.Contains(got, fmt.Sprintf("0 %d x", i)) {
			t.Errorf("line %d of those who write little is gone", i)
		}
	}
	if n := strings.Count(got, "8 9999 x"); n != 1 || strings.Contains(got, "8 0 x") {
		t.Errorf("of the one who writes much not the newest are kept")
	}
	if !strings.Contains(got, `"kind":"lost"`) {
		t.Errorf("nothing says that lines are lost:\n%s", got)
	}
}

// TestLines checks that Lines returns as many whole lines as fit, and a line that counts dropped
// bytes.
func TestLines(t *testing.T) {
	t.Parallel()
	l := events.NewLog(1000)
	for i := range 10 {
		l.Add(now, 1, text(1, i, 200))
	}
	buffer := make([]byte, 0, 500)
	lines, next := l.Lines(buffer, now, 0)
	if e, err := events.Parse(lines); err != nil || e.Kind != events.Lost || e.LostBytes != 1000 || next != 1000 {
		t.Errorf("%q, %v, next %d", lines, err, next)
	}
	if lines, next = l.Lines(buffer, now, next); string(lines) != string(text(1, 5, 200))+string(text(1, 6, 200)) || next != 1400 {
		t.Errorf("%q, next %d", lines, next)
	}
	if lines, next = l.Lines(buffer, now, 2000); len(lines) != 0 || next != 2000 {
		t.Errorf("at the end %q, next %d", lines, next)
	}
	lines, next = l.Lines(buffer, now, 1450) // from inside a line
	if e, err := events.Parse(lines); err != nil || e.LostBytes != 150 || next != 1600 {
		t.Errorf("%q, %v, next %d", lines, err, next)
	}
	grown := l.Grown(2000)
	select {
	case <-grown:
		t.Error("nothing has come yet")
	default:
	}
	l.Add(now, 1, text(1, 10, 200))
	<-grown
	<-l.Grown(2000)
}

// TestClear checks that dropped lines cannot be read any more, and that offsets continue.
func TestClear(t *testing.T) {
	t.Parallel()
	l := events.NewLog(4000)
	for i := range 5 {
		l.Add(now, 7, text(7, i, 200))
	}
	l.Clear()
	if n, next := l.ReadAt(make([]byte, 500), 0); n != 0 || next != 1000 {
		t.Errorf("%d bytes are there, next %d", n, next)
	}
	last := text(7, 5, 200)
	l.Add(now, 7, last)
	lines, next := l.Lines(make([]byte, 0, events.MaxLine), now, 0)
	if e, err := events.Parse(lines); err != nil || e.LostBytes != 1000 || next != 1000 {
		t.Errorf("%q, %v, next %d", lines, err, next)
	}
	if lines, next = l.Lines(make([]byte, 0, events.MaxLine), now, next); string(lines) != string(last) || next != 1200 {
		t.Errorf("%q, next %d", lines, next)
	}
	for i := range 100 { // dropped lines use no capacity
		l.Add(now, 7, text(7, i, 200))
	}
	if n, next := l.ReadAt(make([]byte, 9000), 21_200-4000); n != 4000 || next != 21_200 {
		t.Errorf("%d bytes are there, next %d", n, next)
	}
}
