package daemon

// This file finds the job of a cgroup (a binding) to which a process belongs, for hello.go. It also closes a binding whose cgroup is gone
// or idle. Requests to open and close bindings are in bind.go, and the life of a job in general is in jobs.go.
//
// The identity of a cgroup is its path and the inode number of its folder. If a folder is removed and made again, the new
// cgroup does not get the job. With UntilClosed the path alone is the identity, and the new cgroup gets the job.

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
)

// maxNested is the greatest number of bindings on one path, each inside the one before.
const maxNested = 16

// hierarchyOf returns the index of the mount point that is above a path; -1: the path is below no mount point.
func hierarchyOf(points []string, path string) int {
	return slices.IndexFunc(points, func(point string) bool { return strings.HasPrefix(path, point+"/") })
}

// cgroupPath returns the path of a cgroup in its hierarchy. text is that path, or the path of the cgroup's folder.
func cgroupPath(text string) string {
	points := hierarchies()
	if i := hierarchyOf(points, text); i >= 0 {
		return strings.TrimPrefix(text, points[i])
	}
	return text
}

// locateCgroup finds the cgroup that a request names, by its path in a hierarchy or by the path of its folder.
func locateCgroup(text string) (*binding, error) {
	points, path := hierarchies(), text
	if i := hierarchyOf(points, text); i >= 0 {
		path, points = strings.TrimPrefix(text, points[i]), points[i:i+1]
	}
	if path == "/" || slices.Contains(points, path) {
		return nil, rules.Wrong(rules.ErrRange, "the root cgroup has all programs of the machine in it, and can have no job: name a cgroup below it")
	}
	if err := rules.CheckCgroup(path); err != nil {
		return nil, err
	}
	for _, point := range points {
		dir := filepath.Join(point, path)
		if folder := inodeAt(dir); folder != 0 {
			return &binding{path: path, folder: folder, dir: dir, row: -1}, nil
		}
	}
	return nil, rules.Wrong(rules.ErrRange, "there is no cgroup %s in any hierarchy: make the cgroup before you open its job", path)
}

// bindingOfLocked returns the job of the deepest binding that has one of the cgroups of in, or a cgroup above it; nil: there is no such
// binding. The job may still wait for its reservation.
func (d *Daemon) bindingOfLocked(in func(yield func(string) bool)) (deepest *job) {
	if len(d.bindings) == 0 {
		return nil
	}
	depth := 0
	for at := range in {
		for path := accounting.CgroupOf(at); path != "/"; path = filepath.Dir(path) {
			if j := d.bindings[path]; j != nil {
				if n := strings.Count(path, "/"); n > depth {
					deepest, depth = j, n
				}
				break
			}
		}
	}
	return deepest
}

// jobOfProcessLocked returns the job of a client. token is the job that the client's environment names. A client in the
// cgroup of a binding belongs to the binding's job, unless token names a job inside the binding's job.
func (d *Daemon) jobOfProcessLocked(token ipc.Token, peer ipc.Peer, proc *rules.Process) (arbiter.JobID, error) {
	j := d.bindingOfLocked(proc.Cgroups)
	switch {
	case j == nil:
		return d.jobOfLocked(token, peer)
	case !j.open:
		return 0, refused(ipc.StatusPermission, "the job of cgroup %s still waits for its reservation: start the program when it has it", j.bound.path)
	}
	d.noteProcessLocked(j)
	if d.jobs[token].isInside(j) {
		return d.jobOfLocked(token, peer)
	}
	return j.id, nil
}

// idOf returns the ID of a job; 0 for nil.
func idOf(j *job) arbiter.JobID {
	if j == nil {
		return 0
	}
	return j.id
}

// isInside reports whether j is inside the job of, at any depth. It returns false if j is nil.
func (j *job) isInside(of *job) bool {
	for ; j != nil; j = j.around {
		if j.around == of {
			return true
		}
	}
	return false
}

// narrowLocked limits a client in the cgroup of a binding to the budget of the job that its environment names, although the client does
// not belong to that job. If the client asks for a lower limit itself, that stays.
func (d *Daemon) narrowLocked(h *ipc.HelloRequest, peer ipc.Peer, belongs arbiter.JobID) {
	j := d.jobs[h.Job]
	if j == nil || j.id == belongs {
		return
	}
	if _, err := d.jobOfLocked(h.Job, peer); err != nil {
		return
	}
	switch is := d.file.Jobs.At(j.index); {
	case is.MaxPerMille != 0 && h.Share != 0:
		h.Share = min(h.Share, is.MaxPerMille)
	case is.MaxPerMille != 0:
		h.Memory, h.Share = d.lowerOfLocked(h.Memory, is.MaxPerMille)
	case is.Max != ipc.NoLimit && h.Share != 0:
		h.Memory, h.Share = d.lowerOfLocked(is.Max, h.Share)
	default:
		h.Memory = min(h.Memory, is.Max)
	}
}

// lowerOfLocked returns a limit that is neither above the bytes memory nor above the share on any GPU. If memory is not NoLimit, it
// is in bytes, and on a GPU that is larger than another one it can be lower than both.
func (d *Daemon) lowerOfLocked(memory uint64, share uint32) (uint64, uint32) {
	if memory == ipc.NoLimit {
		return memory, share
	}
	for _, dev := range d.devices() {
		if total := d.arb.Total(dev.Index); isGPU(dev) && total > 0 {
			memory = min(memory, uint64(accounting.Size{PerMille: share}.Of(total)))
		}
	}
	return memory, 0
}

// enterBindingLocked moves open jobs into the binding j after j was opened or recovered. It moves the bindings of cgroups below j, even if
// they still wait for their reservation. It also moves the jobs of programs that already run in j's cgroup. Jobs inside a moved job stay
// inside that job.
func (d *Daemon) enterBindingLocked(j *job) {
	for _, in := range d.bindings {
		if in != j && in.around == j.around && accounting.InCgroup(in.bound.path, j.bound.path) {
			in.around = j
			d.arb.Enclose(d.now(), in.id, j.id)
		}
	}
	for _, id := range d.arb.JobsIn(j.bound.path, idOf(j.around)) {
		d.arb.Enclose(d.now(), id, j.id)
		if in := d.jobByID[id]; in != nil {
			in.around = j
		}
	}
}

// aroundLocked returns the job of the deepest binding of a cgroup above path. It skips jobs that still wait for their reservation.
func (d *Daemon) aroundLocked(path string) *job {
	j := d.bindingOfLocked(func(yield func(string) bool) { yield(filepath.Dir(path)) })
	for j != nil && !j.open {
		j = d.aroundLocked(j.bound.path)
	}
	return j
}

// checkBindings closes bindings whose folder is gone or was made again, and bindings that were idle for too long. It records an event for
// a binding into whose cgroup no process has come for missedAfter. If cgroups are given, it checks only their bindings and those of cgroups
// above, and only whether the folders are gone.
func (d *Daemon) checkBindings(in ...string) {
	ended := map[*job]string{}
	for j, b := range d.bindingsAround(in) {
		switch {
		case b.until != ipc.UntilClosed && b.gone():
			ended[j] = "its folder is gone"
		case in != nil || b.until != ipc.UntilIdle && b.came:
		case b.populated():
			d.lock()
			j.bound.used = d.now()
			d.noteProcessLocked(j)
			d.unlock()
		case b.until == ipc.UntilIdle && d.now().Sub(b.used) >= b.idle:
			ended[j] = "no process was in it for " + b.idle.String()
		default:
			d.noteNoProcess(j)
		}
	}
	if len(ended) == 0 {
		return
	}
	d.reaper.Sync() // first end the sessions of clients that ran there and have ended
	d.lock()
	defer d.unlock()
	for j, why := range ended {
		if d.stopping() || j.closed {
			continue
		}
		d.log.Info("the job of a cgroup is closed: "+why, "job", j.id, "cgroup", j.bound.path)
		d.closeBindingLocked(j)
	}
}

// missedAfter is how long after the opening of a binding an event says that no process has come into its cgroup.
const missedAfter = 10 * time.Minute

// noteProcessLocked records that a process was seen in the cgroup of the binding j. The process is in the cgroups of the bindings around j
// too.
func (d *Daemon) noteProcessLocked(j *job) {
	for ; j != nil; j = j.around {
		if b := j.bound; b != nil && !b.came {
			b.came = true
			d.flagBindingLocked(b, statefile.BindingCame)
		}
	}
}

// noteNoProcess records an event if the binding j was opened missedAfter ago or earlier, and no process has come into its cgroup since. It
// records one event for each binding.
func (d *Daemon) noteNoProcess(j *job) {
	d.lock()
	defer d.unlock()
	b := j.bound
	if b.came || b.missed || b.opened.IsZero() || d.now().Sub(b.opened) < missedAfter || j.closed || d.stopping() {
		return
	}
	b.missed = true
	d.flagBindingLocked(b, statefile.BindingMissed)
	d.arb.NoProcessCame(d.now(), j.id, b.path, missedAfter)
}

// addNoProcessLocked marks in a snapshot the bindings for which noteNoProcess has recorded an event, if no process has come since.
func (d *Daemon) addNoProcessLocked(s *figures.Snapshot) {
	for i := range s.Jobs {
		if is := &s.Jobs[i]; is.Bound != "" {
			j := d.jobByID[arbiter.JobID(is.ID)]
			is.NoProcess = j != nil && j.bound != nil && j.bound.missed && !j.bound.came
		}
	}
}

// flagBindingLocked sets a flag in the record of a binding.
func (d *Daemon) flagBindingLocked(b *binding, flag uint32) {
	if b.row >= 0 {
		d.file.Bindings.At(b.row).Flags |= flag
	}
}

// cgroupsNamed returns the path of the cgroup whose open job has the name. It returns no path if there is no such job.
func (d *Daemon) cgroupsNamed(name string) (paths []string) {
	d.lock()
	defer d.unlock()
	for path, j := range d.bindings {
		if nameOf(d.file.Jobs.At(j.index)) == name {
			paths = append(paths, path)
		}
	}
	return paths
}

// gone reports whether no hierarchy has the folder of the cgroup any more: it was removed, or removed and made again. It returns false if
// the hierarchies cannot be read.
func (b *binding) gone() bool { return b.where() == "" && hierarchies() != nil }

// where returns the present path of the cgroup's folder; "": the folder is gone. It looks below all mount points, because the mount in
// which the folder was found may be gone while the cgroup still exists.
func (b *binding) where() string {
	if inodeAt(b.dir) == b.folder {
		return b.dir
	}
	for _, point := range hierarchies() {
		if dir := filepath.Join(point, b.path); inodeAt(dir) == b.folder {
			return dir
		}
	}
	return ""
}

// bindingsAround returns copies of the bindings of the cgroups in, and of cgroups above them; of all bindings if in is nil. The copies can
// be read without the lock.
func (d *Daemon) bindingsAround(in []string) map[*job]binding {
	d.lock()
	defer d.unlock()
	around := make(map[*job]binding)
	if in == nil {
		for _, j := range d.bindings {
			around[j] = *j.bound
		}
	}
	for _, at := range in {
		if len(d.bindings) == 0 {
			break
		}
		for path := accounting.CgroupOf(at); path != "/"; path = filepath.Dir(path) {
			if j := d.bindings[path]; j != nil {
				around[j] = *j.bound
			}
		}
	}
	return around
}

// closeBindingLocked closes the job of a cgroup. Its programs keep what they use, and the job ends with the last of them.
func (d *Daemon) closeBindingLocked(j *job) {
	d.freeBindingLocked(j)
	d.arb.ReleaseJob(d.now(), j.id)
	d.file.Jobs.At(j.index).Released = jobReleased
	d.endRunnerLocked(j)
}

// populated reports whether a process is in the cgroup, or in a cgroup below it, in any hierarchy. It returns true if that cannot be read.
// If the folder of the cgroup is gone, it returns true too, because the next check closes the binding. For a binding that never closes
// by itself, it looks for processes in the folder that now has the path of the cgroup.
func (b *binding) populated() bool {
	found := b.where()
	if found == "" && b.until != ipc.UntilClosed || found != "" && isPopulated(found) {
		return true
	}
	for _, point := range hierarchies() {
		if dir := filepath.Join(point, b.path); dir != found && inodeAt(dir) != 0 && isPopulated(dir) {
			return true
		}
	}
	return false
}

// isPopulated does the work of populated for one folder of the cgroup.
func isPopulated(dir string) bool {
	if events, err := os.ReadFile(filepath.Join(dir, "cgroup.events")); err == nil {
		return !strings.Contains(string(events), "populated 0")
	}
	found := errors.New("found")
	err := filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err != nil && at == dir {
			return err
		}
		if err != nil || !e.IsDir() {
			return nil // not a folder, or a cgroup that was just removed
		}
		if procs, err := os.ReadFile(filepath.Join(at, "cgroup.procs")); err == nil && len(procs) > 0 {
			return found
		}
		return nil
	})
	return err != nil
}

// nestedLocked returns how many bindings would be inside each other on the longest path through the cgroup path, if a binding of that
// cgroup were opened.
func (d *Daemon) nestedLocked(path string) (deepest int) {
	depth := func(at string) (n int) {
		for ; at != "/"; at = filepath.Dir(at) {
			if d.bindings[at] != nil || at == path {
				n++
			}
		}
		return n
	}
	deepest = depth(path)
	for at := range d.bindings {
		if accounting.InCgroup(at, path) {
			deepest = max(deepest, depth(at))
		}
	}
	return deepest
}
