package worker

import (
	"errors"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// userName is the user that the package makes for the worker; nobody stands in for it.
const (
	userName = "gpuarb-http"
	nobody   = 65534
)

// credentialFor is who the worker of a daemon with this user is: that user itself, or, for root's, one that
// owns nothing and is in no group.
func credentialFor(uid int, socket string) (*syscall.Credential, error) {
	if uid != 0 {
		return nil, nil // that of its parent
	}
	uidOf, gidOf := uint32(nobody), uint32(nobody)
	if u, err := user.Lookup(userName); err == nil {
		id, err1 := strconv.ParseUint(u.Uid, 10, 32)
		group, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 != nil || err2 != nil || id == 0 || group == 0 {
			return nil, errors.New("the user " + userName + " is root, or no user: its process must not be")
		}
		uidOf, gidOf = uint32(id), uint32(group)
	}
	// A site may give the daemon's socket to a group. What is configured to be served is then in
	// that group, and in none beside.
	var stat unix.Stat_t
	if unix.Stat(socket, &stat) == nil && stat.Mode&0o002 == 0 && stat.Mode&0o020 != 0 && stat.Gid != 0 {
		gidOf = stat.Gid
	}
	return &syscall.Credential{Uid: uidOf, Gid: gidOf, Groups: []uint32{}}, nil
}
