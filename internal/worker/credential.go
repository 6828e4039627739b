package worker

// This file chooses the user that a worker runs as. keeper.go starts the worker.

import (
	"cmp"
	"errors"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// nobody is the user of a worker whose own user does not exist, unless Job.Fallback names another.
const nobody = 65534

// credentialFor returns the user and group of the worker of a daemon that runs as uid. The worker of root's daemon runs as a user of its
// own, without supplementary groups. Any other worker runs as the user of its daemon.
func (j *Job) credentialFor(uid int, socket string) (*syscall.Credential, error) {
	if uid != 0 {
		return nil, nil // the credential of its parent
	}
	fallback := cmp.Or(j.Fallback, nobody)
	uidOf, gidOf := fallback, fallback
	if u, err := user.Lookup(j.User); err == nil {
		id, err1 := strconv.ParseUint(u.Uid, 10, 32)
		group, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 != nil || err2 != nil || id == 0 || group == 0 {
			return nil, errors.New("the user " + j.User + " has UID or GID 0, which are root's: give it others, or remove it to have another user in its place")
		}
		uidOf, gidOf = uint32(id), uint32(group)
	}
	// An administrator may restrict the daemon's socket to a group (SocketGroup=). A worker that
	// connects to the socket then needs that group, and gets no other.
	var stat unix.Stat_t
	if j.Connects && unix.Stat(socket, &stat) == nil && stat.Mode&0o002 == 0 && stat.Mode&0o020 != 0 && stat.Gid != 0 {
		gidOf = stat.Gid
	}
	return &syscall.Credential{Uid: uidOf, Gid: gidOf, Groups: []uint32{}}, nil
}
