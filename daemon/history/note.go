package history

// This file takes events from the daemon, which holds its lock. read.go formats them later.

import (
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/internal/events"
)

// Note records events. The daemon's lock may be held.
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
		case len(h.pending) >= maxPending:
			h.missed++
		default:
			if e.Time.IsZero() {
				e.Time = now
			}
			h.pending = append(h.pending, e)
		}
	}
	if h.eager > 0 || len(h.pending) >= writeBatch {
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}
