package web

// This file reads what happened before this process began: the minutes of the history
// (package archive), which outlive the daemon. server.go puts them before the points of rings.go.

import (
	"context"
	"sync"
	"time"
	"unique"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/archive/rows"
)

const (
	// Time limit of an answer of the history. Until it comes, a span has only its own points.
	pastTimeout = 15 * time.Second
	// Pause before the history is asked again, if it did not answer.
	pastPause = 10 * time.Second
)

// past has the points of a span before this process began. It asks for them once, when the span is
// first shown.
type past struct {
	of  span
	ask func(ctx context.Context, since, until time.Time, each func(rows.Minute)) error // nil: there is no history

	mu    sync.Mutex
	asked time.Time // time of the last question; zero: none yet
	known bool      // points is the answer
	kept  []point
}

// points returns the points from since to until, the time at which this process began to record.
// Minutes tell how much of a device was used, and not by whom.
func (p *past) points(ctx context.Context, since, until time.Time) []point {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known && p.ask != nil && time.Since(p.asked) >= pastPause {
		p.asked = time.Now()
		ctx, cancel := context.WithTimeout(ctx, pastTimeout)
		defer cancel()
		m := minutePoints{ring: ring{span: p.of, kept: make([]point, 0, p.of.points)}}
		if err := p.ask(ctx, since, until, m.add); err == nil {
			p.kept, p.known = m.end(), true
		}
	}
	for len(p.kept) > 0 && p.kept[0].at.Before(since) {
		p.kept = p.kept[1:]
	}
	return p.kept
}

// minutePoints makes points of minutes, which come sorted by time.
type minutePoints struct {
	ring   ring
	minute point // devices of the present minute
}

// add adds the minute of a device.
func (m *minutePoints) add(row rows.Minute) {
	at := time.Unix(0, 0).Add(time.Duration(row.Minute+1) * time.Minute) // the end of the minute
	if !at.Equal(m.minute.at) {
		m.flush()
		m.minute = point{at: at}
	}
	used := accounting.Bytes(row.Used)
	others := []share{{unique.Make(holder{}), used}}
	a := amounts{total: accounting.Bytes(row.Total), reserved: accounting.Bytes(row.Reserved), unused: accounting.Bytes(row.Reserved),
		unmanaged: accounting.Bytes(row.Unmanaged), used: used}
	a.capacity = used.Plus(a.unused).Plus(accounting.Bytes(row.Grantable))
	m.minute.devices = append(m.minute.devices, devicePoint{amounts: a, index: row.Device, peak: used, jobs: others, users: others})
}

// flush adds the present minute to the ring.
func (m *minutePoints) flush() {
	if m.minute.devices == nil {
		return
	}
	if p, ended := m.ring.gather(m.minute); ended {
		m.ring.put(p)
	}
}

// end returns the points.
func (m *minutePoints) end() []point {
	m.flush()
	return m.ring.points()
}
