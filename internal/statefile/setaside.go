package statefile

// This file decides whether an existing file can be used, and renames it ("sets it aside") if not. file.go and
// failures.go call it.

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// unreadable is the error for an existing file that cannot be used. The file is not destroyed: a daemon of another
// version may be able to read it, and users may want to inspect it.
type unreadable struct {
	kind string // suffix of the file's new name
	text string
}

func (s *unreadable) Error() string { return s.text }

// Kinds of unreadable files. Another version has the kind "v" and its number.
const (
	kindForeign = "foreign" // owned by another user, or open to other users
	kindDamaged = "damaged" // truncated, or never a state file
	kindBroken  = "broken"  // the daemon failed three times with the file
)

// examine checks the content of an opened file. fresh: the content no longer holds, because the file is empty or of
// another boot.
func examine(fd int, path string, st *unix.Stat_t) (fresh bool, err error) {
	if !ownedExclusively(st) {
		return false, &unreadable{kindForeign, fmt.Sprintf("%s: owner %d mode %o: must be ours alone (owner %d, mode 600); remove it",
			path, st.Uid, st.Mode&0o777, os.Geteuid())}
	}
	h, n, err := readHeader[header](fd, path)
	if err != nil {
		return false, err
	}
	if h == (header{}) { // a daemon that was killed before its first store leaves this too
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

// setAside renames a file to a name that says why, and returns the name. It replaces an earlier file of that kind.
func setAside(path, kind string) (string, error) {
	name := path + "." + kind
	if err := os.Rename(path, name); err != nil {
		return "", fmt.Errorf("set it aside as %s: %w", name, err)
	}
	return name, nil
}
