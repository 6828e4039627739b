package arbiter_test

import (
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
)

// This file has the naive model of nested jobs of cgroups (bindings). It keeps no sums. It computes each figure from scratch, from the bytes
// that each program uses by its own count. nested_test.go drives the arbiter at random and compares it with the model.

// nestedContext is the cost of each context in the model. All readings show this cost.
const nestedContext accounting.Bytes = 7

// nestedJob is a binding, the job of a runner, or the job of a process without a runner.
type nestedJob struct {
	id       arbiter.JobID
	path     string   // cgroup of the binding; "": another job
	in       []string // cgroups of the runner, or of the only process
	run      bool     // a binding, or opened by a runner
	max, min accounting.Bytes
	live     map[int]accounting.Bytes // memory.max that root set on a device, in place of max
	inside   bool                     // contexts count in the budget
	around   *nestedJob
	closed   bool // the binding was closed, or the runner has ended
}

// nestedLease is the usage of a device by a program.
type nestedLease struct {
	*client
	job      *nestedJob
	max      accounting.Bytes // limit of the process itself
	device   int
	used     accounting.Bytes
	contexts int
	dead     bool
	lost     bool // its device was lost
}

// treeModel is a machine with nested bindings.
type treeModel struct {
	totals    []accounting.Bytes
	unmanaged []accounting.Bytes
	lost      []bool
	jobs      []*nestedJob
	leases    []*nestedLease
}

// in reports whether a cgroup is path, or lies below it.
func in(cgroup, path string) bool { return cgroup == path || strings.HasPrefix(cgroup, path+"/") }

// cgroupsOf returns all cgroups of a program.
func (l *nestedLease) cgroupsOf() []string {
	return append([]string{l.process.Cgroup}, l.process.AlsoIn...)
}

// bindingAround returns the deepest open binding around any of the cgroups. If below is true, a binding of a cgroup itself does not count.
func (n *treeModel) bindingAround(cgroups []string, below bool) (deepest *nestedJob) {
	for _, at := range cgroups {
		for _, j := range n.jobs {
			if j.path == "" || j.closed || !in(at, j.path) || below && at == j.path {
				continue
			}
			if deepest == nil || strings.Count(j.path, "/") > strings.Count(deepest.path, "/") {
				deepest = j
			}
		}
	}
	return deepest
}

// isInside reports whether j is inside the job of, at any depth.
func (j *nestedJob) isInside(of *nestedJob) bool {
	for ; j != nil; j = j.around {
		if j.around == of {
			return true
		}
	}
	return false
}

// most returns the memory.max in force on a device.
func (n *treeModel) most(j *nestedJob, device int) accounting.Bytes {
	if most, set := j.live[device]; set {
		return min(most, n.totals[device])
	}
	if j.max == accounting.Max {
		return j.max
	}
	return min(j.max, n.totals[device])
}

// runs reports whether a program of the job itself lives.
func (n *treeModel) runs(j *nestedJob) bool {
	return slices.ContainsFunc(n.leases, func(l *nestedLease) bool { return l.job == j && !l.dead })
}

// reserves returns the memory.min in force on a device. A closed binding reserves nothing. The job of a runner reserves until its last
// program has ended.
func (n *treeModel) reserves(j *nestedJob, device int) accounting.Bytes {
	if j.closed && (j.path != "" || !n.runs(j)) {
		return 0
	}
	return min(j.min, n.most(j, device))
}

// counts reports whether contexts of the job's programs count in its budget, and in those around it.
func (j *nestedJob) counts() bool { return j != nil && (j.inside || j.around.counts()) }

// nestedSums are the sums of a job with all jobs inside it. Beside is the memory of contexts outside the budgets.
type nestedSums struct {
	held, load, committed accounting.Bytes
	beside                accounting.Bytes
}

// sums adds up a job on a device: its programs, and the jobs inside it. size returns what a lease has of its budget.
func (n *treeModel) sums(j *nestedJob, device int, size func(*nestedLease) accounting.Bytes) (s nestedSums) {
	for _, l := range n.leases {
		if l.job != j || l.device != device || l.lost {
			continue
		}
		contexts := nestedContext.Times(uint64(l.contexts))
		here := size(l)
		if j.counts() {
			here += contexts
		} else {
			s.beside += contexts
		}
		s.held, s.load = s.held+here, s.load+here
	}
	for _, inner := range n.jobs {
		if inner.around == j {
			of := n.sums(inner, device, size)
			s.held, s.load, s.beside = s.held+of.held, s.load+of.committed, s.beside+of.beside
		}
	}
	s.committed = max(s.load, n.reserves(j, device))
	if n.headroom(j, device) {
		s.beside = max(s.beside, nestedContext)
	}
	return s
}

// headroom reports whether the reservation of a job includes a context.
func (n *treeModel) headroom(j *nestedJob, device int) bool {
	return n.reserves(j, device) > 0 && !j.counts()
}

// used is the size of a lease without its idle credit, which others can get.
func used(l *nestedLease) accounting.Bytes { return l.used }

// granted is the size of a lease with its idle credit.
func granted(l *nestedLease) accounting.Bytes { return l.word.granted }

// device adds up the jobs that are inside no other.
func (n *treeModel) device(device int, size func(*nestedLease) accounting.Bytes) (s nestedSums) {
	for _, j := range n.jobs {
		if j.around == nil {
			of := n.sums(j, device, size)
			s.held, s.committed, s.beside = s.held+of.held, s.committed+of.committed, s.beside+of.beside
		}
	}
	return s
}

// fits reports whether a change of the model keeps all limits around j, and those of the device. A limit that the change does not touch is
// kept. change makes the change, and undo reverts it.
func (n *treeModel) fits(j *nestedJob, device int, size func(*nestedLease) accounting.Bytes, change, undo func()) bool {
	var before []nestedSums
	for x := j; x != nil; x = x.around {
		before = append(before, n.sums(x, device, size))
	}
	whole := n.device(device, size)
	change()
	defer undo()
	for x, i := j, 0; x != nil; x, i = x.around, i+1 {
		now, most := n.sums(x, device, size), n.most(x, device)
		if now.held > before[i].held && now.held > most || now.load > before[i].load && now.load > most {
			return false
		}
	}
	now := n.device(device, size)
	grows := now.committed > whole.committed || now.beside > whole.beside
	return !grows || now.committed+now.beside <= n.totals[device].Less(n.unmanaged[device])
}

// grants reports whether a lease gets n bytes more.
func (n *treeModel) grants(l *nestedLease, bytes accounting.Bytes) bool {
	if l.lost || n.lost[l.device] || l.ownUse()+bytes > l.max {
		return false
	}
	return n.fits(l.job, l.device, used, func() { l.used += bytes }, func() { l.used -= bytes })
}

// ownUse returns what counts against the limit of the process itself.
func (l *nestedLease) ownUse() accounting.Bytes {
	if l.job.counts() {
		return l.used + nestedContext.Times(uint64(l.contexts))
	}
	return l.used
}

// grantsContext reports whether a lease gets a context: the reservation around it has one left, or there is room.
func (n *treeModel) grantsContext(l *nestedLease) bool {
	if l.lost || n.lost[l.device] || l.job.counts() && l.used+nestedContext.Times(uint64(l.contexts)+1) > l.max {
		return false
	}
	return n.fits(l.job, l.device, used, func() { l.contexts++ }, func() { l.contexts-- })
}

// opens reports whether a job gets its reservation on each device. No reservation is larger than a budget around it.
func (n *treeModel) opens(j *nestedJob) bool {
	for device := range n.totals {
		for x := j.around; x != nil; x = x.around {
			if min(j.min, n.most(j, device)) > n.most(x, device) {
				return false
			}
		}
		if !n.fits(j, device, used, func() { n.jobs = append(n.jobs, j) }, func() { n.jobs = n.jobs[:len(n.jobs)-1] }) {
			return false
		}
	}
	return true
}

// drop removes jobs that have ended: closed, and without programs whose memory is still there. The jobs inside go to the one around.
func (n *treeModel) drop() {
	for _, j := range slices.Clone(n.jobs) {
		if !j.closed || slices.ContainsFunc(n.leases, func(l *nestedLease) bool { return l.job == j }) {
			continue
		}
		for _, inner := range n.jobs {
			if inner.around == j {
				inner.around = j.around
			}
		}
		n.jobs = slices.DeleteFunc(n.jobs, func(x *nestedJob) bool { return x == j })
	}
}

// enter puts inside a new binding the open bindings below it, and the jobs of programs that all run in it. It returns them.
func (n *treeModel) enter(b *nestedJob) (entered []*nestedJob) {
	for _, j := range n.jobs {
		if j == b || j.around != b.around {
			continue
		}
		inside := j.path != "" && !j.closed && in(j.path, b.path)
		if j.path == "" || j.closed {
			inside = n.runs(j)
			for _, l := range n.leases {
				if l.job == j && !l.dead && !slices.ContainsFunc(l.cgroupsOf(), func(at string) bool { return in(at, b.path) }) {
					inside = false
				}
			}
		}
		if inside {
			entered = append(entered, j)
		}
	}
	for _, j := range entered {
		j.around = b
	}
	return entered
}
