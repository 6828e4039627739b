package history

// This file has the history and how its lines are bounded. note.go takes events, read.go hands lines on, line.go has what a line says;
// log.go and journal.go tell the same elsewhere.

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
	// room is how many bytes of lines the event history keeps: some five thousand of them.
	historyBytes = 2 << 20
	// pace is how many lines about one user's requests are recorded in a second. The others are counted.
	linesPerSecond = 100
	// writeBatch is how many events may wait to become lines before that is done even though nobody reads.
	writeBatch = 256
	// maxPending is how many may wait at most.
	maxPending = 8192
)

// journals tells whether standard error is systemd's journal: then events go there with their fields, and not as lines of the log.
func journals() bool {
	direct, err := journal.StderrIsJournalStream()
	return err == nil && direct && journal.Enabled()
}

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
	missed  int // events that found no historyBytes in pending
	eager   int // readers that want each line at once

	writing sync.Mutex // orders the lines; taken before mu

	namesOnly atomic.Bool // of commands the program's name alone is shown, by configuration
}

// New is a history that is empty.
func New(now func() time.Time, log *slog.Logger) *History {
	return &History{ID: max(1, uint64(now().UnixNano())), lines: events.NewLog(historyBytes), now: now, log: log, journaled: journals(),
		wake: make(chan struct{}, 1), paced: fair.Quota{Most: linesPerSecond, Per: time.Second}, logged: fair.Logged()}
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

func lostLines(now time.Time, lines int) events.Event {
	return events.Event{Time: now, Kind: events.Lost, Reason: "pace", LostLines: lines}
}

// hurry counts readers that wait for each event to be formatted as it comes.
func (h *History) countEager(readers int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.eager += readers
}

// Show sets whether everybody is shown no more of a command than the program's name. What was written while that was more is dropped.
func (h *History) SetNamesOnly(names bool) {
	h.writing.Lock() // what is being written is there, and dropped too
	defer h.writing.Unlock()
	if was := h.namesOnly.Swap(names); names && !was {
		h.lines.Clear()
	}
}
