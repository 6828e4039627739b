package figures

// This file adds up what the programs in a cgroup hold. `gpuarb limit --cgroup` and /gpu/cgroups
// show it.

import (
	"iter"

	"github.com/gpuarb/gpuarb/accounting"
)

// CgroupState sums up the programs in a cgroup and in the cgroups below it.
type CgroupState struct {
	Max       accounting.Bytes // bytes that all programs there may hold on each device, the lowest if devices differ; Max: no limit
	Used      accounting.Bytes
	Streams   int
	Processes []int // PIDs of processes in the cgroup itself, not below it
}

// cgroups yields the paths of a client in all hierarchies of cgroups, as [accounting.CgroupOf]
// returns them.
func cgroups(path string, others []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !yield(accounting.CgroupOf(path)) {
			return
		}
		for _, other := range others {
			if !yield(accounting.CgroupOf(other)) {
				return
			}
		}
	}
}

// InCgroup reports whether the process of a lease runs in a cgroup or below it, in any hierarchy.
func (l *LeaseState) InCgroup(of string) bool {
	for at := range cgroups(l.Cgroup, l.AlsoIn) {
		if accounting.InCgroup(at, of) {
			return true
		}
	}
	return false
}

// in reports whether a process runs in a cgroup itself, not below it. A process in no other cgroup
// is in the root.
func (p *ProcessState) in(of string) bool {
	for at := range cgroups(p.Cgroup, p.AlsoIn) {
		if at == of {
			return true
		}
	}
	return false
}

// Cgroups yields the paths of the cgroups of all clients, and of each cgroup with a limit. A path
// may occur several times.
func (s *Snapshot) Cgroups() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range s.Processes {
			for at := range cgroups(s.Processes[i].Cgroup, s.Processes[i].AlsoIn) {
				if !yield(at) {
					return
				}
			}
		}
		for i := range s.Budgets {
			if b := &s.Budgets[i]; b.IsOfCgroup() && !yield(b.Cgroup) {
				return
			}
		}
	}
}

// IsOfCgroup reports whether a budget is the limit of a cgroup that a user set, not a rule.
func (b *BudgetState) IsOfCgroup() bool { return b.Cgroup != "" && b.Rule == "" }

// Cgroup adds up the programs in a cgroup. It returns false if the cgroup has no programs and no
// limit.
func (s *Snapshot) Cgroup(of string) (CgroupState, bool) {
	state, known := CgroupState{Max: accounting.Max}, of == "/"
	for at := range s.Cgroups() {
		if known = known || accounting.InCgroup(at, of); known {
			break
		}
	}
	for i := range s.Budgets {
		if b := &s.Budgets[i]; b.IsOfCgroup() && b.Cgroup == of {
			for _, on := range b.Devices {
				state.Max = min(state.Max, on.Max)
			}
		}
	}
	for i := range s.Leases {
		if l := &s.Leases[i]; l.InCgroup(of) {
			state.Used = state.Used.Plus(l.Used)
			state.Streams += l.Streams
		}
	}
	for i := range s.Processes {
		if p := &s.Processes[i]; p.in(of) {
			state.Processes = append(state.Processes, p.PID)
		}
	}
	return state, known
}
