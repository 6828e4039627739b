package arbiter_test

import (
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
)

// This file has the naive model of nested jobs of cgroups (bindings). It keeps no sums. It computes each figure from scratch, from the
// bytes that each program uses by its own count. nested_test.go drives the arbiter at random and compares it with the model.

// nestedContext is the memory that each context costs on a device. All readings of the test show this cost.
const nestedContext accounting.Bytes = 7

// nestedJob is a binding, the job of a runner (`gpuarb run`), or the job of a process that has neither.
type nestedJob struct {
	id       arbiter.JobID
	path     string                   // cgroup of the binding; "": a job of another kind
	in       []string                 // cgroups of the binding, of the runner, or of the only process
	run      bool                     // a binding or the job of a runner; false: the job of a process that has neither
	max, min accounting.Bytes         // limit and reservation on each device; accounting.Max: no limit
	live     map[int]accounting.Bytes // limit by device that root has set since, in place of max
	inside   bool                     // contexts count in the budget
	around   *nestedJob               // binding around the job; nil: none
	closed   bool                     // the binding was closed, or the runner has ended; always true if run is false
}

// nestedLease is the lease of a program on a device, with what the program uses there.
type nestedLease struct {
	*client
	job      *nestedJob
	max      accounting.Bytes // limit of the process itself
	device   int
	used     accounting.Bytes // memory by the program's own count, without contexts
	contexts int
	dead     bool // the program has ended, and its memory may still be on the device
	lost     bool // its device was lost
}

// strayUse is the memory of a program without the library that runs in a cgroup. A reading charges the memory to the deepest binding around
// the program. The charge stays until the next reading, or until the binding has ended.
type strayUse struct {
	path    string
	bytes   accounting.Bytes
	charged *nestedJob // binding that the memory is charged to; nil: the memory counts against the device alone
}

// treeModel is a machine with nested bindings. The first four fields have an element for each device.
type treeModel struct {
	totals    []accounting.Bytes
	unmanaged []accounting.Bytes // memory of programs without the library that are in no binding
	stray     []strayUse
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

// bindingAround returns the deepest open binding around any of the cgroups. If below is true, bindings of the cgroups themselves
// do not count.
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

// isInside reports whether j is inside outer, at any depth.
func (j *nestedJob) isInside(outer *nestedJob) bool {
	for ; j != nil; j = j.around {
		if j.around == outer {
			return true
		}
	}
	return false
}

// most returns the limit of a job in force on a device; accounting.Max: no limit.
func (n *treeModel) most(j *nestedJob, device int) accounting.Bytes {
	if most, set := j.live[device]; set {
		return min(most, n.totals[device])
	}
	if j.max == accounting.Max {
		return j.max
	}
	return min(j.max, n.totals[device])
}

// runs reports whether a program lives that belongs to j itself. Programs of jobs inside j do not count.
func (n *treeModel) runs(j *nestedJob) bool {
	return slices.ContainsFunc(n.leases, func(l *nestedLease) bool { return l.job == j && !l.dead })
}

// reserves returns the reservation of a job in force on a device. A closed binding reserves nothing. The job of a runner reserves until its
// last program has ended.
func (n *treeModel) reserves(j *nestedJob, device int) accounting.Bytes {
	if j.closed && (j.path != "" || !n.runs(j)) {
		return 0
	}
	return min(j.min, n.most(j, device))
}

// counts reports whether contexts of the job's programs count in its budget. They do if the job, or a job around it, was opened so.
func (j *nestedJob) counts() bool { return j != nil && (j.inside || j.around.counts()) }

// nestedSums are the sums of a job with all jobs inside it, on a device.
type nestedSums struct {
	held      accounting.Bytes // sum of all programs
	load      accounting.Bytes // sum of the job's own programs, and of the committed bytes of the jobs inside
	committed accounting.Bytes // load, or the job's reservation if that is larger
	beside    accounting.Bytes // memory of contexts outside the budgets
}

// sums adds up a job on a device: its programs, and the jobs inside it. size is used or granted.
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
	if x := n.stray[device]; x.charged == j {
		s.held, s.load = s.held+x.bytes, s.load+x.bytes
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

// headroom reports whether the reservation of a job includes a context, for which room is kept beside the budgets.
func (n *treeModel) headroom(j *nestedJob, device int) bool {
	return n.reserves(j, device) > 0 && !j.counts()
}

// used returns the size of a lease without its idle credit, which the arbiter can recall for other programs.
func used(l *nestedLease) accounting.Bytes { return l.used }

// granted returns the size of a lease with its idle credit.
func granted(l *nestedLease) accounting.Bytes { return l.word.granted }

// device adds up all jobs on a device. It visits the outermost jobs, whose sums include the jobs inside them.
func (n *treeModel) device(device int, size func(*nestedLease) accounting.Bytes) (s nestedSums) {
	for _, j := range n.jobs {
		if j.around == nil {
			of := n.sums(j, device, size)
			s.held, s.committed, s.beside = s.held+of.held, s.committed+of.committed, s.beside+of.beside
		}
	}
	return s
}

// fits reports whether a change of the model keeps the limits of j, of all jobs around it, and of the device. A sum may be over its limit
// already if the change leaves the sum as it is. change makes the change. Before fits returns, it reverts the change by undo.
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
	return !grows || now.committed+now.beside <= n.capacity(device)
}

// capacity returns the bytes of a device, less the memory of programs without the library that is charged to no binding.
func (n *treeModel) capacity(device int) accounting.Bytes {
	alone := n.unmanaged[device]
	if x := n.stray[device]; x.charged == nil {
		alone += x.bytes
	}
	return n.totals[device].Less(alone)
}

// chargeStray charges the memory of the program without the library on a device to the deepest binding around the program, as a reading
// does. It returns the ID of that binding's job; 0: no binding is around the program.
func (n *treeModel) chargeStray(device int) arbiter.JobID {
	x := &n.stray[device]
	if x.charged = nil; x.bytes > 0 {
		x.charged = n.bindingAround([]string{x.path}, false)
	}
	return idOf(x.charged)
}

// grants reports whether a lease gets that many bytes more.
func (n *treeModel) grants(l *nestedLease, bytes accounting.Bytes) bool {
	if l.lost || n.lost[l.device] || l.ownUse()+bytes > l.max {
		return false
	}
	return n.fits(l.job, l.device, used, func() { l.used += bytes }, func() { l.used -= bytes })
}

// ownUse returns the bytes that count against the limit of the process itself.
func (l *nestedLease) ownUse() accounting.Bytes {
	if l.job.counts() {
		return l.used + nestedContext.Times(uint64(l.contexts))
	}
	return l.used
}

// grantsContext reports whether a lease gets one more context. It does if a reservation around it includes an unused context, or if there
// is room.
func (n *treeModel) grantsContext(l *nestedLease) bool {
	if l.lost || n.lost[l.device] || l.job.counts() && l.used+nestedContext.Times(uint64(l.contexts)+1) > l.max {
		return false
	}
	return n.fits(l.job, l.device, used, func() { l.contexts++ }, func() { l.contexts-- })
}

// opens reports whether a job gets its reservation on each device. It does not if the reservation is larger than a limit around it.
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

// drop removes jobs that have ended: they are closed and have no lease. The jobs inside such a job are then inside the job around it.
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
		for device := range n.stray {
			if n.stray[device].charged == j {
				n.stray[device].charged = nil
			}
		}
	}
}

// enter puts jobs inside the new binding b, and returns them. These are the open bindings of cgroups below b, and each other job if all its
// living programs run in b's cgroup or below.
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
