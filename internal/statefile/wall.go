package statefile

// This file has the record of a limit that the daemon has set in the kernel or the vendor's driver (wall). walls.go has the table.

import (
	"bytes"
	"sync/atomic"
)

// MaxWalls is the most walls that there can be.
const MaxWalls = 2048

// Wall is the record of the limit of one cgroup on one device. Limits are in bytes; ^0: none. The daemon commits the record, with Wrote = Stood,
// before it writes the limit for the first time. Before each write it stores the limit in force as Wrote and the new limit as
// Next. So if the daemon dies at any moment, the limit in force is Wrote or Next. Another value was set by another program.
type Wall struct {
	Live   uint32
	Pad    uint32
	Folder uint64   // inode number of the cgroup's folder
	UUID   [16]byte // UUID of the device, if the limit is in the vendor's driver; else zero
	Stood  uint64   // original limit, to be put back
	Wrote  uint64
	Next   uint64
	Region [64]byte // region of the kernel's dmem controller, NUL-padded; "": the limit is in the vendor's driver
	Path   [pathSize]byte
}

// SetPlace stores the path of the cgroup and the region. It returns false if one is too long.
func (w *Wall) SetPlace(path, region string) bool {
	w.Path, w.Region = [pathSize]byte{}, [64]byte{}
	return copy(w.Path[:pathSize-1], path) == len(path) && copy(w.Region[:len(w.Region)-1], region) == len(region)
}

// PathOf returns the path of the cgroup.
func (w *Wall) PathOf() string {
	path, _, _ := bytes.Cut(w.Path[:], []byte{0})
	return string(path)
}

// RegionOf returns the region; "": the limit is in the vendor's driver.
func (w *Wall) RegionOf() string {
	region, _, _ := bytes.Cut(w.Region[:], []byte{0})
	return string(region)
}

// Announce stores the limit that is about to be written. was is the limit in force, which IsOurs accepts.
func (w *Wall) Announce(was, next uint64) {
	atomic.StoreUint64(&w.Wrote, was)
	atomic.StoreUint64(&w.Next, next)
}

// Replace stores a limit that another program has set as the original limit.
func (w *Wall) Replace(stood uint64) { atomic.StoreUint64(&w.Stood, stood) }

// IsOurs reports whether the daemon has written a limit in force, or has found it when it made the record.
func (w *Wall) IsOurs(limit uint64) bool { return limit == w.Wrote || limit == w.Next }
