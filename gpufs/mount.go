package gpufs

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
