package daemon

// This file ends limits of cgroups when the cgroup's folder is removed. A limit that was set by path stays, so that a service
// that is started again has it. A limit that was written into /gpu/cgroups, or set with --with-folder, belongs to the folder
// that the cgroup had then, as in the kernel's own tree. If a container's monitor is killed, no program tells the daemon that
// the folder is gone. So the daemon looks at the folders once a second, and before it takes in a client: a folder that is made
// again at the path is another one. cgroups.go keeps the records of the paths.

import (
	"maps"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/procfacts"
)

// binding says when a limit of a cgroup ends by itself.
type binding uint8

const (
	toPath   binding = iota // never: it stays until it is taken off
	toFolder                // when the folder that the cgroup has now is removed
	asBefore                // as the limit that the cgroup has already; without one, as toFolder
)

// hierarchies returns the folders at which the root of a hierarchy of cgroups is mounted, v2 first.
func hierarchies() (points []string) {
	mounts, err := procfacts.Here.Mounts()
	if err != nil {
		return nil
	}
	for _, m := range mounts {
		switch {
		case m.Root != "/":
		case m.Type == "cgroup2":
			points = slices.Insert(points, 0, m.Point)
		case m.Type == "cgroup":
			points = append(points, m.Point)
		}
	}
	return points
}

// folderAt returns the lower half of a folder's inode number; 0: there is no folder. The kernel counts these numbers up, so that
// a folder that is made again at a path has another one.
func folderAt(dir string) uint32 {
	var stat unix.Stat_t
	if unix.Stat(dir, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0
	}
	return uint32(stat.Ino)
}

// folderFor returns the number of a cgroup's folder in the first hierarchy that has it, as folderAt does; 0: no hierarchy has it, or the
// asker is not privileged, so that the request will be refused.
func folderFor(by asker, path string) uint32 {
	if !by.privileged || rules.CheckCgroup(path) != nil {
		return 0
	}
	for _, point := range hierarchies() {
		if folder := folderAt(filepath.Join(point, path)); folder != 0 {
			return folder
		}
	}
	return 0
}

// boundFolders returns the folders with which limits end, by the paths of their cgroups.
func (d *Daemon) boundFolders() map[string]uint32 {
	d.lock()
	defer d.unlock()
	bound := map[string]uint32{}
	for _, at := range d.kept.paths {
		if r := d.file.Cgroups.At(at); r.Folder != 0 {
			bound[r.PathOf()] = r.Folder
		}
	}
	return bound
}

// lookAtFolders takes off the limits of cgroups whose folders are gone, unless a client that lives still counts in the cgroup. With
// cgroups in it looks only at the folders of these and above them: what a client makes it do does not grow with the number of limits.
func (d *Daemon) lookAtFolders(in ...string) {
	bound := d.boundFolders()
	if len(in) > 0 {
		maps.DeleteFunc(bound, func(path string, _ uint32) bool {
			return !slices.ContainsFunc(in, func(at string) bool { return accounting.InCgroup(at, path) })
		})
	}
	if len(bound) == 0 {
		return
	}
	points := hierarchies()
	maps.DeleteFunc(bound, func(path string, folder uint32) bool {
		return slices.ContainsFunc(points, func(point string) bool { return folderAt(filepath.Join(point, path)) == folder })
	})
	if len(bound) == 0 || points == nil {
		return
	}
	d.reaper.Sync() // so that clients that ran there and have ended do not count any more
	d.lock()
	defer d.unlock()
	for path, folder := range bound {
		at, known := d.kept.paths[d.cgroupIDLocked(path)]
		if d.stopping() || !known || d.file.Cgroups.At(at).Folder != folder || d.arb.RunsIn(path) {
			continue
		}
		d.log.Info("the limits of a cgroup have gone with its folder", "cgroup", path)
		d.dropLimitsLocked(rules.Owner{Kind: rules.OfCgroup, Path: path})
	}
}
