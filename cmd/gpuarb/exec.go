package main

import (
	"errors"
	"os"
	"time"

	"github.com/gpuarb/gpuarb/cmd/gpuarb/spawn"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// This file replaces gpuarb by the program of `gpuarb run` (--exec), and ends the program when the
// parent of gpuarb ends (--die-with-parent). supervise.go has the usual way, in which gpuarb stays
// as the parent of the program.

const (
	execFlag          = "exec"
	dieWithParentFlag = "die-with-parent"
)

// pidVariables are variables that systemd sets for a service that must keep the PID that systemd
// started. LISTEN_PID and WATCHDOG_PID have that PID as their value. Messages to the socket in
// NOTIFY_SOCKET are ignored if another PID sends them, unless the unit sets NotifyAccess=.
var pidVariables = []string{"LISTEN_PID", "WATCHDOG_PID", "NOTIFY_SOCKET"}

// usesExec reports whether the program replaces gpuarb, instead of running as its child.
func (o *jobOptions) usesExec(flags *pflag.FlagSet) bool {
	if flags.Changed(execFlag) {
		return o.exec
	}
	for _, name := range pidVariables {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

// execProgram executes the program in place of gpuarb. It returns only if that failed. The job
// lasts as long as this process, whatever program the process executes.
func (a *app) execProgram(program string, args, environ []string, dieWithParent bool) error {
	a.warnOutside(program, args, environ)
	p := spawn.Program{Path: program, Args: args, Environ: environ}
	if dieWithParent {
		p.DeathSignal = unix.SIGTERM
	}
	err := orShell(p, spawn.Program.Exec)
	if dieWithParent && errors.Is(err, unix.ESRCH) {
		return parentEnded(spawn.Parent())
	}
	return startFailure(program, err)
}

// deathGrace is the time that a program has to end after SIGTERM, when the parent of gpuarb has
// ended.
const deathGrace = 10 * time.Second

// catchSignals calls the function catchSignals. With --die-with-parent it also sends SIGTERM into
// the channel when the parent of gpuarb ends, and SIGKILL after another deathGrace.
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
	// Use a pidfd, because the kernel's parent-death signal comes as soon as the thread that
	// started gpuarb ends.
	pidfd, err := unix.PidfdOpen(parent, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return nil, nil, fail(exitRunFailed, "--die-with-parent: process %d, which started gpuarb: %w", parent, err)
	}
	if err != nil || os.Getppid() != parent { // another process may have the parent's PID by now
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

// parentEnded returns the failure of a run whose parent ended before the program began.
func parentEnded(parent int) error {
	return fail(exitRunSignal+int(unix.SIGTERM), "--die-with-parent: process %d, which started gpuarb, has ended", parent)
}
