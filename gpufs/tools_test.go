package gpufs

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file checks that common programs read the filesystem correctly: cat, tail, dd, cp, grep, Python and others. It
// also checks what they see of processes that end, come, or have a dead process's PID. posix_test.go has single
// system calls.

// TestTools runs common programs that read files.
func TestTools(t *testing.T) {
	_, mnt := mountView(t, &fakeView{s: sample()})
	leases := output(t, "cat", mnt+"/leases")
	if strings.Count(leases, "\n") != 4 {
		t.Fatalf("three leases and a header expected:\n%s", leases)
	}
	table := []struct {
		name string
		args []string
		want string
	}{
		{"head -c", []string{"head", "-c", "10", mnt + "/leases"}, leases[:10]},
		{"head -n", []string{"head", "-n", "1", mnt + "/leases"}, leases[:strings.Index(leases, "\n")+1]},
		{"tail -n", []string{"tail", "-n", "1", mnt + "/leases"}, leases[strings.LastIndex(leases[:len(leases)-1], "\n")+1:]},
		{"dd bs=1", []string{"dd", "status=none", "bs=1", "if=" + mnt + "/leases"}, leases},
		{"dd skip", []string{"dd", "status=none", "bs=1", "skip=4", "count=4", "if=" + mnt + "/leases"}, leases[4:8]},
		{"dd O_DIRECT", []string{"dd", "status=none", "iflag=direct", "bs=512", "if=" + mnt + "/leases"}, leases},
		{"metrics", []string{"cat", mnt + "/metrics"}, "gpuarb_leases 3\n"},
		{"awk", []string{"awk", "$1 == 100 {print $5}", mnt + "/leases"}, "2147483648\n"},
		{"wc", []string{"wc", "-l", mnt + "/leases"}, "4 " + mnt + "/leases\n"},
		{"grep -r", []string{"grep", "-rl", "^2147483648$", mnt + "/processes/100"}, mnt + "/processes/100/devices/0/memory.current\n" +
			mnt + "/processes/100/memory.current\n"},
		{"bash read", []string{"bash", "-c", "read -r a < " + mnt + "/devices/0/slots.max; echo $a; echo $(< " + mnt + "/version)"}, "2\n1.2.3\n"},
		{"python", []string{"/usr/bin/python3", "-c", "print(open('" + mnt + "/leases').read(), end='')"}, leases},
		{"python json", []string{"/usr/bin/python3", "-c", "import json; r = json.load(open('" + mnt +
			"/leases.json')); print(r[0]['used_bytes'], r[1]['budget_bytes'], repr(r[1]['command']))"},
			"2147483648 None 'evil\\nroot 1 0'\n"},
	}
	for _, c := range table {
		t.Run(c.name, func(t *testing.T) {
			if got := output(t, c.args[0], c.args[1:]...); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestCopyAndList(t *testing.T) {
	_, mnt := mountView(t, &fakeView{s: sample()})
	to := filepath.Join(t.TempDir(), "copy")
	output(t, "cp", "-r", mnt, to)
	if out, errs, err := run(t, "diff", "-r", "--no-dereference", "--exclude=self", mnt, to); err != nil {
		t.Errorf("the copy differs: %v\n%s%s", err, out, errs)
	}
	if got := output(t, "ls", "-lR", mnt); !strings.Contains(got, "memory.current") {
		t.Errorf("ls -lR: %s", got)
	}
	output(t, "tar", "-C", mnt, "-cf", filepath.Join(t.TempDir(), "all.tar"), ".")
	output(t, "du", "-s", mnt)
	output(t, "df", mnt)
	output(t, "stat", "-f", mnt)
	first, second := output(t, "find", mnt), output(t, "find", mnt)
	if first != second {
		t.Errorf("two listings differ:\n%s\n%s", first, second)
	}
}

// TestFollow checks that programs that watch a file neither hang nor fail, and that they end when asked.
func TestFollow(t *testing.T) {
	v := &fakeView{s: sample()}
	_, mnt := mountView(t, v)
	out, _, err := run(t, "timeout", "--preserve-status", "-s", "INT", "0.5", "tail", "-f", mnt+"/leases")
	if !strings.HasPrefix(out, "PID ") {
		t.Errorf("tail -f printed %q (%v)", out, err)
	}
	out, _, _ = run(t, "timeout", "-s", "INT", "0.7", "watch", "-t", "-n", "0.1", "cat", mnt+"/version")
	_ = out // has only control sequences; the test is that the program ended
	v.change(func(s *figures.Snapshot) { s.Version = "2" })
	if got := output(t, "cat", mnt+"/version"); got != "2\n" {
		t.Errorf("an old version after a change: %q", got)
	}
}

func TestSelf(t *testing.T) {
	_, mnt := mountView(t, &fakeView{s: sample()})
	got := output(t, "sh", "-c", "echo $$; exec readlink "+mnt+"/self")
	pid, link, _ := strings.Cut(got, "\n")
	if link != "processes/"+pid+"\n" {
		t.Errorf("process %s is told %q", pid, link)
	}
	// For a thread other than the first, self leads to its process.
	got = output(t, "/usr/bin/python3", "-c", `
import os, threading
def look():
    assert threading.get_native_id() != os.getpid()
    print(os.readlink("`+mnt+`/self") == "processes/%d" % os.getpid())
t = threading.Thread(target=look); t.start(); t.join()`)
	if got != "True\n" {
		t.Errorf("a thread is told otherwise")
	}
}

// TestOtherUsers checks that all users can read a system mount, and that none can write.
func TestOtherUsers(t *testing.T) {
	view := &fakeView{s: sample()}
	mnt, err := os.MkdirTemp("", "gpufs") // other users have no access to t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(mnt)
	if err := os.Chmod(mnt, 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := mountHere(mnt, view, Options{System: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Unmount()
	nobody := []string{"--reuid=65534", "--regid=65534", "--clear-groups"}
	if got := output(t, "setpriv", append(nobody, "cat", mnt+"/version")...); got != "1.2.3\n" {
		t.Errorf("nobody reads %q", got)
	}
	for _, shell := range []string{"echo 1 > leases", "echo 1 >> devices/0/memory.max", "touch new", "mkdir new", "rm version",
		": > stats", "rmdir jobs", "mv version jobs/", "ln version other", "chmod 666 version"} {
		for _, prefix := range [][]string{nil, append([]string{"setpriv"}, nobody...)} {
			args := append(prefix, "sh", "-c", "cd "+mnt+" && "+shell)
			_, errs, err := run(t, args[0], args[1:]...)
			refused := strings.Contains(errs, "Permission denied") || strings.Contains(errs, "not permitted") ||
				strings.Contains(errs, "not empty") // the kernel's own answer to rmdir
			if err == nil || !refused {
				t.Errorf("%q: %v, %q", args, err, errs)
			}
		}
	}
	if got := output(t, "cat", mnt+"/version"); got != "1.2.3\n" {
		t.Errorf("afterwards: %q", got)
	}
}

// TestProcessEndsWhileRead checks the answers about a process that ends while its files are open.
func TestProcessEndsWhileRead(t *testing.T) {
	v := &fakeView{s: sample()}
	_, mnt := mountView(t, v)
	dir := mnt + "/processes/100"
	file, err := os.Open(dir + "/memory.current")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	buf := make([]byte, 64)
	n, err := file.ReadAt(buf, 0)
	if err != nil && n == 0 {
		t.Fatal(err)
	}
	opened, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()

	v.change(func(s *figures.Snapshot) { s.Processes = s.Processes[1:] })
	time.Sleep(2 * maxRecentAge)
	if _, err := os.Stat(dir + "/state"); !os.IsNotExist(err) {
		t.Errorf("a file of a process that is gone: %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a process that is gone: %v", err)
	}
	if m, err := file.ReadAt(buf, 1); m != n-1 {
		t.Errorf("a read goes on with the content that it began: %d bytes, %v", m, err)
	}
	if _, err := file.ReadAt(buf, 0); !isErrno(err, syscall.ENODEV) {
		t.Errorf("a read that begins anew: %v", err)
	}
	if _, err := opened.Readdirnames(-1); !os.IsNotExist(err) {
		t.Errorf("listing an open folder of a process that is gone: %v", err)
	}
	if _, err := file.Stat(); err != nil {
		t.Errorf("stat of an open file: %v", err)
	}

	// A new process with the old PID has a file of its own.
	v.change(func(s *figures.Snapshot) {
		again := s.Leases[0]
		again.Used = 4711
		s.Leases[0] = again
		s.Processes = append([]figures.ProcessState{{PID: 100, StartTicks: 9999, UID: 5}}, s.Processes...)
	})
	if got := output(t, "cat", dir+"/memory.current"); got != "4711\n" {
		t.Errorf("the new process has %q", got)
	}
	if got := output(t, "stat", "-c", "%u", dir+"/memory.current"); got != "5\n" {
		t.Errorf("its owner is %q", got)
	}
	if _, err := file.ReadAt(buf, 0); !isErrno(err, syscall.ENODEV) {
		t.Errorf("the old process's file: %v", err)
	}
}

func TestNewProcessAppears(t *testing.T) {
	v := &fakeView{s: sample()}
	_, mnt := mountView(t, v)
	for pid := 1000; pid < 1020; pid++ {
		v.change(func(s *figures.Snapshot) {
			s.Processes = append(s.Processes, figures.ProcessState{PID: pid, StartTicks: uint64(pid)})
		})
		// The process appears at once, although the last snapshot is recent.
		if _, err := os.Stat(mnt + "/processes/" + itoa(pid) + "/state"); err != nil {
			t.Errorf("a process that just came: %v", err)
		}
	}
}

// TestSamePID checks a process with two sessions whose PID belonged to a dead process before, whose memory the driver
// has not returned yet.
func TestSamePID(t *testing.T) {
	v := &fakeView{s: sample()}
	v.change(func(s *figures.Snapshot) {
		again := s.Processes[0]
		again.StartTicks, again.UID = 9999, 5
		s.Processes = append([]figures.ProcessState{s.Processes[0], again, again}, s.Processes[1:]...)
	})
	_, mnt := mountView(t, v)
	if got := output(t, "ls", mnt+"/processes"); got != "100\n200\n300\n" {
		t.Errorf("listed: %q", got)
	}
	if got := output(t, "stat", "-c", "%u", mnt+"/processes/100/state"); got != "5\n" {
		t.Errorf("its owner is %q", got)
	}
}
