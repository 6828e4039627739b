package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Command is the first argument of a gpuarbd that is to serve the page. It is no
// command for people: the process expects the listening socket and its settings.
const Command = "serve-http"

// ListenerFD is the descriptor at which the worker finds the listening socket.
const ListenerFD = 3

const (
	firstPause = 500 * time.Millisecond
	longPause  = 30 * time.Second
	// provenAfter is how long a worker has to live for the pauses to begin anew.
	provenAfter = time.Minute
	// endPatience is for a worker that was told to end.
	endPatience = 500 * time.Millisecond
	// beatEvery is how often it is looked whether a worker has written to its standard output, which it does every few seconds.
	beatEvery = 15 * time.Second
	// beatsMissed in a row end it. One may be missed by a machine that was frozen, daemon and worker alike.
	beatsMissed = 2
)

// Settings is what the worker is told, as one line of JSON at its standard input, which
// stays open as long as it is to live.
type Settings struct {
	Socket string   `json:"socket"` // the daemon's
	Hosts  []string `json:"hosts"`  // further names that browsers may call it by
}

// Keeper keeps a worker serving at the wanted address. The daemon has one, and calls Set after each reading of the configuration.
type Keeper struct {
	log     *slog.Logger
	socket  string
	mode    os.FileMode // of a socket file
	program string
	changed chan Wanted
	pid     atomic.Int64 // of the worker that runs; 0: none does
	beats   time.Duration
}

// New makes a keeper; nothing happens before Run. mode is that of a socket file.
func New(log *slog.Logger, socket string, mode os.FileMode) *Keeper {
	return &Keeper{log: log, socket: socket, mode: mode, program: "/proc/self/exe", beats: beatEvery, changed: make(chan Wanted, 1)}
}

// Set says where the page is to be served from now on.
func (k *Keeper) Set(w Wanted) {
	for {
		select {
		case k.changed <- w:
			return
		case <-k.changed: // an older value that was not read yet
		}
	}
}

// Is says whether a process is the worker.
func (k *Keeper) Is(pid int) bool { return pid != 0 && k.pid.Load() == int64(pid) }

// Kill ends the worker now, and waits up to half a second until Run has reaped it. A process that is about to become another program
// calls it.
func (k *Keeper) Kill() {
	pid := int(k.pid.Load())
	if pid == 0 || unix.Kill(pid, unix.SIGKILL) != nil {
		return
	}
	for range 50 { // the next program in this process does not know of the worker, and would not reap it
		if k.pid.Load() != int64(pid) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Run serves what is wanted until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	// The goroutine keeps this thread to itself, and the thread ends with it. Two things depend on that: the worker's
	// Pdeathsig is sent when this thread ends, and the worker inherits its no_new_privs.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		k.log.Error("the page is not served: no_new_privs cannot be set for its process", "err", err)
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

// await returns the next value of Set that differs from now, or now when ctx or timer ends.
func (k *Keeper) await(ctx context.Context, now Wanted, timer <-chan time.Time) Wanted {
	for {
		select {
		case <-ctx.Done():
			return now
		case <-timer:
			return now
		case next := <-k.changed:
			if !reflect.DeepEqual(next, now) {
				return next
			}
		}
	}
}

// serve keeps a worker at one address until Set has another value, which it returns. While no worker runs nothing listens
// there, so that browsers are refused instead of waiting for an answer.
func (k *Keeper) serve(ctx context.Context, now Wanted) Wanted {
	at := now // after the first time with the port that the kernel chose
	pause := firstPause
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
		if time.Since(began) > provenAfter {
			pause = firstPause
		}
		k.log.Error("the page is not served; it is tried again", "listen", now.Address, "after", pause, "err", err)
		next := k.await(ctx, now, time.After(pause))
		if ctx.Err() != nil || !reflect.DeepEqual(next, now) {
			return next
		}
		pause = min(2*pause, longPause)
	}
}

// runOne has one worker serve, until something else is wanted or ctx ends (nil), or it ends by itself.
func (k *Keeper) runOne(ctx context.Context, now Wanted, listener *os.File) (Wanted, error) {
	cmd, pipes, err := k.start(now, listener)
	if err != nil {
		return now, err
	}
	beat := beatsOf(pipes.beats)
	look := time.NewTicker(k.beats)
	defer look.Stop()
	missed, served := 0, false
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		k.pid.Store(0) // the number may be another process's from now on
		ended <- err
	}()
	for {
		select {
		case err := <-ended:
			pipes.leash.Close()
			return now, fmt.Errorf("its process ended: %w", cmp.Or(err, errors.New("exit status 0, without being told to")))
		case <-beat:
			if missed = 0; !served { // it could have found a reason not to
				served = true
				k.log.Info("the page is served", "listen", addressOf(listener), "pid", cmd.Process.Pid)
			}
			continue
		case <-look.C:
			if missed++; missed < beatsMissed {
				continue
			}
			pipes.leash.Close()
			_ = cmd.Process.Kill()
			<-ended
			return now, errSilent
		case next := <-k.changed:
			if reflect.DeepEqual(next, now) {
				continue
			}
			now = next
		case <-ctx.Done():
		}
		pipes.leash.Close()
		select {
		case <-ended:
		case <-time.After(endPatience):
			_ = cmd.Process.Kill()
			<-ended
		}
		return now, nil
	}
}

// errSilent is the error of a worker that is stopped or hangs.
var errSilent = errors.New("its process does nothing any more, and was ended")

// pipes are what the daemon has of a worker.
type pipes struct {
	leash io.Closer // the write end of its standard input: closing it ends the worker
	beats io.Reader // its standard output: what it writes there says that it goes on
}

// beatsOf tells of each read that something was written. The pipe is closed when the worker has ended.
func beatsOf(r io.Reader) <-chan struct{} {
	beat := make(chan struct{}, 1)
	go func() {
		room := make([]byte, 512)
		for {
			if _, err := r.Read(room); err != nil {
				return
			}
			select {
			case beat <- struct{}{}:
			default:
			}
		}
	}()
	return beat
}

// start starts a worker.
func (k *Keeper) start(now Wanted, listener *os.File) (*exec.Cmd, pipes, error) {
	credential, err := credentialFor(os.Geteuid(), k.socket)
	if err != nil {
		return nil, pipes{}, err
	}
	// /proc/self/exe is the running program, even if another one has been installed at its path since.
	cmd := exec.Command(k.program, Command)
	cmd.Args[0] = "gpuarbd"
	cmd.Env = []string{"GPUARB_DISABLE=1"}
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{listener}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential, Setpgid: true, Pdeathsig: unix.SIGKILL}
	leash, err := cmd.StdinPipe()
	if err != nil {
		return nil, pipes{}, err
	}
	beats, err := cmd.StdoutPipe()
	if err != nil {
		return nil, pipes{}, err
	}
	settings, err := json.Marshal(Settings{Socket: k.socket, Hosts: now.Hosts})
	if err != nil {
		return nil, pipes{}, err
	}
	if err := cmd.Start(); err != nil {
		return nil, pipes{}, fmt.Errorf("its process cannot be started: %w", err)
	}
	k.pid.Store(int64(cmd.Process.Pid)) // before it has its settings, without which it connects to nothing
	// A pipe holds 4 KiB without a reader, so this write does not block. A worker that is gone already is noticed by Wait.
	if len(settings) < 4096 {
		_, _ = leash.Write(append(settings, '\n'))
	} else {
		go func() { _, _ = leash.Write(append(settings, '\n')) }()
	}
	return cmd, pipes{leash, beats}, nil
}
