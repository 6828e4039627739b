package gpufs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"golang.org/x/sys/unix"
)

// This file checks system calls on the files: offsets, flags of open(2), calls that must fail, and readers while the
// state changes. tools_test.go has common programs.

func itoa(n int) string { return strconv.Itoa(n) }

func isErrno(err error, want syscall.Errno) bool { return errors.Is(err, want) }

func TestOffsets(t *testing.T) {
	_, mnt := mountView(t, &fakeView{s: sample()})
	content := output(t, "cat", mnt+"/leases")
	size := int64(len(content))
	fd, err := unix.Open(mnt+"/leases", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	table := []struct {
		off   int64
		count int
		want  string
		errno error
	}{
		{0, 0, "", nil},
		{0, 1, content[:1], nil},
		{1, 5, content[1:6], nil},
		{0, 1 << 20, content, nil},
		{size - 1, 100, "\n", nil},
		{size, 100, "", nil},
		{size + 1, 100, "", nil},
		{1 << 40, 100, "", nil},
		{1<<63 - 101, 100, "", nil},
		{-1, 100, "", unix.EINVAL},
		{-1 << 63, 100, "", unix.EINVAL},
	}
	for _, c := range table {
		buf := make([]byte, c.count)
		n, err := unix.Pread(fd, buf, c.off)
		if !errors.Is(err, c.errno) || n >= 0 && string(buf[:n]) != c.want {
			t.Errorf("%d bytes at %d: %d, %v, %q", c.count, c.off, n, err, buf[:max(n, 0)])
		}
	}
	// A first read at another offset than 0 also takes a snapshot.
	fd2, err := unix.Open(mnt+"/leases", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd2)
	buf := make([]byte, 4)
	if n, err := unix.Pread(fd2, buf, 4); n != 4 || string(buf) != content[4:8] {
		t.Errorf("first read at 4: %d, %v, %q", n, err, buf)
	}
}

// TestSequence checks that a read at offset 0 takes a fresh snapshot, and that later reads continue it.
func TestSequence(t *testing.T) {
	v := &fakeView{s: sample()}
	_, mnt := mountView(t, v)
	version := func(text string) { v.change(func(s *figures.Snapshot) { s.Version = text }) }
	fd, err := unix.Open(mnt+"/version", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	read := func(off int64, n int) string {
		buf := make([]byte, n)
		n, err := unix.Pread(fd, buf, off)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	version("aaaa")
	if got := read(0, 2); got != "aa" {
		t.Errorf("got %q", got)
	}
	version("bbbb")
	if got := read(2, 9); got != "aa\n" {
		t.Errorf("the reads after it go on with %q", got)
	}
	if got := read(0, 9); got != "bbbb\n" {
		t.Errorf("a read at 0 gives %q", got)
	}
	version("c")
	if got := read(0, 9) + read(2, 9); got != "c\n" {
		t.Errorf("a shorter content gives %q", got)
	}
}

func TestOpenFlags(t *testing.T) {
	_, mnt := mountView(t, &fakeView{s: sample()})
	table := []struct {
		path  string
		flags int
		want  error
	}{
		{"/leases", unix.O_RDONLY, nil},
		{"/leases", unix.O_RDONLY | unix.O_NONBLOCK, nil},
		{"/leases", unix.O_RDONLY | unix.O_DIRECT, nil},
		{"/leases", unix.O_RDONLY | unix.O_NOATIME, nil},
		{"/leases", unix.O_RDONLY | unix.O_APPEND, nil},
		{"/leases", unix.O_PATH, nil},
		{"/leases", unix.O_RDONLY | unix.O_CREAT, nil}, // the file exists
		{"/leases", unix.O_RDONLY | unix.O_CREAT | unix.O_EXCL, unix.EEXIST},
		{"/leases", unix.O_WRONLY, unix.EACCES},
		{"/leases", unix.O_RDWR, unix.EACCES},
		{"/leases", unix.O_WRONLY | unix.O_APPEND, unix.EACCES},
		{"/leases", unix.O_WRONLY | unix.O_TRUNC, unix.EACCES},
		{"/leases", unix.O_RDONLY | unix.O_TRUNC, unix.EPERM},
		{"/leases", unix.O_RDONLY | unix.O_DIRECTORY, unix.ENOTDIR},
		{"/leases/x", unix.O_RDONLY, unix.ENOTDIR},
		{"/devices", unix.O_RDONLY | unix.O_DIRECTORY, nil},
		{"/devices", unix.O_WRONLY, unix.EISDIR},
		{"/devices", unix.O_TMPFILE | unix.O_RDWR, unix.EOPNOTSUPP},
		{"/self", unix.O_RDONLY | unix.O_NOFOLLOW, unix.ELOOP},
		{"/nothing", unix.O_RDONLY, unix.ENOENT},
		{"/nothing", unix.O_RDWR | unix.O_CREAT, unix.EPERM},
		{"/devices/00", unix.O_RDONLY, unix.ENOENT},
		{"/devices/-1", unix.O_RDONLY, unix.ENOENT},
		{"/devices/99999999999999999999", unix.O_RDONLY, unix.ENOENT},
		{"/processes/101", unix.O_RDONLY, unix.ENOENT},
		{"/processes/200/devices/0", unix.O_RDONLY, unix.ENOENT},
		{"/" + strings.Repeat("x", 255), unix.O_RDONLY, unix.ENOENT},
	}
	for _, c := range table {
		fd, err := unix.Open(mnt+c.path, c.flags|unix.O_CLOEXEC, 0o644)
		if !errors.Is(err, c.want) {
			t.Errorf("open %.30s %#x: %v, want %v", c.path, c.flags, err, c.want)
		}
		if err == nil {
			unix.Close(fd)
		}
	}
}

func TestOtherCalls(t *testing.T) {
	_, mnt := mountView(t, &fakeView{s: sample()})
	fd, err := unix.Open(mnt+"/leases", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED); !errors.Is(err, unix.ENODEV) {
		t.Errorf("shared mapping: %v", err)
	}
	if _, err := unix.Write(fd, []byte("x")); !errors.Is(err, unix.EBADF) {
		t.Errorf("write: %v", err)
	}
	if _, err := unix.Getdents(fd, make([]byte, 100)); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("getdents: %v", err)
	}
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, 1000); n != 1 || err != nil {
		t.Errorf("poll: %d, %v", n, err)
	}
	if err := unix.Fsync(fd); err != nil {
		t.Errorf("fsync: %v", err)
	}
	if _, err := unix.Getxattr(mnt+"/leases", "user.x", nil); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("getxattr: %v", err)
	}
	if err := unix.Ftruncate(fd, 0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("ftruncate: %v", err)
	}
	for name, err := range map[string]error{
		"truncate":          unix.Truncate(mnt+"/leases", 0),
		"chmod":             unix.Chmod(mnt+"/leases", 0o666),
		"chown":             unix.Chown(mnt+"/leases", 1, 1),
		"chmod of a folder": unix.Chmod(mnt+"/jobs", 0o777),
		"unlink":            unix.Unlink(mnt + "/leases"),
		"rmdir":             unix.Rmdir(mnt + "/jobs"),
		"mkdir":             unix.Mkdir(mnt+"/new", 0o755),
		"mknod":             unix.Mknod(mnt+"/new", unix.S_IFIFO|0o644, 0),
		"symlink":           unix.Symlink("x", mnt+"/new"),
		"link":              unix.Link(mnt+"/leases", mnt+"/new"),
		"rename":            unix.Rename(mnt+"/leases", mnt+"/new"),
		"lchown":            unix.Lchown(mnt+"/self", 1, 1),
	} {
		if !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestConcurrentReaders reads while the state changes: no reader may see parts of two snapshots in one file.
func TestConcurrentReaders(t *testing.T) {
	v := &fakeView{s: sample()}
	_, mnt := mountView(t, v)
	v.change(func(s *figures.Snapshot) { s.Version = "aaaa" })
	shared, err := os.Open(mnt + "/version")
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	stop := make(chan struct{})
	var writer, readers sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			v.change(func(s *figures.Snapshot) {
				s.Version = strings.Repeat(string(rune('a'+i%26)), 200)
				s.Processes = sample().Processes[:1+i%3]
			})
		}
	})
	for r := range 8 {
		readers.Go(func() {
			for range 100 {
				if err := readOnce(mnt, shared); err != nil {
					t.Errorf("reader %d: %v", r, err)
					return
				}
			}
		})
	}
	bounded.Within(t, "all have read", readers.Wait)
	close(stop)
	bounded.Within(t, "the writer ends", writer.Wait)
}

// readOnce reads a file in pieces, then a shared descriptor, then a folder that changes.
func readOnce(mnt string, shared *os.File) error {
	f, err := os.Open(mnt + "/version")
	if err != nil {
		return err
	}
	defer f.Close()
	var all []byte
	buf := make([]byte, 33)
	for {
		n, err := f.Read(buf)
		all = append(all, buf[:n]...)
		if err != nil || n == 0 {
			break
		}
	}
	if want := strings.Repeat(string(all[0]), len(all)-1) + "\n"; string(all) != want {
		return fmt.Errorf("two moments in %q", all)
	}
	if _, err := shared.ReadAt(buf, int64(len(all)%40)); err != nil && err != io.EOF {
		return err
	}
	if _, err := os.ReadDir(mnt + "/processes"); err != nil {
		return err
	}
	_, err = os.ReadFile(mnt + "/processes/300/state")
	if err != nil && !os.IsNotExist(err) && !isErrno(err, syscall.ENODEV) {
		return err
	}
	return nil
}
