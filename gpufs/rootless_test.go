package gpufs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// This file checks that a user without privilege can mount, replace a dead daemon's mount and unmount. mount_test.go
// does this as root.

const rootlessEnv = "GPUFS_TEST_ROOTLESS"

// TestRootless calls rootless as another user, in a mount namespace in which all users may open /dev/fuse.
func TestRootless(t *testing.T) {
	dir, err := os.MkdirTemp("", "gpufs")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "gpufs.test")
	binary, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(program, binary, 0o755), os.Chmod(dir, 0o755),
		os.Mkdir(dir+"/home", 0o755), os.Chown(dir+"/home", 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	out, errs, err := run(t, "env", rootlessEnv+"="+dir+"/home", "unshare", "-m", "sh", "-ec", `
mknod "$1/fuse" c 10 229; chmod 666 "$1/fuse"; mount --bind "$1/fuse" /dev/fuse
exec setpriv --reuid=65534 --regid=65534 --clear-groups "$2"`, "sh", dir, program)
	if err != nil || out != "good\n" {
		t.Errorf("%v: %s%s", err, out, errs)
	}
}

// rootless does the work of TestRootless without privilege: it kills a daemon that has mounted, replaces that
// daemon's mount, reads it, and unmounts while a file is open.
func rootless(home string) error {
	path := home + "/gpu"
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+path)
	cmd.Stdout = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	for { // wait until it is mounted
		m, err := mountedAt(path)
		if err != nil {
			return err
		}
		if m != nil {
			break
		}
		if p, err := syscall.Wait4(cmd.Process.Pid, nil, syscall.WNOHANG, nil); p != 0 {
			return fmt.Errorf("the first daemon ended: %v", err)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if _, err := os.Stat(path); !errors.Is(err, unix.ENOTCONN) {
		return fmt.Errorf("the mount of a dead daemon: %v", err)
	}
	s, err := mountHere(path, &fakeView{s: sample()}, Options{SelfOf: selfOf})
	if err != nil {
		return err
	}
	listing, err := exec.Command("ls", "-lRn", path).CombinedOutput()
	if err != nil || !strings.Contains(string(listing), "65534") {
		return fmt.Errorf("ls: %v, %s", err, listing)
	}
	held, err := os.Open(path + "/leases")
	if err != nil {
		return err
	}
	if _, err := held.Read(make([]byte, 10)); err != nil {
		return err
	}
	if err := s.Unmount(); err != nil { // while a reader has a file open
		return err
	}
	if m, err := mountedAt(path); m != nil || err != nil {
		return fmt.Errorf("after Unmount: %v, %v", m, err)
	}
	return held.Close()
}
