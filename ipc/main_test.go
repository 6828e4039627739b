package ipc

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file has the equipment of this package's tests: helper processes, listeners, a client that can send any bytes,
// and checks for descriptors and goroutines that a test leaves behind.

// helperEnv makes the test binary another process for a test: its value is a key of helpers.
const helperEnv = "GPUARB_IPC_TEST_HELPER"

var helpers = map[string]func(path string) error{
	"connect": helperConnect,
	"listen":  helperListen,
	"inherit": helperInherit,
}

func TestMain(m *testing.M) {
	if mode := os.Getenv(helperEnv); mode != "" {
		if err := helpers[mode](os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, mode+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// child is a process of this test binary that runs one of the helpers. It prints one line when it is ready, and ends
// when its standard input is closed.
type child struct {
	*exec.Cmd
	lines *bufio.Reader
	stop  func()
}

func startHelper(t testing.TB, mode, path string, attr *syscall.SysProcAttr) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if attr != nil { // another user may not have access to the build folder
		exe = copyExecutable(t, exe)
	}
	c := &child{Cmd: bounded.Command(t, bounded.Lifetime, exe, path)}
	c.Env = append(os.Environ(), helperEnv+"="+mode)
	c.Stderr = os.Stderr
	if attr != nil {
		c.SysProcAttr = attr
	}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	c.lines = bufio.NewReader(out)
	c.stop = sync.OnceFunc(func() { in.Close(); _ = c.Wait() })
	t.Cleanup(c.stop)
	return c
}

// line waits for the child's next line.
func (c *child) line(t testing.TB) string {
	t.Helper()
	s, err := c.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("helper said nothing: %v", err)
	}
	return strings.TrimSpace(s)
}

func copyExecutable(t testing.TB, from string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ipc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, "helper")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(to, data, 0o755)); err != nil {
		t.Fatal(err)
	}
	return to
}

// waitForEOF lets a helper wait until the test closes its standard input.
func waitForEOF() { _, _ = os.Stdin.Read(make([]byte, 1)) }

// checkFDs compares the process's descriptors at the end of the test with those at the call.
func checkFDs(t *testing.T) {
	t.Helper()
	before := openFDs(t)
	t.Cleanup(func() {
		var left []string
		for fd, what := range openFDs(t) {
			if _, had := before[fd]; !had {
				left = append(left, fd+" "+what)
			}
		}
		if len(left) > 0 {
			t.Errorf("descriptors left open: %s", strings.Join(left, ", "))
		}
	})
}

func openFDs(t *testing.T) map[string]string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	fds := make(map[string]string)
	for _, e := range entries {
		what, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(what, "anon_inode:[event") { // the Go runtime's poller opens its own descriptors
			fds[e.Name()] = what
		}
	}
	return fds
}

// listen starts a listener in a folder of the test's own.
func listen(t testing.TB, opts ListenOptions) *Listener {
	t.Helper()
	if opts.StartTicks == nil {
		opts.StartTicks = procfacts.Here.StartTicks
	}
	l, err := Listen(filepath.Join(t.TempDir(), "s"), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// serve accepts until the listener is closed and runs handle for each connection;
// the cleanup closes all connections and waits for every handler.
func serve(t testing.TB, opts ListenOptions, handle func(*Conn)) *Listener {
	t.Helper()
	l := listen(t, opts)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []*Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() { handle(c); c.Close() })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		bounded.Within(t, "all connections end", wg.Wait)
	})
	return l
}

// dial connects a Client and closes it with the test.
func dial(t testing.TB, path string) *Client {
	t.Helper()
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// rawConn is a client that can send anything at all.
type rawConn struct {
	t  testing.TB
	fd int
}

func dialRaw(t testing.TB, path string) *rawConn {
	t.Helper()
	fd, err := rawConnect(path)
	if err != nil {
		t.Fatal(err)
	}
	c := &rawConn{t: t, fd: fd}
	t.Cleanup(c.close)
	return c
}

func rawConnect(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	tv := unix.NsecToTimeval(int64(bounded.Patience))
	if err := errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv),
		again(func() error { return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) })); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// again repeats a blocking call that a signal of the Go runtime interrupted.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// read reads one message, and repeats a call that a signal interrupted.
func read(fd int, buf []byte) (n int, err error) {
	err = again(func() error { n, err = unix.Read(fd, buf); return err })
	return n, err
}

func (c *rawConn) close() {
	if c.fd >= 0 {
		unix.Close(c.fd)
		c.fd = -1
	}
}

func (c *rawConn) send(msg []byte, fds ...int) {
	c.t.Helper()
	// unix.Sendmsg is not used, because it adds a byte to an empty message.
	iov := unix.Iovec{Base: unsafe.SliceData(msg)}
	iov.SetLen(len(msg))
	h := unix.Msghdr{Iov: &iov}
	h.SetIovlen(1)
	if len(fds) > 0 {
		oob := unix.UnixRights(fds...)
		h.Control = unsafe.SliceData(oob)
		h.SetControllen(len(oob))
	}
	if _, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(c.fd), uintptr(unsafe.Pointer(&h)), 0); errno != 0 {
		c.t.Fatalf("send: %v", errno)
	}
}

// recv returns the next message; nil at the end of the connection.
func (c *rawConn) recv() []byte {
	c.t.Helper()
	buf := make([]byte, MaxReply)
	n, err := read(c.fd, buf)
	if err != nil && !errors.Is(err, unix.ECONNRESET) {
		c.t.Fatalf("recv: %v", err)
	}
	return buf[:max(n, 0)]
}

// edit returns msg with the bytes at off replaced by v, little-endian.
func edit[V uint16 | uint32 | uint64](msg []byte, off int, v V) []byte {
	msg = append([]byte(nil), msg...)
	switch v := any(v).(type) {
	case uint16:
		binary.LittleEndian.PutUint16(msg[off:], v)
	case uint32:
		binary.LittleEndian.PutUint32(msg[off:], v)
	case uint64:
		binary.LittleEndian.PutUint64(msg[off:], v)
	}
	return msg
}

// eventually waits until cond is true, which another process or goroutine brings about.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	bounded.Until(t, what, cond)
}
