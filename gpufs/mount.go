package gpufs

import (
	"errors"
	"log/slog"

	"github.com/gpuarb/gpuarb/accounting"
)

// View is what the filesystem shows. Snapshot must be safe for concurrent use
// and must not block for longer than it takes to copy the state.
type View interface {
	Snapshot() accounting.Snapshot
}

// Options says how to mount. The zero value is a rootless mount.
type Options struct {
	// System lets every user of the machine in (allow_other) and mounts by
	// mount(2) itself; it needs root. Without it fusermount3 mounts, for the
	// daemon's own user alone.
	System bool
	// SelfOf maps the thread that asks to its process, for the self link.
	// It is called in a handler: it must not block. Nil: there is no self.
	SelfOf func(tid uint32) (pid int, ok bool)
	// Logger takes what goes wrong while serving. Nil: nothing is logged.
	Logger *slog.Logger
}

// Why a mount point cannot be used; test with errors.Is.
var (
	ErrBusy   = errors.New("something else is mounted there")
	ErrNoFuse = errors.New("no /dev/fuse")
	ErrNotDir = errors.New("not a directory")
)

// Server is a mounted filesystem. Its methods are safe for concurrent use.
type Server struct{}

// Mount mounts the filesystem at path and serves it until Unmount.
func Mount(path string, view View, o Options) (*Server, error) {
	return nil, ErrNoFuse
}

// Unmount takes the filesystem away, lazily if somebody is still in it.
func (s *Server) Unmount() error { return nil }

// Done is closed when the filesystem has gone: by Unmount, or by somebody's umount.
func (s *Server) Done() <-chan struct{} { return nil }
