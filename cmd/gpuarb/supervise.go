package main

// This file starts the program of `gpuarb run` or `claim --exec` as a child, forwards signals to
// it, and waits for its end. doc.go explains which signals are forwarded. exec.go replaces gpuarb
// by the program instead.

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/gpuarb/gpuarb/cmd/gpuarb/spawn"
	"golang.org/x/sys/unix"
)

// defaultPath is searched if PATH is empty, as execvp(3) does.
const defaultPath = "/bin:/usr/bin"

// lookUp finds a program as execvp(3) does. A name with a slash is a path; any other name is
// searched for in PATH. The error has its exit code.
func lookUp(name, path string) (string, error) {
	if name == "" {
		return "", fail(exitRunNotFound, "the command is empty")
	}
	if strings.Contains(name, "/") {
		return name, nil // execve reports what is wrong with it
	}
	if path == "" {
		path = defaultPath
	}
	denied := ""
	for _, folder := range filepath.SplitList(path) {
		if folder == "" {
			folder = "."
		}
		candidate := folder + "/" + name // filepath.Join would remove the "./" of "./x"
		info, err := os.Stat(candidate)
		if err != nil || info.IsDir() {
			continue
		}
		if unix.Access(candidate, unix.X_OK) == nil {
			return candidate, nil
		}
		denied = candidate
	}
	if denied != "" {
		return "", fail(exitRunDenied, "%s cannot be executed: permission denied", denied)
	}
	return "", fail(exitRunNotFound, "%s: command not found in PATH (%s)", name, path)
}

// supervise starts the program and waits until it ends; it does not wait for processes that the
// program leaves behind. It returns nil for exit code 0, otherwise an error with the code. Before a
// signal that may end the program is forwarded, supervise calls cancel, which ends the waits of the
// program.
func (a *app) supervise(program string, args, environ []string, caught chan os.Signal, cancel func()) error {
	// The kernel sends the parent-death signal when the thread that started the
	// child ends, so this thread must last as long as the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	a.warnOutside(program, args, environ)
	signal.Notify(caught, passedSignals...) // before the program can send a signal, or make another process send one
	process, err := start(program, args, environ)
	if err != nil {
		return startFailure(program, err)
	}
	done := make(chan struct{})
	forwarded := make(chan struct{})
	go func() {
		defer close(forwarded)
		forward(caught, process, cancel, done)
	}()
	state, err := process.Wait()
	close(done)
	<-forwarded
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", program, err)
	}
	return exitStatus(state)
}

// start starts the program as env(1) would. The program gets SIGTERM if gpuarb is killed.
func start(program string, args, environ []string) (process *os.Process, err error) {
	err = orShell(spawn.Program{Path: program, Args: args, Environ: environ, DeathSignal: unix.SIGTERM}, func(p spawn.Program) error {
		process, err = p.Start()
		return err
	})
	return process, err
}

// orShell executes a program. A script without an interpreter line is run by the shell, as
// execvp(3) does.
func orShell(program spawn.Program, execute func(spawn.Program) error) error {
	err := execute(program)
	if errors.Is(err, unix.ENOEXEC) {
		program.Args = append([]string{"sh", program.Path}, program.Args[1:]...)
		program.Path = "/bin/sh"
		return execute(program)
	}
	return err
}

func startFailure(program string, err error) error {
	code := exitRunDenied
	if info, statErr := os.Stat(program); statErr == nil && info.IsDir() {
		err = unix.EISDIR
	}
	if errors.Is(err, unix.ENOENT) {
		code = exitRunNotFound
		if _, statErr := os.Stat(program); statErr == nil {
			err = fmt.Errorf("%w: the interpreter that it names is not there", err)
		}
	}
	return fail(code, "%s cannot be executed: %w", program, err)
}

// killedError is the exit code of a program that a signal ended.
type killedError struct {
	*exitError
	signal syscall.Signal
}

func (e *killedError) Unwrap() error { return e.exitError }

func exitStatus(state *os.ProcessState) error {
	status, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled():
		return &killedError{&exitError{code: exitRunSignal + int(status.Signal())}, status.Signal()}
	case state.ExitCode() == 0:
		return nil
	}
	return &exitError{code: state.ExitCode()}
}

// catchSignals starts to catch the signals that are forwarded. It is called before the program
// starts, so that no signal is lost. Signals that were ignored when gpuarb was started stay
// ignored.
func catchSignals() (caught chan os.Signal, stop func()) {
	caught = make(chan os.Signal, 64)
	for sig := unix.Signal(1); sig <= lastSignal; sig++ {
		switch {
		case !spawn.Ignored(sig):
			if slices.Contains(passedSignals, os.Signal(sig)) {
				signal.Notify(caught, sig)
			}
		case !slices.Contains(keptSignals, sig):
			signal.Ignore(sig)
		}
	}
	return caught, func() { signal.Stop(caught) }
}

// lastSignal is the highest signal number.
const lastSignal unix.Signal = 64

// keptSignals are never ignored. gpuarb needs SIGCHLD to wait for the program, and the Go runtime
// sends SIGURG to itself.
var keptSignals = []unix.Signal{unix.SIGCHLD, unix.SIGURG}

// passedSignals are the signals that gpuarb forwards to the program. They include signals that
// gpuarb was started to ignore, because the program may have a handler of its own. They are all
// signals that other processes may send. Left out are the signals of job control, which reach the
// whole group, and signals that a process causes itself.
var passedSignals = append([]os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGCONT, unix.SIGWINCH,
	unix.SIGALRM, unix.SIGVTALRM, unix.SIGIO, unix.SIGPWR,
}, realTimeSignals()...)

// realTimeSignals returns the real-time signals that the Go runtime can catch. These are the
// signals that the C library leaves to programs, except the first.
func realTimeSignals() (all []os.Signal) {
	const first unix.Signal = 35
	for sig := first; sig <= lastSignal; sig++ {
		all = append(all, sig)
	}
	return all
}

// forward forwards the signals that are caught until done is closed. A signal that is handled after
// the end of the program has no effect.
func forward(caught <-chan os.Signal, process *os.Process, cancel func(), done <-chan struct{}) {
	for {
		select {
		case sig := <-caught:
			if endsWait(sig) && sig != unix.SIGQUIT {
				cancel()
			}
			if !fromTerminal(sig) {
				_ = process.Signal(sig)
			}
		case <-done:
			return
		}
	}
}

// fromTerminal guesses whether a terminal sent sig. A terminal sends it to the whole foreground
// group, and so to the program too. The sender is not known here. The answer is yes if the group of
// gpuarb is in the foreground of its terminal.
func fromTerminal(sig os.Signal) bool {
	switch sig {
	case unix.SIGINT, unix.SIGQUIT, unix.SIGWINCH:
		return inForeground()
	}
	return false
}

func inForeground() bool {
	terminal, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false // no terminal
	}
	defer terminal.Close()
	var group int
	raw, err := terminal.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) { group, _ = unix.IoctlGetInt(int(fd), unix.TIOCGPGRP) })
	return err == nil && group == unix.Getpgrp()
}
