package gpufs

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

// mountPoint is a directory that is ready to be mounted on.
type mountPoint struct {
	path    string // absolute, without symbolic links
	created bool   // it is ours to remove
}

// discard undoes prepare.
func (p mountPoint) discard() {
	if p.created {
		_ = os.Remove(p.path) // it is empty, or not ours any more
	}
}

// prepare makes path ready: FUSE is there, nothing is mounted there but what a dead
// daemon left, and it is an empty directory, made if absent.
func prepare(path string) (mountPoint, error) {
	if err := haveFuse(path); err != nil {
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
	return mountPoint{path: real}, usable(real)
}

// realPath resolves symbolic links above the mount point, and at it unless something
// is mounted there: what is mounted is not asked anything, as it may hang.
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

// usable says whether an existing path, with nothing mounted on it, is an empty directory.
func usable(path string) error {
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

// maxStale is how many dead mounts may lie upon each other.
const maxStale = 64

// clearStale takes away what dead daemons left mounted at path. Whether anything is
// mounted is read from the kernel's table, not asked of a filesystem that may hang.
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
		if alive, detail := answers(path); alive {
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

// answerPatience is how long a living daemon may take to answer.
const answerPatience = 2 * time.Second

// answers says whether the filesystem mounted at path has somebody behind it. The
// kernel says ENOTCONN for one whose daemon is dead.
func answers(path string) (alive bool, detail string) {
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

// mountedAt returns the topmost mount at path, or nil.
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
