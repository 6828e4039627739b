package daemon

// This file holds rows of ended jobs and minutes until the history's process has written them. The feed has a lock of its own, which is never
// held during a write or a wait. archive.go fills and sends the feed.

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

// Bounds of the rows that wait while the history cannot be written. A new row then replaces the oldest one.
const (
	mostPast    = 8192    // jobs that have ended
	mostMinutes = 64 * 60 // rows of one device and minute: an hour of 64 devices
)

// feedTimeout is how long the process may take to read a batch, or to answer it.
const feedTimeout = 10 * time.Second

// feed holds rows until they are written.
type feed struct {
	look  chan struct{} // receives when a lease has changed while rests is true
	rests atomic.Bool   // the last look at the credit found no lease
	wake  chan struct{} // receives when a job has ended, or the process was started

	mu      sync.Mutex
	past    []feedRow // rows of jobs that have ended, the oldest first
	minutes []rows.Minute
	settled settled
	pipe    *os.File // standard input of the process; nil: no process
	number  uint64   // of the last batch that was sent
	awaits  bool     // the last batch has no answer yet
	all     bool     // the next batch must have all running jobs, and not only those that changed
	sentAt  time.Time
	trouble string // why rows are not written; "": they are
	down    bool   // trouble is that there is no process
	told    bool   // trouble is what the process said of itself before it ended
	sent    int    // number of minutes at the beginning of minutes that are in the last batch
}

// feedRow is the row of a job that has ended.
type feedRow struct {
	rows.Job
	number uint64 // last batch in which the row was sent; 0: none
}

// settled says whether the process knows that the jobs which have not come back after the start have ended (rows.Batch.Settled).
type settled int

const (
	notSettled  settled = iota
	nowSettled          // the next batch must say so
	toldSettled         // the last batch said so, and has no answer yet
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

// putMinute adds the figures of a device in a minute. If there are too many, the oldest go, also while an unanswered batch has them.
func (f *feed) putMinute(m rows.Minute) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.minutes) >= mostMinutes {
		f.minutes = slices.Delete(f.minutes, 0, 1)
		f.sent = max(f.sent-1, 0)
	}
	f.minutes = append(f.minutes, m)
}

// settle makes the next batch say that the jobs without a row have ended.
func (f *feed) settle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settled = nowSettled
}

// connect sets the pipe to a process that was just started. The next batch then has all running jobs, because what the last process had read
// may not be written.
func (f *feed) connect(pipe *os.File) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pipe, f.awaits, f.all, f.told = pipe, false, true, false
	if f.settled == toldSettled {
		f.settled = nowSettled
	}
	signal(f.wake)
}

// disconnect removes the pipe, because the process has ended.
func (f *feed) disconnect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pipe = nil
}

// failed records why there is no process. The words of the process itself stay, because they say more than how it ended.
func (f *feed) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down = true; !f.told {
		f.trouble = err.Error()
	}
}

// state returns why rows are not written; "": they are.
func (f *feed) state() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trouble
}

// answered handles an answer of the process. text says why the process cannot write; "": it can. changed: that differs from the last answer.
func (f *feed) answered(a rows.Answer) (text string, changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a.Number == 0 && a.Error == "" { // a heartbeat
		if f.down {
			f.down, f.trouble = false, ""
		}
		return "", false
	}
	f.down, f.awaits, f.told = false, false, a.Number == 0
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

// batch returns the next batch, with the rows of running jobs in going, and the pipe for it. It returns nil if there is nothing to write, no
// process, or an unanswered batch. all: going has all running jobs. late: the answer to the last batch is overdue.
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

// errSlow is the error of a process that does not read its pipe, or does not answer a batch.
var errSlow = errors.New("its process does not answer, and is ended")

// send writes the next batch, with the rows of running jobs in going, to the process. An error means that the caller must end the process.
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

// minuteMeans are the sums from which the means of the present minute are computed.
type minuteMeans struct {
	minute int64
	looks  uint64 // number of times that the figures were added
	sums   map[int]rows.Minute
}
