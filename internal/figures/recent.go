package figures

// This file records how much of a device was taken in the last minutes, so that a new `gpuarb top`
// begins with a graph. The arbiter records it with each reading of the device.

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// DeviceState.RecentPercent covers RecentSpans spans of RecentStep. A span begins at a multiple of
// RecentStep since 1970.
const (
	RecentStep  = 5 * time.Second
	RecentSpans = 60
	// RecentUnknown is the percentage of a span without a reading.
	RecentUnknown = -1
)

// Recent records the largest percentage of a device that was taken in each of the last spans.
type Recent struct {
	spans  [RecentSpans]int8 // each span at its number modulo RecentSpans
	newest int64             // number of the newest span; 0: nothing was recorded
}

// recentSpan returns the number of the span of a time.
func recentSpan(at time.Time) int64 { return at.UnixNano() / int64(RecentStep) }

// Note records how much of a device is taken now. Small amounts count as 1 percent.
func (r *Recent) Note(now time.Time, taken, total accounting.Bytes) {
	if total == 0 {
		return
	}
	percent := int8(min(100, (float64(taken)*100+float64(total)-1)/float64(total)))
	r.forward(recentSpan(now))
	at := &r.spans[r.newest%RecentSpans]
	*at = max(*at, percent)
}

// forward makes span the newest span. Spans since the last one are unknown. After the clock was set
// back, it forgets everything.
func (r *Recent) forward(span int64) {
	if r.newest == 0 || span < r.newest {
		r.newest = span - RecentSpans
	}
	for r.newest = max(r.newest, span-RecentSpans); r.newest < span; {
		r.newest++
		r.spans[r.newest%RecentSpans] = RecentUnknown
	}
}

// Percent returns the spans up to now, oldest first. Its elements are 0 to 100, or RecentUnknown.
func (r *Recent) Percent(now time.Time) []int8 {
	view := *r
	view.forward(recentSpan(now))
	all := make([]int8, 0, RecentSpans)
	for span := view.newest - RecentSpans + 1; span <= view.newest; span++ {
		all = append(all, view.spans[span%RecentSpans])
	}
	return all
}
