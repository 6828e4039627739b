package ipc

// This file changes the permission bits of a socket file. listen.go calls it for a new socket; the daemon calls it
// for a socket that systemd made.

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ChmodSocket changes the permission bits of the socket at path, as os.Chmod does, and returns an error if path is
// not a socket. It does not follow a symbolic link: since the socket was made, a user who may write into its folder
// could have put a link there.
func ChmodSocket(path string, mode os.FileMode) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return fmt.Errorf("%s is no socket any more", path)
	}
	return os.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode)
}
