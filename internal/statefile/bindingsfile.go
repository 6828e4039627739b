package statefile

// This file opens the file that holds the bindings. file.go finds the table in it; bindings.go has the records.
//
// The file is PATH.bindings, beside the state file at PATH. It is separate because a daemon of an earlier version
// renames a state file of an unknown size, and starts with an empty one. Such a daemon does not open this file, and may
// drop the jobs of bindings. So each record has a copy of its job's record, from which a later daemon opens the job again.

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bindingsHeader is the beginning of the first page of the file.
type bindingsHeader struct {
	Magic   uint64
	Version uint32
	RowSize uint32
	BootID  [16]byte
	High    uint32 // number of records that were ever used
	Pad     uint32
}

const (
	bindingsMagic = 0x444e4942424147 // "GABBIND" in memory
	bindingsSize  = headerSize + MaxBindings*unsafe.Sizeof(Binding{})
)

func newBindingsHeader() bindingsHeader {
	return bindingsHeader{Magic: bindingsMagic, Version: 1, RowSize: uint32(unsafe.Sizeof(Binding{})), BootID: bootID()}
}

// openBindings maps the bindings beside the state file at path. It empties a file of an earlier boot, and renames a file
// of another version. If it cannot open a file, the bindings are only in memory. lost says why the bindings of the last
// daemon are lost, or why those of this daemon will be; nil: none are lost.
func openBindings(path string) (file *mapping, lost, err error) {
	path += ".bindings"
	file, fresh, err := openFile(path, bindingsSize, examineBindings(path))
	var strange *unreadable
	if errors.As(err, &strange) {
		lost = err
		if _, err = setAside(path, strange.kind); err == nil {
			file, fresh, err = openFile(path, bindingsSize, examineBindings(path))
		}
	}
	if err != nil {
		return noBindings(err)
	}
	if fresh {
		writeHeader(file)
	}
	return file, lost, nil
}

// noBindings returns memory for bindings that do not survive the daemon. It returns why as lost.
func noBindings(why error) (file *mapping, lost, err error) {
	if file, err = anonymous(bindingsSize, why); err == nil {
		writeHeader(file)
	}
	return file, why, err
}

// writeHeader writes the header of an empty file, with the magic number last.
func writeHeader(file *mapping) {
	head := (*bindingsHeader)(unsafe.Pointer(&file.mem[0]))
	*head = newBindingsHeader()
	atomic.StoreUint64(&head.Magic, bindingsMagic)
}

// bindingsUsed returns the number of records that were ever used.
func bindingsUsed(file *mapping) *uint32 {
	return &(*bindingsHeader)(unsafe.Pointer(&file.mem[0])).High
}

// examineBindings returns a function that checks an opened file of bindings, as examine does for the state file.
func examineBindings(path string) func(fd int, st *unix.Stat_t) (fresh bool, err error) {
	return func(fd int, st *unix.Stat_t) (bool, error) {
		if !ownedExclusively(st) {
			return false, &unreadable{kindForeign, path + ": must be a file of ours alone (mode 600)"}
		}
		h, _, err := readHeader[bindingsHeader](fd, path)
		want := newBindingsHeader()
		switch {
		case err != nil:
			return false, err
		case h == (bindingsHeader{}), h.Magic == bindingsMagic && h.BootID != want.BootID:
			return true, nil
		}
		want.High = h.High
		if h != want || st.Size != int64(bindingsSize) {
			return false, &unreadable{kindDamaged, fmt.Sprintf("%s is no file of bindings of this version, or its end is missing", path)}
		}
		return false, nil
	}
}
