package gpufs

// This file has a mounted filesystem until it is unmounted. mount.go makes it.

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// Server is a mounted filesystem. Its methods are safe for concurrent use.
type Server struct {
	point    mountPoint
	device   string // what the kernel calls the filesystem
	state    *state
	root     *dirNode
	messages *messages
	done     chan struct{}
	unmount  func() error // once
}

// messages hands on what the library logs, until the unmount has begun: it is expected that readers
// are cut off then.
type messages struct {
	to     *slog.Logger // nil: they are dropped
	ending atomic.Bool
}

func (m *messages) Write(p []byte) (int, error) {
	if m.to != nil && !m.ending.Load() {
		m.to.Warn("filesystem", "err", strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

// Path returns the mount point, without symbolic links.
func (s *Server) Path() string { return s.point.path }

// Done is closed when the filesystem has gone: by Unmount, or by a user's umount.
func (s *Server) Done() <-chan struct{} { return s.done }

// unmountPatience is how long Unmount waits for readers that are inside. The whole stop of a daemon may take hardly more than a second,
// and the helper that unmounts for a user may need some of that on a busy machine.
const unmountPatience = 500 * time.Millisecond

// Unmount takes the filesystem away, also while it is in use: the next read of an open file
// fails. It removes the directory if Mount made it. To call it again is harmless.
func (s *Server) Unmount() error { return s.unmount() }

func (s *Server) unmountOnce() error {
	s.messages.ending.Store(true)
	ours, covered, err := s.atPoint()
	switch {
	case err != nil:
		return fmt.Errorf("unmount %s: %w", s.point.path, err)
	case covered:
		return nil // ours, where it is still below, ends with the daemon
	case ours:
		if err := detach(s.point.path); err != nil {
			return fmt.Errorf("unmount %s: %w", s.point.path, err)
		}
		select {
		case <-s.done:
		case <-time.After(unmountPatience): // detached, but held open; it ends with the daemon
		}
	}
	if s.point.created {
		if err := os.Remove(s.point.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("unmount %s: %w", s.point.path, err)
		}
	}
	return nil
}

// atPoint says what is mounted at the mount point now: this filesystem, which may be dead by an abort of its connection; another filesystem,
// which is left alone; or nothing, because a user unmounted it.
func (s *Server) atPoint() (ours, covered bool, err error) {
	top, err := mountedAt(s.point.path)
	if err != nil || top == nil {
		return false, false, err
	}
	ours = top.Type == fsType && top.Device == s.device
	select {
	case <-s.done: // the kernel may have given its number to another one
		alive, _ := answers(s.point.path)
		ours = ours && !alive
	default:
	}
	return ours, !ours, nil
}
