package daemon

import (
	"os"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/archive/rows"
)

// This file checks the bounds of the rows that wait for the history's process. tests/history checks that no row is lost.

// TestUnansweredMinutes checks that minutes stay within their bound while a batch has no answer. The answer then removes the minutes of its batch
// alone.
func TestUnansweredMinutes(t *testing.T) {
	var f feed
	f.init()
	f.pipe = os.Stdin // batch only compares it with nil
	add := func(from, to int64) {
		for m := from; m < to; m++ {
			f.putMinute(rows.Minute{Minute: m})
		}
	}
	add(0, 100)
	b, _, _ := f.batch(time.Unix(0, 0), nil, true)
	if b == nil || len(b.Minutes) != 100 {
		t.Fatalf("the batch is %+v", b)
	}
	const last = 100 + mostMinutes - 40 // 60 of the batch's minutes must go
	add(100, last)
	if len(f.minutes) != mostMinutes {
		t.Errorf("%d minutes wait, which may be %d", len(f.minutes), mostMinutes)
	}
	f.answered(rows.Answer{Number: b.Number})
	if n := len(f.minutes); n != mostMinutes-40 || f.minutes[0].Minute != 100 || f.minutes[n-1].Minute != last-1 {
		t.Errorf("%d minutes wait from %d on, want %d from 100 on", n, f.minutes[0].Minute, mostMinutes-40)
	}
	b, _, _ = f.batch(time.Unix(0, 0), nil, true)
	add(last, last+2*mostMinutes)
	f.answered(rows.Answer{Number: b.Number})
	if n := len(f.minutes); n != mostMinutes || f.minutes[0].Minute != last+mostMinutes {
		t.Errorf("after a batch that is all gone, %d minutes wait from %d on", n, f.minutes[0].Minute)
	}
}
