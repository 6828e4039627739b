package daemon

// This file keeps the paths of cgroups with live limits in the state file. A limit's record (keptlimits.go) has no
// room for a path. The path has its own record, and the limit's record holds the number of the path. setlimit.go and
// keptlimits.go call this file; folders.go ends limits with a cgroup's folder.

import (
	"hash/fnv"

	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
)

// lifetime says when a limit of a cgroup ends by itself.
type lifetime uint8

const (
	toPath   lifetime = iota // never: the limit stays until a user removes it
	toFolder                 // when the folder that the cgroup has now is removed
	asBefore                 // when the limit that the cgroup already has would end; if it has none, as toFolder
)

// limitChange is a change of live limits. Limits of a cgroup may end when the cgroup's folder is removed.
type limitChange struct {
	rules.Change
	bind   lifetime
	folder uint32 // number of the folder with which the limit ends, as folderAt returns it; 0: the cgroup has no folder
}

// cgroupID returns the hash of a path, the preferred number of the path in records.
func cgroupID(path string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(path))
	return h.Sum64()
}

// cgroupIDLocked returns the number of a path: the number in its record, or the number that a new record would get.
// Users choose the paths of their cgroups, and can find two paths with equal hashes. The second path gets the next
// free number.
func (d *Daemon) cgroupIDLocked(path string) uint64 {
	for id, at := range d.kept.paths {
		if d.file.Cgroups.At(at).PathOf() == path {
			return id
		}
	}
	id := cgroupID(path)
	for _, taken := d.kept.paths[id]; taken; _, taken = d.kept.paths[id] {
		id++
	}
	return id
}

// cgroupLocked returns the path of a cgroup by its number; "": no such path is recorded.
func (d *Daemon) cgroupLocked(id uint64) string {
	if at, known := d.kept.paths[id]; known {
		return d.file.Cgroups.At(at).PathOf()
	}
	return ""
}

// roomForCgroupLocked returns an error if a path is not recorded yet and the table of paths is full.
func (d *Daemon) roomForCgroupLocked(path string) error {
	if _, known := d.kept.paths[d.cgroupIDLocked(path)]; !known && len(d.kept.paths) >= statefile.MaxCgroups {
		return refused(ipc.StatusTooMany, "%d cgroups have limits, the most that there can be: take off those that are needed no longer (memory.max=max)", statefile.MaxCgroups)
	}
	return nil
}

// keepCgroupLocked writes the record of a cgroup's path, and in it the folder with which the limits end. It must be
// called before the limit itself is written.
func (d *Daemon) keepCgroupLocked(path string, change limitChange) {
	id := d.cgroupIDLocked(path)
	at, known := d.kept.paths[id]
	if !known {
		var row *statefile.Cgroup
		var err error
		if at, row, err = d.file.Cgroups.New(); err != nil || !row.SetPath(path) {
			d.log.Warn("a changed limit will not outlive this daemon", "cgroup", path, "err", err)
			return
		}
		row.ID, row.Folder = id, 0
	}
	row := d.file.Cgroups.At(at)
	switch {
	case change.bind == toPath:
		row.Folder = 0
	case change.folder != 0 && (change.bind == toFolder || !known || row.Folder != 0):
		row.Folder = change.folder
	}
	if !known {
		d.file.Cgroups.Commit(at)
		d.kept.paths[id] = at
	}
}

// dropCgroupLocked frees the record of a path if its cgroup has no limits any more. It ignores owners other than
// cgroups.
func (d *Daemon) dropCgroupLocked(of rules.Owner) {
	if of.Kind != rules.OfCgroup || len(d.kept.of[of]) > 0 {
		return
	}
	id := d.cgroupIDLocked(of.Path)
	if at, known := d.kept.paths[id]; known {
		d.file.Cgroups.Free(at)
		delete(d.kept.paths, id)
	}
}

// recoverCgroupsLocked reads the paths that the last daemon recorded, and frees invalid records.
func (d *Daemon) recoverCgroupsLocked() {
	d.file.Cgroups.Each(func(at int, r *statefile.Cgroup) {
		path := r.PathOf()
		_, twice := d.kept.paths[r.ID]
		_, other := d.kept.paths[d.cgroupIDLocked(path)]
		if twice || other || r.ID-cgroupID(path) >= statefile.MaxCgroups { // valid numbers are less than MaxCgroups above the path's hash
			d.file.Cgroups.Free(at)
			return
		}
		d.kept.paths[r.ID] = at
	})
}
