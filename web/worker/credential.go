package worker

import (
	"errors"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// userName is the user that systemd-sysusers creates for the worker; without it, nobody is used.
const (
	userName = "gpuarb-http"
	nobody   = 65534
)

// credentialFor is the user and group of the worker of a daemon that runs as uid: the same user, or, for root, one that
// owns nothing and has no supplementary groups.
func credentialFor(uid int, socket string) (*syscall.Credential, error) {
	if uid != 0 {
		return nil, nil // that of its parent
	}
	uidOf, gidOf := uint32(nobody), uint32(nobody)
	if u, err := user.Lookup(userName); err == nil {
		id, err1 := strconv.ParseUint(u.Uid, 10, 32)
		group, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 != nil || err2 != nil || id == 0 || group == 0 {
			return nil, errors.New("the user " + userName + " has UID or GID 0, which are root's: give it others, or remove it to have the user nobody in its place")
		}
		uidOf, gidOf = uint32(id), uint32(group)
	}
	// A site may restrict the daemon's socket to a group (SocketGroup=). The worker then needs that group, and has no other.
	var stat unix.Stat_t
	if unix.Stat(socket, &stat) == nil && stat.Mode&0o002 == 0 && stat.Mode&0o020 != 0 && stat.Gid != 0 {
		gidOf = stat.Gid
	}
	return &syscall.Credential{Uid: uidOf, Gid: gidOf, Groups: []uint32{}}, nil
}
