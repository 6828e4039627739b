package ipc

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks who may listen at a path: one daemon at a time, with the requested mode. A socket that a dead
// daemon left is replaced; any other file stays. Helper processes (main_test.go) are the other daemons.

func itoa(n int) string { return strconv.Itoa(n) }

func TestListenMode(t *testing.T) {
	checkFDs(t)
	old := unix.Umask(0o077) // the umask must not change the requested mode
	defer unix.Umask(old)
	for _, c := range []struct{ ask, want os.FileMode }{{0, 0o600}, {0o660, 0o660}, {0o666, 0o666}} {
		path := filepath.Join(t.TempDir(), "s")
		l, err := Listen(path, ListenOptions{Mode: c.ask})
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil || st.Mode() != os.ModeSocket|c.want {
			t.Errorf("asked for %v, made %v, %v", c.ask, st.Mode(), err)
		}
		if l.Path() != path {
			t.Errorf("path %s", l.Path())
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("closed, and the socket is there: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("closed twice: %v", err)
		}
	}
}

func TestTwoDaemons(t *testing.T) {
	checkFDs(t)
	path := filepath.Join(t.TempDir(), "s")
	holder := startHelper(t, "listen", path, nil)
	holder.line(t)
	_, err := Listen(path, ListenOptions{})
	var inUse *InUseError
	if !errors.As(err, &inUse) || inUse.PID != holder.Process.Pid || inUse.Path != path {
		t.Fatalf("the second daemon got %v", err)
	}
	if !strings.Contains(err.Error(), "pid "+itoa(holder.Process.Pid)) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v does not say who", err)
	}
	dial(t, path) // the first daemon still answers
	holder.Process.Kill()
	holder.stop()
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("the killed daemon left nothing to replace: %v", err)
	}
	l, err := Listen(path, ListenOptions{})
	if err != nil {
		t.Fatalf("a stale socket was not replaced: %v", err)
	}
	dial(t, path)
	if text, _ := os.ReadFile(path + ".lock"); string(text) != itoa(os.Getpid())+"\n" {
		t.Errorf("the lock file says %q", text)
	}
	l.Close()
}

// TestListenWaitsForDeadDaemonsChild: if a daemon is killed between fork and exec, its child holds the lock until it
// becomes another program.
func TestListenWaitsForDeadDaemonsChild(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpuarb.sock")
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := errors.Join(unix.Flock(int(lock.Fd()), unix.LOCK_EX), os.WriteFile(path+".lock", []byte(itoa(dead.Process.Pid)), 0o600)); err != nil {
		t.Fatal(err)
	}
	child := make(chan error, 1)
	time.AfterFunc(100*time.Millisecond, func() { child <- unix.Flock(int(lock.Fd()), unix.LOCK_UN) })
	l, err := Listen(path, ListenOptions{})
	if err := errors.Join(err, <-child); err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// TestLiveSocketWithoutLock: Listen refuses the path of a daemon that has its socket from systemd, and so holds no
// lock.
func TestLiveSocketWithoutLock(t *testing.T) {
	checkFDs(t)
	for _, network := range []string{"unixpacket", "unix"} {
		path := filepath.Join(t.TempDir(), "s")
		other, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
		if err != nil {
			t.Fatal(err)
		}
		_, err = Listen(path, ListenOptions{})
		var inUse *InUseError
		if !errors.As(err, &inUse) {
			t.Fatalf("%s: took a live socket: %v", network, err)
		}
		if network == "unixpacket" && inUse.PID != os.Getpid() {
			t.Errorf("the holder is %d", inUse.PID)
		}
		other.Close()
	}
}

func TestListenKeepsOtherFiles(t *testing.T) {
	checkFDs(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(file, ListenOptions{}); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("listening on a file: %v", err)
	}
	if text, _ := os.ReadFile(file); string(text) != "precious" {
		t.Errorf("the file now holds %q", text)
	}
	link := filepath.Join(dir, "linked.lock")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(filepath.Join(dir, "linked"), ListenOptions{}); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a lock file that is a link: %v", err)
	}
	if _, err := Listen(filepath.Join(dir, "none", "s"), ListenOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	if _, err := Listen(dir+"/"+strings.Repeat("x", 108), ListenOptions{}); err == nil || !strings.Contains(err.Error(), "107") {
		t.Errorf("a path too long: %v", err)
	}
}

// TestCloseKeepsSuccessorsSocket: Close leaves a socket file that another daemon has made since.
func TestCloseKeepsSuccessorsSocket(t *testing.T) {
	l := listen(t, ListenOptions{})
	if err := os.Rename(l.Path(), l.Path()+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.Path(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(l.Path()); err != nil {
		t.Errorf("what was there is gone: %v", err)
	}
}

func TestListenFile(t *testing.T) {
	checkFDs(t)
	path := filepath.Join(t.TempDir(), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "systemd's")
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 5)); err != nil {
		t.Fatal(err)
	}
	l, err := ListenFile(f, ListenOptions{})
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	dial(t, path)
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if c.Peer().PID != os.Getpid() || l.Path() != path {
		t.Errorf("peer %+v on %s", c.Peer(), l.Path())
	}
	if err := errors.Join(c.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket file is systemd's, and gone: %v", err)
	}
}

func TestListenFileRefuses(t *testing.T) {
	checkFDs(t)
	for _, typ := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
		fd, err := unix.Socket(unix.AF_UNIX, typ|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "inherited")
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(t.TempDir(), "s")}); err != nil {
			t.Fatal(err)
		}
		_ = unix.Listen(fd, 5)
		if l, err := ListenFile(f, ListenOptions{}); err == nil {
			t.Errorf("a socket of type %d was taken", typ)
			l.Close()
		}
		f.Close()
	}
}

func TestAcceptAfterClose(t *testing.T) {
	l := listen(t, ListenOptions{})
	ended := make(chan error)
	go func() { _, err := l.Accept(); ended <- err }()
	l.Close()
	if err := bounded.Receive(t, "Accept returns", ended); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
}

func helperListen(path string) error {
	l, err := Listen(path, ListenOptions{})
	if err != nil {
		return err
	}
	fmt.Println("listening")
	waitForEOF()
	return l.Close()
}
