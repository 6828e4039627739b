package daemon

// This file has what waits to be written to the history: rows of jobs and minutes. Its lock is its own, and is held for no wait. archive.go
// fills and sends it.

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpuarb/gpuarb/archive/rows"
)

// Bounds of what waits while the history cannot be written. Beyond them, the oldest goes.
const (
	mostPast    = 8192 // jobs that have ended
	mostMinutes = 64 * 60
)

// feedTimeout is how long the process may take to read a batch, or to answer it.
const feedTimeout = 10 * time.Second

// feed holds rows until they are written.
type feed struct {
	look  chan struct{} // receives when leases have changed while rests is true
	rests atomic.Bool   // there was no lease at the last look
	wake  chan struct{} // receives when a job has ended, or the process was started

	mu      sync.Mutex
	past    []feedRow // rows of jobs that have ended, the oldest first
	minutes []rows.Minute
	settled settled
	pipe    *os.File // standard input of the process; nil: there is none
	number  uint64   // of the last batch that was sent
	awaits  bool     // the last batch is not answered
	all     bool     // the next batch must have all jobs
	sentAt  time.Time
	trouble string // why nothing is written; "": it is
	down    bool   // because there is no process
	sent    int    // number of minutes in the last batch
}

// feedRow is the row of a job that has ended.
type feedRow struct {
	rows.Job
	number uint64 // last batch that has the row; 0: none
}

// settled says how far the end of the jobs that did not come back has been told.
type settled int

const (
	notSettled  settled = iota
	nowSettled          // it must be told
	toldSettled         // it was told in the last batch, which is not answered
	wasSettled
)

// init makes an empty feed.
func (f *feed) init() { f.wake, f.look, f.all = make(chan struct{}, 1), make(chan struct{}, 1), true }

// put adds the row of a job that has ended.
func (f *feed) put(j rows.Job) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.past) >= mostPast {
		f.past = slices.Delete(f.past, 0, 1)
	}
	f.past = append(f.past, feedRow{Job: j})
}

// putMinute adds the figures of a device in a minute.
func (f *feed) putMinute(m rows.Minute) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.minutes) >= mostMinutes && !f.awaits {
		f.minutes = slices.Delete(f.minutes, 0, 1)
	}
	f.minutes = append(f.minutes, m)
}

// settle says that the jobs without a row did not come back.
func (f *feed) settle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settled = nowSettled
}

// connect sets the pipe to a process that was started. It may be another one than before, so that all rows count as changed.
func (f *feed) connect(pipe *os.File) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pipe, f.awaits, f.all = pipe, false, true
	if f.settled == toldSettled {
		f.settled = nowSettled
	}
	signal(f.wake)
}

// disconnect says that the process has ended.
func (f *feed) disconnect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pipe = nil
}

// failed notes why there is no process.
func (f *feed) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trouble, f.down = err.Error(), true
}

// state returns why nothing is written; "": it is.
func (f *feed) state() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trouble
}

// answered handles an answer of the process. changed: nothing could be written until now, or from now on. text says why it cannot; "": it
// can.
func (f *feed) answered(a rows.Answer) (text string, changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a.Number == 0 && a.Error == "" { // a heartbeat
		if f.down {
			f.down, f.trouble = false, ""
		}
		return "", false
	}
	f.down = false
	f.awaits = false
	changed = f.trouble != a.Error
	if f.trouble = a.Error; a.Error != "" {
		if f.settled == toldSettled {
			f.settled = nowSettled
		}
		f.all = true
		return a.Error, changed
	}
	f.past = slices.DeleteFunc(f.past, func(r feedRow) bool { return r.number != 0 && r.number <= a.Number })
	f.minutes = f.minutes[min(f.sent, len(f.minutes)):]
	f.sent = 0
	if f.settled == toldSettled {
		f.settled = wasSettled
	}
	return "", changed
}

// ready reports whether a batch can be sent now, and whether it must have all jobs.
func (f *feed) ready() (ready, all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pipe != nil && !f.awaits, f.all
}

// batch returns the next batch with the rows of jobs that go on, and the pipe for it. It returns nil if there is nothing to write, no process,
// or an unanswered batch. all: the rows are those of all jobs. late: the last batch is unanswered for too long.
func (f *feed) batch(now time.Time, going []rows.Job, all bool) (b *rows.Batch, to *os.File, late bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.pipe == nil:
		return nil, nil, false
	case f.awaits:
		return nil, nil, now.Sub(f.sentAt) > feedTimeout
	}
	b = &rows.Batch{Number: f.number + 1, AtMs: now.UnixMilli(), Minutes: slices.Clone(f.minutes), Jobs: going, Settled: f.settled == nowSettled && (all || !f.all)}
	for i := range f.past[:min(len(f.past), mostPast/8)] {
		f.past[i].number = b.Number
		b.Jobs = append(b.Jobs, f.past[i].Job)
	}
	if len(b.Jobs)+len(b.Minutes) == 0 && !b.Settled {
		return nil, nil, false
	}
	if b.Settled {
		f.settled = toldSettled
	}
	f.number, f.awaits, f.all, f.sentAt, f.sent = b.Number, true, f.all && !all, now, len(b.Minutes)
	return b, f.pipe, false
}

// errSlow is the trouble of a process that does not read or answer.
var errSlow = errors.New("its process does not answer, and is ended")

// send writes the next batch, with the rows of jobs that go on, to the process. An error means that the process must be ended.
func (f *feed) send(now time.Time, going []rows.Job, all bool) error {
	b, to, late := f.batch(now, going, all)
	if late {
		f.failed(errSlow)
		return errSlow
	}
	if b == nil {
		return nil
	}
	line, err := json.Marshal(b)
	if err == nil {
		_ = to.SetWriteDeadline(time.Now().Add(feedTimeout))
		_, err = to.Write(append(line, '\n'))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		f.failed(errSlow)
		return errSlow
	}
	return nil // a process that has ended is started again, and then gets all rows
}

// minuteMeans sums the figures of each device in the present minute.
type minuteMeans struct {
	minute int64
	looks  uint64
	sums   map[int]rows.Minute
}
