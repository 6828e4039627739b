package ipc

// This file makes the listening socket, passes it to the daemon's next program image and removes it. listener.go has
// the Listener's type, accept.go its connections, lock.go the lock file, secondpath.go the second path.

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Listen makes the socket at path and listens. The daemon that holds a lock on the file PATH.lock owns the path.
// Listen takes the lock before it removes anything, so that two daemons cannot both think that the other's socket is
// stale. If another process has the path, the error is an *InUseError. Listen replaces a socket file on which no
// process listens. It leaves a file of another type alone and returns an error.
//
// If a daemon was killed while it started a child process, the child may hold copies of the daemon's descriptors for
// a moment. Listen therefore waits up to deadOwnerPatience while the recorded owner is dead.
func Listen(path string, opts ListenOptions) (*Listener, error) {
	for late := time.Now().Add(deadOwnerPatience); ; time.Sleep(deadOwnerInterval) {
		l, err := listenOnce(path, opts)
		var used *InUseError
		if !errors.As(err, &used) || used.PID == 0 || unix.Kill(used.PID, 0) != unix.ESRCH || time.Now().After(late) {
			return l, err
		}
	}
}

// listenOnce does the work of Listen without the wait.
func listenOnce(path string, opts ListenOptions) (*Listener, error) {
	lock, err := lockSocket(path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	ln, err := listenLocked(path, opts)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("listen: %w", err)
	}
	l := newListener(ln, path, opts)
	l.lock = lock
	l.linkSecondPath()
	return l, nil
}

// ErrInherited means that another program made the socket file and must make it again.
var ErrInherited = errors.New("it belongs to whoever opened it")

// Renew makes the socket file again if it was removed or replaced, because no client could connect any more. It
// reports whether the file was missing. Renew leaves a file of another type alone and returns an error.
func (l *Listener) Renew() (lost bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.linkSecondPath()
	switch {
	case l.isClosed() || !strings.HasPrefix(l.path, "/") || l.inode != 0 && inode(l.path) == l.inode: // an abstract socket has no file
		return false, nil
	case l.lock == nil:
		return true, fmt.Errorf("listen on %s: %w", l.path, ErrInherited)
	}
	ln, err := listenLocked(l.path, l.opts)
	if err != nil {
		return true, fmt.Errorf("listen: %w", err)
	}
	old := l.ln
	l.ln, l.inode = ln, inode(l.path)
	return true, old.Close()
}

// socket returns the socket on which clients connect now.
func (l *Listener) socket() *net.UnixListener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ln
}

// ListenFile listens on an inherited socket, as systemd's socket activation passes it: AF_UNIX, SOCK_SEQPACKET,
// listening. It ignores opts.Mode. The caller may close f afterwards. The socket file remains after Close.
func ListenFile(f *os.File, opts ListenOptions) (*Listener, error) {
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", f.Name(), err)
	}
	unixLn, ok := ln.(*net.UnixListener)
	if !ok || ln.Addr().Network() != "unixpacket" {
		ln.Close()
		return nil, fmt.Errorf("listen on %s: a %s socket is not of type SOCK_SEQPACKET", f.Name(), ln.Addr().Network())
	}
	unixLn.SetUnlinkOnClose(false)
	l := newListener(unixLn, ln.Addr().String(), opts)
	l.linkSecondPath()
	return l, nil
}

// Inherit listens on a socket that the process's previous program image kept with [Listener.KeepOverExec], and takes
// over the lock. It closes k.Socket.
func Inherit(k ListenerFDs, opts ListenOptions) (*Listener, error) {
	f := os.NewFile(uintptr(k.Socket), "the socket")
	defer f.Close()
	unix.CloseOnExec(k.Socket)
	l, err := ListenFile(f, opts)
	if k.Lock >= 0 {
		unix.CloseOnExec(k.Lock)
		lock := os.NewFile(uintptr(k.Lock), "the lock")
		if err != nil {
			lock.Close()
			return nil, err
		}
		l.lock = lock
	}
	return l, err
}

// ListenerFDs are a listener's descriptors that a process passes to its next program image over execve.
type ListenerFDs struct {
	Socket int // −1: none
	Lock   int // −1: none
}

// KeepOverExec returns copies of the descriptors of the listening socket and the lock that stay open over execve.
// Clients that connect meanwhile wait until the next program image accepts them.
func (l *Listener) KeepOverExec() (k ListenerFDs, err error) {
	k.Lock = -1
	raw, err := l.socket().SyscallConn()
	if err != nil {
		return k, err
	}
	if e := raw.Control(func(fd uintptr) { k.Socket, err = unix.FcntlInt(fd, unix.F_DUPFD, 3) }); e != nil || err != nil {
		return k, errors.Join(e, err)
	}
	if l.lock != nil {
		if k.Lock, err = unix.FcntlInt(l.lock.Fd(), unix.F_DUPFD, 3); err != nil {
			_ = unix.Close(k.Socket)
			return ListenerFDs{-1, -1}, err
		}
	}
	return k, nil
}

// newListener makes a Listener of a listening socket.
func newListener(ln *net.UnixListener, path string, opts ListenOptions) *Listener {
	secondPath := ""
	if opts.SecondPath != nil {
		secondPath = opts.SecondPath(path)
	}
	return &Listener{ln: ln, path: path, secondPath: secondPath, inode: inode(path), limits: newConnLimits(opts.Limits), opts: opts, closed: make(chan struct{}),
		kernel: identifier{startTicks: opts.StartTicks, option: unix.SO_PEERPIDFD}}
}

// listenLocked makes the socket. The caller holds the path's lock.
func listenLocked(path string, opts ListenOptions) (*net.UnixListener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close() // net.FileListener has a duplicate
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, &os.PathError{Op: "bind", Path: path, Err: err}
	}
	// Between bind(2) and listen(2) the kernel refuses a connect(2), so that no client can connect before the mode is
	// set.
	ln, err := openUp(fd, f, path, opts)
	if err != nil {
		os.Remove(path)
		return nil, err
	}
	ln.SetUnlinkOnClose(false)
	return ln, nil
}

// openUp sets the socket file's mode and listens.
func openUp(fd int, f *os.File, path string, opts ListenOptions) (*net.UnixListener, error) {
	if err := ChmodSocket(path, cmp.Or(opts.Mode.Perm(), 0o600)); err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		return nil, os.NewSyscallError("listen", err)
	}
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return ln.(*net.UnixListener), nil
}

// deadOwnerPatience bounds Listen's wait for descriptors of a dead daemon, and deadOwnerInterval is its interval.
const (
	deadOwnerPatience = 5 * time.Second
	deadOwnerInterval = 10 * time.Millisecond
)

// Close stops listening, removes the socket file if this Listener made it, and releases the lock, in this order.
// Accepted connections stay open. An Accept in progress returns net.ErrClosed.
func (l *Listener) Close() error {
	var err error
	l.once.Do(func() {
		close(l.closed)
		l.mu.Lock()
		defer l.mu.Unlock()
		err = l.ln.Close()
		l.unlinkSecondPath()
		if l.lock != nil {
			if l.inode != 0 && inode(l.path) == l.inode {
				err = errors.Join(err, os.Remove(l.path))
			}
			err = errors.Join(err, l.lock.Close())
		}
	})
	return err
}
