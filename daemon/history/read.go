package history

// This file formats recorded events as lines, and passes them to readers: the filesystem, clients, the journal.

import (
	"context"
	"fmt"
	"time"

	"github.com/gpuarb/gpuarb/internal/events"
)

// write formats the pending events. The caller must not hold the daemon's lock.
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

// Run formats pending events whenever Note requests it, until ctx ends.
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

// Read calls each with the kept lines from an offset on, and the offset behind them. The lines are whole, have at
// most most bytes, and are valid until each returns. Read returns the offset behind the last line; if it follows,
// when ctx ends. If each fails, Read returns that error.
func (h *History) Read(ctx context.Context, from int64, follow bool, most int, each func(lines []byte, next int64) error) (at int64, err error) {
	if follow {
		h.countEager(1)
		defer h.countEager(-1)
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
