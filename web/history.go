package web

// This file keeps the last hour of the states, and answers /history. watcher.go adds a point in
// each step.

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"
	"time"
	"unique"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// The last hour has one point in each step. The size of a point and of an answer is bounded, so
// that ten thousand leases make neither large.
const (
	historyStep   = 5 * time.Second
	historyPoints = 720
	// In a point, the holdersAtOnce largest holders of a device have a figure of their own. In an
	// answer, the holdersShown largest holders have a line of their own. All others share one
	// figure.
	holdersAtOnce = 16
	holdersShown  = 24
)

// holder is a job as a point stores it.
type holder struct {
	Job  uint64 `json:"job"` // 0: all others together
	PID  int    `json:"pid"` // PID of its oldest process on the device
	User string `json:"user"`
	Name string `json:"name"` // name that the user gave the job, or the command
}

// share is the use of a device by a job.
type share struct {
	of   unique.Handle[holder] // shared with all points in which these facts are equal
	used accounting.Bytes
}

// devicePoint is a device at one time.
type devicePoint struct {
	index                                int
	capacity, reserved, total, unmanaged accounting.Bytes
	shares                               []share // by use, largest first
}

// point is all devices at one time.
type point struct {
	at      time.Time
	devices []devicePoint // empty: the daemon did not answer
}

// history is a ring of points.
type history struct {
	step time.Duration

	mu    sync.Mutex
	ring  []point // at most cap(ring) points
	first int     // index of the oldest point, if the ring is full
}

func newHistory(step time.Duration, points int) *history {
	return &history{step: step, ring: make([]point, 0, points)}
}

// add adds a point at the end. If the ring is full, the point replaces the oldest.
func (h *history) add(at time.Time, s *figures.Snapshot) {
	p := point{at: at}
	if s != nil {
		for _, d := range s.Devices {
			p.devices = append(p.devices, devicePoint{d.Index, d.Capacity, d.Reserved, d.Total, d.Unmanaged, sharesOf(s, d.Index)})
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ring) < cap(h.ring) {
		h.ring = append(h.ring, p)
		return
	}
	h.ring[h.first] = p
	h.first = (h.first + 1) % len(h.ring)
}

// sharesOf returns the use of a device by each job, largest first.
func sharesOf(s *figures.Snapshot, device int) []share {
	type sum struct {
		of   holder
		used accounting.Bytes
	}
	at := map[uint64]int{} // index into sums, by job
	var sums []sum
	for i := range s.Leases {
		l := &s.Leases[i]
		if l.Device != device {
			continue
		}
		k, ok := at[l.Job]
		if !ok { // leases are sorted by age, so this is the oldest
			k = len(sums)
			at[l.Job] = k
			sums = append(sums, sum{of: holder{l.Job, l.PID, l.User, cmp.Or(l.JobName, l.Command)}})
		}
		sums[k].used += l.Used
	}
	slices.SortStableFunc(sums, func(a, b sum) int { return cmp.Compare(b.used, a.used) })
	if len(sums) > holdersAtOnce {
		var rest sum
		for _, more := range sums[holdersAtOnce:] {
			rest.used += more.used
		}
		sums = append(sums[:holdersAtOnce], rest)
	}
	shares := make([]share, len(sums))
	for i, sum := range sums {
		shares[i] = share{unique.Make(sum.of), sum.used}
	}
	return shares
}

// series is the use of a device by a job at each time; null: the daemon did not answer.
type series struct {
	holder
	Used []*accounting.Bytes `json:"used_bytes"`
}

// deviceHistory is the last hour of a device. Each column has one entry for each time.
type deviceHistory struct {
	Index     int                 `json:"index"`
	Capacity  []*accounting.Bytes `json:"capacity_bytes"`
	Reserved  []*accounting.Bytes `json:"reserved_bytes"`
	Total     []*accounting.Bytes `json:"total_bytes"`
	Unmanaged []*accounting.Bytes `json:"unmanaged_bytes"`
	Holders   []*series           `json:"holders"` // largest sum over the hour first, all others together last
}

// lastHour is the answer to /history.
type lastHour struct {
	StepMs  int64            `json:"step_ms"`
	Times   []int64          `json:"times_ms"` // milliseconds since 1970
	Devices []*deviceHistory `json:"devices"`
	Events  []*pageEvent     `json:"events"`
}

// JSON returns the last hour and its events as JSON.
func (h *history) JSON(events *eventLog) ([]byte, error) {
	hour := h.hour()
	hour.Events = events.since(time.Now().Add(-h.step * historyPoints))
	return json.Marshal(hour)
}

func (h *history) hour() lastHour {
	points := h.points()
	out := lastHour{StepMs: h.step.Milliseconds(), Times: make([]int64, len(points)), Devices: []*deviceHistory{}}
	columns := map[int]*columns{}
	for i, p := range points {
		out.Times[i] = p.at.UnixMilli()
		for k := range p.devices {
			d := &p.devices[k]
			if columns[d.index] == nil {
				columns[d.index] = newColumns(d.index, len(points))
				out.Devices = append(out.Devices, columns[d.index].deviceHistory)
			}
			columns[d.index].add(i, d)
		}
	}
	slices.SortFunc(out.Devices, func(a, b *deviceHistory) int { return cmp.Compare(a.Index, b.Index) })
	for _, c := range columns {
		c.finish()
	}
	return out
}

// points returns a copy of the ring, oldest first. The data of a point never changes.
func (h *history) points() []point {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append(slices.Clone(h.ring[h.first:]), h.ring[:h.first]...)
}

// columns collects the history of one device.
type columns struct {
	*deviceHistory
	byJob map[uint64]*series
	area  map[uint64]float64 // sum of the use over all times, by which the jobs are sorted
}

func newColumns(index, n int) *columns {
	column := func() []*accounting.Bytes { return make([]*accounting.Bytes, n) }
	return &columns{&deviceHistory{Index: index, Capacity: column(), Reserved: column(), Total: column(), Unmanaged: column()},
		map[uint64]*series{}, map[uint64]float64{}}
}

func (c *columns) add(i int, d *devicePoint) {
	c.Capacity[i], c.Reserved[i], c.Total[i], c.Unmanaged[i] = &d.capacity, &d.reserved, &d.total, &d.unmanaged
	for k := range d.shares {
		sh := &d.shares[k]
		of := sh.of.Value()
		s := c.byJob[of.Job]
		if s == nil {
			s = &series{Used: make([]*accounting.Bytes, len(c.Capacity))}
			c.byJob[of.Job] = s
		}
		s.holder = of // the latest facts
		s.Used[i] = &sh.used
		c.area[of.Job] += float64(sh.used)
	}
}

// finish sorts the jobs, sums up the jobs beyond holdersShown, and fills in zeros for times without
// use.
func (c *columns) finish() {
	c.Holders = make([]*series, 0, len(c.byJob))
	for _, s := range c.byJob {
		c.Holders = append(c.Holders, s)
	}
	slices.SortFunc(c.Holders, func(a, b *series) int {
		if (a.Job == 0) != (b.Job == 0) { // all others come last
			return cmp.Compare(b.Job, a.Job)
		}
		return cmp.Or(cmp.Compare(c.area[b.Job], c.area[a.Job]), cmp.Compare(a.Job, b.Job))
	})
	if len(c.Holders) > holdersShown {
		rest := &series{Used: make([]*accounting.Bytes, len(c.Capacity))}
		for _, s := range c.Holders[holdersShown:] {
			rest.addUp(s)
		}
		c.Holders = append(c.Holders[:holdersShown], rest)
	}
	for _, s := range c.Holders {
		for i, used := range s.Used {
			if used == nil && c.Capacity[i] != nil {
				s.Used[i] = new(accounting.Bytes)
			}
		}
	}
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
