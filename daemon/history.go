package daemon

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/config"
	"github.com/gpuarb/gpuarb/daemon/fair"
	"github.com/gpuarb/gpuarb/events"
)

const (
	// historyRoom is how many bytes of lines the event history keeps: some five thousand of them.
	historyRoom = 2 << 20
	// historyPace is how many lines about one user's requests are recorded in a second. The others are counted.
	historyPace = 100
	// writeAtOnce is how many events may wait to become lines before that is done even though nobody reads.
	writeAtOnce = 256
	// mostPending is how many may wait at most.
	mostPending = 8192
)

// history records the arbiter's events and formats them as lines, when somebody reads or many have accumulated. The
// filesystem, the socket and the journal read it. Under the daemon's lock an event is only copied.
type history struct {
	log  *events.Log
	now  func() time.Time
	id   uint64 // tells this daemon from others
	wake chan struct{}

	mu      sync.Mutex // may be taken with the daemon's lock held; nothing is called under it
	pending []arbiter.Event
	pace    fair.Lines
	missed  int // events that found no room in pending
	eager   int // readers that want each line at once

	writing sync.Mutex // orders the lines; taken before mu

	names atomic.Bool // of commands the program's name alone is shown, by configuration
}

func newHistory(now func() time.Time) *history {
	return &history{log: events.NewLog(historyRoom), now: now, id: max(1, uint64(now().UnixNano())), wake: make(chan struct{}, 1),
		pace: fair.Lines{Most: historyPace, Per: time.Second}}
}

// note takes events. The daemon's lock may be held.
func (h *history) note(decided []arbiter.Event) {
	now := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range decided {
		uid := noUser
		if ownerOf(e) != events.Daemon {
			uid = e.UID
		}
		ok, dropped := h.pace.Admit(now, uid)
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
		signal(h.wake)
	}
}

// noUser stands for the user of events that no user caused.
const noUser = ^uint32(0)

// eventsDropped is the kind of an event that counts the lines of a user beyond historyPace; WaitedMs is their number.
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
func (h *history) write() {
	h.writing.Lock()
	defer h.writing.Unlock()
	h.mu.Lock()
	pending, missed := h.pending, h.missed
	h.pending, h.missed = nil, 0
	h.mu.Unlock()
	for i := range pending {
		e := h.lineOf(&pending[i])
		h.log.Add(e.Time, ownerOf(pending[i]), e.Line())
	}
	if missed > 0 {
		e := lostLines(h.now(), missed)
		e.Text = fmt.Sprintf("%d events were not recorded: they came faster than they could be formatted", missed)
		h.log.Add(e.Time, events.Daemon, e.Line())
	}
}

func lostLines(now time.Time, lines int) events.Event {
	return events.Event{Time: now, Kind: events.Lost, Reason: "pace", LostLines: lines}
}

// run formats pending events, whenever note asks for it, until ctx ends.
func (h *history) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
			h.write()
		}
	}
}

// follow has each event formatted as it comes, for a reader that waits for it, until done is called.
func (h *history) follow() (done func()) {
	add := func(n int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.eager += n
	}
	add(1)
	h.write()
	return func() { add(-1) }
}

// Size implements gpufs.History.
func (h *history) Size() (int64, time.Time) {
	h.write()
	return h.log.Size()
}

// ReadAt implements gpufs.History.
func (h *history) ReadAt(dst []byte, offset int64) (n int, next int64) {
	h.write()
	return h.log.ReadAt(dst, offset)
}

// kinds are what the arbiter's events are called in the history.
var kinds = map[arbiter.Kind]events.Kind{
	arbiter.EventGranted: events.Granted, arbiter.EventRecalled: events.Recalled, arbiter.EventDied: events.Died,
	arbiter.EventDenied: events.Refused, arbiter.EventTimeout: events.Refused, arbiter.EventCancelled: events.Refused,
	arbiter.EventQueued: events.Waited, arbiter.EventServed: events.Served, arbiter.EventDeadlock: events.Deadlock,
	arbiter.EventLimits: events.LimitChanged, arbiter.EventPolicy: events.Configured,
	arbiter.EventReclaimed: events.Reclaimed, arbiter.EventKept: events.Kept,
	arbiter.EventOver: events.Over, arbiter.EventWithin: events.Within,
	arbiter.EventClamped: events.Clamped, arbiter.EventExcess: events.Excess, arbiter.EventUnmanaged: events.Unmanaged, arbiter.EventVerified: events.Verified,
	arbiter.EventDeviceLost: events.DeviceLost, arbiter.EventDevice: events.DeviceFound, arbiter.EventHung: events.DeviceHung,
	eventsDropped: events.Lost,
}

// lineOf is an event as the history has it.
func (h *history) lineOf(e *arbiter.Event) events.Event {
	line := events.Event{Time: e.Time, Kind: kinds[e.Kind], UUID: e.UUID, Job: uint64(e.Job), JobName: e.Name, PID: e.PID, User: e.User, Command: e.Command,
		Ticket: uint64(e.Ticket), Bytes: uint64(e.Bytes), Requested: uint64(e.Requested), Text: e.Sentence(),
		What: e.What, Streams: e.Streams, Contexts: e.Contexts, Leases: e.Leases}
	if e.Device >= 0 {
		line.Device = &e.Device
	}
	if e.Reason != 0 {
		line.Reason = e.Reason.String()
	}
	if e.Limit != accounting.Max {
		line.Limit = uint64(e.Limit)
	}
	if e.PID != 0 && line.User != "" {
		line.UID = &e.UID
	}
	if e.Ticket != 0 || e.WaitedMs != 0 {
		line.WaitedMs = &e.WaitedMs
	}
	line.Command = h.command(line.Command)
	switch e.Kind {
	case arbiter.EventTimeout, arbiter.EventCancelled:
		line.WaitedFor, line.Reason = line.Reason, string(e.Kind)
	case arbiter.EventDenied:
		line.Remaining = (*uint64)(&e.Remaining)
	case arbiter.EventDeadlock:
		line.Parties = h.partiesOf(e)
	case arbiter.EventLimits:
		line.ByPID = e.ByPID
		line.Setting, line.Whose, line.From, line.To, line.ByUID = e.Setting, e.Whose, e.From, e.To, &e.UID
	case arbiter.EventHung:
		if e.WaitedMs == 0 {
			line.Kind = events.DeviceWoke
		}
	case eventsDropped:
		line = lostLines(e.Time, int(e.WaitedMs))
		if line.Text = "events were not recorded: too many came in a second"; e.UID == noUser {
			return line
		}
		line.UID, line.User = &e.UID, e.User
		line.Text = fmt.Sprintf("%d events about requests of user %s were not recorded: more than %d came in a second",
			e.WaitedMs, cmp.Or(e.User, fmt.Sprint(e.UID)), historyPace)
	}
	return line
}

// command is a command line as everybody may see it. A line is the same for all readers: where users are shown only their
// own arguments, it has the program's name alone.
func (h *history) command(line string) string {
	if line == "" || !h.names.Load() {
		return line
	}
	first, _, _ := strings.Cut(line, " ")
	return path.Base(first)
}

// partiesOf are the requests of a deadlock.
func (h *history) partiesOf(e *arbiter.Event) []events.Party {
	var all []events.Party
	for i := range e.Parties {
		p := &e.Parties[i]
		party := events.Party{Job: uint64(p.Job), PID: p.PID, User: p.User, Command: h.command(p.Command), Holds: []events.Hold{},
			What: p.What, Wants: p.Wants, Bytes: uint64(p.Bytes), Ticket: uint64(p.Ticket)}
		if p.Device >= 0 {
			party.Device = &p.Device
		}
		for _, held := range p.Holds {
			party.Holds = append(party.Holds, events.Hold{Device: held.Device, Bytes: uint64(held.Bytes), Slot: held.Slot})
		}
		all = append(all, party)
	}
	return all
}

// show sets what a configuration lets everybody see. What was written while that was more is dropped.
func (h *history) show(c *config.Config) {
	h.writing.Lock() // what is being written is there, and dropped too
	defer h.writing.Unlock()
	names := c.Commands == config.CommandsOwn && os.Geteuid() == 0
	if was := h.names.Swap(names); names && !was {
		h.log.Clear()
	}
}
