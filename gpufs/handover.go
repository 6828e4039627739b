package gpufs

// This file mounts for another process: systemd's unit does so, because a service in a mount namespace of its own cannot mount
// on the whole machine. The service gets the descriptor, and passes it to Mount in Options.Mounted.

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// MakeMount mounts at path, as root for all users of the machine, and returns the descriptor from which a daemon serves the
// filesystem. Until a daemon does, every access waits. Mounts of dead daemons at the path are unmounted first.
func MakeMount(path string) (f *os.File, err error) {
	err = onMachine(func() (err error) {
		f, err = makeHere(path)
		return err
	})
	return f, err
}

func makeHere(path string) (*os.File, error) {
	point, err := prepare(path)
	if err != nil {
		return nil, err
	}
	o := mountOptions(true)
	fd, err := mountDirectly(point.path, &o)
	if err != nil {
		point.discard()
		return nil, fmt.Errorf("mount %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), fuseDev), nil
}

// ClearMount unmounts the mounts of dead daemons at path. A mount that a daemon serves stays.
func ClearMount(path string) error {
	return onMachine(func() error { return clearHere(path) })
}

func clearHere(path string) error {
	path, err := realPath(path)
	if err != nil {
		return err
	}
	if err := clearStale(path); !errors.Is(err, ErrBusy) {
		return err
	}
	return nil
}

// onMachine runs do in the mount namespace of process 1. systemd gives every process of a sandboxed unit a mount namespace, also
// those that it starts with all rights. A mount of such a process is invisible to the machine.
func onMachine(do func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: Go ends the thread with this goroutine
		result <- func() error {
			machine, err := os.Open("/proc/1/ns/mnt")
			if err != nil {
				return err
			}
			defer machine.Close()
			if err := unix.Unshare(unix.CLONE_FS); err != nil { // a thread that shares its working directory may not change namespace
				return os.NewSyscallError("unshare", err)
			}
			if err := unix.Setns(int(machine.Fd()), unix.CLONE_NEWNS); err != nil {
				return os.NewSyscallError("setns", err)
			}
			return do()
		}()
	}()
	return <-result
}
