package web

// This file makes points of states, and averages of points. rings.go keeps points, and history.go
// answers /history with them.

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// The size of a point is bounded, so that ten thousand leases do not make it large: in a point, the
// largest jobs and the largest users of a device have a figure of their own, and all others share
// one figure. The more devices there are, the fewer jobs and users each device has.
const (
	holdersInPoint   = 128 // jobs of all devices together, as long as each device has at least fewestInPoint
	mostInPoint      = 16  // jobs of one device, and users of one device
	fewestInPoint    = 4
	maxNameOfHolder  = 96 // bytes of a name or command in a point
	nameEndsWithDots = "…"
)

// holder is a job as a point stores it. If only User is set, it is all jobs of that user.
type holder struct {
	Job  uint64 `json:"job"` // 0: all jobs of a user, or all others together
	PID  int    `json:"pid"` // PID of its oldest process on the device
	User string `json:"user"`
	Name string `json:"name"` // name that the user gave the job, or the command
}

// holderKey identifies a job, a user, or all others (the zero value), while the other facts of a
// holder may change.
type holderKey struct {
	job  uint64
	user string
}

func (h *holder) key() holderKey {
	if h.Job != 0 {
		return holderKey{job: h.Job}
	}
	return holderKey{user: h.User}
}

// share is the use of a device by a holder.
type share struct {
	of   unique.Handle[holder] // shared with all points in which these facts are equal
	used accounting.Bytes
}

// amounts are the figures of a device in a point.
type amounts struct {
	capacity, total, reserved, unused, unmanaged accounting.Bytes // unused: reserved and not held
	used                                         accounting.Bytes
}

// devicePoint is a device in a point.
type devicePoint struct {
	amounts
	index int
	peak  accounting.Bytes // largest use within the step
	jobs  []share          // by use, largest first
	users []share          // by use, largest first
}

// point is all devices at one time, or their averages over the step that ends at that time.
type point struct {
	at      time.Time
	devices []devicePoint // empty: the daemon did not answer
}

// pointOf returns the point of a state; nil: the daemon did not answer.
func pointOf(at time.Time, s *figures.Snapshot) point {
	p := point{at: at}
	if s == nil {
		return p
	}
	most := shareOf(holdersInPoint, len(s.Devices), fewestInPoint, mostInPoint)
	byDevice := make(map[int][]*figures.LeaseState, len(s.Devices))
	for i := range s.Leases {
		l := &s.Leases[i]
		byDevice[l.Device] = append(byDevice[l.Device], l)
	}
	for i := range s.Devices {
		d := &s.Devices[i]
		var jobs, users sums
		for _, l := range byDevice[d.Index] { // sorted by age, so that a job has the PID of its oldest process
			jobs.add(holder{l.Job, l.PID, l.User, shortName(cmp.Or(l.JobName, l.Command))}, l.Used)
			users.add(holder{User: l.User}, l.Used)
		}
		p.devices = append(p.devices, devicePoint{
			amounts: amounts{d.Capacity, d.Total, d.Reserved, d.Committed.Less(d.Granted), d.Unmanaged, d.Used},
			index:   accounting.IndexNumber(d.Index), peak: d.Used, jobs: jobs.largest(most, 1), users: users.largest(most, 1),
		})
	}
	return p
}

// shareOf divides a number among the devices. Each gets at least least and at most most.
func shareOf(all, devices, least, most int) int {
	return min(max(all/max(devices, 1), least), most)
}

// shortName cuts a name that a user chose.
func shortName(name string) string {
	if len(name) <= maxNameOfHolder {
		return name
	}
	return strings.ToValidUTF8(name[:maxNameOfHolder], "") + nameEndsWithDots
}

// sums adds up the use of a device by holders.
type sums struct {
	at  map[holderKey]int // index into all
	all []sum
}

type sum struct {
	of   holder
	used accounting.Bytes
}

// add adds to the sum of a holder. The facts that were added first stay.
func (s *sums) add(of holder, used accounting.Bytes) {
	if s.at == nil {
		s.at = map[holderKey]int{}
	}
	k, ok := s.at[of.key()]
	if !ok {
		k = len(s.all)
		s.at[of.key()] = k
		s.all = append(s.all, sum{of: of})
	}
	s.all[k].used = s.all[k].used.Plus(used)
}

// largest returns the largest sums, each divided by n. All others are one sum.
func (s *sums) largest(most int, n accounting.Bytes) []share {
	all := slices.Clone(s.all) // at has indices into s.all
	slices.SortFunc(all, func(a, b sum) int {
		return cmp.Or(compareOthers(&a.of, &b.of), cmp.Compare(b.used, a.used), cmp.Compare(a.of.Job, b.of.Job), cmp.Compare(a.of.User, b.of.User))
	})
	shares := make([]share, 0, min(len(all), most+1))
	var rest accounting.Bytes
	others := false
	for i := range all {
		if i < most && all[i].of.key() != (holderKey{}) {
			shares = append(shares, share{unique.Make(all[i].of), all[i].used / n})
			continue
		}
		rest, others = rest.Plus(all[i].used), true
	}
	if others {
		shares = append(shares, share{unique.Make(holder{}), rest / n})
	}
	return shares
}

// compareOthers puts all others last.
func compareOthers(a, b *holder) int {
	switch isOthers := (holderKey{}); {
	case a.key() == isOthers && b.key() != isOthers:
		return 1
	case a.key() != isOthers && b.key() == isOthers:
		return -1
	}
	return 0
}

// average collects points and returns one point with their averages.
type average struct {
	devices map[int]*deviceAverage
}

// deviceAverage has the sums of a device over the points in which it was there.
type deviceAverage struct {
	amounts
	points      accounting.Bytes // number of points
	peak        accounting.Bytes
	jobs, users sums
}

// add adds a point.
func (a *average) add(p point) {
	if a.devices == nil {
		a.devices = map[int]*deviceAverage{}
	}
	for i := range p.devices {
		d := &p.devices[i]
		sum := a.devices[d.index]
		if sum == nil {
			sum = &deviceAverage{}
			a.devices[d.index] = sum
		}
		sum.points++
		sum.peak = max(sum.peak, d.peak)
		sum.capacity += d.capacity
		sum.total += d.total
		sum.reserved += d.reserved
		sum.unused += d.unused
		sum.unmanaged += d.unmanaged
		sum.used += d.used
		for _, sh := range d.jobs {
			sum.jobs.add(sh.of.Value(), sh.used)
		}
		for _, sh := range d.users {
			sum.users.add(sh.of.Value(), sh.used)
		}
	}
}

// mean returns the averages as a point at a time.
func (a *average) mean(at time.Time) point {
	p := point{at: at}
	most := shareOf(holdersInPoint, len(a.devices), fewestInPoint, mostInPoint)
	for index, d := range a.devices {
		n := d.points
		p.devices = append(p.devices, devicePoint{
			amounts: amounts{d.capacity / n, d.total / n, d.reserved / n, d.unused / n, d.unmanaged / n, d.used / n},
			index:   index, peak: d.peak, jobs: d.jobs.largest(most, n), users: d.users.largest(most, n),
		})
	}
	slices.SortFunc(p.devices, func(x, y devicePoint) int { return cmp.Compare(x.index, y.index) })
	return p
}
