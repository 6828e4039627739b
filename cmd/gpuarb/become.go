package main

import (
	"errors"
	"os"
	"time"

	"github.com/gpuarb/gpuarb/spawn"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// This file makes gpuarb become the program of `gpuarb run` (--exec), and ends the program when gpuarb's own parent ends
// (--die-with-parent). supervise.go has the other way, in which gpuarb stays as the program's parent.

const (
	execFlag          = "exec"
	dieWithParentFlag = "die-with-parent"
)

// namesUs are the variables that systemd sets for a service that must keep the PID that systemd started: two of them have that PID as their value, and
// messages to the socket in the third are ignored from any other PID, unless the unit's NotifyAccess= lets them in.
var namesUs = []string{"LISTEN_PID", "WATCHDOG_PID", "NOTIFY_SOCKET"}

// becomes reports whether gpuarb becomes the program, rather than its parent.
func (o *jobOptions) becomes(flags *pflag.FlagSet) bool {
	if flags.Changed(execFlag) {
		return o.exec
	}
	for _, name := range namesUs {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

// become executes the program in gpuarb's place. It returns only if that failed. The job lives by this process, whatever it executes.
func (a *app) become(program string, args, environ []string, dieWithParent bool) error {
	a.warnOutside(program, args)
	p := spawn.Program{Path: program, Args: args, Environ: environ}
	if dieWithParent {
		p.DeathSignal = unix.SIGTERM
	}
	err := orShell(p, spawn.Program.Become)
	if dieWithParent && errors.Is(err, unix.ESRCH) {
		return parentEnded(spawn.Parent())
	}
	return startFailure(program, err)
}

// deathGrace is how long a program has after SIGTERM to end by itself when its wrapper's parent has ended.
const deathGrace = 10 * time.Second

// catchSignals calls the function catchSignals. With --die-with-parent it also sends SIGTERM into the channel when gpuarb's
// parent ends, and SIGKILL deathGrace later.
func (o *jobOptions) catchSignals() (caught chan os.Signal, stop func(), err error) {
	if !o.dieWithParent {
		caught, stop = catchSignals()
		return caught, stop, nil
	}
	parent := spawn.Parent()
	if parent == 0 {
		return nil, nil, errors.New("--die-with-parent: the process that started gpuarb is outside of its PID namespace, so that its end cannot be seen; " +
			"start gpuarb run from a process in the same namespace, or leave the flag out")
	}
	// A pidfd, not the kernel's parent-death signal, which comes as soon as the thread ends that started gpuarb.
	pidfd, err := unix.PidfdOpen(parent, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return nil, nil, fail(exitRunFailed, "--die-with-parent: process %d, which started gpuarb: %w", parent, err)
	}
	if err != nil || os.Getppid() != parent { // its PID may be another process's by now
		return nil, nil, parentEnded(parent)
	}
	caught, stop = catchSignals()
	go func() {
		waitForEnd(pidfd, -1)
		caught <- unix.SIGTERM
		time.Sleep(deathGrace)
		caught <- unix.SIGKILL
	}()
	return caught, stop, nil
}

// parentEnded is the failure of a run whose parent has ended before the program began.
func parentEnded(parent int) error {
	return fail(exitRunSignal+int(unix.SIGTERM), "--die-with-parent: process %d, which started gpuarb, has ended", parent)
}
