package ipc

import (
	"net"
	"os"
	"sync"
	"time"
)

// ListenOptions is how the socket should look and what it admits.
type ListenOptions struct {
	Mode   os.FileMode // permission bits of the socket file; 0 means 0600
	Limits Limits
	// Patience is how long a connection may be without a message that is accepted ([Conn.MarkAccepted])
	// before ReadMessage ends with ErrSilent; 0: for ever.
	Patience time.Duration
	// SecondPath returns a second path for the socket, or "" for none. Listen, ListenFile and Renew make it, as a hard link, and its
	// folder. If that fails they call SecondPathFailed, and the socket has its first path only. nil: there is no second path.
	SecondPath       func(path string) string
	SecondPathFailed func(error)
	// StartTicks says when a process began, in clock ticks since the machine booted; nil:
	// no [Peer] has that.
	StartTicks func(pid int) (uint64, error)
	// Standing returns [Peer.Privileged] and [Peer.Namespace] of a process. nil: root and the user of this process are
	// privileged, whatever namespaces they are in.
	Standing func(pid int, uid uint32) (privileged bool, namespace uint64)
}

// Listener accepts the clients of one daemon. Accept is for one goroutine; the
// other methods are safe for concurrent use.
type Listener struct {
	mu            sync.Mutex        // guards ln and inode, once it listens
	ln            *net.UnixListener // Renew makes another one
	inode         uint64            // of the socket file
	path          string
	lock          *os.File // nil when the socket was inherited
	limits        *connLimits
	opts          ListenOptions
	closed        chan struct{}
	kernel        identifier
	buffers       sync.Pool // what the connections read into
	secondPath    string    // second path of the socket; empty: none
	secondPathErr error     // why it could not be made, the last time; nil: it was
	once          sync.Once
}

// Path is the socket's path.
func (l *Listener) Path() string { return l.path }

// standing returns a peer's Privileged and Namespace.
func (l *Listener) standing(peer Peer) (privileged bool, namespace uint64) {
	if l.opts.Standing == nil {
		return peer.UID == 0 || int(peer.UID) == os.Geteuid(), 0
	}
	return l.opts.Standing(peer.PID, peer.UID)
}

func (l *Listener) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}
