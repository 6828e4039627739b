package gpufs

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// This file serves the filesystem from a descriptor that MakeMount returned, as the daemon of systemd's unit does.
// It mounts in the test's own namespace; tests/systemd shows the two processes.

// TestHandedMount: a filesystem that is served from a descriptor shows the state. Its end does not unmount, and the mount of a
// daemon that has ended is cleared.
func TestHandedMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("only root can mount for another process")
	}
	path := filepath.Join(t.TempDir(), "gpu")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := makeHere(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	if _, err := Mount(filepath.Join(t.TempDir(), "other"), &fakeView{s: sample()}, Options{System: true, Mounted: dup(t, f)}); err == nil {
		t.Error("a mount at another place is served")
	}
	s, err := Mount(path, &fakeView{s: sample()}, Options{System: true, Mounted: f})
	if err != nil {
		t.Fatal(err)
	}
	// Another process reads. Go adds a file that it opens to its poller by a system call that keeps its scheduler from running, and
	// the kernel then asks the filesystem, which this process serves. The library avoids that only for mounts that it makes.
	if got := output(t, "cat", filepath.Join(path, "version")); got != "1.2.3\n" {
		t.Errorf("the version is %q", got)
	}
	if err := clearHere(path); err != nil {
		t.Error(err)
	}
	if m, err := mountedAt(path); err != nil || m == nil {
		t.Errorf("a mount that a daemon serves was cleared: %v, %v", m, err)
	}
	if err := s.Unmount(); err != nil {
		t.Error(err)
	}
	if m, err := mountedAt(path); err != nil || m == nil {
		t.Errorf("the daemon has unmounted: %v, %v", m, err)
	}
}

// dup returns another descriptor of the same file.
func dup(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}
