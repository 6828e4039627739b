package gpufs

// This file takes a user's write to a limit or to freeze. node.go opens the file; the daemon implements Control.

import (
	"context"
	"errors"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
)

var _ fs.FileWriter = (*handle)(nil)

// Write takes one whole command, whatever the file offset, as cgroupfs does.
func (h *handle) Write(ctx context.Context, data []byte, _ int64) (uint32, syscall.Errno) {
	value := strings.TrimSpace(string(data))
	switch {
	case h.file.set == nil:
		return 0, syscall.EBADF // a file opened for reading; the kernel normally refuses this itself
	case len(data) > maxCommand:
		return 0, syscall.E2BIG
	case value == "":
		return 0, syscall.EINVAL
	}
	if err := h.file.set(ctx, value, h.by); err != nil {
		return 0, toErrno(err)
	}
	return uint32(len(data)), 0
}

// toErrno returns the errno that err wraps, or EIO.
func toErrno(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EIO
}
