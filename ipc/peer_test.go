package ipc

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

	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks that the daemon learns from the kernel which process is at the other end: PID, user and start
// time, also on older kernels, and never those of a process that has ended. Expected start times come from /proc by
// way of sed.

func TestPeer(t *testing.T) {
	checkFDs(t)
	l := listen(t, ListenOptions{Mode: 0o666})
	client := startHelper(t, "connect", l.Path(), nil)
	c := accept(t, l)
	client.line(t)
	p := c.Peer()
	if p.PID != client.Process.Pid || int(p.UID) != os.Getuid() || int(p.GID) != os.Getgid() {
		t.Errorf("peer %+v, the client is %d %d:%d", p, client.Process.Pid, os.Getuid(), os.Getgid())
	}
	if want := startTime(t, p.PID); p.StartTicks != want || want == 0 {
		t.Errorf("started at %d, the kernel says %d", p.StartTicks, want)
	}
	if p.StartTicks < startTime(t, os.Getpid()) {
		t.Errorf("the child is older than its parent")
	}
	if err := checkAlive(p.PIDFD); err != nil {
		t.Errorf("a live client: %v", err)
	}
	pidfd := c.TakePIDFD()
	defer unix.Close(pidfd)
	if pidfd != p.PIDFD || c.TakePIDFD() != -1 || c.Peer().PIDFD != -1 {
		t.Error("the pidfd was not handed over")
	}
	if flags, err := unix.FcntlInt(uintptr(pidfd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("the pidfd outlives exec: %#x, %v", flags, err)
	}
	client.Process.Kill()
	client.stop()
	if _, err := c.ReadMessage(); !IsEnd(err) {
		t.Errorf("the killed client's connection: %v", err)
	}
	c.Close()
	if err := checkAlive(pidfd); !errors.Is(err, errPeerGone) { // it outlives the connection
		t.Errorf("a killed client: %v", err)
	}
}

// startTime reads a process's start time as ps does: it drops the text up to the last parenthesis and counts words.
func startTime(t *testing.T, pid int) uint64 {
	t.Helper()
	out, err := bounded.Command(t, bounded.Patience, "sed", "-E", "s/^.*\\) //", "/proc/"+itoa(pid)+"/stat").Output()
	if err != nil {
		t.Fatal(err)
	}
	var start uint64
	if _, err := fmt.Sscan(strings.Fields(string(out))[19], &start); err != nil {
		t.Fatal(err)
	}
	return start
}

func TestPeerOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("only root can start a client as another user")
		return
	}
	dir, err := os.MkdirTemp("", "ipc") // other users have no access to t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(filepath.Join(dir, "s"), ListenOptions{Mode: 0o666, Limits: Limits{PerUID: 1}, StartTicks: procfacts.Here.StartTicks})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	mine := dialRaw(t, l.Path())
	accept(t, l)
	attr := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65533}}
	client := startHelper(t, "connect", l.Path(), attr)
	c := accept(t, l) // the limit of each user is separate
	client.line(t)
	if p := c.Peer(); p.UID != 65534 || p.GID != 65533 || p.PID != client.Process.Pid || p.StartTicks == 0 {
		t.Errorf("peer %+v", p)
	}
	mine.close()
}

// TestPeerGoneBeforeAccept: the connecting process was killed before the accept, reaped by its parent or not, or it
// left the connection to a child. The daemon admits none of these and admits the next client.
func TestPeerGoneBeforeAccept(t *testing.T) {
	checkFDs(t)
	for _, how := range []string{"reaped", "zombie", "inherited"} {
		l := listen(t, ListenOptions{})
		mode := map[bool]string{true: "inherit", false: "connect"}[how == "inherited"]
		client := startHelper(t, mode, l.Path(), nil)
		client.line(t)
		if how != "inherited" {
			client.Process.Kill()
		}
		if how == "zombie" {
			var info unix.Siginfo // waits until the process is a zombie, and does not reap it
			if err := again(func() error {
				return unix.Waitid(unix.P_PID, client.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
			}); err != nil {
				t.Fatal(err)
			}
		} else {
			_, _ = client.Process.Wait()
		}
		dialRaw(t, l.Path())
		c := accept(t, l)
		if c.Peer().PID != os.Getpid() {
			t.Errorf("%s: accepted %+v", how, c.Peer())
		}
		if open := l.limits.open(); open != 1 {
			t.Errorf("%s: %d connections are open", how, open)
		}
		client.stop()
	}
}

// TestIdentifyFallback: on kernels before 6.5, which lack SO_PEERPIDFD, the fallback gives the same identity.
func TestIdentifyFallback(t *testing.T) {
	checkFDs(t)
	_, c := pair(t)
	want := c.Peer()
	old := identifier{startTicks: procfacts.Here.StartTicks, option: 9999} // no such option
	got := Peer{PID: want.PID, UID: want.UID, GID: want.GID}
	if err := old.identify(c.sock, &got); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(got.PIDFD)
	if got.StartTicks != want.StartTicks || checkAlive(got.PIDFD) != nil {
		t.Errorf("%+v, want %+v", got, want)
	}
	dead := bounded.Command(t, bounded.Patience, "true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	if err := old.identify(c.sock, &Peer{PID: dead.Process.Pid}); !errors.Is(err, errPeerGone) {
		t.Errorf("a dead process: %v", err)
	}
}

// TestIdentifyWithoutStartTime: if a client's start time cannot be read, the client gets an error, and no descriptor
// stays open.
func TestIdentifyWithoutStartTime(t *testing.T) {
	checkFDs(t)
	l := listen(t, ListenOptions{StartTicks: func(int) (uint64, error) { return 0, errors.New("no /proc here") }})
	raw := dialRaw(t, l.Path())
	done := make(chan struct{})
	go func() { _, _ = l.Accept(); close(done) }()
	if got := raw.recv(); !strings.Contains(string(got), "no /proc here") {
		t.Errorf("not told why: %q", got)
	}
	l.Close()
	bounded.Receive(t, "Accept returns", done)
	if open := l.limits.open(); open != 0 {
		t.Errorf("%d connections are open", open)
	}
}

// helperConnect connects, prints a line, and keeps the connection open.
func helperConnect(path string) error {
	fd, err := rawConnect(path)
	if err != nil {
		return err
	}
	fmt.Println("connected")
	waitForEOF()
	return unix.Close(fd)
}

// helperInherit connects, passes the connection to a child, and ends.
func helperInherit(path string) error {
	fd, err := rawConnect(path)
	if err != nil {
		return err
	}
	heir := exec.Command("cat")
	heir.Stdin = os.Stdin
	heir.ExtraFiles = []*os.File{os.NewFile(uintptr(fd), "connection")}
	if err := heir.Start(); err != nil {
		return err
	}
	fmt.Println("left behind")
	return nil
}
