package worker

// This file chooses the user that the worker runs as. keeper.go starts the worker.

import (
	"errors"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// userName is the user that systemd-sysusers creates for the worker. Without it the worker runs as
// the user nobody.
const (
	userName = "gpuarb-http"
	nobody   = 65534
)

// credentialFor returns the user and group of the worker of a daemon that runs as uid. The worker
// of root's daemon runs as a user that owns nothing, without supplementary groups. Any other worker
// runs as the user of its daemon.
func credentialFor(uid int, socket string) (*syscall.Credential, error) {
	if uid != 0 {
		return nil, nil // the credential of its parent
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
	// An administrator may restrict the daemon's socket to a group (SocketGroup=). The worker then
	// needs that group, and gets no other.
	var stat unix.Stat_t
	if unix.Stat(socket, &stat) == nil && stat.Mode&0o002 == 0 && stat.Mode&0o020 != 0 && stat.Gid != 0 {
		gidOf = stat.Gid
	}
	return &syscall.Credential{Uid: uidOf, Gid: gidOf, Groups: []uint32{}}, nil
}
