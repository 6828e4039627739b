package daemon

// This file decides who may do more than other users. The rest of the package asks a requester, or an ipc.Peer that
// the listener fills by standingOf. No other file compares user numbers.

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

// requester is a process that requests a change, over the socket or by a write below the mount.
type requester struct {
	uid        uint32
	pid        int    // 0: not known
	start      uint64 // start time of the process, in clock ticks since boot; 0: not known
	privileged bool   // may do anything
	namespace  uint64 // PID namespace of an admin, as standingOf returns it; 0: the user is not an admin
}

// home returns the daemon's own namespaces.
var home = sync.OnceValue(func() procfacts.Namespaces {
	own, _ := procfacts.Here.Namespaces(os.Getpid()) // a process may always read its own
	return own
})

// isAdmin reports whether a user number is root's or that of the daemon's own user.
func isAdmin(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// standingOf reports whether a process or thread is privileged. It is privileged if its user is an admin and it runs
// in the daemon's own user and PID namespaces. Any other admin, such as root in a container, owns only jobs and
// sessions that were opened in its own PID namespace.
//
// namespace is the inode number of the PID namespace, or 0 if the user is not an admin. If the namespaces cannot be
// read, namespace is a number made from the PID. No namespace has that number, so the process owns only what it
// opened itself.
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

// owns reports whether the requester may end or lower a job or session that a user opened in a PID namespace.
func (a requester) owns(uid uint32, namespace uint64) bool {
	return a.privileged || a.uid == uid && a.namespace == namespace
}

// runsIn reports whether the requester runs in a cgroup or below it, in any hierarchy. It returns true if the
// requester's cgroups cannot be read.
func (a requester) runsIn(cgroup string) bool {
	paths, err := procfacts.Here.Cgroups(a.pid)
	return err != nil || slices.ContainsFunc(paths, func(at string) bool { return accounting.InCgroup(at, cgroup) })
}

// writerOf returns the process that opened the file below the mount and wrote a limit into it.
func writerOf(s gpufs.Setting) requester {
	return requester{uid: s.UID, pid: s.By, privileged: s.Privileged, namespace: s.Namespace}
}

// standingOfThread is standingOf for the filesystem.
func standingOfThread(tid, uid uint32) (s gpufs.Standing) {
	s.Privileged, s.Namespace = standingOf(int(tid), uid)
	return s
}

// setUser sets the user and the standing in p to those that the kernel reported for the connection.
func setUser(p *rules.Process, peer ipc.Peer) {
	p.UID, p.GID, p.Privileged, p.Namespace = peer.UID, peer.GID, peer.Privileged, peer.Namespace
}

// setRecordedUser sets the user in p from a record of the last daemon, and the standing. The namespaces of a process
// that has ended can no longer be read. It counts as privileged if its user is an admin, so that its grants stay.
func setRecordedUser(p *rules.Process, uid, gid uint32, ended bool) {
	peer := ipc.Peer{UID: uid, GID: gid, Privileged: isAdmin(uid)}
	if !ended {
		peer.Privileged, peer.Namespace = standingOf(p.PID, uid)
	}
	setUser(p, peer)
}
