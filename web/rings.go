package web

// This file keeps the points of the last hour, day and week in rings. watcher.go adds a point in
// each step; points.go makes the points, and history.go answers /history with them.

import (
	"sync"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
)

// span is a time up to now that the page can show.
type span struct {
	name   string        // value of the parameter span of /history
	step   time.Duration // time between two points
	points int           // number of points that are kept
}

// spans lists the spans, shortest first. The step of each is a multiple of the step before it.
var spans = []span{
	{"hour", 5 * time.Second, 720},
	{"day", 2 * time.Minute, 720},
	{"week", 14 * time.Minute, 720},
}

func (s span) length() time.Duration { return s.step * time.Duration(s.points) }

// missedSteps is the number of steps without a point after which the chart shows a gap.
const missedSteps = 4

// history keeps the points of all spans.
type history struct {
	mu    sync.Mutex
	rings []*ring   // one for each span
	first time.Time // time of the first state; zero: none yet
}

func newHistory(of ...span) *history {
	h := &history{}
	for _, s := range of {
		h.rings = append(h.rings, &ring{span: s, kept: make([]point, 0, s.points)})
	}
	return h
}

// step returns the time between two calls of add.
func (h *history) step() time.Duration { return h.rings[0].step }

// add adds a state; nil: the daemon did not answer.
func (h *history) add(at time.Time, s *figures.Snapshot) {
	p := pointOf(at, s)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.first.IsZero() {
		h.first = at
	}
	h.rings[0].put(p)
	for _, r := range h.rings[1:] {
		ended := false
		if p, ended = r.gather(p); !ended {
			return
		}
		r.put(p)
	}
}

// points returns the points of a span, oldest first. The data of a point never changes. The points
// of a longer span begin with a gap up to the time at which recording began, and end with the
// averages of the step that has not ended.
func (h *history) points(of int) []point {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rings[of].points()
}

// began returns when this process began to record; zero: not yet.
func (h *history) began() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.first
}

// ring keeps the newest points of a span.
type ring struct {
	span
	kept  []point   // at most cap(kept) points
	first int       // index of the oldest point, if the ring is full
	last  time.Time // time of the newest point; zero: none

	// Of a longer span: the points of the shorter span since the last step ended.
	sum      average
	began    time.Time // time of the first point of the shorter span; zero: none yet
	gathered time.Time // time of the last point in sum; zero: none yet
	until    time.Time // end of the present step; zero: no point yet
}

// points returns the points of the ring, oldest first.
func (r *ring) points() (all []point) {
	if len(r.kept) < cap(r.kept) && !r.began.IsZero() {
		all = append(all, point{at: r.began})
	}
	all = append(append(all, r.kept[r.first:]...), r.kept[:r.first]...)
	if len(r.sum.devices) > 0 && r.gathered.After(r.last) {
		all = append(all, r.sum.mean(r.gathered))
	}
	return all
}

// gather adds a point of the shorter span to the present step. If it ends the step, gather returns
// the point of the step.
func (r *ring) gather(p point) (ended point, ok bool) {
	if r.until.IsZero() || p.at.Before(r.until.Add(-r.step)) || p.at.After(r.until.Add(r.step)) { // the first point, or the clock was set
		r.until = p.at.Add(-1).Truncate(r.step).Add(r.step)
		r.sum = average{}
	}
	if r.began.IsZero() {
		r.began = p.at
	}
	r.sum.add(p)
	r.gathered = p.at
	if p.at.Before(r.until) {
		return point{}, false
	}
	r.until = r.until.Add(r.step)
	ended, r.sum = r.sum.mean(p.at), average{}
	return ended, true
}

// put adds a point at the end, and a gap before it if steps were missed. If the ring is full, the
// oldest point is replaced.
func (r *ring) put(p point) {
	if !r.last.IsZero() && p.at.Sub(r.last) > missedSteps*r.step {
		r.push(point{at: r.last.Add(r.step)})
	}
	r.push(p)
	r.last = p.at
}

func (r *ring) push(p point) {
	if len(r.kept) < cap(r.kept) {
		r.kept = append(r.kept, p)
		return
	}
	r.kept[r.first] = p
	r.first = (r.first + 1) % len(r.kept)
}
