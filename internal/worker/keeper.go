package worker

// This file starts the worker, watches it and starts it again. job.go describes the worker, listen.go
// opens the socket, and credential.go chooses the user.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ListenerFD is the descriptor of the listening socket in the worker.
const ListenerFD = 3

const (
	firstPause = 500 * time.Millisecond
	longPause  = 30 * time.Second
	// A worker that has lived for this long resets the pause before the next start.
	stableAfter = time.Minute
	// Time that a worker has to end when its standard input is closed.
	endTimeout = 500 * time.Millisecond
	// Time between two checks of the heartbeat. A worker writes to its standard output every few
	// seconds.
	heartbeatCheck = 15 * time.Second
	// A worker that misses this number of checks in a row is ended. A machine that was frozen may
	// miss one check.
	maxMissedHeartbeats = 2
)

// Keeper keeps a worker running that listens at the wanted address. The daemon calls Set each time it has read the configuration.
type Keeper struct {
	Job
	log             *slog.Logger
	socket          string
	mode            os.FileMode // mode of the socket file
	program         string
	changed         chan Wanted
	pid             atomic.Int64 // PID of the running worker; 0: none
	heartbeatPeriod time.Duration
	said            string // error that was logged last; only Run's goroutine uses it
}

// New makes a Keeper, which does nothing before Run. socket is the daemon's socket, and mode the mode of the worker's socket file.
func New(log *slog.Logger, socket string, mode os.FileMode, job Job) *Keeper {
	return &Keeper{Job: job, log: log, socket: socket, mode: mode, program: "/proc/self/exe", heartbeatPeriod: heartbeatCheck, changed: make(chan Wanted, 1)}
}

// Set sets where the worker listens from now on, and its settings. It does not wait for the worker.
func (k *Keeper) Set(w Wanted) {
	for {
		select {
		case k.changed <- w:
			return
		case <-k.changed: // an older value that Run has not read
		}
	}
}

// Is reports whether a process is the worker.
func (k *Keeper) Is(pid int) bool { return pid != 0 && k.pid.Load() == int64(pid) }

// Kill ends the worker now, and waits up to half a second until Run has reaped it. The daemon
// calls it before it executes its program again, and if the worker hangs.
func (k *Keeper) Kill() {
	pid := int(k.pid.Load())
	if pid == 0 || unix.Kill(pid, unix.SIGKILL) != nil {
		return
	}
	for range 50 { // the next program in this process does not know the worker and would not reap it
		if k.pid.Load() != int64(pid) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Run keeps the worker running until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	// Lock this goroutine to its thread, which ends with the goroutine. The kernel sends the
	// worker's Pdeathsig when this thread ends, and the worker inherits no_new_privs from this
	// thread.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		k.log.Error(k.Failed+": no_new_privs cannot be set for its process", "err", err)
		return
	}
	var now Wanted
	for ctx.Err() == nil {
		if now.Address == "" {
			now = k.await(ctx, now, nil)
			continue
		}
		now = k.serve(ctx, now)
	}
}

// await returns the next value of Set that differs from now. It returns now if ctx or timer ends
// first.
func (k *Keeper) await(ctx context.Context, now Wanted, timer <-chan time.Time) Wanted {
	for {
		select {
		case <-ctx.Done():
			return now
		case <-timer:
			return now
		case next := <-k.changed:
			if next != now {
				return next
			}
		}
	}
}

// serve keeps a worker at one address until Set has another value, which it returns. While there is
// no worker, the listener is closed, so that connections are refused instead of waiting.
func (k *Keeper) serve(ctx context.Context, now Wanted) Wanted {
	at := now // after the first time: with the port that the kernel chose
	first := cmp.Or(k.Pause, firstPause)
	pause := first
	for {
		began := time.Now()
		listener, err := listen(at, k.mode)
		if err == nil {
			at.Address = boundTo(listener, at)
			var next Wanted
			next, err = k.runOne(ctx, now, listener)
			closeListener(listener, at)
			if err == nil {
				return next
			}
		}
		if ctx.Err() != nil {
			return now
		}
		if time.Since(began) > stableAfter {
			pause = first
		}
		k.report(err, now, pause)
		next := k.await(ctx, now, time.After(pause))
		if ctx.Err() != nil || next != now {
			return next
		}
		pause = min(2*pause, longPause)
	}
}

// report logs why there is no worker, and tells Trouble.
func (k *Keeper) report(err error, now Wanted, pause time.Duration) {
	if k.Trouble != nil {
		k.Trouble(err)
	}
	if text := err.Error(); !k.LogsOnce || text != k.said {
		k.said = text
		level := slog.LevelError
		if k.Spare {
			level = slog.LevelWarn
		}
		k.log.Log(context.Background(), level, k.Failed+"; it is tried again", "listen", now.Address, "after", pause, "err", err)
	}
}

// runOne runs one worker. It returns nil if the wanted address changes or ctx ends, and an error if
// the worker ends by itself.
func (k *Keeper) runOne(ctx context.Context, now Wanted, listener *os.File) (Wanted, error) {
	cmd, pipes, err := k.start(now, listener)
	if err != nil {
		return now, err
	}
	if k.Ended != nil {
		defer k.Ended()
	}
	var serves atomic.Bool
	beat, read := k.heartbeats(pipes.stdout, &serves)
	look := time.NewTicker(k.heartbeatPeriod)
	defer look.Stop()
	missed, served := 0, false
	ended := make(chan error, 1)
	go func() {
		<-read // Wait closes the pipe, and may lose the last words of the worker
		err := cmd.Wait()
		k.pid.Store(0) // from now on the kernel may give the PID to another process
		ended <- err
	}()
	for {
		select {
		case err := <-ended:
			pipes.stdin.Close()
			return now, fmt.Errorf("its process ended: %w", cmp.Or(err, errors.New("exit status 0, without being told to")))
		case <-beat:
			if missed = 0; !served && serves.Load() {
				served = true
				k.log.Info(k.Done, "listen", addressOf(listener), "pid", cmd.Process.Pid)
			}
			continue
		case <-look.C:
			if missed++; missed < maxMissedHeartbeats {
				continue
			}
			pipes.stdin.Close()
			_ = cmd.Process.Kill()
			<-ended
			return now, errSilent
		case next := <-k.changed:
			if next == now {
				continue
			}
			now = next
		case <-ctx.Done():
		}
		pipes.stdin.Close()
		select {
		case <-ended:
		case <-time.After(endTimeout):
			_ = cmd.Process.Kill()
			<-ended
		}
		return now, nil
	}
}

// errSilent is the error of a worker whose heartbeats are missing: it hangs or is stopped.
var errSilent = errors.New("its process has sent no heartbeat for too long, and was killed")

// workerPipes are the daemon's ends of the pipes to a worker.
type workerPipes struct {
	stdin  io.Closer // write end of its standard input; when it is closed, the worker ends
	stdout io.Reader // read end of its standard output, to which it writes heartbeats
}

// heartbeats reads r, the worker's standard output, until it ends, and passes what it reads to Heard. It sets serves when the output says that
// the worker serves. beat receives a value after each read; ended is closed after the last one.
func (k *Keeper) heartbeats(r io.Reader, serves *atomic.Bool) (beat, ended <-chan struct{}) {
	beats, over := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(over)
		room := make([]byte, 512)
		for {
			n, err := r.Read(room)
			if err != nil {
				return
			}
			if k.Heard == nil || k.Heard(room[:n]) {
				serves.Store(true)
			}
			select {
			case beats <- struct{}{}:
			default:
			}
		}
	}()
	return beats, over
}

// start starts a worker.
func (k *Keeper) start(now Wanted, listener *os.File) (*exec.Cmd, workerPipes, error) {
	credential, err := k.credentialFor(os.Geteuid(), k.socket)
	if err != nil {
		return nil, workerPipes{}, err
	}
	if k.Prepare != nil {
		if err := k.Prepare(credential); err != nil {
			return nil, workerPipes{}, err
		}
	}
	// /proc/self/exe is the running program, even if another program was installed at its path
	// since.
	cmd := exec.Command(k.program, k.Command)
	cmd.Args[0] = "gpuarbd"
	cmd.Env = []string{"GPUARB_DISABLE=1"}
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{listener}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential, Setpgid: true, Pdeathsig: unix.SIGKILL}
	if k.Drains {
		cmd.SysProcAttr.Pdeathsig = 0
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, workerPipes{}, err
	}
	input, stdin, err := os.Pipe()
	if err != nil {
		return nil, workerPipes{}, err
	}
	defer input.Close()
	cmd.Stdin = input
	if err := cmd.Start(); err != nil {
		stdin.Close()
		return nil, workerPipes{}, fmt.Errorf("its process cannot be started: %w", err)
	}
	k.pid.Store(int64(cmd.Process.Pid)) // before the worker has its settings, without which it connects to nothing
	// A pipe holds 4 KiB without a reader, so this write does not block. If the worker has ended
	// already, Wait reports it.
	settings := []byte(now.Settings + "\n")
	if len(settings) <= 4096 {
		_, _ = stdin.Write(settings)
	} else {
		go func() { _, _ = stdin.Write(settings) }()
	}
	if k.Started != nil {
		k.Started(stdin)
	}
	return cmd, workerPipes{stdin, stdout}, nil
}
