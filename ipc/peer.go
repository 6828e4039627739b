package ipc

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Peer is who the kernel says is at the other end: the process that connected,
// as it was then. A child that inherited the connection is not told apart.
type Peer struct {
	PID        int    // in the daemon's pid namespace; never 0
	UID        uint32 // effective, in the daemon's user namespace
	GID        uint32 // effective
	StartTicks uint64 // clock ticks since the machine booted; 0: the listener was not told how to ask
	PIDFD      int    // becomes readable when the process ends; −1 after Conn.TakePIDFD
	Privileged bool   // may do anything; as ListenOptions.Standing says
	Namespace  uint64 // PID namespace of an admin's process; 0: any other user. As ListenOptions.Standing says
}

// errPeerGone: the process that connected has ended before it was accepted.
var errPeerGone = errors.New("the peer has ended")

// credentials is the kernel's word on who connected: cheap, without a descriptor.
func (s *socket) credentials() (Peer, error) {
	peer := Peer{PIDFD: -1}
	var cred *unix.Ucred
	var err error
	if e := s.raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); e != nil {
		return peer, e
	}
	if err != nil {
		return peer, os.NewSyscallError("SO_PEERCRED", err)
	}
	peer.PID, peer.UID, peer.GID = int(cred.Pid), cred.Uid, cred.Gid
	if peer.PID == 0 {
		return peer, errors.New("the daemon is in a PID namespace of its own, as in a container, where this process has no number: start it in the machine's (--pid=host)")
	}
	return peer, nil
}

// identifier is how the kernel is asked about a peer; tests put others in.
type identifier struct {
	startTicks func(pid int) (uint64, error) // nil: nobody asks when a process began
	option     int                           // SO_PEERPIDFD
}

// identify fills in what holds a process beyond its pid: a pidfd, and the start
// time that goes with it. The order matters: the start time is read between
// having the pidfd and finding it alive, so that both are of one process. With
// SO_PEERPIDFD that process is the one that connected. Without (before Linux
// 6.5) it is whoever has the pid now: a pid that was reused between connect and
// here cannot be told, and only then.
func (id identifier) identify(s *socket, peer *Peer) error {
	fd, err := id.peerPIDFD(s, peer.PID)
	if err != nil {
		return err
	}
	var start uint64
	if id.startTicks != nil {
		start, err = id.startTicks(peer.PID)
	}
	if gone := checkAlive(fd); gone != nil { // of a process that has ended there is nothing to be known
		err = gone
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	peer.PIDFD, peer.StartTicks = fd, start
	return nil
}

func (id identifier) peerPIDFD(s *socket, pid int) (int, error) {
	fd, err := -1, error(nil)
	if e := s.raw.Control(func(sock uintptr) {
		fd, err = unix.GetsockoptInt(int(sock), unix.SOL_SOCKET, id.option)
	}); e != nil {
		return -1, e
	}
	if errors.Is(err, unix.ENOPROTOOPT) {
		fd, err = unix.PidfdOpen(pid, 0)
	}
	switch {
	case err == nil:
		return fd, nil // which no exec inherits: the kernel makes every pidfd so
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENODATA):
		return -1, fmt.Errorf("pid %d: %w", pid, errPeerGone)
	}
	return -1, fmt.Errorf("pidfd of pid %d: %w", pid, err)
}

// alive tells that the process of a pidfd had not ended at the time of the call.
func checkAlive(pidfd int) error {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return os.NewSyscallError("poll", err)
		case n != 0:
			return errPeerGone
		}
		return nil
	}
}
