package report

import (
	"io"
	"slices"
	"strconv"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/figures"
)

// Limit is a limit in force, and where it comes from.
type Limit struct {
	Device Index   `json:"device"`
	Name   string  `json:"limit"`  // memory.max, memory.min, streams.max or slots.max
	Value  *uint64 `json:"value"`  // bytes of memory, else a number; null: there is none
	Held   uint64  `json:"held"`   // of the same
	By     *string `json:"set_by"` // a rule, the flags that it was started with, a user; null: nobody
}

// memoryLimit is a limit in bytes.
func memoryLimit(device int, name string, value, held accounting.Bytes, by string) Limit {
	return Limit{Device: Index(device), Name: name, Value: Unless(uint64(value), uint64(accounting.Max)), Held: uint64(held), By: Unless(by, "")}
}

// countLimit is a limit on a number of things, where 0 is none.
func countLimit(device int, name string, value, held int, by string) Limit {
	return Limit{Device: Index(device), Name: name, Value: Unless(uint64(max(0, value)), 0), Held: uint64(max(0, held)), By: Unless(by, "")}
}

// ProcessLimits are the limits in force for a process, those of its job where it has taken
// nothing yet; false where there is no such process.
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
	return all, len(all) > 0
}

// JobLimits are the limits of a job; false where there is no such job.
func JobLimits(s figures.Snapshot, id uint64) (all []Limit, ok bool) {
	j := s.Job(id)
	if j == nil {
		return nil, false
	}
	for _, d := range j.Devices {
		has := heldOn(s, d.Device, func(l *figures.LeaseState) bool { return l.Job == id })
		all = append(all, memoryLimit(d.Device, "memory.max", d.Max, d.Used, d.MaxBy),
			memoryLimit(d.Device, "memory.min", d.Min, d.Used, d.MinBy),
			countLimit(d.Device, "streams.max", j.StreamsMax, has.streams, j.StreamsBy))
		all = append(all, sharedLimits(s, id, d.Device, nil)...)
	}
	return all, true
}

// shared is a limit on memory that programs share: what is held of it is what all hold.
func shared(b figures.BudgetState, at figures.BudgetDeviceState) Limit {
	return memoryLimit(at.Device, "memory.max", at.Max, at.Used, at.MaxBy+"; shared by "+b.Name)
}

// sharedLimits returns the limits of the budgets that a job shares with others on a device. With a lease it leaves out budgets of
// cgroups in which the lease's process does not run; nil: it returns those of the whole job.
func sharedLimits(s figures.Snapshot, job uint64, device int, lease *figures.LeaseState) (all []Limit) {
	for _, b := range s.Budgets {
		if lease != nil && b.IsOfCgroup() && !lease.InCgroup(b.Cgroup) {
			continue // another process of its job runs there
		}
		for _, at := range b.Devices {
			if at.Device == device && at.Max != accounting.Max && slices.Contains(b.Jobs, job) {
				all = append(all, shared(b, at))
			}
		}
	}
	return all
}

// held is what some leases hold of a device.
type held struct {
	all, most accounting.Bytes // of them together, and of one
	streams   int              // the most of one
}

func heldOn(s figures.Snapshot, device int, mine func(*figures.LeaseState) bool) (h held) {
	for i := range s.Leases {
		if l := &s.Leases[i]; l.Device == device && mine(l) {
			h.all, h.most, h.streams = h.all+l.Used, max(h.most, l.Used), max(h.streams, l.Streams)
		}
	}
	return h
}

// UserLimits are the limits of all programs of a user: what somebody set for him, and what rules
// have his programs share.
func UserLimits(s figures.Snapshot, uid uint32) (all []Limit) {
	for _, d := range s.Devices {
		has := heldOn(s, d.Index, func(l *figures.LeaseState) bool {
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
					rules = append(rules, shared(b, at))
				}
			}
		}
		all = append(append(all, own), append(rules, streams)...)
	}
	return all
}

// CgroupLimits are the limits of all programs in a cgroup: its own, and those of the cgroups around it.
func CgroupLimits(s figures.Snapshot, of string) (all []Limit) {
	for _, d := range s.Devices {
		has := heldOn(s, d.Index, func(l *figures.LeaseState) bool { return l.InCgroup(of) })
		own := memoryLimit(d.Index, "memory.max", accounting.Max, has.all, "")
		var around []Limit
		for _, b := range s.Budgets {
			for _, at := range b.Devices {
				switch {
				case at.Device != d.Index || !b.IsOfCgroup() || at.Max == accounting.Max || !accounting.InCgroup(of, b.Cgroup):
				case b.Cgroup == of:
					own = memoryLimit(d.Index, "memory.max", at.Max, at.Used, at.MaxBy)
				default:
					around = append(around, shared(b, at))
				}
			}
		}
		all = append(append(all, own), around...)
	}
	return all
}

// RuleLimits are what a rule gives: to all together, or to each of those that it is about, of
// whom the one counts that holds most. False where there is no such rule.
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
		return all, true
	}
	return nil, false
}

// underRule is the most that one of a rule's budgets holds on a device, and streams of a lease.
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
	of := heldOn(s, device, func(l *figures.LeaseState) bool { return jobs[l.Job] })
	if r.Scope == "process" {
		most = max(most, of.most)
	}
	return most, of.streams
}

// DeviceLimits are the limits of the devices.
func DeviceLimits(s figures.Snapshot) (all []Limit) {
	for _, d := range s.Devices {
		all = append(all, countLimit(d.Index, "slots.max", d.SlotsMax, d.SlotsCurrent, d.SlotsBy))
	}
	return all
}

var limitColumns = []column[Limit]{
	device(func(l Limit) int { return int(l.Device) }),
	plain("LIMIT", left, func(l Limit) string { return l.Name }, 0),
	{"VALUE", right, func(s Style, l Limit) string { return l.spell(s, l.Value) }, 0},
	{"HELD", right, func(s Style, l Limit) string { return l.spell(s, &l.Held) }, 0},
	plain("SET-BY", last, func(l Limit) string { return line(orZero(l.By)) }, 0),
}

// spell writes an amount of what is limited.
func (l Limit) spell(s Style, n *uint64) string {
	switch {
	case n == nil:
		return "max"
	case l.Name == "memory.max" || l.Name == "memory.min":
		return s.amount(accounting.Bytes(*n))
	}
	return strconv.FormatUint(*n, 10)
}

// Limits writes the table of limits: a header, and a line for each limit and device.
func (style Style) Limits(w io.Writer, limits []Limit) error {
	return table(w, style, limitColumns, limits)
}
