package history

// This file has the history and the bounds on its lines. note.go takes events, read.go passes lines on, line.go
// formats them; log.go and journal.go report the events elsewhere.

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/journal"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/daemon/fair"
	"github.com/gpuarb/gpuarb/internal/events"
)

const (
	// historyBytes is the size of the lines that the event history keeps: about five thousand lines.
	historyBytes = 2 << 20
	// linesPerSecond is the number of lines about one user's requests that are recorded in a second. The rest is
	// counted.
	linesPerSecond = 100
	// writeBatch is the number of pending events that are formatted even if no client reads.
	writeBatch = 256
	// maxPending is the largest number of pending events.
	maxPending = 8192
)

// journals reports whether standard error is systemd's journal. Events then go to the journal with their fields, and
// not as lines of the log.
func journals() bool {
	direct, err := journal.StderrIsJournalStream()
	return err == nil && direct && journal.Enabled()
}

// History records the arbiter's events. It formats them as lines when a client reads or many events are pending.
// Under the daemon's lock an event and its log message are only copied. Its methods are safe for concurrent use.
type History struct {
	ID uint64 // identifies this daemon

	lines     *events.Log
	now       func() time.Time
	log       *slog.Logger // logger of a Queue, so that no caller waits for a reader of the log
	journaled bool         // events go to the journal with their fields, and not to the log
	wake      chan struct{}

	mu      sync.Mutex // may be acquired with the daemon's lock held; no function is called while it is held
	pending []arbiter.Event
	paced   fair.Quota
	logged  fair.Quota
	missed  int // number of events that did not fit into pending
	eager   int // number of readers that want each line at once

	writing sync.Mutex // orders the lines; acquired before mu

	namesOnly atomic.Bool // commands are shown without arguments, by configuration
}

// New returns an empty history.
func New(now func() time.Time, log *slog.Logger) *History {
	return &History{ID: max(1, uint64(now().UnixNano())), lines: events.NewLog(historyBytes), now: now, log: log, journaled: journals(),
		wake: make(chan struct{}, 1), paced: fair.Quota{Most: linesPerSecond, Per: time.Second}, logged: fair.Logged()}
}

// noUser is the user number of events that no user caused.
const noUser = ^uint32(0)

// eventsDropped is the kind of an event that counts the lines of a user beyond linesPerSecond; WaitedMs is their
// number.
const eventsDropped arbiter.Kind = "dropped"

// ownerOf returns the user whose share of the history an event uses: the user who caused it or whose budget it is
// about, or else the daemon. A user can make the own budget go over its limit and back at any rate.
func ownerOf(e arbiter.Event) events.Owner {
	if e.PID == 0 && e.User == "" && e.Kind != arbiter.EventLimits && e.Kind != eventsDropped || e.UID == noUser {
		return events.Daemon
	}
	return events.Owner(e.UID)
}

func lostLines(now time.Time, lines int) events.Event {
	return events.Event{Time: now, Kind: events.Lost, Reason: "pace", LostLines: lines}
}

// countEager adds to the number of readers that wait for each event to be formatted at once.
func (h *History) countEager(readers int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.eager += readers
}

// SetNamesOnly sets whether lines show only the program's name of a command. If that becomes true, lines with
// arguments are dropped.
func (h *History) SetNamesOnly(names bool) {
	h.writing.Lock() // waits for lines that are being written, which are dropped too
	defer h.writing.Unlock()
	if was := h.namesOnly.Swap(names); names && !was {
		h.lines.Clear()
	}
}
