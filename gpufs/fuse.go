package gpufs

// This file mounts and unmounts a FUSE filesystem, as root or through fusermount3. mount.go and mountpoint.go call
// it.

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const (
	fsName     = "gpuarb"
	fsType     = "fuse." + fsName
	fuseDev    = "/dev/fuse"
	maxRead    = 128 << 10
	elseAdvice = "or run the daemon without the filesystem, with --mount none"
)

// checkFuse returns an error if FUSE is not usable on this machine by this process.
func checkFuse(path string) error {
	no := func(detail, advice string) error {
		return &MountError{Path: path, Err: ErrNoFuse, Detail: detail, Advice: advice + ", " + elseAdvice}
	}
	if os.Geteuid() != 0 {
		if _, err := os.Stat(fuseDev); err != nil {
			return no(err.Error(), "ask for the kernel's module to be loaded (modprobe fuse)")
		}
		if _, err := fusermount(); err != nil {
			return no(err.Error(), "install fuse3")
		}
		return nil
	}
	f, err := os.OpenFile(fuseDev, os.O_RDWR, 0)
	switch {
	case errors.Is(err, os.ErrPermission):
		return no(err.Error(), "allow this unit or container the device")
	case err != nil:
		return no(err.Error(), "load the kernel's module (modprobe fuse)")
	}
	return f.Close()
}

// mountOptions returns the settings of the mount. system: all users of the machine are admitted.
func mountOptions(system bool) fuse.MountOptions {
	return fuse.MountOptions{
		AllowOther:    system,
		FsName:        fsName,
		Name:          fsName,
		Options:       []string{"default_permissions"},
		DisableXAttrs: true,
		MaxWrite:      maxRead,
		MaxBackground: 12,
		DisableSplice: true, // content comes from memory, never from a file
	}
}

// mountFuse mounts raw: as root by mount(2), otherwise through fusermount3. The library returns after it has answered
// the kernel's first request, so that the mount is usable. This process must not access the mount itself: if it is
// killed while it waits for its own answer, it never ends, and its readers hang.
func mountFuse(path string, raw fuse.RawFileSystem, o *fuse.MountOptions) (*fuse.Server, error) {
	if os.Geteuid() != 0 {
		server, err := fuse.NewServer(raw, path, o)
		if err != nil {
			return nil, &MountError{Path: path, Err: ErrNoFuse, Detail: "fusermount3: " + err.Error(),
				Advice: "see what fusermount3 printed; in a container or under no-new-privileges it may not mount, " + elseAdvice}
		}
		return server, nil
	}
	fd, err := mountDirectly(path, o)
	if err != nil {
		return nil, fmt.Errorf("mount %s: %w", path, err)
	}
	// With this name the library takes over a descriptor that is already mounted.
	server, err := fuse.NewServer(raw, fmt.Sprintf("/dev/fd/%d", fd), o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mount %s: %w", path, err), detach(path))
	}
	return server, nil
}

// mountDirectly does the work of the library's DirectMount, but opens the descriptor close-on-exec. If a child of the
// daemon inherited the descriptor, the mount of a dead daemon would hang instead of failing.
func mountDirectly(path string, o *fuse.MountOptions) (fd int, err error) {
	fd, err = unix.Open(fuseDev, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: fuseDev, Err: err}
	}
	options := append([]string{
		fmt.Sprintf("fd=%d", fd),
		fmt.Sprintf("rootmode=%o", unix.S_IFDIR),
		fmt.Sprintf("user_id=%d", os.Geteuid()),
		fmt.Sprintf("group_id=%d", os.Getegid()),
		fmt.Sprintf("max_read=%d", o.MaxWrite),
	}, o.Options...)
	if o.AllowOther {
		options = append(options, "allow_other")
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount(o.FsName, path, fsType, flags, strings.Join(options, ",")); err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError("mount", err)
	}
	return fd, nil
}

// takeMount serves raw from a descriptor that MakeMount returned in another process.
func takeMount(path string, mounted *os.File, raw fuse.RawFileSystem, o *fuse.MountOptions) (*fuse.Server, int, error) {
	fd, err := unix.FcntlInt(mounted.Fd(), unix.F_DUPFD_CLOEXEC, 3) // the library needs a bare number
	if err != nil {
		return nil, -1, fmt.Errorf("mount %s: %w", path, err)
	}
	server, err := fuse.NewServer(raw, fmt.Sprintf("/dev/fd/%d", fd), o)
	if err != nil {
		return nil, -1, errors.Join(fmt.Errorf("mount %s: %w", path, err), unix.Close(fd))
	}
	return server, fd, nil
}

// stopServing ends the answers of a filesystem that this process cannot unmount. The descriptor's number gets an empty file in
// its place, so that an answer that comes late reaches no reader. Readers wait until this process ends.
func stopServing(fd int) error {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	return unix.Dup3(null, fd, unix.O_CLOEXEC)
}

// fusermount returns the path of the program that mounts for users.
func fusermount() (string, error) {
	for _, name := range []string{"fusermount3", "/bin/fusermount3", "fusermount", "/bin/fusermount"} {
		if bin, err := exec.LookPath(name); err == nil {
			return bin, nil
		}
	}
	return "", errors.New("fusermount3 was not found")
}

// detach unmounts path even while it is in use. As root it uses the system call, which makes the readers' calls fail;
// otherwise it runs fusermount3.
func detach(path string) error {
	if os.Geteuid() == 0 {
		// The kernel may count a file as open for a moment after its close.
		for pause := time.Millisecond; pause < 100*time.Millisecond; pause *= 2 {
			if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); !errors.Is(err, unix.EBUSY) {
				return err
			}
			time.Sleep(pause)
		}
		return unix.Unmount(path, unix.MNT_FORCE|unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	bin, err := fusermount()
	if err != nil {
		return err
	}
	if out, err := exec.Command(bin, "-u", "-z", "--", path).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", bin, err, out)
	}
	return nil
}
