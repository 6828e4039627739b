package ipc

// This file asks the kernel which process is at the other end of a connection. accept.go calls it for each new
// connection.

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Peer is the process that connected, as the kernel recorded it at connect(2). A child process that inherits the
// connection has the Peer of its parent.
type Peer struct {
	PID        int    // in the daemon's pid namespace; never 0
	UID        uint32 // effective, in the daemon's user namespace
	GID        uint32 // effective
	StartTicks uint64 // clock ticks since the machine booted; 0: ListenOptions.StartTicks is nil
	PIDFD      int    // becomes readable when the process ends; −1 after Conn.TakePIDFD
	Privileged bool   // may do anything; from ListenOptions.Standing
	Namespace  uint64 // PID namespace of an administrator's process; 0: any other user. From ListenOptions.Standing
}

// errPeerGone means that the process that connected had ended before the connection was accepted.
var errPeerGone = errors.New("the peer has ended")

// credentials returns the PID, UID and GID of the peer. It is cheap and opens no descriptor.
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

// identifier holds the means to identify a peer; tests replace them.
type identifier struct {
	startTicks func(pid int) (uint64, error) // ListenOptions.StartTicks
	option     int                           // SO_PEERPIDFD
}

// identify adds the facts that tell a process from a later one with its PID: a pidfd and the start time. The order
// matters: identify opens the pidfd, reads the start time, and then checks that the pidfd's process still lives, so
// that both belong to one process.
//
// With SO_PEERPIDFD that process is the one that connected. Before Linux 6.5 it is the process that has the PID now.
// Only then can a PID that was reused after connect(2) go unnoticed.
func (id identifier) identify(s *socket, peer *Peer) error {
	fd, err := id.peerPIDFD(s, peer.PID)
	if err != nil {
		return err
	}
	var start uint64
	if id.startTicks != nil {
		start, err = id.startTicks(peer.PID)
	}
	if gone := checkAlive(fd); gone != nil { // replaces an error of startTicks, which an ended process explains
		err = gone
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	peer.PIDFD, peer.StartTicks = fd, start
	return nil
}

// peerPIDFD returns a pidfd of the peer. Before Linux 6.5 it opens the pidfd by PID.
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
		return fd, nil // the kernel opens every pidfd close-on-exec
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENODATA):
		return -1, fmt.Errorf("pid %d: %w", pid, errPeerGone)
	}
	return -1, fmt.Errorf("pidfd of pid %d: %w", pid, err)
}

// checkAlive returns errPeerGone if the process of a pidfd has ended; nil means that it lived at the time of the
// call.
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
