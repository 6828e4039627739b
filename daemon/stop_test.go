package daemon

import (
	"context"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks that a daemon stops at any moment: beside a device or a driver that hangs, during the start, and
// during the recovery of the state file. The next daemon can then use the socket and continues the sessions.

// free reports whether the next daemon could use the bench's socket.
func (b *bench) free() bool {
	l, err := ipc.Listen(b.socket(), ipc.ListenOptions{})
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// TestStopBesideAHungDevice checks that a reading that hangs does not delay Stop.
func TestStopBesideAHungDevice(t *testing.T) {
	b := newBench(t, gib)
	c := b.child(4096)
	b.machine.hang(0)
	read := b.machine.read(0)
	c.die()
	bounded.Until(t, "it is being read", func() bool { return b.machine.read(0) > read })
	stopped := make(chan error, 1)
	go func() { stopped <- b.Stop() }()
	if err := bounded.Receive(t, "it stops", stopped); err != nil {
		t.Error(err)
	}
	if !b.free() {
		t.Error("its socket is not free")
	}
	b.machine.unhang()
	c.freed()
	b.start()
	b.until("the next daemon ends what is over", func() bool { return len(b.Snapshot().Leases) == 0 })
}

// stuckMachine is a machine whose driver hangs in Close.
type stuckMachine struct {
	*fakeMachine
	answer chan struct{}
}

func (m stuckMachine) Close() { <-m.answer; m.fakeMachine.Close() }

// TestStopBesideAStuckDriver checks that a driver that hangs in Close does not delay Stop.
func TestStopBesideAStuckDriver(t *testing.T) {
	b := &bench{t: t, dir: shortDir(t), machine: newFakeMachine(t, gib)}
	answer := make(chan struct{})
	d, err := startWith(t.Context(), b.options(), func(p *parts) {
		b.parts(p)
		p.inventory = func() machine { return stuckMachine{b.machine, answer} }
	})
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- d.Stop() }()
	if err := bounded.Receive(t, "it stops", stopped); err != nil {
		t.Error(err)
	}
	close(answer)
}

// TestStopDuringTheStart checks that Stop ends a start that hangs in the search for devices.
func TestStopDuringTheStart(t *testing.T) {
	b := &bench{t: t, dir: shortDir(t), machine: newFakeMachine(t, gib)}
	ctx, cancel := context.WithCancel(t.Context())
	asked, answer := make(chan struct{}), make(chan struct{})
	given := make(chan error, 1)
	go func() {
		_, err := startWith(ctx, b.options(), func(p *parts) {
			b.parts(p)
			p.inventory = func() machine {
				close(asked)
				<-answer
				return b.machine
			}
		})
		given <- err
	}()
	bounded.Receive(t, "devices are looked for", asked)
	cancel()
	if err := bounded.Receive(t, "the start is given up", given); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if !b.free() {
		t.Error("its socket is not free")
	}
	close(answer)
	bounded.Until(t, "what was found is given back", func() bool {
		b.machine.mu.Lock()
		defer b.machine.mu.Unlock()
		return b.machine.closed
	})
}

// TestStopDuringTheRestore checks that records which were not recovered yet stay for the next daemon.
func TestStopDuringTheRestore(t *testing.T) {
	b := newBench(t, gib)
	var clients []*child
	for range 4 {
		clients = append(clients, b.child(4096))
	}
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := startWith(ctx, b.options(), func(p *parts) {
		b.parts(p)
		p.inventory = func() machine { return &cancelling{b.machine, cancel} }
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("it was to be given up: %v", err)
	}
	b.start()
	for _, c := range clients {
		if got := b.lease(c.pid, 0); got.Granted < 4096 {
			t.Errorf("a client has %d bytes", got.Granted)
		}
	}
}

// cancelling is a machine that stops the daemon at its first question about a process.
type cancelling struct {
	*fakeMachine
	cancel context.CancelFunc
}

func (c *cancelling) Facts(pid int) (procfacts.Facts, error) {
	c.cancel()
	return c.fakeMachine.Facts(pid)
}

// TestLeave checks, in a separate process, that Leave closes the descriptors that other processes could wait for.
func TestLeave(t *testing.T) {
	if os.Getenv("GPUARB_DAEMON_TEST_LEAVE") != "" {
		Leave()
		_ = unix.Pause() // as if a thread slept in the driver
		return
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	defer ours.Close()
	cmd := bounded.Command(t, bounded.Lifetime, os.Args[0], "-test.run=TestLeave$")
	cmd.Env = append(os.Environ(), "GPUARB_DAEMON_TEST_LEAVE=1")
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	end := make(chan int, 1)
	go func() {
		n, _ := unix.Read(pair[0], make([]byte, 1))
		end <- n
	}()
	if n := bounded.Receive(t, "the other end is closed", end); n != 0 {
		t.Errorf("%d", n)
	}
	if err := unix.Kill(cmd.Process.Pid, 0); err != nil {
		t.Errorf("it was to live: %v", err)
	}
}
