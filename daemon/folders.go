package daemon

// This file ends limits of cgroups when a cgroup's folder is removed. loops.go calls it once a second, and hello.go
// before it admits a client. cgroups.go keeps the records of the paths.
//
// A limit that was set by path stays, so that a service that is started again has the limit. A limit that was written
// into /gpu/cgroups, or set with --with-folder, belongs to the folder that the cgroup had then, as in cgroupfs.
//
// If a container's monitor is killed, no program reports that the folder is gone. The daemon therefore checks the
// folders once a second. It also checks before it admits a client, because a new folder at the same path must not
// inherit the limit.

import (
	"maps"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/procfacts"
)

// hierarchies returns the mount points of the roots of cgroup hierarchies, v2 first; nil: they cannot be read.
func hierarchies() []string { return append(hierarchiesOf("cgroup2"), hierarchiesOf("cgroup")...) }

// hierarchiesOf returns the mount points of the roots of cgroup hierarchies of a type; nil: they cannot be read.
func hierarchiesOf(kind string) (points []string) {
	mounts, err := procfacts.Here.Mounts()
	if err != nil {
		return nil
	}
	for _, m := range mounts {
		if m.Root == "/" && m.Type == kind {
			points = append(points, m.Point)
		}
	}
	return points
}

// folderAt returns the lower half of a folder's inode number; 0: there is no folder. In cgroupfs the kernel counts
// these numbers up, so that a new folder at an old path has a new number.
func folderAt(dir string) uint32 { return uint32(inodeAt(dir)) }

// inodeAt returns a folder's inode number; 0: there is no folder.
func inodeAt(dir string) uint64 {
	var stat unix.Stat_t
	if unix.Stat(dir, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0
	}
	return stat.Ino
}

// folderFor returns folderAt of a cgroup's folder, in the first hierarchy that has the folder. 0: no hierarchy has
// it, or the requester is not privileged, so that the request will be refused.
func folderFor(by requester, path string) uint32 {
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

// boundFolders returns the numbers of the folders with which limits end, by the paths of the cgroups.
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

// checkFolders drops the limits of cgroups whose folders are gone, unless a live client still counts in the cgroup.
// If in is given, it checks only the folders of these cgroups and of their ancestors. The work for one new client
// then does not grow with the number of limits.
func (d *Daemon) checkFolders(in ...string) {
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
	d.reaper.Sync() // first end the sessions of clients that ran there and have ended
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
