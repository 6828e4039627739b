package ipc

// This file decides which daemon owns a socket's path: a lock file beside the socket, and the removal of a dead
// daemon's socket. listen.go calls it.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxSocketPath is the length of sockaddr_un.sun_path without its NUL.
const maxSocketPath = 107

// ErrLongPath means that a path is too long for a socket's address.
var ErrLongPath = fmt.Errorf("a socket's path has at most %d bytes", maxSocketPath)

// lockSocket takes the lock that decides who owns the socket at path: an flock on PATH.lock, which the kernel
// releases when the daemon ends, for whatever reason. The file has the daemon's PID, for messages. It is never
// removed, because two daemons could then lock two files of that name.
func lockSocket(path string) (*os.File, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("%s: %w, not %d", path, ErrLongPath, len(path))
	}
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		pid := lockHolder(f)
		f.Close()
		return nil, &InUseError{Path: path, PID: pid}
	}
	if err != nil {
		f.Close()
		return nil, &os.PathError{Op: "flock", Path: path + ".lock", Err: err}
	}
	// The PID is for the next daemon's error message. The lock holds without the PID, also on a full disk.
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return f, nil
}

// lockHolder returns the PID in a lock file, or 0 if it has none yet.
func lockHolder(f *os.File) int {
	text, _ := io.ReadAll(io.LimitReader(f, 32))
	pid, _ := strconv.Atoi(string(bytes.TrimSpace(text)))
	return max(pid, 0)
}

// removeStale removes the socket file of a dead daemon. The caller holds the lock, so that no other daemon with a
// lock uses the path. A daemon that has its socket from systemd has no lock; removeStale finds it by a connection.
func removeStale(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s exists and is no socket; it is left alone", path)
	}
	if pid, lives := listenerPID(path); lives {
		return &InUseError{Path: path, PID: pid}
	}
	return os.Remove(path)
}

// listenerPID asks the kernel which process listens at path. lives is false if no process listens.
func listenerPID(path string) (pid int, lives bool) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, true // unknown: an error is better than removing a live daemon's socket
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) {
		return 0, false
	}
	if err != nil {
		return 0, true
	}
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, true
	}
	return int(cred.Pid), true
}

// inode returns the inode number of the socket at path, or 0 if there is no socket. The check of the type matters,
// because a new file can get the number of a removed one.
func inode(path string) uint64 {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return 0
	}
	return st.Ino
}

// InUseError means that another live daemon owns a socket's path.
type InUseError struct {
	Path string
	PID  int // the owner; 0: unknown
}

// Error names the path and its owner.
func (e *InUseError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is held by another daemon", e.Path)
	}
	return fmt.Sprintf("%s is held by another daemon, pid %d", e.Path, e.PID)
}
