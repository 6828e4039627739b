package gpufs

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// This file checks mounting and unmounting as root: over a dead daemon's mount, at wrong places, while files are in
// use, and after a user has unmounted. It also checks that nothing is left behind. rootless_test.go mounts as another
// user, killed_test.go kills a daemon while it mounts.

const helperEnv = "GPUFS_TEST_MOUNT"

// TestMain also runs the program that holds a mount until it is killed.
func TestMain(m *testing.M) {
	if path := os.Getenv(helperEnv); path != "" {
		if _, err := Mount(path, &fakeView{s: sample()}, Options{System: os.Geteuid() == 0}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("mounted")
		select {}
	}
	if home := os.Getenv(rootlessEnv); home != "" {
		if err := rootless(home); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("good")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// otherDaemon mounts at path in a process of its own.
func otherDaemon(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	cmd := bounded.Command(t, bounded.Lifetime, os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		for m, _ := mountedAt(path); m != nil; m, _ = mountedAt(path) {
			if err := unix.Unmount(path, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
				t.Error(err)
				return
			}
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "mounted\n" {
		t.Fatalf("the other daemon: %q, %v", line, err)
	}
	return cmd
}

func TestStaleMount(t *testing.T) {
	for name, inUse := range map[string]bool{"idle": false, "in use": true} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			for range 2 { // several dead mounts may cover each other
				cmd := otherDaemon(t, path)
				if inUse {
					f, err := os.Open(path + "/leases")
					if err != nil {
						t.Fatal(err)
					}
					defer f.Close()
				}
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = cmd.Wait()
				if _, err := os.Stat(path); !errors.Is(err, unix.ENOTCONN) {
					t.Fatalf("the mount of a dead daemon: %v", err)
				}
			}
			s, err := mountHere(path, &fakeView{s: sample()}, Options{System: true})
			if err != nil {
				t.Fatal(err)
			}
			if got := output(t, "cat", path+"/version"); got != "1.2.3\n" {
				t.Errorf("got %q", got)
			}
			if err := s.Unmount(); err != nil {
				t.Error(err)
			}
			if m, err := mountedAt(path); m != nil || err != nil {
				t.Errorf("still mounted: %v, %v", m, err)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("a folder that was there before is gone: %v", err)
			}
		})
	}
}

func TestMountErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	full := filepath.Join(dir, "full")
	other := filepath.Join(dir, "other")
	live := filepath.Join(dir, "live")
	for _, d := range []string{full, other, live} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{file, filepath.Join(full, "thing")} {
		if err := os.WriteFile(f, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("none", other, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(other, unix.MNT_DETACH)
	otherDaemon(t, live)

	table := []struct {
		path string
		want error
		says string
	}{
		{file, ErrNotDir, "--mount"},
		{full, ErrNotEmpty, "thing"},
		{other, ErrBusy, "tmpfs"},
		{live, ErrBusy, "another gpuarbd"},
		{filepath.Join(dir, "no", "parent"), os.ErrNotExist, ""},
		{"/dev/null", ErrNotDir, ""},
	}
	for _, c := range table {
		s, err := mountHere(c.path, &fakeView{}, Options{System: true})
		if err == nil {
			t.Errorf("%s was mounted", c.path)
			_ = s.Unmount()
			continue
		}
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.path, err)
		}
	}
	if got := output(t, "cat", live+"/version"); got != "1.2.3\n" {
		t.Errorf("the other daemon's mount after the attempt: %q", got)
	}
}

func TestMountPointMadeAndRemoved(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "link", "g p\tu")
	for range 3 {
		s, err := mountHere(path, &fakeView{}, Options{System: true})
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(dir, "real", "g p\tu"); s.Path() != want {
			t.Errorf("mounted at %q, want %q", s.Path(), want)
		}
		if err := s.Unmount(); err != nil {
			t.Error(err)
		}
		if err := s.Unmount(); err != nil {
			t.Errorf("again: %v", err)
		}
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("the folder is still there: %v", err)
		}
	}
}

// TestUnmountInUse unmounts while a file is open. Done is closed when Unmount returns, and later reads of the file
// fail.
func TestUnmountInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpu")
	s, err := mountHere(path, &fakeView{s: sample()}, Options{System: true})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path + "/leases")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := s.Unmount(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Done():
	default:
		t.Error("it is still served")
	}
	if _, err := f.Read(make([]byte, 10)); !errors.Is(err, unix.ENOTCONN) && !errors.Is(err, unix.ECONNABORTED) {
		t.Errorf("a read after unmount: %v", err)
	}
}

// TestUnmountedByHand checks that a user's umount closes Done, and that Unmount returns no error afterwards.
func TestUnmountedByHand(t *testing.T) {
	s, path := mountView(t, &fakeView{})
	output(t, "umount", path)
	select {
	case <-s.Done():
	case <-time.After(patience):
		t.Fatal("Done does not tell")
	}
}

// TestUnmountByDevice: Unmount leaves another filesystem that was mounted on top. It returns no error if a user has
// unmounted this filesystem while it was in use. It unmounts this filesystem after its connection was aborted.
func TestUnmountByDevice(t *testing.T) {
	path := t.TempDir()
	mount := func(t *testing.T) *Server {
		s, err := mountHere(path, &fakeView{s: sample()}, Options{System: true})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	unmount := func(t *testing.T, s *Server) {
		if err := s.Unmount(); err != nil {
			t.Error(err)
		}
	}
	bare := func(t *testing.T) {
		if m, err := mountedAt(path); m != nil || err != nil {
			t.Errorf("still mounted: %v, %v", m, err)
		}
	}
	t.Run("covered", func(t *testing.T) {
		s := mount(t)
		output(t, "mount", "-t", "tmpfs", "none", path)
		output(t, "touch", path+"/precious")
		unmount(t, s)
		output(t, "stat", path+"/precious")
		output(t, "umount", path)
		output(t, "umount", path)
		bare(t)
	})
	t.Run("taken away", func(t *testing.T) {
		s := mount(t)
		f, err := os.Open(path + "/leases")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		output(t, "umount", "-l", path)
		unmount(t, s)
		bare(t)
	})
	t.Run("aborted", func(t *testing.T) {
		control := t.TempDir()
		output(t, "mount", "-t", "fusectl", "none", control)
		defer output(t, "umount", control)
		s := mount(t)
		_, number, _ := strings.Cut(s.device, ":")
		if err := os.WriteFile(filepath.Join(control, number, "abort"), []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
		<-s.Done()
		unmount(t, s)
		bare(t)
	})
}

// TestNoLeaks counts descriptors and goroutines around a mount that was used.
func TestNoLeaks(t *testing.T) {
	before := openFiles(t)
	ignore := goleak.IgnoreCurrent()
	for range 3 {
		path := filepath.Join(t.TempDir(), "gpu")
		s, err := mountHere(path, &fakeView{s: sample()}, Options{System: true})
		if err != nil {
			t.Fatal(err)
		}
		output(t, "grep", "-rq", "1000", path)
		if err := s.Unmount(); err != nil {
			t.Fatal(err)
		}
	}
	if err := goleak.Find(ignore); err != nil {
		t.Error(err)
	}
	runtime.GC()
	if after := openFiles(t); after != before {
		t.Errorf("open files: %q before, %q after", before, after)
	}
}

// openFiles lists the targets of the process's descriptors.
func openFiles(t *testing.T) string {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(target, "/proc/") {
			list = append(list, target)
		}
	}
	return strings.Join(list, " ")
}

// TestDescriptorNotInherited checks that children do not inherit the descriptor of /dev/fuse. A child that kept it
// open would leave the mount of a dead daemon hanging.
func TestDescriptorNotInherited(t *testing.T) {
	mountView(t, &fakeView{})
	if got := output(t, "sh", "-c", "readlink /proc/self/fd/* | grep -c fuse || true"); got != "0\n" {
		t.Errorf("a child has %s descriptors of FUSE", got)
	}
}

// TestSweep checks that names of ended processes and jobs do not stay in memory.
func TestSweep(t *testing.T) {
	v := &fakeView{}
	s, mnt := mountView(t, v)
	const many = 40
	v.change(func(snap *figures.Snapshot) {
		for pid := 1; pid <= many; pid++ {
			snap.Processes = append(snap.Processes, figures.ProcessState{PID: pid, StartTicks: 7, Job: uint64(pid)})
			snap.Jobs = append(snap.Jobs, figures.JobState{ID: uint64(pid)})
		}
	})
	output(t, "ls", "-lR", mnt)
	v.change(func(snap *figures.Snapshot) { snap.Processes, snap.Jobs = nil, nil })
	children := func() int {
		n := 0
		for _, top := range s.root.Children() {
			n += len(top.Children())
		}
		return n
	}
	t.Logf("%d nodes after the walk", children())
	deadline := time.Now().Add(patience)
	const stay = 3 // number of files in the root cgroup
	for children() > stay {
		if time.Now().After(deadline) {
			t.Fatalf("%d nodes are left", children()-stay)
		}
		time.Sleep(20 * time.Millisecond)
		began := time.Now()
		t.Logf("%d names let go in %v", s.sweepOnce(), time.Since(began))
	}
}

func TestNoFuse(t *testing.T) {
	out, errs, err := run(t, "env", helperEnv+"="+filepath.Join(t.TempDir(), "gpu"), "unshare", "-m", "sh", "-ec",
		`mount -t tmpfs none /dev; exec "$1"`, "sh", os.Args[0])
	if err == nil || !strings.Contains(out, ErrNoFuse.Error()) || !strings.Contains(out, "modprobe fuse") ||
		!strings.Contains(out, "--mount none") {
		t.Errorf("%v: %s%s", err, out, errs)
	}
}
