package daemon

// This file has the jobs of cgroups (bindings): which process belongs to which, and how a binding ends by itself.
// bind.go answers requests for them; jobs.go has the life of a job in general. hello.go asks for the job of a client.
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

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/ipc"
)

// maxNested is the number of bindings that may lie in one another.
const maxNested = 16

// hierarchyOf returns the index of the mount point below which a path lies; -1: it lies below none.
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

// bindingOfLocked returns the job of the deepest binding around these cgroups; nil: none is around them.
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
// cgroup of a binding belongs to the binding's job, unless token names a job inside that one.
func (d *Daemon) jobOfProcessLocked(token ipc.Token, peer ipc.Peer, proc *rules.Process) (arbiter.JobID, error) {
	j := d.bindingOfLocked(proc.Cgroups)
	switch {
	case j == nil:
		return d.jobOfLocked(token, peer)
	case j.open && d.jobs[token].isInside(j):
		return d.jobOfLocked(token, peer)
	case !j.open:
		return 0, refused(ipc.StatusPermission, "the job of cgroup %s still waits for its reservation: start the program when it has it", j.bound.path)
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

// isInside reports whether j is inside the job of a cgroup, at any depth. It returns false if j is nil.
func (j *job) isInside(of *job) bool {
	for ; j != nil; j = j.around {
		if j.around == of {
			return true
		}
	}
	return false
}

// narrowLocked lowers the limit that a client asks for to the budget of the job that its environment names, if the client
// belongs to the job of a cgroup instead. Of a number of bytes and a share of the device, the job's budget counts.
func (d *Daemon) narrowLocked(h *ipc.HelloRequest, peer ipc.Peer, belongs arbiter.JobID) {
	j := d.jobs[h.Job]
	if j == nil || j.id == belongs {
		return
	}
	if _, err := d.jobOfLocked(h.Job, peer); err != nil {
		return
	}
	switch is := d.file.Jobs.At(j.index); {
	case is.MaxPerMille != 0 && (h.Share == 0 || is.MaxPerMille < h.Share):
		h.Memory, h.Share = ipc.NoLimit, is.MaxPerMille
	case is.Max != ipc.NoLimit && (h.Share != 0 || is.Max < h.Memory):
		h.Memory, h.Share = is.Max, 0
	}
}

// enterBindingLocked moves jobs into the binding j after j was opened or recovered. These are the bindings of cgroups
// below j, also those that still wait for their reservation, and the jobs of programs that run in j's cgroup already. Jobs at deeper levels move along with theirs.
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

// aroundLocked returns the open job of the deepest binding around a cgroup, without that of the cgroup itself.
func (d *Daemon) aroundLocked(path string) *job {
	j := d.bindingOfLocked(func(yield func(string) bool) { yield(filepath.Dir(path)) })
	for j != nil && !j.open {
		j = d.aroundLocked(j.bound.path)
	}
	return j
}

// checkBindings closes the jobs of cgroups whose folders are gone or were made again, and of those that were idle for
// too long. If in is given, it checks only bindings around these cgroups, and only their folders.
func (d *Daemon) checkBindings(in ...string) {
	ended := map[*job]string{}
	for j, b := range d.bindingsAround(in) {
		switch {
		case b.until == ipc.UntilClosed:
		case b.gone():
			ended[j] = "its folder is gone"
		case in == nil && b.until == ipc.UntilIdle && !b.populated():
			if d.now().Sub(b.used) >= b.idle {
				ended[j] = "no process was in it for " + b.idle.String()
			}
		case in == nil && b.until == ipc.UntilIdle:
			d.lock()
			j.bound.used = d.now()
			d.unlock()
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

// gone reports whether the folder of the cgroup is gone, or was made again, in all hierarchies.
func (b *binding) gone() bool { return b.where() == "" && hierarchies() != nil }

// where returns the present path of the cgroup's folder; "": there is none. The mount at which it was found may have gone alone.
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

// bindingsAround returns copies of the bindings around these cgroups, or of all bindings if in is nil. The copies can be
// read without the lock.
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

// populated reports whether a process is in the cgroup or below it. It returns true if that cannot be read.
func (b *binding) populated() bool {
	dir := b.where()
	if dir == "" {
		return true
	}
	if events, err := os.ReadFile(filepath.Join(dir, "cgroup.events")); err == nil {
		return !strings.Contains(string(events), "populated 0")
	}
	found := errors.New("found")
	err := filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err != nil && at == dir {
			return err
		}
		if err != nil || !e.IsDir() {
			return nil // the cgroup may just have been removed
		}
		if procs, err := os.ReadFile(filepath.Join(at, "cgroup.procs")); err == nil && len(procs) > 0 {
			return found
		}
		return nil
	})
	return err != nil
}

// nestedLocked returns the length of the longest chain of nested bindings through path, if a binding is opened there.
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
