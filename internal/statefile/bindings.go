package statefile

// This file has the record of a cgroup with a job (binding). tablefile.go opens the file that holds these records;
// daemon/bind.go writes them.

import (
	"bytes"
	"unsafe"
)

// bindingsMagic is "GABBIND" in memory.
const bindingsMagic = 0x444e4942424147

var bindingsFile = tableFile{suffix: ".bindings", what: "bindings", magic: bindingsMagic, row: unsafe.Sizeof(Binding{}), most: MaxBindings}

// Bits of Binding.Flags that the daemon sets after it has committed the record. The flags of a request do not have
// them.
const (
	BindingCame   = 1 << 31 // a process was seen in the cgroup
	BindingMissed = 1 << 30 // no process came for some time after the opening, and the event about that was recorded
)

// Binding is the record of a cgroup that has a job. The daemon writes all fields before it commits the record.
// Afterwards it only sets the bits BindingCame and BindingMissed. The record of an open that still waits is not
// committed, and its Job has the process of the opener.
type Binding struct {
	Live       uint32
	Until      uint32 // Until, IdleMillis and Flags are as in ipc.BindRequest
	IdleMillis uint64
	Folder     uint64 // inode number of the cgroup's folder
	Flags      uint32
	Pad        uint32
	Container  [64]byte // ID of the container, NUL-padded
	Path       [pathSize]byte
	Job        Job // copy of the job's record at the open, with the same Token
}

// SetPath stores the path of the cgroup. It returns false if it had to cut the path.
func (b *Binding) SetPath(path string) bool {
	b.Path = [pathSize]byte{}
	return copy(b.Path[:pathSize-1], path) == len(path)
}

// PathOf returns the path of the cgroup.
func (b *Binding) PathOf() string {
	path, _, _ := bytes.Cut(b.Path[:], []byte{0})
	return string(path)
}

// ContainerOf returns the ID of the container; "": there is none.
func (b *Binding) ContainerOf() string {
	id, _, _ := bytes.Cut(b.Container[:], []byte{0})
	return string(id)
}
