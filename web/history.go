package web

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"
	"time"
	"unique"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/figures"
)

// The last hour, at one point each step. What one point and one answer can hold is bounded, so that
// ten thousand leases make neither large.
const (
	historyStep   = 5 * time.Second
	historyPoints = 720
	// holdersAtOnce of a device have a figure of their own in a point, and holdersShown a line of their own in an
	// answer: those with most. What the others have is one figure.
	holdersAtOnce = 16
	holdersShown  = 24
)

// holder is a job as a point remembers it.
type holder struct {
	Job  uint64 `json:"job"` // 0: all others
	PID  int    `json:"pid"` // of its oldest process on the device
	User string `json:"user"`
	Name string `json:"name"` // that its user gave it, else the command
}

// share is what a job had of a device.
type share struct {
	of   unique.Handle[holder] // shared by all points in which it says the same
	used accounting.Bytes
}

// devicePoint is a device at one moment.
type devicePoint struct {
	index                                int
	capacity, reserved, total, unmanaged accounting.Bytes
	shares                               []share // by what they had, most first
}

// point is all devices at one moment.
type point struct {
	at      time.Time
	devices []devicePoint // none: the daemon did not answer
}

// history is a ring of points.
type history struct {
	step time.Duration

	mu    sync.Mutex
	ring  []point // at most cap
	first int     // the oldest, once the ring is full
}

func newHistory(step time.Duration, points int) *history {
	return &history{step: step, ring: make([]point, 0, points)}
}

// add puts a point at the end, in place of the oldest where there is no room.
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

// sharesOf are what the jobs have of a device, the most first.
func sharesOf(s *figures.Snapshot, device int) []share {
	type sum struct {
		of   holder
		used accounting.Bytes
	}
	at := map[uint64]int{} // in sums, by job
	var sums []sum
	for i := range s.Leases {
		l := &s.Leases[i]
		if l.Device != device {
			continue
		}
		k, ok := at[l.Job]
		if !ok { // leases are by age: this is the oldest
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

// series is what one job had of a device at each time; null where no daemon answered.
type series struct {
	holder
	Used []*accounting.Bytes `json:"used_bytes"`
}

// deviceHistory is a device in the last hour, in columns as long as the times.
type deviceHistory struct {
	Index     int                 `json:"index"`
	Capacity  []*accounting.Bytes `json:"capacity_bytes"`
	Reserved  []*accounting.Bytes `json:"reserved_bytes"`
	Total     []*accounting.Bytes `json:"total_bytes"`
	Unmanaged []*accounting.Bytes `json:"unmanaged_bytes"`
	Holders   []*series           `json:"holders"` // the most over the hour first, all others last
}

// lastHour is the answer to /history.
type lastHour struct {
	StepMs  int64            `json:"step_ms"`
	Times   []int64          `json:"times_ms"` // since 1970
	Devices []*deviceHistory `json:"devices"`
	Events  []*mark          `json:"events"`
}

// JSON spells the last hour, with what happened in it.
func (h *history) JSON(events *happened) ([]byte, error) {
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

// points are a copy of the ring, oldest first. What a point refers to does not change any more.
func (h *history) points() []point {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append(slices.Clone(h.ring[h.first:]), h.ring[:h.first]...)
}

// columns collects one device's history.
type columns struct {
	*deviceHistory
	byJob map[uint64]*series
	area  map[uint64]float64 // by which the jobs are ordered
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
		s.holder = of // as it was seen last
		s.Used[i] = &sh.used
		c.area[of.Job] += float64(sh.used)
	}
}

// finish orders the jobs, puts those that are too many together, and fills in zeros where a job had nothing.
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

// addUp adds another's column to this one.
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
