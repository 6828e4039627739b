package ipc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxSocketPath is sun_path less its NUL.
const maxSocketPath = 107

// ErrLongPath says that no socket can have a path: it does not fit into an address.
var ErrLongPath = fmt.Errorf("a socket's path has at most %d bytes", maxSocketPath)

// lockSocket takes the lock that decides who owns the socket at path: an flock
// on PATH.lock, which the kernel gives back when the daemon ends, however it
// ends. The file holds the daemon's pid for people; it is never removed, since
// two daemons could then lock two files of one name.
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
	// The pid is for the message that the next daemon prints; the lock holds
	// without it, on a full disk too.
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return f, nil
}

// lockHolder is the pid in a lock file, 0 when there is none yet.
func lockHolder(f *os.File) int {
	text, _ := io.ReadAll(io.LimitReader(f, 32))
	pid, _ := strconv.Atoi(string(bytes.TrimSpace(text)))
	return max(pid, 0)
}

// removeStale clears the path of a socket that a dead daemon left. The lock is
// held, so no other gpuarb daemon is at work here; one that got its socket
// from systemd has no lock, and is found by asking who answers.
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

// listenerPID asks the kernel who listens at path, if anybody does.
func listenerPID(path string) (pid int, lives bool) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, true // cannot tell: rather an error than somebody's socket gone
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

// inode is the inode number of the socket at path, 0 when none is: another file can have the number of one that was removed.
func inode(path string) uint64 {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return 0
	}
	return st.Ino
}

// InUseError says that a socket's path belongs to another daemon that lives.
type InUseError struct {
	Path string
	PID  int // 0 when it could not be told
}

// Error names the path and the holder.
func (e *InUseError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is held by another daemon", e.Path)
	}
	return fmt.Sprintf("%s is held by another daemon, pid %d", e.Path, e.PID)
}
