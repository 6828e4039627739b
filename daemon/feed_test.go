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

// TestClockBackInTheHistory sets the machine's clock back by an hour while a job holds memory. The job's row counts the time that really passed, and
// the job does not end before its beginning.
func TestClockBackInTheHistory(t *testing.T) {
	b := &bench{t: t, dir: shortDir(t), machine: newFakeMachine(t, gib), clock: newFakeClock()}
	b.start()
	holder := b.child(gib / 2)
	row := func() rows.Job {
		b.lock()
		defer b.unlock()
		all := b.arb.Accounts(b.now(), true)
		if len(all) != 1 {
			t.Fatalf("%d jobs run", len(all))
		}
		return b.rowOf(&all[0], false)
	}
	before := row().Devices[0].Held
	b.clock.Advance(10 * time.Minute)
	b.clock.Jump(-time.Hour)
	b.clock.Advance(10 * time.Minute)
	if held := row().Devices[0].Held - before; held < gib/2*1199 || held > gib/2*1260 {
		t.Errorf("half a GiB for 20 minutes is %v byte-seconds, want %v", held, gib/2*1200)
	}
	_ = holder.stdin.Close()
	var ended rows.Job
	b.until("the job has ended", func() bool {
		b.feed.mu.Lock()
		defer b.feed.mu.Unlock()
		if len(b.feed.past) == 0 {
			return false
		}
		ended = b.feed.past[0].Job
		return true
	})
	if u := ended.Devices[0]; ended.EndedMs < ended.BeganMs || u.Held-before < gib/2*1199 || u.Held-before > gib/2*1300 || u.IdleMs < 0 || u.WaitedMs < 0 {
		t.Errorf("the ended job: %+v", ended)
	}
}
