package daemon

import (
	"hash/fnv"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/statefile"
)

// What somebody set for all programs in a cgroup is kept like other changed limits. A record of a limit has no room for a
// path: that has a record of its own, and the limit the path's number.

// cgroupID returns the number that a path gets in records unless another path has it; then it gets the next free number.
func cgroupID(path string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(path))
	return h.Sum64()
}

// cgroupIDLocked returns the number of a path: the one in its record, or the one that a new record would get. Users choose the paths of their
// cgroups, and can find two with the same hash: these must have different numbers.
func (d *Daemon) cgroupIDLocked(path string) uint64 {
	if id, known := d.kept.numbers[path]; known {
		return id
	}
	id := cgroupID(path)
	for _, taken := d.kept.cgroups[id]; taken; _, taken = d.kept.cgroups[id] {
		id++
	}
	return id
}

// roomForCgroupLocked says why the path of one more cgroup could not be kept, or nil.
func (d *Daemon) roomForCgroupLocked(id uint64) error {
	if _, known := d.kept.cgroups[id]; !known && len(d.kept.cgroups) >= statefile.MaxCgroups {
		return refused(ipc.StatusTooMany, "%d cgroups have limits, the most that there can be: take off those that are needed no longer (memory.max=max)", statefile.MaxCgroups)
	}
	return nil
}

// keepCgroupLocked writes a path down before the limit that it is needed for.
func (d *Daemon) keepCgroupLocked(id uint64, path string, change limitChange) {
	at, known := d.kept.cgroups[id]
	if known {
		d.bindLocked(d.file.Cgroups.At(at), path, change, d.kept.folders[path] != 0)
		return
	}
	at, row, err := d.file.Cgroups.New()
	if err != nil || !row.SetPath(path) {
		d.log.Warn("a changed limit will not outlive this daemon", "cgroup", path, "err", err)
		return
	}
	row.ID = id
	d.bindLocked(row, path, change, true)
	d.file.Cgroups.Commit(at)
	d.kept.cgroups[id], d.kept.numbers[path] = at, id
}

// dropCgroupLocked frees the record of a path whose last limit is gone.
func (d *Daemon) dropCgroupLocked(id uint64) {
	if at, known := d.kept.cgroups[id]; known && len(d.kept.of[limitOwner{ipc.LimitCgroup, id, ofNobody}]) == 0 {
		path := d.file.Cgroups.At(at).PathOf()
		delete(d.kept.folders, path)
		delete(d.kept.numbers, path)
		d.file.Cgroups.Free(at)
		delete(d.kept.cgroups, id)
	}
}

// recoverCgroupsLocked takes up which paths the last daemon's records are of.
func (d *Daemon) recoverCgroupsLocked() {
	d.file.Cgroups.Each(func(at int, r *statefile.Cgroup) {
		path := r.PathOf()
		_, twice := d.kept.cgroups[r.ID]
		_, other := d.kept.numbers[path]
		if twice || other || r.ID-cgroupID(path) >= statefile.MaxCgroups { // no path is moved further from its hash than there are paths
			d.file.Cgroups.Free(at)
			return
		}
		d.kept.cgroups[r.ID], d.kept.numbers[path] = at, r.ID
		if r.Folder != 0 {
			d.kept.folders[r.PathOf()] = r.Folder
		}
	})
}

// cgroupLocked is the path of a cgroup by its number; "": it is not known.
func (d *Daemon) cgroupLocked(id uint64) string {
	if at, known := d.kept.cgroups[id]; known {
		return d.file.Cgroups.At(at).PathOf()
	}
	return ""
}
