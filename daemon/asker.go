package daemon

import (
	"os"
	"slices"
	"sync"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/gpufs"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/procfacts"
)

// This file decides who may do more than others. The rest of the package asks an asker, or a peer made by the listener with
// standingOf, and looks at no user number itself.

// asker is a process that asks for something, over the socket or by a write below the mount.
type asker struct {
	uid        uint32
	pid        int    // 0: not known
	start      uint64 // when the process began, in clock ticks since boot; 0: not known
	privileged bool   // may do anything
	namespace  uint64 // to which an admin's rights end that is not privileged; 0: of anybody else
}

// home returns the daemon's own namespaces.
var home = sync.OnceValue(func() procfacts.Namespaces {
	own, _ := procfacts.Here.Namespaces(os.Getpid()) // a process may always look at itself
	return own
})

// isAdmin reports whether a user number is root's or that of the daemon's own user.
func isAdmin(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// standingOf returns whether a process or thread is privileged: it is if its user is an admin and it is in the daemon's own user
// and PID namespaces. Any other admin, as root in a container, owns what processes of its own PID namespace opened: its inode is
// the second value, which is 0 for all other users. If the process cannot be looked at, it is alone in its namespace.
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

// askerOf returns who is at the other end of a connection.
func askerOf(peer ipc.Peer) asker {
	return asker{peer.UID, peer.PID, peer.StartTicks, peer.Privileged, peer.Namespace}
}

// owns reports whether the asker may end or lower what a process of a user opened in a PID namespace.
func (a asker) owns(uid uint32, namespace uint64) bool {
	return a.privileged || a.uid == uid && a.namespace == namespace
}

// runsIn reports whether the asker runs in a cgroup or below it, in any hierarchy. If it cannot be looked at, it does.
func (a asker) runsIn(cgroup string) bool {
	paths, err := procfacts.Here.Cgroups(a.pid)
	return err != nil || slices.ContainsFunc(paths, func(at string) bool { return accounting.InCgroup(at, cgroup) })
}

// writer returns who opened the file below the mount that a limit was written to.
func writer(s gpufs.Setting) asker {
	return asker{uid: s.UID, pid: s.By, privileged: s.Privileged, namespace: s.Namespace}
}

// standingOfThread is standingOf for the filesystem.
func standingOfThread(tid, uid uint32) (s gpufs.Standing) {
	s.Privileged, s.Namespace = standingOf(int(tid), uid)
	return s
}

// asPeer notes in p whose process it is, by the kernel's word on its connection.
func asPeer(p *rules.Process, peer ipc.Peer) {
	p.UID, p.GID, p.Privileged, p.Namespace = peer.UID, peer.GID, peer.Privileged, peer.Namespace
}

// asRecorded notes in p whose process it is, by a record of the last daemon's. What a process that has ended was granted stays as
// it was: such a process passes the rules if its user can.
func asRecorded(p *rules.Process, uid, gid uint32, ended bool) {
	peer := ipc.Peer{UID: uid, GID: gid, Privileged: isAdmin(uid)}
	if !ended {
		peer.Privileged, peer.Namespace = standingOf(p.PID, uid)
	}
	asPeer(p, peer)
}
