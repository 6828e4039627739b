package history

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/daemon/fair"
	"github.com/gpuarb/gpuarb/events"
)

const (
	// room is how many bytes of lines the event history keeps: some five thousand of them.
	room = 2 << 20
	// pace is how many lines about one user's requests are recorded in a second. The others are counted.
	pace = 100
	// writeAtOnce is how many events may wait to become lines before that is done even though nobody reads.
	writeAtOnce = 256
	// mostPending is how many may wait at most.
	mostPending = 8192
)

// History records the arbiter's events and formats them as lines, when somebody reads or many have accumulated. Under the daemon's
// lock an event is only copied, and what the log is to say of it. Its methods are safe for concurrent use.
type History struct {
	ID uint64 // tells this daemon from others

	lines     *events.Log
	now       func() time.Time
	log       *slog.Logger // of a Queue, so that nothing waits for whoever reads it
	journaled bool         // events go to the journal with their fields, and not to the log
	wake      chan struct{}

	mu      sync.Mutex // may be taken with the daemon's lock held; nothing is called under it
	pending []arbiter.Event
	paced   fair.Quota
	logged  fair.Quota
	missed  int // events that found no room in pending
	eager   int // readers that want each line at once

	writing sync.Mutex // orders the lines; taken before mu

	names atomic.Bool // of commands the program's name alone is shown, by configuration
}

// New is a history that is empty.
func New(now func() time.Time, log *slog.Logger) *History {
	return &History{ID: max(1, uint64(now().UnixNano())), lines: events.NewLog(room), now: now, log: log, journaled: journals(),
		wake: make(chan struct{}, 1), paced: fair.Quota{Most: pace, Per: time.Second}, logged: fair.Logged()}
}

// Note takes events. The daemon's lock may be held.
func (h *History) Note(decided []arbiter.Event) {
	h.note(decided)
	h.logAll(decided)
}

func (h *History) note(decided []arbiter.Event) {
	now := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range decided {
		uid := noUser
		if ownerOf(e) != events.Daemon {
			uid = e.UID
		}
		ok, dropped := h.paced.Admit(now, uid)
		if dropped > 0 {
			h.pending = append(h.pending, arbiter.Event{Time: now, Kind: eventsDropped, Device: -1, UID: uid, User: e.User, WaitedMs: int64(dropped)})
		}
		switch {
		case !ok:
		case len(h.pending) >= mostPending:
			h.missed++
		default:
			if e.Time.IsZero() {
				e.Time = now
			}
			h.pending = append(h.pending, e)
		}
	}
	if h.eager > 0 || len(h.pending) >= writeAtOnce {
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

// noUser stands for the user of events that no user caused.
const noUser = ^uint32(0)

// eventsDropped is the kind of an event that counts the lines of a user beyond pace; WaitedMs is their number.
const eventsDropped arbiter.Kind = "dropped"

// ownerOf is whose share of the history an event counts against: the user who caused it, or whose budget it is about (he can have that go
// over its limit and back as often as he changes it), else the daemon.
func ownerOf(e arbiter.Event) events.Owner {
	if e.PID == 0 && e.User == "" && e.Kind != arbiter.EventLimits && e.Kind != eventsDropped || e.UID == noUser {
		return events.Daemon
	}
	return events.Owner(e.UID)
}

// write formats the pending events. The caller holds no lock of the daemon's.
func (h *History) write() {
	h.writing.Lock()
	defer h.writing.Unlock()
	h.mu.Lock()
	pending, missed := h.pending, h.missed
	h.pending, h.missed = nil, 0
	h.mu.Unlock()
	for i := range pending {
		e := h.lineOf(&pending[i])
		h.lines.Add(e.Time, ownerOf(pending[i]), e.Line())
	}
	if missed > 0 {
		e := lostLines(h.now(), missed)
		e.Text = fmt.Sprintf("%d events were not recorded: they came faster than they could be formatted", missed)
		h.lines.Add(e.Time, events.Daemon, e.Line())
	}
}

func lostLines(now time.Time, lines int) events.Event {
	return events.Event{Time: now, Kind: events.Lost, Reason: "pace", LostLines: lines}
}

// Run formats pending events, whenever Note asks for it, until ctx ends.
func (h *History) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
			h.write()
		}
	}
}

// hurry counts readers that wait for each event to be formatted as it comes.
func (h *History) hurry(readers int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.eager += readers
}

// Size implements gpufs.History.
func (h *History) Size() (int64, time.Time) {
	h.write()
	return h.lines.Size()
}

// ReadAt implements gpufs.History.
func (h *History) ReadAt(dst []byte, offset int64) (n int, next int64) {
	h.write()
	return h.lines.ReadAt(dst, offset)
}

// Read hands on the lines that are kept from an offset on, whole ones in at most so many bytes, which are valid until each returns, with
// the offset behind them. It returns that after the last one; if it follows, when ctx ends. An error is that of each.
func (h *History) Read(ctx context.Context, from int64, follow bool, most int, each func(lines []byte, next int64) error) (at int64, err error) {
	if follow {
		h.hurry(1)
		defer h.hurry(-1)
	}
	h.write()
	lines := make([]byte, 0, most)
	for at = from; ctx.Err() == nil; {
		size, _ := h.lines.Size()
		if at >= size {
			if !follow {
				break
			}
			select {
			case <-h.lines.Grown(at):
			case <-ctx.Done():
			}
			continue
		}
		lines, at = h.lines.Lines(lines[:0], h.now(), at)
		if err = each(lines, at); err != nil {
			break
		}
	}
	return at, err
}

// Show sets whether everybody is shown no more of a command than the program's name. What was written while that was more is dropped.
func (h *History) Show(names bool) {
	h.writing.Lock() // what is being written is there, and dropped too
	defer h.writing.Unlock()
	if was := h.names.Swap(names); names && !was {
		h.lines.Clear()
	}
}
