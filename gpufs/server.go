package gpufs

// This file has a mounted filesystem and its unmount. mount.go makes it.

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
	device   string // the kernel's number of the filesystem, as in /proc/self/mountinfo
	state    *state
	root     *dirNode
	messages *messages
	handed   int // descriptor of a mount that another process made; −1: this process has mounted
	done     chan struct{}
	unmount  func() error // unmountOnce, called at most once
}

// messages passes the library's log lines to the daemon's logger until the unmount begins, which cuts off readers as
// expected.
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

// Done returns a channel that is closed when the filesystem is unmounted, by Unmount or by a user.
func (s *Server) Done() <-chan struct{} { return s.done }

// unmountPatience bounds Unmount's wait for readers inside. A daemon's whole stop has little more than a second, and
// fusermount3 needs part of that on a busy machine.
const unmountPatience = 500 * time.Millisecond

// Unmount unmounts the filesystem even while it is in use: later reads of an open file fail. It removes the directory
// if Mount made it. A mount of another process stays until this process ends. Further calls do nothing.
func (s *Server) Unmount() error { return s.unmount() }

// unmountOnce does the work of Unmount.
func (s *Server) unmountOnce() error {
	s.messages.ending.Store(true)
	if s.handed >= 0 {
		return stopServing(s.handed)
	}
	ours, covered, err := s.atPoint()
	switch {
	case err != nil:
		return fmt.Errorf("unmount %s: %w", s.point.path, err)
	case covered:
		return nil // if this filesystem is still mounted below the other, it ends with the daemon
	case ours:
		if err := detach(s.point.path); err != nil {
			return fmt.Errorf("unmount %s: %w", s.point.path, err)
		}
		select {
		case <-s.done:
		case <-time.After(unmountPatience): // detached, but a process has a file open; the filesystem ends with the daemon
		}
	}
	if s.point.created {
		if err := os.Remove(s.point.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("unmount %s: %w", s.point.path, err)
		}
	}
	return nil
}

// atPoint reports what is mounted at the mount point now. ours: this filesystem, perhaps dead because its connection
// was aborted. covered: another filesystem, which must stay. Neither: a user has unmounted it.
func (s *Server) atPoint() (ours, covered bool, err error) {
	top, err := mountedAt(s.point.path)
	if err != nil || top == nil {
		return false, false, err
	}
	ours = top.Type == fsType && top.Device == s.device
	select {
	case <-s.done: // the kernel may have reused the device number for another mount
		alive, _ := isServed(s.point.path)
		ours = ours && !alive
	default:
	}
	return ours, !ours, nil
}
