package gpufs

import (
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/gpuarb/gpuarb/figures"
)

// Options says how to mount.
type Options struct {
	// System lets every user of the machine in (allow_other). It needs root.
	// Without it the daemon's own user alone gets in; FUSE keeps root out as well.
	System bool
	// SelfOf maps the thread that asks to its process, for the link named self; nil
	// leaves the link out. FUSE names the thread, and no table in memory can know a
	// thread that was never seen, so this function may read that thread's status in
	// /proc: the kernel's own memory, of which no process can hold up the reading.
	// It is the one exception to the rule that handlers work from memory alone.
	SelfOf func(tid uint32) (pid int, ok bool)
	// Standing returns the rights of a thread that opens a file. It may read the thread's files in /proc, as SelfOf may.
	// Nil: no opener is privileged.
	Standing func(tid, uid uint32) Standing
	// Control takes what is written to the limits. Nil: no file can be written.
	Control Control
	// Hides says whether a user may see no command lines but those of his own programs. Nil: nobody is kept from any.
	Hides func(uid uint32) bool
	// Metrics writes the file metrics from a snapshot; nil leaves the file out. It may look at the
	// daemon's own process in /proc, which nobody can hold up.
	Metrics func(io.Writer, figures.Snapshot) error
	// History is what the file events shows. Nil: there is none.
	History History
	// Logger takes what goes wrong while serving. Nil: nothing is logged.
	Logger *slog.Logger
}

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

// Mount mounts the filesystem at path and serves it until Unmount.
//
// The directory is made if it is absent (its parent is not). What a dead daemon
// left mounted there is cleaned up first; anything else that is in the way is left
// alone, and the error is a *MountError that is one of ErrBusy, ErrNotDir,
// ErrNotEmpty and ErrNoFuse.
func Mount(path string, view View, o Options) (*Server, error) {
	point, err := prepare(path)
	if err != nil {
		return nil, err
	}
	s, err := serve(point, view, o)
	if err != nil {
		point.discard()
		return nil, err
	}
	return s, nil
}

func serve(point mountPoint, view View, o Options) (*Server, error) {
	messages := &messages{to: o.Logger}
	logger := log.New(messages, "", 0)
	st := &state{Options: o, snapshots: &snapshots{view: view}, gid: uint32(os.Getegid()), mounted: time.Now()}
	uid := uint32(os.Geteuid())
	root := &dirNode{attributes: attributes{st, uid, dirMode}, dir: newBuilder(uid, o).root()}
	none := time.Duration(0)
	options := &fs.Options{
		MountOptions: fuse.MountOptions{
			AllowOther:    o.System,
			FsName:        fsName,
			Name:          fsName,
			Options:       []string{"default_permissions"},
			DisableXAttrs: true,
			MaxWrite:      maxRead,
			MaxBackground: 12,
			DisableSplice: true, // nothing here comes from a file
			Logger:        logger,
		},
		EntryTimeout: &none,
		AttrTimeout:  &none,
		Logger:       logger,
	}
	server, err := mountFuse(point.path, fs.NewNodeFS(root, options), &options.MountOptions)
	if err != nil {
		return nil, err
	}
	mounted, err := mountedAt(point.path)
	if err == nil && mounted == nil {
		err = errors.New("somebody unmounted it at once")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mount %s: %w", point.path, err), detach(point.path))
	}
	s := &Server{point: point, device: mounted.Device, state: st, root: root, messages: messages, done: make(chan struct{})}
	s.unmount = sync.OnceValue(s.unmountOnce)
	go func() {
		defer close(s.done)
		server.Serve()
	}()
	go s.sweep()
	return s, nil
}

// messages hands on what the library logs, until the end has begun: that readers
// are cut off then is no news.
type messages struct {
	to     *slog.Logger // nil: nobody wants them
	ending atomic.Bool
}

func (m *messages) Write(p []byte) (int, error) {
	if m.to != nil && !m.ending.Load() {
		m.to.Warn("filesystem", "err", strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

// Path is where the filesystem is mounted, without symbolic links.
func (s *Server) Path() string { return s.point.path }

// Done is closed when the filesystem has gone: by Unmount, or by somebody's umount.
func (s *Server) Done() <-chan struct{} { return s.done }

// unmountPatience is how long Unmount waits for readers that are inside. Who stops a daemon has hardly more than a second for
// all of it, and what takes the mount away for a user may need some of that on a busy machine.
const unmountPatience = 500 * time.Millisecond

// Unmount takes the filesystem away, also while somebody is in it: his next read
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

// atPoint says what is mounted at the mount point now: this filesystem, which may be dead by an abort of its connection; something of
// somebody else's, which is left alone; or nothing, since somebody unmounted it.
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
