package web

// This file follows the event history of the daemon and keeps the newest events for the page.
// rings.go keeps the states. hub.go sends events to the readers.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gpuarb/gpuarb/ipc"
)

const (
	// Number of events that are kept, the newest.
	maxEvents = 512
	// Length of the longest text of an event, in bytes.
	maxEventText = 512
	// Pause before events are requested again after a failure.
	retryPause = 5 * time.Second
)

// pageEvent is an event as the page shows it: on the axis of time, and in a list.
type pageEvent struct {
	ID     uint64 `json:"id"` // counts the events that are shown, from 1, since this process started
	TimeMs int64  `json:"time_ms"`
	Kind   string `json:"kind"`
	Device *int   `json:"device"` // null: the event is not about a single device
	Text   string `json:"text"`
}

// hiddenKinds lists the kinds of events that the page leaves out. They are so frequent that a chart
// would show nothing else.
var hiddenKinds = []string{"granted", "recalled", "verified", "within", "ended"}

// parseEvent reads a line of the event history. It returns nil if the page does not show the event.
func parseEvent(line []byte) *pageEvent {
	var e struct {
		Time   time.Time `json:"time"`
		Kind   string    `json:"kind"`
		Device *int      `json:"device"`
		Text   string    `json:"text"`
	}
	if json.Unmarshal(line, &e) != nil || e.Time.IsZero() || e.Kind == "" || slices.Contains(hiddenKinds, e.Kind) {
		return nil
	}
	if len(e.Text) > maxEventText {
		e.Text = string(bytes.ToValidUTF8([]byte(e.Text[:maxEventText]), nil)) + "…"
	}
	return &pageEvent{TimeMs: e.Time.UnixMilli(), Kind: e.Kind, Device: e.Device, Text: e.Text}
}

// eventLog follows the event history of the daemon, keeps the newest events, and sends
// new events to the followers.
type eventLog struct {
	hub *hub

	mu         sync.Mutex
	pageEvents []*pageEvent
	last       uint64 // ID of the newest event; 0: none
}

// add adds whole lines of the event history.
func (h *eventLog) add(lines []byte) {
	for line := range bytes.Lines(lines) {
		m := parseEvent(line)
		if m == nil {
			continue
		}
		h.mu.Lock()
		h.last++
		m.ID = h.last
		if len(h.pageEvents) == maxEvents {
			h.pageEvents = h.pageEvents[1:]
		}
		h.pageEvents = append(h.pageEvents, m)
		h.mu.Unlock()
		h.hub.send(m.message())
	}
}

// message returns the event as a server-sent event.
func (m *pageEvent) message() []byte {
	text, _ := json.Marshal(m) // cannot fail: numbers and texts only
	return event("happened", text)
}

// after returns the messages of all kept events with a larger ID, oldest first.
func (h *eventLog) after(id uint64) (messages []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.pageEvents {
		if m.ID > id {
			messages = append(messages, m.message()...)
		}
	}
	return messages
}

// since returns the events from the time t on, oldest first.
func (h *eventLog) since(t time.Time) []*pageEvent {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]*pageEvent, 0, len(h.pageEvents))
	for _, m := range h.pageEvents {
		if m.TimeMs >= t.UnixMilli() {
			list = append(list, m)
		}
	}
	return list
}

// follow reads the events of the daemon until ctx ends. After a lost connection it continues at the
// same place.
func (h *eventLog) follow(ctx context.Context, from *daemonClient) {
	request := ipc.EventsRequest{Flags: ipc.EventsFollow}
	for ctx.Err() == nil {
		err := from.events(ctx, request, func(part ipc.EventsPart, lines []byte) error {
			request.Daemon, request.Offset = part.Daemon, part.Next
			h.add(lines)
			return nil
		})
		var refused *ipc.ReplyError
		if errors.As(err, &refused) && refused.Status == ipc.StatusUnknownType {
			return // this daemon keeps no history; the next daemon starts a new worker
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
}
