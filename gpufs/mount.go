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

// serve mounts at a prepared point and starts the goroutines of the filesystem.
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
			DisableSplice: true, // content comes from memory, never from a file
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
