package statefile

// This file tells whether a file can be taken up, and sets it aside if it cannot.

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// strange is a file that is there and cannot be taken up. It is not destroyed: a daemon
// of another version may be able to read it, and people may want to see what it is.
type unreadable struct {
	kind string // what it is called from here on, behind the file's own name
	text string
}

func (s *unreadable) Error() string { return s.text }

// The kinds, beside "v" and the number of a version.
const (
	kindForeign = "foreign" // somebody else's, or open to others
	kindDamaged = "damaged" // cut, or never one of ours
	kindBroken  = "broken"  // the daemon failed three times with it
)

// examine tells what a file holds that was opened. fresh: nothing that is true any more,
// since it is empty or of another boot.
func examine(fd int, path string, st *unix.Stat_t) (fresh bool, err error) {
	if !ownedExclusively(st) {
		return false, &unreadable{kindForeign, fmt.Sprintf("%s: owner %d mode %o: must be ours alone (owner %d, mode 600); remove it",
			path, st.Uid, st.Mode&0o777, os.Geteuid())}
	}
	h, n, err := readHeader[header](fd, path)
	if err != nil {
		return false, err
	}
	if h == (header{}) { // a daemon that was killed before it wrote a word leaves that, too
		return true, nil
	}
	damaged := &unreadable{kindDamaged, path + " is no state file, or was cut"}
	if n < int(unsafe.Sizeof(h)) || h.Magic != fileMagic {
		return false, damaged
	}
	want := newHeader()
	switch {
	case h.BootID != want.BootID:
		return true, nil
	case h.Version != fileVersion:
		return false, &unreadable{fmt.Sprintf("v%d", h.Version), fmt.Sprintf("%s is of version %d, not %d", path, h.Version, fileVersion)}
	}
	want.Magic = fileMagic
	want.HighJob, want.HighSession, want.HighLease = h.HighJob, h.HighSession, h.HighLease
	want.HighTicket, want.HighLimit, want.HighThread = h.HighTicket, h.HighLimit, h.HighThread
	want.HighCgroup = h.HighCgroup
	if h != want || st.Size != int64(fileSize) {
		return false, damaged
	}
	return false, nil
}

// setAside renames a file to a name that says what it is, in place of an earlier one of that kind, and returns the name.
func setAside(path, kind string) (string, error) {
	name := path + "." + kind
	if err := os.Rename(path, name); err != nil {
		return "", fmt.Errorf("set it aside as %s: %w", name, err)
	}
	return name, nil
}
