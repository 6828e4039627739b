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

// Patience is how long any one thing that must happen may take on a busy machine. Where
// tests are expected to fail, GPUARB_TEST_PATIENCE makes them do so sooner.
var Patience = patience()

func patience() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("GPUARB_TEST_PATIENCE")); err == nil {
		return d
	}
	return time.Minute
}

const (
	// Lifetime is how long a program may run that others talk to, and a test that
	// waits for many things in turn.
	Lifetime = 5 * time.Minute
	// Grace is the time between the request to print all stacks and the kill.
	Grace = 5 * time.Second
)

// process is one command of a test.
type process struct {
	cmd   *exec.Cmd
	limit time.Duration

	mu sync.Mutex
	t  testing.TB // nil when the test is over: nothing can be said any more
}

// Command is a program that runs in a process group of its own for at most limit.
// All ways to wait for it are bounded by that, as is reading from its pipes.
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

// cancel ends a program whose time is up, or whose test is over.
func (p *process) cancel(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	pid := p.cmd.Process.Pid
	if p.t != nil && ctx.Err() == context.DeadlineExceeded {
		p.t.Errorf("%v has not ended after %v\n%s", p.cmd.Args, p.limit, Threads(pid))
		// A Go program tells by this where its goroutines are.
		_ = send(pid, unix.SIGQUIT)
		time.AfterFunc(Grace, func() { killRest(p.cmd.Process) })
		return nil
	}
	return send(pid, unix.SIGKILL)
}

// Kill kills a command that was started, with all that it started.
func Kill(cmd *exec.Cmd) { killRest(cmd.Process) }

// send gives a signal to a child and to the group that it leads, if it does.
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
