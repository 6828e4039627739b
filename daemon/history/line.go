package history

// This file converts an event of the arbiter to the fields of a line. read.go calls it.

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/internal/events"
)

// kinds maps the arbiter's kinds of events to those of the history.
var kinds = map[arbiter.Kind]events.Kind{
	arbiter.EventGranted: events.Granted, arbiter.EventRecalled: events.Recalled, arbiter.EventDied: events.Died, arbiter.EventEnded: events.Ended,
	arbiter.EventDenied: events.Refused, arbiter.EventTimeout: events.Refused, arbiter.EventCancelled: events.Refused,
	arbiter.EventQueued: events.Waited, arbiter.EventServed: events.Served, arbiter.EventDeadlock: events.Deadlock,
	arbiter.EventLimits: events.LimitChanged, arbiter.EventPolicy: events.Configured,
	arbiter.EventReclaimed: events.Reclaimed, arbiter.EventKept: events.Kept,
	arbiter.EventOver: events.Over, arbiter.EventWithin: events.Within,
	arbiter.EventClamped: events.Clamped, arbiter.EventExcess: events.Excess, arbiter.EventTwoCopies: events.TwoCopies, arbiter.EventNoWall: events.DriverLimit, arbiter.EventNoProcess: events.NoProcess, arbiter.EventUnmanaged: events.Unmanaged, arbiter.EventVerified: events.Verified,
	arbiter.EventDeviceLost: events.DeviceLost, arbiter.EventDevice: events.DeviceFound, arbiter.EventHung: events.DeviceHung, arbiter.EventUnknown: events.DeviceUnknown,
	arbiter.EventIdle: events.Idle, arbiter.EventAged: events.Aged,
	arbiter.EventSuspending: events.Suspending, arbiter.EventSuspended: events.Suspended, arbiter.EventNotGiven: events.SuspendFailed,
	arbiter.EventResuming: events.Resuming, arbiter.EventResumed: events.Resumed, arbiter.EventStuck: events.Stuck,
	eventsDropped: events.Lost,
}

// lineOf converts an event to a line of the history.
func (h *History) lineOf(e *arbiter.Event) events.Event {
	line := events.Event{Time: e.Time, Kind: kinds[e.Kind], UUID: e.UUID, Job: uint64(e.Job), JobName: e.Name, PID: e.PID, User: e.User, Command: e.Command,
		Ticket: uint64(e.Ticket), Bytes: uint64(e.Bytes), Requested: uint64(e.Requested), Text: e.Sentence(),
		What: e.What, Streams: e.Streams, Contexts: e.Contexts, Leases: e.Leases, IdleMs: e.IdleMs, AgeMs: e.AgeMs, TookMs: e.TookMs,
		ByUID: e.By, ByPID: e.ByPID}
	if e.Device >= 0 {
		line.Device = new(accounting.IndexNumber(e.Device))
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
			e.WaitedMs, cmp.Or(e.User, fmt.Sprint(e.UID)), linesPerSecond)
	}
	return line
}

// command returns a command line as all users may see it. All readers get equal lines: if users may see only their
// own arguments, the line has only the program's name.
func (h *History) command(line string) string {
	if line == "" || !h.namesOnly.Load() {
		return line
	}
	first, _, _ := strings.Cut(line, " ")
	return path.Base(first)
}

// partiesOf converts the requests of a deadlock.
func (h *History) partiesOf(e *arbiter.Event) []events.Party {
	var all []events.Party
	for i := range e.Parties {
		p := &e.Parties[i]
		party := events.Party{Job: uint64(p.Job), PID: p.PID, User: p.User, Command: h.command(p.Command), Holds: []events.Hold{},
			What: p.What, Wants: p.Wants, Bytes: uint64(p.Bytes), Ticket: uint64(p.Ticket)}
		if p.Device >= 0 {
			party.Device = new(accounting.IndexNumber(p.Device))
		}
		for _, held := range p.Holds {
			party.Holds = append(party.Holds, events.Hold{Device: accounting.IndexNumber(held.Device), Bytes: uint64(held.Bytes), Slot: held.Slot})
		}
		all = append(all, party)
	}
	return all
}
