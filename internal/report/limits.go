package report

// This file finds the limits of a process, job, user, cgroup, rule or device, and what set each.
// `gpuarb limit` and `gpuarb top` print them.

import (
	"io"
	"slices"
	"strconv"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// Limit is a limit in force, with its origin.
type Limit struct {
	Device Index   `json:"device"`
	Name   string  `json:"limit"`  // memory.max, memory.min, streams.max or slots.max
	Value  *uint64 `json:"value"`  // bytes of memory, or a number; null: no limit
	Held   uint64  `json:"held"`   // bytes or number that is held
	By     *string `json:"set_by"` // rule, flags of the start, or user; null: nothing set it
	// InForce: of the limits of this name on the device it is the lowest. A higher one has no effect.
	InForce bool `json:"in_force"`
}

// markInForce marks the lowest of the limits of each name and device.
func markInForce(all []Limit) []Limit {
	for i := range all {
		l := &all[i]
		l.InForce = !slices.ContainsFunc(all, func(other Limit) bool {
			return other.Device == l.Device && other.Name == l.Name && other.Value != nil && (l.Value == nil || *other.Value < *l.Value)
		})
	}
	return all
}

// memoryLimit returns a limit in bytes.
func memoryLimit(device int, name string, value, held accounting.Bytes, by string) Limit {
	return Limit{Device: Index(device), Name: name, Value: Unless(uint64(value), uint64(accounting.Max)), Held: uint64(held), By: Unless(by, "")}
}

// countLimit returns a limit on a number of things; 0: no limit.
func countLimit(device int, name string, value, held int, by string) Limit {
	return Limit{Device: Index(device), Name: name, Value: Unless(uint64(max(0, value)), 0), Held: uint64(max(0, held)), By: Unless(by, "")}
}

// ProcessLimits returns the limits of a process. If it has no lease yet, these are the limits of
// its job. It returns false if there is no such process.
func ProcessLimits(s figures.Snapshot, pid int) (all []Limit, ok bool) {
	for _, l := range s.Leases {
		if l.PID == pid {
			all = append(all, memoryLimit(l.Device, "memory.max", l.Budget, l.Used, l.BudgetBy),
				memoryLimit(l.Device, "memory.min", l.Min, l.Used, l.MinBy),
				countLimit(l.Device, "streams.max", l.StreamsMax, l.Streams, l.StreamsBy))
			all = append(all, sharedLimits(s, l.Job, l.Device, &l)...)
		}
	}
	if p := s.Process(pid); p != nil && len(all) == 0 {
		return JobLimits(s, p.Job)
	}
	return markInForce(all), len(all) > 0
}

// JobLimits returns the limits of a job. It returns false if there is no such job.
func JobLimits(s figures.Snapshot, id uint64) (all []Limit, ok bool) {
	j := s.Job(id)
	if j == nil {
		return nil, false
	}
	for _, d := range j.Devices {
		has := usageOn(s, d.Device, func(l *figures.LeaseState) bool { return l.Job == id })
		all = append(all, memoryLimit(d.Device, "memory.max", d.Max, d.Used, d.MaxBy),
			memoryLimit(d.Device, "memory.min", d.Min, d.Used, d.MinBy),
			countLimit(d.Device, "streams.max", j.StreamsMax, has.streams, j.StreamsBy))
		all = append(all, sharedLimits(s, id, d.Device, nil)...)
	}
	return markInForce(all), true
}

// sharedLimit returns a limit on memory that programs share. Its held amount is the sum over all of
// them.
func sharedLimit(b figures.BudgetState, at figures.BudgetDeviceState) Limit {
	return memoryLimit(at.Device, "memory.max", at.Max, at.Used, at.MaxBy+"; shared by "+b.Name)
}

// sharedLimits returns the limits of budgets that a job shares with others on a device. With a
// lease it leaves out budgets of cgroups in which the process of the lease does not run. Without a
// lease it returns the limits of the whole job.
func sharedLimits(s figures.Snapshot, job uint64, device int, lease *figures.LeaseState) (all []Limit) {
	for _, b := range s.Budgets {
		if lease != nil && b.IsOfCgroup() && !lease.InCgroup(b.Cgroup) {
			continue // another process of the job runs there
		}
		for _, at := range b.Devices {
			if at.Device == device && at.Max != accounting.Max && slices.Contains(b.Jobs, job) {
				all = append(all, sharedLimit(b, at))
			}
		}
	}
	return all
}

// usage is the sum of what some leases hold of a device.
type usage struct {
	all, most accounting.Bytes // bytes of all leases, and of the largest lease
	streams   int              // streams of the lease with most streams
}

func usageOn(s figures.Snapshot, device int, mine func(*figures.LeaseState) bool) (h usage) {
	for i := range s.Leases {
		if l := &s.Leases[i]; l.Device == device && mine(l) {
			h.all, h.most, h.streams = h.all+l.Used, max(h.most, l.Used), max(h.streams, l.Streams)
		}
	}
	return h
}

// UserLimits returns the limits on all programs of a user: the limit that was set for the user, and
// limits of rules that the user's programs share.
func UserLimits(s figures.Snapshot, uid uint32) (all []Limit) {
	for _, d := range s.Devices {
		has := usageOn(s, d.Index, func(l *figures.LeaseState) bool {
			j := s.Job(l.Job)
			return j != nil && j.UID == uid
		})
		own := memoryLimit(d.Index, "memory.max", accounting.Max, has.all, "")
		streams := countLimit(d.Index, "streams.max", 0, has.streams, "")
		var rules []Limit
		for _, b := range s.Budgets {
			for _, at := range b.Devices {
				switch {
				case at.Device != d.Index || b.Scope != "user" || b.UID != uid:
				case b.Rule == "":
					own = memoryLimit(d.Index, "memory.max", at.Max, has.all, at.MaxBy)
					streams = countLimit(d.Index, "streams.max", b.Streams, has.streams, b.StreamsBy)
				case at.Max != accounting.Max:
					rules = append(rules, sharedLimit(b, at))
				}
			}
		}
		all = append(append(all, own), append(rules, streams)...)
	}
	return markInForce(all)
}

// CgroupLimits returns the limits on all programs in a cgroup: its own limit, and the limits of its
// parents.
func CgroupLimits(s figures.Snapshot, of string) (all []Limit) {
	for _, d := range s.Devices {
		has := usageOn(s, d.Index, func(l *figures.LeaseState) bool { return l.InCgroup(of) })
		own := memoryLimit(d.Index, "memory.max", accounting.Max, has.all, "")
		var around []Limit
		for _, b := range s.Budgets {
			for _, at := range b.Devices {
				switch {
				case at.Device != d.Index || !b.IsOfCgroup() || at.Max == accounting.Max || !accounting.InCgroup(of, b.Cgroup):
				case b.Cgroup == of:
					own = memoryLimit(d.Index, "memory.max", at.Max, at.Used, at.MaxBy)
				default:
					around = append(around, sharedLimit(b, at))
				}
			}
		}
		all = append(append(all, own), around...)
	}
	return markInForce(all)
}

// RuleLimits returns the limits that a rule gives, to all programs together or to each. If to each,
// the held amount is that of the largest holder. It returns false if there is no such rule.
func RuleLimits(s figures.Snapshot, id uint64) (all []Limit, ok bool) {
	for _, r := range s.Rules {
		if r.ID != id {
			continue
		}
		for _, d := range r.Devices {
			held, streams := underRule(s, r, d.Device)
			all = append(all, memoryLimit(d.Device, "memory.max", d.Max, held, d.MaxBy),
				countLimit(d.Device, "streams.max", r.Streams, streams, r.StreamsBy))
		}
		return markInForce(all), true
	}
	return nil, false
}

// underRule returns the largest amount that a budget of the rule holds on a device, and the largest
// number of streams of a lease.
func underRule(s figures.Snapshot, r figures.RuleState, device int) (most accounting.Bytes, streams int) {
	jobs := map[uint64]bool{}
	for _, j := range s.Jobs {
		jobs[j.ID] = j.Rule == r.Title
		for _, on := range j.Devices {
			if jobs[j.ID] && on.Device == device && r.Scope == "job" {
				most = max(most, on.Used)
			}
		}
	}
	for _, b := range s.Budgets {
		for _, on := range b.Devices {
			if b.Rule != "" && on.Device == device && slices.ContainsFunc(b.Jobs, func(j uint64) bool { return jobs[j] }) {
				most = max(most, on.Used)
			}
		}
	}
	of := usageOn(s, device, func(l *figures.LeaseState) bool { return jobs[l.Job] })
	if r.Scope == "process" {
		most = max(most, of.most)
	}
	return most, of.streams
}

// DeviceLimits returns the limits of the devices.
func DeviceLimits(s figures.Snapshot) (all []Limit) {
	for _, d := range s.Devices {
		all = append(all, countLimit(d.Index, "slots.max", d.SlotsMax, d.SlotsCurrent, d.SlotsBy))
	}
	return markInForce(all)
}

var limitColumns = []column[Limit]{
	device(func(l Limit) int { return int(l.Device) }),
	plain("LIMIT", left, func(l Limit) string { return l.Name }, 0),
	{"VALUE", right, func(s Style, l Limit) string { return l.format(s, l.Value) }, 0},
	{"HELD", right, func(s Style, l Limit) string { return l.format(s, &l.Held) }, 0},
	plain("IN-FORCE", left, func(l Limit) string { return yesNo(l.InForce) }, 0),
	plain("SET-BY", last, func(l Limit) string { return line(orZero(l.By)) }, 0),
}

// format formats an amount of the limited resource.
func (l Limit) format(s Style, n *uint64) string {
	switch {
	case n == nil:
		return "max"
	case l.Name == "memory.max" || l.Name == "memory.min":
		return s.amount(accounting.Bytes(*n))
	}
	return strconv.FormatUint(*n, 10)
}

// Limits reports whether a limit limits or reserves something.
func (l Limit) Limits() bool { return l.Value != nil && *l.Value != 0 }

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// Limits writes the table of limits: a header, and a line for each limit and device. It leaves out
// what limits and reserves nothing.
func (style Style) Limits(w io.Writer, limits []Limit) error {
	return table(w, style, limitColumns, slices.DeleteFunc(slices.Clone(limits), func(l Limit) bool { return !l.Limits() }))
}
