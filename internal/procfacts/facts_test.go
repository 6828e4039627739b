package procfacts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// The facts about a process come from the kernel and belong to that process alone, never to a later one with its PID.
// A process that blocks the reading delays no caller for long. The tests start real processes; parse_test.go tests
// texts of the kernel.

func TestFacts(t *testing.T) {
	r := NewReader()
	hostile := "sleep\nroot 1 \xff"
	cmd := bounded.Start(t, "setpriv", "--reuid=65534", "--regid=65534", "--groups=4,65534", "bash", "-c",
		`exec -a "$0" sleep 1000`, hostile)
	deadline := time.Now().Add(bounded.Patience)
	var f Facts
	for f.Comm != "sleep" || f.Command == "sleep" || !strings.HasSuffix(f.Exe, "/sleep") { // some facts may be from before the exec
		var err error
		if f, err = r.Facts(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("it did not become sleep: %+v", f)
		}
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
	again, err := r.Facts(cmd.Process.Pid)
	if err != nil || again.StartTicks != f.StartTicks {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// TestFactsOfKnownProcess: FactsOf returns the facts of Facts. It returns ErrGone if the process has ended, even if
// another has its PID.
func TestFactsOfKnownProcess(t *testing.T) {
	r := NewReader()
	pid := os.Getpid()
	want, err := r.Facts(pid)
	if err != nil {
		t.Fatal(err)
	}
	known := Started{PID: pid, StartTicks: want.StartTicks}
	if f, err := r.FactsOf(known, func() bool { return true }); err != nil || !reflect.DeepEqual(f, want) {
		t.Errorf("%+v, %v\nwant %+v", f, err, want)
	}
	if f, err := r.FactsOf(known, func() bool { return false }); !errors.Is(err, ErrGone) || f.Command != "" {
		t.Errorf("of one that has ended: %+v, %v", f, err)
	}
}

// endsFirst is a program that maps a memfd, prints its inode, and reads a line. Then its first thread ends, and a
// second thread continues.
const endsFirst = `
import ctypes, mmap, os, sys, threading
page = os.memfd_create("page")
os.ftruncate(page, 4096)
mapped = mmap.mmap(page, 4096)
threading.Thread(target=threading.Event().wait).start()
print(os.fstat(page).st_ino, flush=True)
sys.stdin.readline()
ctypes.CDLL(None).syscall(%d, 0)
`

// TestFirstThreadEnded: a process keeps its facts after the end of its first thread.
func TestFirstThreadEnded(t *testing.T) {
	r := NewReader()
	const variable = "PROCFACTS_FIRST_THREAD=ended"
	cmd := bounded.Command(t, bounded.Patience, "env", variable, "python3", "-c", fmt.Sprintf(endsFirst, unix.SYS_EXIT))
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	pid := cmd.Process.Pid
	var inode uint64
	if _, err := fmt.Fscanln(stdout, &inode); err != nil {
		t.Fatal(err)
	}
	before, err1 := r.Facts(pid)
	_, err2 = stdin.Write([]byte("\n"))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	bounded.Until(t, "its first thread has ended", func() bool {
		st, err := r.stat(pid)
		return err == nil && st.State == "Z"
	})
	if after, err := r.Facts(pid); err != nil || !reflect.DeepEqual(after, before) {
		t.Errorf("%+v, %v\nwant %+v", after, err, before)
	}
	if mapped, err := r.IsMapped(pid, inode, "page"); !mapped || err != nil {
		t.Errorf("its page is mapped: %v, %v", mapped, err)
	}
	if mapped, err := r.IsMapped(pid, inode+1, "page"); mapped || err != nil {
		t.Errorf("what it never mapped is mapped: %v, %v", mapped, err)
	}
	if got := r.WithEnviron(map[string]uint32{variable: uint32(os.Getuid())})[variable]; got.PID != pid {
		t.Errorf("process %d has its environment, want %d", got.PID, pid)
	}
}

// TestShortLivedThreads: a process counts as living although its first thread has ended, and each other thread ends
// as soon as it has started the next.
func TestShortLivedThreads(t *testing.T) {
	r := NewReader()
	const variable = "PROCFACTS_SHORT_THREADS=1"
	cmd := bounded.Command(t, bounded.Patience, "env", variable, "python3", "-c", fmt.Sprintf(`
import _thread, ctypes
def short():
    _thread.start_new_thread(short, ())
short()
print("begun", flush=True)
ctypes.CDLL(None).syscall(%d, 0)
`, unix.SYS_EXIT))
	stdout, err := cmd.StdoutPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	pid := cmd.Process.Pid
	if _, err := fmt.Fscanln(stdout, new(string)); err != nil {
		t.Fatal(err)
	}
	bounded.Until(t, "its first thread has ended", func() bool {
		st, err := r.stat(pid)
		return err == nil && st.State == "Z"
	})
	for range 2000 {
		if f, err := r.Facts(pid); errors.Is(err, ErrGone) || err == nil && !strings.Contains(f.Command, "short()") {
			t.Fatalf("%+v, %v", f, err)
		}
		if _, err := r.IsMapped(pid, 1, "page"); errors.Is(err, ErrGone) {
			t.Fatal(err)
		}
	}
	for range 100 {
		if got := r.WithEnviron(map[string]uint32{variable: uint32(os.Getuid())})[variable]; got.PID != pid {
			t.Fatalf("process %d has its environment, want %d", got.PID, pid)
		}
	}
}

func TestFactsOfMissingProcess(t *testing.T) {
	r := NewReader()
	cmd := bounded.Start(t, "true")
	_ = cmd.Wait()
	for _, pid := range []int{cmd.Process.Pid, 0, -1, 1 << 29} {
		if f, err := r.Facts(pid); !errors.Is(err, ErrGone) {
			t.Errorf("process %d: %+v, %v", pid, f, err)
		}
	}
	if mapped, err := r.IsMapped(cmd.Process.Pid, 1, "x"); mapped || !errors.Is(err, ErrGone) {
		t.Errorf("mappings: %v, %v", mapped, err)
	}
}

// TestDirectoryOfOneProcess: files read through a process's open directory belong to that process. They are missing
// after its end, even if another process has its PID.
func TestDirectoryOfOneProcess(t *testing.T) {
	r := NewReader()
	cmd := bounded.Start(t, "sleep", "1000")
	dir, err := r.open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	if st, err := statusIn(dir, "status"); err != nil || st.tgid != cmd.Process.Pid {
		t.Errorf("of one that lives: %+v, %v", st, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if st, err := statusIn(dir, "status"); err == nil || !errors.Is(ofProcess(cmd.Process.Pid, err), ErrGone) {
		t.Errorf("of one that has ended: %+v, %v", st, err)
	}
}

func TestTaskOwner(t *testing.T) {
	r := NewReader()
	tids := make(chan int)
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		tids <- unix.Gettid()
		<-done
	}()
	tid := bounded.Receive(t, "a thread's number", tids)
	defer close(done)
	if pid, ok := r.TaskOwner(uint32(tid)); !ok || pid != os.Getpid() {
		t.Errorf("thread %d of %d: %d, %v", tid, os.Getpid(), pid, ok)
	}
	for _, tid := range []uint32{0, 1 << 29, 1<<32 - 1} {
		if pid, ok := r.TaskOwner(tid); ok {
			t.Errorf("thread %d: %d", tid, pid)
		}
	}
	if _, err := r.Facts(tid); tid != os.Getpid() && !errors.Is(err, ErrGone) {
		t.Errorf("a thread was taken for a process: %v", err)
	}
}

func TestDescends(t *testing.T) {
	r := NewReader()
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
		if got := r.Descends(c.pid, c.ancestor); got != c.want {
			t.Errorf("%d below %d: %v", c.pid, c.ancestor, got)
		}
	}
	if err := errors.Join(stdin.Close(), command.Wait()); err != nil {
		t.Error(err)
	}
}

func TestIsMapped(t *testing.T) {
	r := NewReader()
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
		got, err := r.IsMapped(pid, inode, name)
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
	check(false, bounded.Start(t, "sleep", "1000").Process.Pid, st.Ino, "page of\na lease")
	if err := unix.Munmap(page); err != nil {
		t.Fatal(err)
	}
	check(false, os.Getpid(), st.Ino, "page of\na lease")
}

// TestStuckReader checks that a read that never ends does not block the caller.
func TestStuckReader(t *testing.T) {
	r := NewReader()
	files := map[string]string{}
	for pid := range maxSlowReaders + 10 {
		files[fmt.Sprintf("%d/cmdline", pid)] = ""
	}
	r.Root = root(t, files)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for pid := range maxSlowReaders + 10 {
		path := r.path(pid, "cmdline")
		if err := errors.Join(os.Remove(path), os.Symlink(fifo, path)); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if got := r.readSlowly(pid, "cmdline", 10); got != nil {
				t.Errorf("got %q", got)
			}
		})
	}
	bounded.Within(t, "everybody gives up", wg.Wait)
	if len(r.slow) != maxSlowReaders {
		t.Errorf("%d readers are stuck", len(r.slow))
	}
	here := NewReader()
	here.slow = r.slow
	f, err := here.Facts(os.Getpid())
	if err != nil || f.Command != f.Comm {
		t.Errorf("facts while all readers are stuck: %+v, %v", f, err)
	}
	if _, err := here.IsMapped(os.Getpid(), 1, "x"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("mappings while all readers are stuck: %v", err)
	}
	// Some readers may not have opened the file yet. Each attempt releases those that have.
	bounded.Until(t, "the readers end", func() bool {
		if w, err := os.OpenFile(fifo, os.O_RDWR, 0); err == nil {
			_ = w.Close()
		}
		return len(r.slow) == 0
	})
}

// TestBlockedProcessHasOneReader: a process that blocks the reading of its memory has one hanging reader at most, so
// that other processes can be read. It is read again after it stops blocking.
func TestBlockedProcessHasOneReader(t *testing.T) {
	r := NewReader()
	r.Root = root(t, map[string]string{"7/cmdline": "", "8/cmdline": "x"})
	fifo := r.path(7, "cmdline")
	if err := errors.Join(os.Remove(fifo), unix.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	for range 2 * maxSlowReaders {
		if got := r.readSlowly(7, "cmdline", 10); got != nil {
			t.Fatalf("got %q", got)
		}
	}
	if got := r.readSlowly(8, "cmdline", 10); string(got) != "x" {
		t.Errorf("of another there is %q", got)
	}
	bounded.Until(t, "one reader is stuck, and no other", func() bool { return len(r.slow) == 1 })
	bounded.Until(t, "who waits there is let go", func() bool {
		if w, err := os.OpenFile(fifo, os.O_RDWR|unix.O_NONBLOCK, 0); err == nil {
			_ = w.Close()
		}
		return !r.isStuck(7)
	})
	if err := errors.Join(os.Remove(fifo), os.WriteFile(fifo, []byte("y"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := r.readSlowly(7, "cmdline", 10); string(got) != "y" {
		t.Errorf("afterwards there is %q", got)
	}
}

// TestReadsOfStoppedReader: if the reading process gets no processor for longer than the timeout, the read does not
// time out. The test stops a helper process for that long in the middle of each read.
func TestReadsOfStoppedReader(t *testing.T) {
	const variable = "PROCFACTS_HELD_UP"
	if os.Getenv(variable) == "" {
		cmd := bounded.Start(t, "env", variable+"=1", os.Args[0], "-test.run=^TestReadsOfStoppedReader$")
		for {
			var status unix.WaitStatus
			if _, err := unix.Wait4(cmd.Process.Pid, &status, unix.WUNTRACED, nil); err != nil {
				t.Fatal(err)
			}
			if !status.Stopped() {
				if status != 0 {
					t.Errorf("it ends with %d: it was told that this took too long", status.ExitStatus())
				}
				return
			}
			<-time.After(slowTimeout * 5 / 4) // the process stays stopped for this time
			if err := unix.Kill(cmd.Process.Pid, unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := NewReader()
	for range 10 {
		if _, err := withTimeout(r, os.Getpid(), func() (bool, error) {
			runtime.LockOSThread() // so that this thread stops before the call returns
			defer runtime.UnlockOSThread()
			return true, unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
		}); err != nil {
			t.Error(err)
		}
	}
}
