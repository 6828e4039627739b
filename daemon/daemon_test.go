package daemon

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file has bench, the daemon that the tests of this package start in their own process, and child, a client in
// another process. Its tests follow a client over restarts of the daemon and through its death, and reload the
// configuration of a user's own daemon. fake_test.go has the devices and the clock, main_test.go the program of a
// client.

// bench is a daemon in the test's own process, with fake devices and a fake or real clock.
type bench struct {
	*Daemon
	t       *testing.T
	dir     string
	machine *fakeMachine
	clock   *fakeClock // nil: the real clock
}

// newBench starts a daemon with the real clock and devices of these sizes.
func newBench(t *testing.T, sizes ...uint64) *bench {
	t.Helper()
	b := &bench{t: t, dir: shortDir(t), machine: newFakeMachine(t, sizes...)}
	b.start()
	return b
}

// newClockedBench is newBench with a clock that the test advances.
func newClockedBench(t *testing.T, sizes ...uint64) *bench {
	t.Helper()
	b := &bench{t: t, dir: shortDir(t), machine: newFakeMachine(t, sizes...), clock: newFakeClock()}
	b.start()
	return b
}

// shortDir returns a folder whose path leaves room for the name of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gpuarb-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (b *bench) socket() string { return filepath.Join(b.dir, "s") }

// options returns the options of a daemon in the bench's folder.
func (b *bench) options() Options {
	config := filepath.Join(b.dir, "gpuarb.toml")
	if _, err := os.Stat(config); err != nil {
		b.write(config, "schema_version = 1\n")
	}
	return Options{Socket: b.socket(), Mount: NoMount, Config: config,
		Log: slog.New(slog.NewTextHandler(b.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))}
}

func (b *bench) write(path, text string) {
	b.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// parts replaces the real machine, clock and listener by those of the bench.
func (b *bench) parts(p *parts) {
	p.inventory = func() machine { return b.machine }
	p.listen = func() (*ipc.Listener, error) {
		return ipc.Listen(b.socket(), ipc.ListenOptions{Limits: connLimits(1 << 16), StartTicks: b.machine.StartTicks})
	}
	if b.clock != nil {
		p.clock = clock{b.clock.now, b.clock.after, b.clock.uptime}
	}
}

// start starts the daemon. The end of the test stops it.
func (b *bench) start() {
	b.t.Helper()
	d, err := startWith(b.t.Context(), b.options(), b.parts)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Daemon = d
	b.t.Cleanup(func() {
		b.machine.unhang()
		_ = d.Stop()
	})
}

// restart stops the daemon and starts the next one.
func (b *bench) restart() {
	b.t.Helper()
	if err := b.Stop(); err != nil {
		b.t.Fatal(err)
	}
	b.start()
}

// until lets time pass until f returns true.
func (b *bench) until(what string, f func() bool) {
	b.t.Helper()
	bounded.Until(b.t, what, func() bool {
		if b.clock != nil {
			b.clock.Advance(readEvery / 10)
		}
		return f()
	})
}

// lease returns the state of a process's lease on a device; the zero value: it has none.
func (b *bench) lease(pid, device int) figures.LeaseState {
	for _, l := range b.Snapshot().Leases {
		if l.PID == pid && l.Device == device {
			return l
		}
	}
	return figures.LeaseState{}
}

// child is a client of the daemon in its own process.
type child struct {
	b     *bench
	pid   int
	stdin io.WriteCloser
	lines *bufio.Reader
	kill  func()
}

// child starts a client that takes bytes on the devices in order.
func (b *bench) child(bytes ...uint64) *child {
	b.t.Helper()
	var args []string
	for i, n := range bytes {
		uuid := b.machine.list[i].UUIDBytes
		args = append(args, hex.EncodeToString(uuid[:]), fmt.Sprint(n))
	}
	cmd := bounded.Command(b.t, bounded.Lifetime, os.Args[0], args...)
	cmd.Env = append(os.Environ(), clientVariable+"="+b.socket())
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	c := &child{b: b, pid: cmd.Process.Pid, stdin: stdin, lines: bufio.NewReader(stdout)}
	c.kill = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	b.t.Cleanup(c.kill)
	c.want("ready")
	for i, n := range bytes {
		b.machine.set(func() { b.machine.held[i][c.pid] = n })
	}
	return c
}

// want reads a line and checks its text.
func (c *child) want(line string) {
	c.b.t.Helper()
	if got, err := c.lines.ReadString('\n'); got != line+"\n" {
		c.b.t.Fatalf("a client says %q (%v), want %q", got, err, line)
	}
}

// ask makes the client ask for bytes, and returns its answer.
func (c *child) ask(slot, bytes int) string {
	c.b.t.Helper()
	if _, err := fmt.Fprintf(c.stdin, "alloc %d %d\n", slot, bytes); err != nil {
		c.b.t.Fatal(err)
	}
	line, err := c.lines.ReadString('\n')
	if err != nil {
		c.b.t.Fatal(err)
	}
	return line[:len(line)-1]
}

// die ends the client. Its memory stays in use until the test calls freed.
func (c *child) die() { c.kill() }

// freed makes the devices report that a dead client's memory is free.
func (c *child) freed() {
	c.b.machine.set(func() {
		for _, held := range c.b.machine.held {
			delete(held, c.pid)
		}
	})
}

// TestBooks follows a client through its life. The bytes that it takes are counted. After its death they are free
// when the device says so. The next daemon knows the client.
func TestBooks(t *testing.T) {
	const size = 1 << 30
	b := newBench(t, size)
	first := b.child(size - 4096)
	if got := b.lease(first.pid, 0); got.Used != size-4096 {
		t.Fatalf("it used %d", got.Used)
	}
	b.restart()
	b.until("the next daemon knows it", func() bool { return b.lease(first.pid, 0).Granted == size-4096 })
	first.die()
	b.until("it drains", func() bool { return b.lease(first.pid, 0).State == figures.StateDraining })
	first.freed()
	b.until("its bytes are back", func() bool { return len(b.Snapshot().Leases) == 0 })
	b.child(size)
}

// TestStopAndStart starts daemons one after another on the same paths, while a client stays.
func TestStopAndStart(t *testing.T) {
	b := newBench(t, 1<<30, 1<<30)
	c := b.child(4096, 8192)
	for range 5 {
		b.restart()
		if one, other := b.lease(c.pid, 0).Granted, b.lease(c.pid, 1).Granted; one < 4096 || other < 8192 {
			t.Fatalf("after a restart it has %d and %d", one, other)
		}
	}
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := ipc.Dial(context.Background(), b.socket()); err == nil {
		t.Error("a daemon that was stopped answers")
	}
}

// TestUsersConfigurationComesAndGoes checks that a reload reads a configuration file that the user has created
// meanwhile, and drops it after the user has removed it.
func TestUsersConfigurationComesAndGoes(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	b := newBench(t, 1<<30)
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	o := b.options()
	o.Config, o.User = "", true
	d, err := startWith(t.Context(), o, b.parts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Stop() }()
	path := filepath.Join(home, "gpuarb", "gpuarb.toml")
	reads := func(want string) {
		t.Helper()
		d.Reload()
		if c := d.Snapshot().Config; c.Path != want || strings.Contains(c.Text, "7%") != (want != "") {
			t.Errorf("the configuration is that of %q, want %q:\n%s", c.Path, want, c.Text)
		}
	}
	reads("")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	b.write(path, "schema_version = 1\n[defaults]\nmemory.max = \"7%\"\n")
	reads(path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	reads("")
}
