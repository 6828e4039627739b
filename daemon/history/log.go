package history

// This file reports events in the log. note.go calls it.

import (
	"context"
	"log/slog"
	"slices"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/internal/events"
)

// levels maps kinds of events to their levels in the log and in the journal; the default is info.
var levels = map[events.Kind]slog.Level{
	events.Clamped: slog.LevelWarn, events.Kept: slog.LevelWarn, events.DeviceLost: slog.LevelWarn, events.DeviceHung: slog.LevelWarn,
	events.Deadlock: slog.LevelWarn, events.Lost: slog.LevelWarn, events.SuspendFailed: slog.LevelWarn, events.Stuck: slog.LevelWarn,
	events.Granted: slog.LevelDebug, events.Recalled: slog.LevelDebug, events.Died: slog.LevelDebug, events.Ended: slog.LevelDebug,
	events.Reclaimed: slog.LevelDebug, events.Verified: slog.LevelDebug, events.Unmanaged: slog.LevelDebug, events.Within: slog.LevelDebug,
}

// ofRequests are the kinds of events that a user can cause at any rate.
var ofRequests = []events.Kind{events.Refused, events.Waited, events.Served, events.Idle, events.Aged,
	events.Suspending, events.Suspended, events.Resuming, events.Resumed}

// Level returns the level for one more line about a user's requests: info, or debug if there were too many. It logs
// the number of dropped lines.
func (h *History) Level(uid uint32) slog.Level {
	h.mu.Lock()
	ok, dropped := h.logged.Admit(h.now(), uid)
	h.mu.Unlock()
	if dropped > 0 {
		h.log.Info("decisions on this user's requests were not logged in the last minute, they were too many", "uid", uid, "lines", dropped)
	}
	if ok {
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// logAll writes events to the log.
func (h *History) logAll(decided []arbiter.Event) {
	for _, e := range decided {
		kind := kinds[e.Kind]
		level := levels[kind]
		if slices.Contains(ofRequests, kind) || kind == events.Ended && e.Notable() {
			level = h.Level(e.UID)
		}
		if h.journaled && level != slog.LevelDebug || !h.log.Enabled(context.Background(), level) {
			continue
		}
		attributes := []any{"event", e.Kind, "client_pid", e.PID, "device", accounting.IndexName(e.Device), "uid", e.UID}
		if e.Ticket != 0 {
			attributes = append(attributes, "ticket", e.Ticket, "waited_ms", e.WaitedMs)
		}
		if e.Setting != "" {
			attributes = append(attributes, "limit", e.Setting, "of", e.Whose, "from", e.From, "to", e.To)
		}
		h.log.Log(context.Background(), level, e.Sentence(), attributes...)
	}
}
