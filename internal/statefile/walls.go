package statefile

// This file opens the table of walls, which are limits that the daemon has set in the kernel or the vendor's driver. wall.go has the
// record. Package daemon/secondwall writes the records.

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// wallsMagic is "GABWALLS" in memory.
const wallsMagic = 0x534c4c4157424147

var wallsFile = tableFile{suffix: ".walls", what: "driver limits", magic: wallsMagic, row: unsafe.Sizeof(Wall{}), most: MaxWalls}

// Walls is the mapped table of walls. It is not safe for concurrent use: package daemon/secondwall has a lock for it.
type Walls struct{ table[Wall] }

// HasWalls reports whether a file of walls lies beside the state file at path.
func HasWalls(path string) bool {
	_, err := os.Lstat(path + wallsFile.suffix)
	return err == nil
}

// OpenWalls maps the walls beside the state file at path. It returns an error if the records would be lost with the daemon. aside is the
// reason why an earlier file was renamed and its records are lost. The mapping stays until the process ends, because a call of a
// driver may hang and write to it at any later time.
func OpenWalls(path string) (w *Walls, aside, err error) {
	file, lost, err := wallsFile.open(path)
	if err == nil && file.fd < 0 {
		return nil, nil, errors.Join(lost, file.close())
	} else if err != nil {
		return nil, nil, err
	}
	w = &Walls{}
	w.lay(file, headerSize, MaxWalls, usedRecords(file))
	if err := unix.Close(file.fd); err != nil {
		return nil, nil, fmt.Errorf("close %s: %w", path+wallsFile.suffix, err)
	}
	return w, lost, nil
}
