package gpufs

// This file mounts the filesystem. mountpoint.go prepares the directory, fuse.go makes the mount, root.go has the
// tree, and server.go unmounts.

import (
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Mount mounts the filesystem at path and serves it until Unmount.
//
// Mount makes the directory if only its last component is missing. It first unmounts a mount of a dead daemon there.
// Anything else at the path stays as it is, and the error is a *MountError with ErrBusy, ErrNotDir, ErrNotEmpty or
// ErrNoFuse.
//
// With Options.Mounted another process has mounted at path already.
func Mount(path string, view View, o Options) (*Server, error) {
	if o.Mounted != nil {
		defer o.Mounted.Close()
		path, err := realPath(path)
		if err != nil {
			return nil, err
		}
		if m, err := mountedAt(path); err != nil || m == nil || m.Type != fsType {
			return nil, errors.Join(fmt.Errorf("mount %s: systemd's unit has not mounted there: its ExecStartPre= must have the same --mount as its ExecStart=", path), err)
		}
		return serve(mountPoint{path: path}, view, o)
	}
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

// serve mounts at a prepared point and starts the goroutines of the filesystem.
func serve(point mountPoint, view View, o Options) (*Server, error) {
	messages := &messages{to: o.Logger}
	logger := log.New(messages, "", 0)
	st := &state{Options: o, snapshots: &snapshots{view: view}, gid: uint32(os.Getegid()), mounted: time.Now()}
	uid := uint32(os.Geteuid())
	root := &dirNode{attributes: attributes{st, uid, dirMode}, dir: newBuilder(uid, o).root()}
	none := time.Duration(0)
	options := &fs.Options{MountOptions: mountOptions(o.System), EntryTimeout: &none, AttrTimeout: &none, Logger: logger}
	options.MountOptions.Logger = logger
	s := &Server{point: point, state: st, root: root, messages: messages, done: make(chan struct{}), handed: -1}
	server, err := s.mount(fs.NewNodeFS(root, options), &options.MountOptions)
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
	s.device = mounted.Device
	s.unmount = sync.OnceValue(s.unmountOnce)
	go func() {
		defer close(s.done)
		server.Serve()
	}()
	go s.sweep()
	return s, nil
}

// mount mounts the filesystem, or takes over the mount of another process.
func (s *Server) mount(raw fuse.RawFileSystem, o *fuse.MountOptions) (server *fuse.Server, err error) {
	if s.state.Mounted == nil {
		return mountFuse(s.point.path, raw, o)
	}
	server, s.handed, err = takeMount(s.point.path, s.state.Mounted, raw, o)
	return server, err
}
