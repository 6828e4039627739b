package web

// This file answers /history: the points of a span as columns. rings.go keeps the points.

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// In an answer, the largest jobs and users of a device have a line of their own. All others share
// one line. The more devices there are, the fewer lines each has.
const (
	holdersInAnswer = 192 // lines of all devices together, as long as each device has at least fewestInAnswer
	mostInAnswer    = 24
	fewestInAnswer  = 6
)

// series is the use of a device by a job or a user at each time; null: the daemon did not answer.
type series struct {
	holder
	Used []*accounting.Bytes `json:"used_bytes"`
}

// deviceHistory is a span of time of a device. Each column has one entry for each time.
type deviceHistory struct {
	Index     int                 `json:"index"`
	Capacity  []*accounting.Bytes `json:"capacity_bytes"`
	Reserved  []*accounting.Bytes `json:"reserved_bytes"`
	Unused    []*accounting.Bytes `json:"reserved_unused_bytes"`
	Total     []*accounting.Bytes `json:"total_bytes"`
	Unmanaged []*accounting.Bytes `json:"unmanaged_bytes"`
	Peak      []*accounting.Bytes `json:"peak_bytes"` // largest use of the device within the step
	Holders   []*series           `json:"holders"`    // largest sum over the span first, all others together last
	Users     []*series           `json:"users"`      // as Holders
}

// spanHistory is the answer to /history.
type spanHistory struct {
	Span    string           `json:"span"`
	SpanMs  int64            `json:"span_ms"`
	StepMs  int64            `json:"step_ms"`
	Times   []int64          `json:"times_ms"` // milliseconds since 1970
	Devices []*deviceHistory `json:"devices"`
	Events  []*pageEvent     `json:"events"`
}

// historyJSON returns points of a span and its events as JSON.
func historyJSON(of span, points []point, events *eventLog) ([]byte, error) {
	out := columnsOf(of, points)
	out.Events = events.since(time.Now().Add(-of.length()))
	return json.Marshal(out)
}

// columnsOf arranges points as columns.
func columnsOf(of span, points []point) spanHistory {
	out := spanHistory{Span: of.name, SpanMs: of.length().Milliseconds(), StepMs: of.step.Milliseconds(), Times: make([]int64, len(points)), Devices: []*deviceHistory{}}
	byDevice := map[int]*columns{}
	for i := range points {
		out.Times[i] = points[i].at.UnixMilli()
		for k := range points[i].devices {
			d := &points[i].devices[k]
			if byDevice[d.index] == nil {
				byDevice[d.index] = newColumns(d.index, len(points))
				out.Devices = append(out.Devices, byDevice[d.index].deviceHistory)
			}
			byDevice[d.index].add(i, d)
		}
	}
	slices.SortFunc(out.Devices, func(a, b *deviceHistory) int { return cmp.Compare(a.Index, b.Index) })
	most := shareOf(holdersInAnswer, len(byDevice), fewestInAnswer, mostInAnswer)
	for _, c := range byDevice {
		c.Holders, c.Users = c.jobs.series(most, c.Capacity), c.users.series(most, c.Capacity)
	}
	return out
}

// columns collects the history of one device.
type columns struct {
	*deviceHistory
	jobs, users curves
}

func newColumns(index, n int) *columns {
	column := func() []*accounting.Bytes { return make([]*accounting.Bytes, n) }
	return &columns{deviceHistory: &deviceHistory{Index: index, Capacity: column(), Reserved: column(), Unused: column(), Total: column(),
		Unmanaged: column(), Peak: column()}, jobs: curves{}, users: curves{}}
}

func (c *columns) add(i int, d *devicePoint) {
	c.Capacity[i], c.Reserved[i], c.Unused[i] = &d.capacity, &d.reserved, &d.unused
	c.Total[i], c.Unmanaged[i], c.Peak[i] = &d.total, &d.unmanaged, &d.peak
	c.jobs.add(i, len(c.Capacity), d.jobs)
	c.users.add(i, len(c.Capacity), d.users)
}

// curves collects the use of a device by each job, or by each user.
type curves map[holderKey]*curve

// curve is the use by a job or a user.
type curve struct {
	series
	area float64 // sum of the use over all times
}

// add adds the shares of the point at i, of n points.
func (l curves) add(i, n int, shares []share) {
	for k := range shares {
		sh := &shares[k]
		of := sh.of.Value()
		s := l[of.key()]
		if s == nil {
			s = &curve{series: series{Used: make([]*accounting.Bytes, n)}}
			l[of.key()] = s
		}
		s.holder = of // the latest facts
		s.Used[i] = &sh.used
		s.area += float64(sh.used)
	}
}

// series returns the largest curves, largest first, and one curve for all others. It fills in zeros
// for times without use; present has a figure for each time at which the device was there.
func (l curves) series(most int, present []*accounting.Bytes) []*series {
	all := make([]*curve, 0, len(l))
	for _, s := range l {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *curve) int {
		return cmp.Or(compareOthers(&a.holder, &b.holder), cmp.Compare(b.area, a.area), cmp.Compare(a.Job, b.Job), cmp.Compare(a.User, b.User))
	})
	if len(all) > most {
		rest := &curve{series: series{Used: make([]*accounting.Bytes, len(present))}}
		for _, s := range all[most:] {
			rest.addUp(&s.series)
		}
		all = append(all[:most], rest)
	}
	out := make([]*series, len(all))
	for k, s := range all {
		for i, used := range s.Used {
			if used == nil && present[i] != nil {
				s.Used[i] = new(accounting.Bytes)
			}
		}
		out[k] = &s.series
	}
	return out
}

// addUp adds the column of other to this column.
func (s *series) addUp(other *series) {
	for i, used := range other.Used {
		if used == nil {
			continue
		}
		sum := *used
		if s.Used[i] != nil {
			sum += *s.Used[i]
		}
		s.Used[i] = &sum
	}
}
