package top

import (
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/figures"
)

const (
	remembered = 300 // seconds of which the history is kept
	unknown    = -1  // share of a second in which the daemon was away
)

// history is what share of a device was taken, second by second.
type history struct {
	shares         [remembered]float32 // from 0 to 1, or unknown; each at its second modulo remembered
	oldest, newest int64               // seconds since 1970; both 0: nothing is known yet
}

// add notes a share. The seconds since the last one had what that one had, unless the daemon was
// away meanwhile.
func (h *history) add(at time.Time, share float32, wasAway bool) {
	second := at.Unix()
	if h.newest == 0 || second < h.newest { // the first one, or the clock was set back
		*h = history{oldest: second, newest: second}
		h.shares[second%remembered] = share
		return
	}
	if second == h.newest {
		h.shares[second%remembered] = max(share, h.shares[second%remembered])
		return
	}
	between := h.shares[h.newest%remembered]
	if wasAway {
		between = unknown
	}
	for s := max(h.newest+1, second-remembered+1); s < second; s++ {
		h.shares[s%remembered] = between
	}
	h.shares[second%remembered], h.newest = share, second
}

// taken is the share of a device that is taken, by whomever.
func taken(d *figures.DeviceState) float32 {
	if d.Total == 0 {
		return 0
	}
	return min(1, float32(d.Used.Plus(d.Overhead).Plus(d.Unmanaged))/float32(d.Total))
}

// columns are the highest shares of as many equal spans as there are columns, the newest last;
// below 0 where nothing is known. A span begins at a multiple of its length, so that a column does
// not change while the graph moves on.
func (h *history) columns(n int) []float32 {
	columns := make([]float32, n)
	length := int64((remembered + n - 1) / n)
	newest := h.newest / length
	for i := range columns {
		columns[i] = unknown
		first := (newest - int64(n-1-i)) * length
		for s := max(first, h.oldest, h.newest-remembered+1); s < min(first+length, h.newest+1); s++ {
			columns[i] = max(columns[i], h.shares[s%remembered])
		}
	}
	return columns
}

// graph draws the history in so many lines of so many cells.
func (h *history) graph(g glyphs, width, height int) []string {
	lines := make([]string, height)
	top := len(g.levels) - 1
	columns := h.columns(width)
	for i := range lines {
		below := (height - 1 - i) * top // levels that the lines below this one show
		var b strings.Builder
		for _, share := range columns {
			level := int(share*float32(height*top) + 0.5)
			if share > 0 {
				level = max(1, level)
			}
			b.WriteString(g.levels[min(max(level-below, 0), top)])
		}
		lines[i] = paint(used, b.String())
	}
	return lines
}
