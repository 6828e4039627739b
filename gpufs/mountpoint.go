package gpufs

// This file prepares a directory for a mount and recognises a dead daemon's mount. mount.go and server.go call it.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/procfacts"
)

// mountPoint is a directory that is ready for a mount.
type mountPoint struct {
	path    string // absolute, without symbolic links
	created bool   // made by prepare, and removed after the unmount
}

// discard removes the directory if prepare made it.
func (p mountPoint) discard() {
	if p.created {
		_ = os.Remove(p.path) // fails if another program has put files there
	}
}

// prepare makes path ready for a mount: it checks FUSE, unmounts a dead daemon's mount, and makes the directory or
// checks that it is empty.
func prepare(path string) (mountPoint, error) {
	if err := checkFuse(path); err != nil {
		return mountPoint{}, err
	}
	real, err := realPath(path)
	if err != nil {
		return mountPoint{}, fmt.Errorf("mount %s: %w", path, err)
	}
	if err := clearStale(real); err != nil {
		return mountPoint{}, err
	}
	err = os.Mkdir(real, 0o755)
	if err == nil {
		return mountPoint{path: real, created: true}, nil
	}
	if !errors.Is(err, os.ErrExist) {
		return mountPoint{}, fmt.Errorf("mount %s: %w", path, err)
	}
	return mountPoint{path: real}, checkEmptyDir(real)
}

// realPath resolves the symbolic links above the mount point. It resolves a link at the mount point only if nothing
// is mounted there, because a dead filesystem may not answer.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, filepath.Base(path))
	if m, err := mountedAt(path); err != nil || m != nil {
		return path, err
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink != 0 {
		return filepath.EvalSymlinks(path)
	}
	return path, nil
}

// checkEmptyDir returns an error unless path is an empty directory. Nothing may be mounted there.
func checkEmptyDir(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	if !info.IsDir() {
		return &MountError{Path: path, Err: ErrNotDir, Detail: info.Mode().Type().String(),
			Advice: "remove it or choose another --mount"}
	}
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	defer dir.Close()
	if names, err := dir.Readdirnames(1); err == nil {
		return &MountError{Path: path, Err: ErrNotEmpty, Detail: "it holds " + names[0],
			Advice: "a mount would hide that; empty it or choose another --mount"}
	} else if !errors.Is(err, io.EOF) {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	return nil
}

// maxStale bounds the dead mounts that clearStale removes from one path.
const maxStale = 64

// clearStale unmounts the mounts of dead daemons at path. It finds mounts in the kernel's table, because a filesystem
// may not answer.
func clearStale(path string) error {
	for range maxStale {
		m, err := mountedAt(path)
		if err != nil {
			return fmt.Errorf("mount %s: %w", path, err)
		}
		if m == nil {
			return nil
		}
		if m.Type != fsType {
			return &MountError{Path: path, Err: ErrBusy, Detail: m.Type + " from " + m.Source,
				Advice: "unmount it or choose another --mount"}
		}
		if alive, detail := isServed(path); alive {
			return &MountError{Path: path, Err: ErrBusy, Detail: detail,
				Advice: "another gpuarbd serves it; stop that one or choose another --mount"}
		}
		if err := detach(path); err != nil {
			return &MountError{Path: path, Err: ErrBusy, Detail: "left by a dead gpuarbd: " + err.Error(),
				Advice: "unmount it by hand: umount -l " + path}
		}
	}
	return &MountError{Path: path, Err: ErrBusy, Detail: "many dead mounts upon each other",
		Advice: "unmount them by hand: umount -l " + path}
}

// answerPatience bounds the wait for an answer of a live daemon.
const answerPatience = 2 * time.Second

// isServed reports whether a live daemon serves the filesystem at path, and describes the finding. The kernel returns
// ENOTCONN if the daemon is dead.
func isServed(path string) (alive bool, detail string) {
	answer := make(chan error, 1)
	go func() {
		var st unix.Stat_t
		answer <- unix.Stat(path, &st)
	}()
	select {
	case err := <-answer:
		dead := errors.Is(err, syscall.ENOTCONN) || errors.Is(err, syscall.ECONNABORTED)
		return !dead, fsType + " is there and alive"
	case <-time.After(answerPatience):
		return true, fsType + " is there, and does not answer"
	}
}

// mountedAt returns the topmost mount at path; nil: none.
func mountedAt(path string) (*procfacts.Mount, error) {
	mounts, err := procfacts.Here.Mounts()
	if err != nil {
		return nil, err
	}
	for _, m := range slices.Backward(mounts) {
		if m.Point == path {
			return &m, nil
		}
	}
	return nil, nil
}
