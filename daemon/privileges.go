package daemon

// This file decides who may do more than others. The rest of the package asks an asker, or a peer made by the listener with
// standingOf, and looks at no user number itself.

import (
	"os"
	"slices"
	"sync"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/gpufs"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/ipc"
)

// asker is a process that asks for something, over the socket or by a write below the mount.
type requester struct {
	uid        uint32
	pid        int    // 0: not known
	start      uint64 // when the process began, in clock ticks since boot; 0: not known
	privileged bool   // may do anything
	namespace  uint64 // PID namespace of an admin, as standingOf returns it; 0: any other user
}

// home returns the daemon's own namespaces.
var home = sync.OnceValue(func() procfacts.Namespaces {
	own, _ := procfacts.Here.Namespaces(os.Getpid()) // a process may always look at itself
	return own
})

// isAdmin reports whether a user number is root's or that of the daemon's own user.
func isAdmin(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// standingOf returns whether a process or thread is privileged: it is if its user is an admin and it is in the daemon's own user
// and PID namespaces. Any other admin, as root in a container, owns only what processes of its own PID namespace opened. The second
// value is the inode of that namespace, or 0 for a user that is not an admin. If the namespaces cannot be read, it is a number made
// of the PID, which no namespace has: the process then owns only what it opened itself.
func standingOf(pid int, uid uint32) (privileged bool, namespace uint64) {
	if !isAdmin(uid) {
		return false, 0
	}
	in, err := procfacts.Here.Namespaces(pid)
	if err != nil {
		return false, ^uint64(pid)
	}
	return in == home(), in.PID
}

// requesterOf returns the process at the other end of a connection.
func requesterOf(peer ipc.Peer) requester {
	return requester{peer.UID, peer.PID, peer.StartTicks, peer.Privileged, peer.Namespace}
}

// owns reports whether the asker may end or lower what a process of a user opened in a PID namespace.
func (a requester) owns(uid uint32, namespace uint64) bool {
	return a.privileged || a.uid == uid && a.namespace == namespace
}

// runsIn reports whether the asker runs in a cgroup or below it, in any hierarchy, and returns true if its cgroups cannot be read.
func (a requester) runsIn(cgroup string) bool {
	paths, err := procfacts.Here.Cgroups(a.pid)
	return err != nil || slices.ContainsFunc(paths, func(at string) bool { return accounting.InCgroup(at, cgroup) })
}

// writer returns the process that opened the file below the mount to which a limit was written.
func writerOf(s gpufs.Setting) requester {
	return requester{uid: s.UID, pid: s.By, privileged: s.Privileged, namespace: s.Namespace}
}

// standingOfThread is standingOf for the filesystem.
func standingOfThread(tid, uid uint32) (s gpufs.Standing) {
	s.Privileged, s.Namespace = standingOf(int(tid), uid)
	return s
}

// setUser notes in p the user and the standing of the process, as the kernel told them of its connection.
func setUser(p *rules.Process, peer ipc.Peer) {
	p.UID, p.GID, p.Privileged, p.Namespace = peer.UID, peer.GID, peer.Privileged, peer.Namespace
}

// setRecordedUser notes in p the user of the process, by a record of the daemon before, and its standing. The namespaces of a process
// that has ended cannot be read any more: it counts as privileged if its user is an admin, so that what it was granted stays.
func setRecordedUser(p *rules.Process, uid, gid uint32, ended bool) {
	peer := ipc.Peer{UID: uid, GID: gid, Privileged: isAdmin(uid)}
	if !ended {
		peer.Privileged, peer.Namespace = standingOf(p.PID, uid)
	}
	setUser(p, peer)
}
