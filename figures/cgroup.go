package figures

import (
	"iter"

	"github.com/gpuarb/gpuarb/accounting"
)

// CgroupState sums up the programs in a cgroup and in those below it.
type CgroupState struct {
	Max       accounting.Bytes // what all programs there may hold on each device; where they differ, the lowest; Max: no limit
	Used      accounting.Bytes
	Streams   int
	Processes []int // that run in it, and not in one below
}

// cgroups yields the paths of a client in all hierarchies of cgroups, each as [CgroupOf] returns it.
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

// InCgroup reports whether a lease's process runs in a cgroup or below it, in any hierarchy.
func (l *LeaseState) InCgroup(of string) bool {
	for at := range cgroups(l.Cgroup, l.AlsoIn) {
		if accounting.InCgroup(at, of) {
			return true
		}
	}
	return false
}

// in reports whether a process runs in a cgroup itself, not in one below it. A process that is in no other cgroup is in
// the root.
func (p *ProcessState) in(of string) bool {
	for at := range cgroups(p.Cgroup, p.AlsoIn) {
		if at == of {
			return true
		}
	}
	return false
}

// Cgroups yields the paths of each client's cgroups, and of each that has a limit: some more than once.
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

// IsOfCgroup reports whether a budget is the limit of a cgroup, which no rule gives.
func (b *BudgetState) IsOfCgroup() bool { return b.Cgroup != "" && b.Rule == "" }

// Cgroup adds up what runs in a cgroup; false where nothing does, and it has no limit.
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
