package ipc

// This file has the listener of a daemon and its options. listen.go opens and closes it; accept.go accepts its
// connections; lock.go and secondpath.go keep its files.

import (
	"net"
	"os"
	"sync"
	"time"
)

// ListenOptions describes the socket and the clients that it admits.
type ListenOptions struct {
	Mode   os.FileMode // permission bits of the socket file; 0 means 0600
	Limits Limits
	// Patience is the longest time before the first accepted message ([Conn.MarkAccepted]), after which ReadMessage
	// returns ErrSilent; 0: without a limit.
	Patience time.Duration
	// SecondPath returns a second path for the socket, or "" for none. Listen, ListenFile and Renew make it as a hard
	// link, with its folder. If that fails, they call SecondPathFailed and go on with the first path only. nil: there
	// is no second path.
	SecondPath       func(path string) string
	SecondPathFailed func(error)
	// StartTicks returns a process's start time, in clock ticks since the machine booted; nil: [Peer.StartTicks]
	// stays 0.
	StartTicks func(pid int) (uint64, error)
	// Standing returns [Peer.Privileged] and [Peer.Namespace] of a process. nil: root and this process's user are
	// privileged in all namespaces.
	Standing func(pid int, uid uint32) (privileged bool, namespace uint64)
}

// Listener accepts the clients of one daemon. Accept is for one goroutine; the other methods are safe for concurrent
// use.
type Listener struct {
	mu            sync.Mutex        // guards ln, inode and secondPathErr while the listener is in use
	ln            *net.UnixListener // Renew replaces it
	inode         uint64            // of the socket file
	path          string
	lock          *os.File // nil when the socket was inherited
	limits        *connLimits
	opts          ListenOptions
	closed        chan struct{}
	kernel        identifier
	buffers       sync.Pool // read buffers, shared by the connections
	secondPath    string    // second path of the socket; empty: none
	secondPathErr error     // error of the last attempt to make it; nil: none
	once          sync.Once
}

// Path returns the socket's path.
func (l *Listener) Path() string { return l.path }

// standing returns a peer's Privileged and Namespace.
func (l *Listener) standing(peer Peer) (privileged bool, namespace uint64) {
	if l.opts.Standing == nil {
		return peer.UID == 0 || int(peer.UID) == os.Geteuid(), 0
	}
	return l.opts.Standing(peer.PID, peer.UID)
}

// isClosed reports whether Close was called.
func (l *Listener) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}
