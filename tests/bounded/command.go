package bounded

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// This file starts programs with a time limit and kills them at the end of the test. All test packages start their programs through it.
// threads.go describes the threads of a program that hangs, and wait.go polls for a state.

// Patience is the longest time that any one expected event may take on a busy machine: a minute, or
// the duration in GPUARB_TEST_PATIENCE. tests/mutants, whose tests must fail, sets a shorter time.
var Patience = patience()

func patience() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("GPUARB_TEST_PATIENCE")); err == nil {
		return d
	}
	return time.Minute
}

const (
	// Lifetime limits a program that answers commands, and a test that
	// waits for many events in turn.
	Lifetime = 5 * time.Minute
	// Grace is the time between the request to print all stacks and the kill.
	Grace = 5 * time.Second
)

// process is one command of a test.
type process struct {
	cmd   *exec.Cmd
	limit time.Duration

	mu sync.Mutex
	t  testing.TB // nil when the test is over, because it cannot log or fail any more
}

// Command returns a program that runs in a process group of its own for at most limit.
// The limit also bounds each wait for the program and each read from its pipes.
func Command(t testing.TB, limit time.Duration, name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = Patience
	p := &process{cmd: cmd, limit: limit, t: t}
	cmd.Cancel = func() error { return p.cancel(ctx) }
	t.Cleanup(func() {
		p.mu.Lock()
		p.t = nil
		p.mu.Unlock()
		cancel()
		if cmd.Process != nil {
			killRest(cmd.Process)
		}
	})
	return cmd
}

// Start starts a program that is killed, and waited for, at the end of the test.
func Start(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := Command(t, Lifetime, name, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// cancel ends a program after its limit, or at the end of its test.
func (p *process) cancel(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	pid := p.cmd.Process.Pid
	if p.t != nil && ctx.Err() == context.DeadlineExceeded {
		p.t.Errorf("%v has not ended after %v\n%s", p.cmd.Args, p.limit, Threads(pid))
		// SIGQUIT makes a Go program print its goroutines.
		_ = send(pid, unix.SIGQUIT)
		time.AfterFunc(Grace, func() { killRest(p.cmd.Process) })
		return nil
	}
	return send(pid, unix.SIGKILL)
}

// Kill kills a started command and all processes that it started.
func Kill(cmd *exec.Cmd) { killRest(cmd.Process) }

// send sends a signal to a child, and to its process group if the child leads one.
func send(pid int, sig unix.Signal) error {
	_ = unix.Kill(-pid, sig)
	return unix.Kill(pid, sig)
}

// killRest kills a child if it was not waited for yet, and the rest of its process group. The
// number of a reaped child may belong to another process by now, such as a daemon that the test
// started later. It cannot while the group lives, because the kernel does not reuse the number of a live group.
func killRest(child *os.Process) {
	pid := child.Pid
	if child.Signal(syscall.Signal(0)) == nil {
		_ = send(pid, unix.SIGKILL)
		return
	}
	if unix.Kill(pid, 0) == unix.ESRCH {
		_ = unix.Kill(-pid, unix.SIGKILL)
	}
}
