package statefile

// This file opens a file beside the state file that holds one table: the bindings (PATH.bindings, bindings.go), the
// suspended jobs (PATH.suspensions, suspensions.go) or the driver limits (PATH.walls, walls.go).
//
// These files are separate because a daemon of an earlier version renames a state file of an unknown size, and starts
// with an empty one. Such a daemon does not open these files, and may drop the jobs of bindings. So each record of a
// binding has a copy of its job's record, from which a later daemon opens the job again.

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tableFile describes such a file.
type tableFile struct {
	suffix string // end of the path
	what   string // its records, for errors
	magic  uint64
	row    uintptr // size of a record
	most   int     // number of records
}

// tableHeader is the beginning of the first page of the file.
type tableHeader struct {
	Magic   uint64
	Version uint32
	RowSize uint32
	BootID  [16]byte
	High    uint32 // number of records that were ever used
	Pad     uint32
}

func (f *tableFile) size() uintptr { return headerSize + uintptr(f.most)*f.row }

func (f *tableFile) newHeader() tableHeader {
	return tableHeader{Magic: f.magic, Version: 1, RowSize: uint32(f.row), BootID: bootID()}
}

// open maps the file beside the state file at path. It empties a file of an earlier boot, and renames a file of
// another version. If it cannot open a file, the records are only in memory. lost is the
// reason why records are lost, or will be lost with this daemon; nil: none are.
func (f *tableFile) open(path string) (file *mapping, lost, err error) {
	path += f.suffix
	file, fresh, err := openFile(path, f.size(), f.examine(path))
	var strange *unreadable
	if errors.As(err, &strange) {
		lost = err
		if _, err = setAside(path, strange.kind); err == nil {
			file, fresh, err = openFile(path, f.size(), f.examine(path))
		}
	}
	if err != nil {
		return f.inMemory(err)
	}
	if fresh {
		f.writeHeader(file)
	}
	return file, lost, nil
}

// inMemory returns memory for records that do not survive the daemon. It returns why as lost.
func (f *tableFile) inMemory(why error) (file *mapping, lost, err error) {
	if file, err = anonymous(f.size(), why); err == nil {
		f.writeHeader(file)
	}
	return file, why, err
}

// writeHeader writes the header of an empty file, with the magic number last.
func (f *tableFile) writeHeader(file *mapping) {
	head := (*tableHeader)(unsafe.Pointer(&file.mem[0]))
	*head = f.newHeader()
	atomic.StoreUint64(&head.Magic, f.magic)
}

// usedRecords returns the number of records of a file that were ever used.
func usedRecords(file *mapping) *uint32 {
	return &(*tableHeader)(unsafe.Pointer(&file.mem[0])).High
}

// examine returns a function that checks an opened file, as the function examine does for the state file.
func (f *tableFile) examine(path string) func(fd int, st *unix.Stat_t) (fresh bool, err error) {
	return func(fd int, st *unix.Stat_t) (bool, error) {
		if !ownedExclusively(st) {
			return false, &unreadable{kindForeign, path + ": must be a file of ours alone (mode 600)"}
		}
		h, _, err := readHeader[tableHeader](fd, path)
		want := f.newHeader()
		switch {
		case err != nil:
			return false, err
		case h == (tableHeader{}), h.Magic == f.magic && h.BootID != want.BootID:
			return true, nil
		}
		want.High = h.High
		if h != want || st.Size != int64(f.size()) {
			return false, &unreadable{kindDamaged, fmt.Sprintf("%s is no file of %s of this version, or its end is missing", path, f.what)}
		}
		return false, nil
	}
}
