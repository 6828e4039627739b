package daemon

// This file keeps the paths of cgroups with live limits in the state file. A record of a limit (keptlimits.go) has no room for a path: the
// path has a record of its own, and the record of the limit has the number of the path.

import (
	"hash/fnv"

	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
)

// binding says when a limit of a cgroup ends by itself.
type binding uint8

const (
	toPath   binding = iota // never: the limit stays until a user removes it
	toFolder                // when the folder that the cgroup has now is removed
	asBefore                // when the limit that the cgroup already has would end; if it has none, as toFolder
)

// limitChange is a change of live limits. Limits of a cgroup may end when the cgroup's folder is removed.
type limitChange struct {
	rules.Change
	bind   binding
	folder uint32 // folder with which the limit ends, as folderAt returns it; 0: the cgroup has no folder
}

// cgroupID returns the number of a path in records. If another path has that number, the path gets the next free number instead.
func cgroupID(path string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(path))
	return h.Sum64()
}

// cgroupIDLocked returns the number of a path: the one in its record, or the one that a new record would get. Users choose the paths of their
// cgroups, and can find two with the same hash: these must have different numbers.
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

// cgroupLocked returns the path of a cgroup by its number; "": it is not known.
func (d *Daemon) cgroupLocked(id uint64) string {
	if at, known := d.kept.paths[id]; known {
		return d.file.Cgroups.At(at).PathOf()
	}
	return ""
}

// roomForCgroupLocked returns an error if a path is not kept yet and there is no room for one more.
func (d *Daemon) roomForCgroupLocked(path string) error {
	if _, known := d.kept.paths[d.cgroupIDLocked(path)]; !known && len(d.kept.paths) >= statefile.MaxCgroups {
		return refused(ipc.StatusTooMany, "%d cgroups have limits, the most that there can be: take off those that are needed no longer (memory.max=max)", statefile.MaxCgroups)
	}
	return nil
}

// keepCgroupLocked writes the record of a cgroup's path, which also says with which folder the limits end. It must be called before the limit
// itself is written.
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

// dropCgroupLocked frees the record of the path of a cgroup that has no limit any more. Other owners are ignored.
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

// recoverCgroupsLocked reads the paths that the last daemon kept, and frees records that cannot be valid.
func (d *Daemon) recoverCgroupsLocked() {
	d.file.Cgroups.Each(func(at int, r *statefile.Cgroup) {
		path := r.PathOf()
		_, twice := d.kept.paths[r.ID]
		_, other := d.kept.paths[d.cgroupIDLocked(path)]
		if twice || other || r.ID-cgroupID(path) >= statefile.MaxCgroups { // a number differs from the path's hash by less than the number of paths
			d.file.Cgroups.Free(at)
			return
		}
		d.kept.paths[r.ID] = at
	})
}
