package ipc

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ChmodSocket is os.Chmod of a socket and of nothing else: whoever may write into its folder could have put a link there since
// it was made.
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
