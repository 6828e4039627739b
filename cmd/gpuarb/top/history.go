package top

// This file keeps how much of a device was used in the last minutes, and draws it as a graph.
// devices.go calls it.

import (
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
)

const (
	historySeconds = int64(figures.RecentSpans * figures.RecentStep / time.Second) // seconds that the history covers
	unknown        = -1                                                            // share of a second of which nothing is known
)

// history is the share of a device that was taken in each second.
type history struct {
	shares [historySeconds]float32 // from 0 to 1, or unknown; each second at its number modulo historySeconds
	newest int64                   // seconds since 1970; 0: no share yet
}

// add records a share. Seconds since the last share get the last share, or unknown if the daemon
// did not answer in between.
func (h *history) add(at time.Time, share float32, wasAway bool) {
	second := at.Unix()
	if h.newest == 0 || second < h.newest { // the first share, or the clock was set back
		for i := range h.shares {
			h.shares[i] = unknown
		}
		h.newest = second
		h.shares[second%historySeconds] = share
		return
	}
	if second == h.newest {
		h.shares[second%historySeconds] = max(share, h.shares[second%historySeconds])
		return
	}
	between := h.shares[h.newest%historySeconds]
	if wasAway {
		between = unknown
	}
	for s := max(h.newest+1, second-historySeconds+1); s < second; s++ {
		h.shares[s%historySeconds] = between
	}
	h.shares[second%historySeconds], h.newest = share, second
}

// fill records what the daemon knows of the seconds of which nothing is known here: of those before
// this program began, or while it could not ask. recent ends with the span of the time at.
func (h *history) fill(at time.Time, recent []int8) {
	const step = int64(figures.RecentStep / time.Second)
	end := (at.Unix()/step + 1) * step
	for i, percent := range recent {
		first := end - int64(len(recent)-i)*step
		for s := max(first, h.newest-historySeconds+1); percent >= 0 && s < min(first+step, h.newest); s++ {
			if share := &h.shares[s%historySeconds]; *share < 0 {
				*share = float32(percent) / 100
			}
		}
	}
}

// taken returns the share of a device that is taken, by programs with or without gpuarb. It is above
// 1 if programs hold more than the device has.
func taken(d *figures.DeviceState) float32 {
	if d.Total == 0 {
		return 0
	}
	return float32(d.Used.Plus(d.Overhead).Plus(d.Unmanaged)) / float32(d.Total)
}

// columns divides the history into n equal spans, the newest last, and returns the highest share of
// each; below 0: unknown. A span begins at a multiple of its length, so that a column stays the
// same while the graph moves.
func (h *history) columns(n int) []float32 {
	columns := make([]float32, n)
	length := (historySeconds + int64(n) - 1) / int64(n)
	newest := h.newest / length
	for i := range columns {
		columns[i] = unknown
		first := (newest - int64(n-1-i)) * length
		for s := max(first, h.newest-historySeconds+1); s < min(first+length, h.newest+1); s++ {
			columns[i] = max(columns[i], h.shares[s%historySeconds])
		}
	}
	return columns
}

// graph draws the history in a number of lines and cells.
func (h *history) graph(g glyphs, width, height int) []string {
	lines := make([]string, height)
	top := len(g.levels) - 1
	columns := h.columns(width)
	for i := range lines {
		below := (height - 1 - i) * top // levels that the lines below this line show
		var b strings.Builder
		for _, share := range columns {
			level := int(min(share, 1)*float32(height*top) + 0.5)
			if share > 0 {
				level = max(1, level)
			} else if share == 0 && below == 0 { // unlike a time of which nothing is known
				b.WriteString(g.free)
				continue
			}
			b.WriteString(g.levels[min(max(level-below, 0), top)])
		}
		lines[i] = paint(used, b.String())
	}
	return lines
}
