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
	return &mark{e.Time.UnixMilli(), e.Kind, e.Device, e.Text}
}

// happened follows the daemon's event history, keeps the events of the last hour as marks, and sends new ones to the followers.
type happened struct {
	hub *hub

	mu    sync.Mutex
	marks []*mark
}

// add takes whole lines of the event history.
func (h *happened) add(lines []byte) {
	for line := range bytes.Lines(lines) {
		m := markOf(line)
		if m == nil {
			continue
		}
		h.mu.Lock()
		if len(h.marks) == marksKept {
			h.marks = h.marks[1:]
		}
		h.marks = append(h.marks, m)
		h.mu.Unlock()
		if text, err := json.Marshal(m); err == nil {
			h.hub.send(event("happened", text))
		}
	}
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
