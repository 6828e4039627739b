package top

import (
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
)

// remembered is of how many snapshots the history is kept: five minutes, at one a second.
const remembered = 300

// history is what share of a device was taken, by snapshot.
type history struct {
	shares [remembered]float32 // from 0 to 1, each at its number modulo remembered
	count  int                 // snapshots so far
}

func (h *history) add(share float32) {
	h.shares[h.count%remembered] = share
	h.count++
}

// taken is the share of a device that is taken, by whomever.
func taken(d *accounting.DeviceState) float32 {
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
	length := (remembered + n - 1) / n
	newest := max(0, h.count-1) / length
	for i := range columns {
		columns[i] = -1
		first := (newest - (n - 1 - i)) * length
		for k := max(0, first, h.count-remembered); k < min(first+length, h.count); k++ {
			columns[i] = max(columns[i], h.shares[k%remembered])
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
