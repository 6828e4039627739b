package statefile

// This file has the record of a cgroup's path. records.go has the other records; daemon/cgroups.go uses it.

import (
	"bytes"
)

// Cgroup is the path of a cgroup that has limits. Records of limits refer to it by ID.
type Cgroup struct {
	Live   uint32
	Folder uint32 // lower half of the inode number of the folder with which the limits end; 0: they stay
	ID     uint64
	Path   [pathSize]byte
}

// SetPath stores a path. False: it is too long.
func (c *Cgroup) SetPath(path string) bool {
	c.Path = [pathSize]byte{}
	return copy(c.Path[:pathSize-1], path) == len(path)
}

// PathOf returns the path.
func (c *Cgroup) PathOf() string {
	path, _, _ := bytes.Cut(c.Path[:], []byte{0})
	return string(path)
}
