package web

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
	// marksKept is how many events of the last hour are kept, the newest.
	marksKept = 512
	// markText is the longest text of one, in bytes.
	markText = 512
	// followAgain is after how long events are asked for again.
	followAgain = 5 * time.Second
)

// mark is an event as the page shows it: on the axis of time, and in a list.
type mark struct {
	ID     uint64 `json:"id"` // counts the events that are shown, from 1, since this process began
	TimeMs int64  `json:"time_ms"`
	Kind   string `json:"kind"`
	Device *int   `json:"device"` // null: none alone
	Text   string `json:"text"`
}

// ordinary are the kinds that are left out: they are so frequent that a chart would show nothing else.
var ordinary = []string{"granted", "recalled", "verified", "within", "ended"}

// markOf reads a line of the event history; nil: it is not shown.
func markOf(line []byte) *mark {
	var e struct {
		Time   time.Time `json:"time"`
		Kind   string    `json:"kind"`
		Device *int      `json:"device"`
		Text   string    `json:"text"`
	}
	if json.Unmarshal(line, &e) != nil || e.Time.IsZero() || e.Kind == "" || slices.Contains(ordinary, e.Kind) {
		return nil
	}
	if len(e.Text) > markText {
		e.Text = string(bytes.ToValidUTF8([]byte(e.Text[:markText]), nil)) + "…"
	}
	return &mark{TimeMs: e.Time.UnixMilli(), Kind: e.Kind, Device: e.Device, Text: e.Text}
}

// happened follows the daemon's event history, keeps the events of the last hour as marks, and sends new ones to the followers.
type happened struct {
	hub *hub

	mu    sync.Mutex
	marks []*mark
	last  uint64 // ID of the newest
}

// add takes whole lines of the event history.
func (h *happened) add(lines []byte) {
	for line := range bytes.Lines(lines) {
		m := markOf(line)
		if m == nil {
			continue
		}
		h.mu.Lock()
		h.last++
		m.ID = h.last
		if len(h.marks) == marksKept {
			h.marks = h.marks[1:]
		}
		h.marks = append(h.marks, m)
		h.mu.Unlock()
		h.hub.send(m.message())
	}
}

// message is the mark as a server-sent event.
func (m *mark) message() []byte {
	text, _ := json.Marshal(m) // cannot fail: it has numbers and texts alone
	return event("happened", text)
}

// after returns the messages of all kept marks with a larger ID, oldest first.
func (h *happened) after(id uint64) (messages []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.marks {
		if m.ID > id {
			messages = append(messages, m.message()...)
		}
	}
	return messages
}

// since are the marks from a time on, oldest first.
func (h *happened) since(t time.Time) []*mark {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]*mark, 0, len(h.marks))
	for _, m := range h.marks {
		if m.TimeMs >= t.UnixMilli() {
			list = append(list, m)
		}
	}
	return list
}

// follow reads the daemon's events until ctx ends, and goes on where it was after a break.
func (h *happened) follow(ctx context.Context, from *source) {
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
		case <-time.After(followAgain):
		}
	}
}
