package inventory

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

func openHere(t testing.TB) *Inventory {
	t.Helper()
	inv, err := Open(Options{SysfsRoot: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(inv.Close)
	return inv
}

// sleeper starts a program that stays until the test is over.
func sleeper(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := bounded.Command(t, bounded.Lifetime, name, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func TestFacts(t *testing.T) {
	inv := openHere(t)
	hostile := "sleep\nroot 1 \xff"
	cmd := sleeper(t, "setpriv", "--reuid=65534", "--regid=65534", "--groups=4,65534", "bash", "-c",
		`exec -a "$0" sleep 1000`, hostile)
	deadline := time.Now().Add(bounded.Patience)
	var f ProcessFacts
	for f.Comm != "sleep" || f.Command == "sleep" {
		var err error
		if f, err = inv.Facts(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("it did not become sleep: %+v", f)
		}
	}
	f, err := inv.Facts(cmd.Process.Pid) // the first to see sleep may have begun before it
	if err != nil {
		t.Fatal(err)
	}
	if f.UID != 65534 || f.GID != 65534 || f.User != "nobody" {
		t.Errorf("user: %+v", f)
	}
	if got := fmt.Sprint(f.Groups, f.GroupNames); got != "[4 65534] [nogroup adm]" {
		t.Errorf("groups: %s", got)
	}
	if f.Command != "sleep\nroot 1 \uFFFD 1000" || !strings.HasSuffix(f.Exe, "/sleep") {
		t.Errorf("command %q, exe %q", f.Command, f.Exe)
	}
	if f.StartTicks == 0 || !strings.HasPrefix(f.Cgroup, "/") {
		t.Errorf("%+v", f)
	}
	again, err := inv.Facts(cmd.Process.Pid)
	if err != nil || again.StartTicks != f.StartTicks {
		t.Errorf("again: %+v, %v", again, err)
	}
}

func TestFactsOfTheAbsent(t *testing.T) {
	inv := openHere(t)
	cmd := sleeper(t, "true")
	_ = cmd.Wait()
	for _, pid := range []int{cmd.Process.Pid, 0, -1, 1 << 29} {
		if f, err := inv.Facts(pid); !errors.Is(err, ErrGone) {
			t.Errorf("process %d: %+v, %v", pid, f, err)
		}
	}
	if mapped, err := inv.IsMapped(cmd.Process.Pid, 1, "x"); mapped || !errors.Is(err, ErrGone) {
		t.Errorf("mappings: %v, %v", mapped, err)
	}
}

func TestTaskOwner(t *testing.T) {
	inv := openHere(t)
	tids := make(chan int)
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		tids <- unix.Gettid()
		<-done
	}()
	tid := bounded.Receive(t, "a thread's number", tids)
	defer close(done)
	if pid, ok := inv.TaskOwner(uint32(tid)); !ok || pid != os.Getpid() {
		t.Errorf("thread %d of %d: %d, %v", tid, os.Getpid(), pid, ok)
	}
	for _, tid := range []uint32{0, 1 << 29, 1<<32 - 1} {
		if pid, ok := inv.TaskOwner(tid); ok {
			t.Errorf("thread %d: %d", tid, pid)
		}
	}
	if _, err := inv.Facts(tid); tid != os.Getpid() && !errors.Is(err, ErrGone) {
		t.Errorf("a thread was taken for a process: %v", err)
	}
}

func TestDescends(t *testing.T) {
	inv := openHere(t)
	command := bounded.Command(t, bounded.Patience, "cat")
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	child := command.Process.Pid
	for _, c := range []struct {
		pid, ancestor int
		want          bool
	}{
		{child, os.Getpid(), true}, {child, os.Getppid(), true},
		{os.Getpid(), child, false}, {child, child, false}, {1 << 29, 1, false}, {1, os.Getpid(), false},
	} {
		if got := inv.Descends(c.pid, c.ancestor); got != c.want {
			t.Errorf("%d below %d: %v", c.pid, c.ancestor, got)
		}
	}
	if err := errors.Join(stdin.Close(), command.Wait()); err != nil {
		t.Error(err)
	}
}

func TestIsMapped(t *testing.T) {
	inv := openHere(t)
	fd, err := unix.MemfdCreate("page of\na lease", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	check := func(want bool, pid int, inode uint64, name string) {
		t.Helper()
		got, err := inv.IsMapped(pid, inode, name)
		if got != want || err != nil {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	check(false, os.Getpid(), st.Ino, "page of\na lease")
	page, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	check(true, os.Getpid(), st.Ino, "page of\na lease")
	check(false, os.Getpid(), st.Ino+1, "page of\na lease")
	check(false, os.Getpid(), st.Ino, "page")
	check(false, sleeper(t, "sleep", "1000").Process.Pid, st.Ino, "page of\na lease")
	if err := unix.Munmap(page); err != nil {
		t.Fatal(err)
	}
	check(false, os.Getpid(), st.Ino, "page of\na lease")
}

// TestStuckReader checks that a file whose reading does not end holds nobody up.
func TestStuckReader(t *testing.T) {
	inv := openHere(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range maxSlowReaders + 10 {
		wg.Go(func() {
			if got := inv.readSlowly(fifo, 10); got != nil {
				t.Errorf("got %q", got)
			}
		})
	}
	bounded.Within(t, "everybody gives up", wg.Wait)
	if len(inv.slow) != maxSlowReaders {
		t.Errorf("%d readers are stuck", len(inv.slow))
	}
	f, err := inv.Facts(os.Getpid())
	if err != nil || f.Command != f.Comm {
		t.Errorf("facts while all readers are stuck: %+v, %v", f, err)
	}
	if _, err := inv.IsMapped(os.Getpid(), 1, "x"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("mappings while all readers are stuck: %v", err)
	}
	// Some may not have opened it yet: each look lets those go that have.
	bounded.Until(t, "the readers end", func() bool {
		if w, err := os.OpenFile(fifo, os.O_RDWR, 0); err == nil {
			_ = w.Close()
		}
		return len(inv.slow) == 0
	})
}

func TestOpenWithoutProc(t *testing.T) {
	if _, err := Open(Options{ProcRoot: filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("a root that does not exist was taken")
	}
}

func BenchmarkFacts(b *testing.B) {
	inv := openHere(b)
	for b.Loop() {
		if _, err := inv.Facts(os.Getpid()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTaskOwner(b *testing.B) {
	inv := openHere(b)
	for b.Loop() {
		if _, ok := inv.TaskOwner(uint32(os.Getpid())); !ok {
			b.Fatal("not found")
		}
	}
}
