package top

// This file draws the bar that shows how the memory of a device is used. devices.go and table.go
// call it.

import (
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// part is a kind of use of a device.
type part struct {
	name, glyph, attribute string
	bytes                  accounting.Bytes
}

// parts divides the memory of a device. "kept" is memory that is not in use and cannot be granted:
// the unused rest of each memory.min, idle credit, and what the configuration sets aside. It is not
// called reserved, because that word means all of memory.min elsewhere. The last part is what can
// be granted; in a bar it gets all cells that are left.
func parts(g glyphs, d *figures.DeviceState) []part {
	return []part{
		{"used", g.used, used, d.Used},
		{"kept", g.kept, kept, d.Committed.Less(d.Used).Plus(d.Reserve)},
		{"overhead", g.overhead, overhead, d.Overhead},
		{"unmanaged", g.unmanaged, unmanaged, d.Unmanaged},
		{"free", g.free, faint, d.Free},
	}
}

// bar draws the parts of a total in a number of cells. A part that is not 0 gets at least one cell,
// as far as there is room. If the parts exceed the total, the bar shows their shares of the sum.
func bar(all []part, total accounting.Bytes, cells int) string {
	var b strings.Builder
	taken := all[:len(all)-1]
	sum, unseen := accounting.Bytes(0), 0 // parts that are not 0 and still to be drawn
	for _, p := range taken {
		if sum = sum.Plus(p.bytes); p.bytes > 0 {
			unseen++
		}
	}
	total = max(total, sum)
	left, below := cells, accounting.Bytes(0)
	for _, p := range taken {
		if p.bytes == 0 || total == 0 {
			continue
		}
		unseen--
		below = below.Plus(p.bytes)
		upTo := int(float64(below)/float64(total)*float64(cells) + 0.5)
		n := min(max(1, upTo-(cells-left)), max(left-unseen, min(left, 1)))
		b.WriteString(paint(p.attribute, strings.Repeat(p.glyph, n)))
		left -= n
	}
	free := all[len(all)-1]
	b.WriteString(paint(free.attribute, strings.Repeat(free.glyph, left)))
	return b.String()
}
