package main

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

	"github.com/gpuarb/gpuarb/shim"
	"github.com/gpuarb/gpuarb/spawn"
	"golang.org/x/sys/unix"
)

// defaultPath is searched when there is no PATH, as execvp(3) does.
const defaultPath = "/bin:/usr/bin"

// lookUp finds the program as execvp(3) does: a name with a slash is a path, any
// other is searched for in PATH. The error has the exit code for it.
func lookUp(name, path string) (string, error) {
	if name == "" {
		return "", fail(exitRunNotFound, "the command is empty")
	}
	if strings.Contains(name, "/") {
		return name, nil // what is wrong with it, execve says
	}
	if path == "" {
		path = defaultPath
	}
	denied := ""
	for _, folder := range filepath.SplitList(path) {
		if folder == "" {
			folder = "."
		}
		candidate := folder + "/" + name // not Join: "./x" must keep its slash
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

// executable is the absolute path of this program.
func executable() string {
	path, err := os.Executable()
	if err != nil {
		return "/usr/bin/gpuarb" // no /proc: look where it is installed
	}
	return path
}

// library finds the shim.
func (a *app) library() (string, error) {
	library, err := shim.FindLibrary(executable(), os.Getenv)
	if err != nil {
		return "", fmt.Errorf("%w; install gpuarb, or name the library with GPUARB_LIB", err)
	}
	return library, nil
}

// libraryFor returns the build of the library that a program needs: without exports if it has variables named like driver functions.
func (a *app) libraryFor(noExports bool) (string, error) {
	library, err := a.library()
	if err != nil || !noExports {
		return library, err
	}
	return shim.WithoutExports(library)
}

// supervise starts the program and waits for it, and for nothing that it leaves
// behind. It returns nil for exit code 0, else an error with the code. Before a signal
// is passed on that is to end the program, cancel is called, which ends its waiting.
func (a *app) supervise(program string, args, environ []string, caught chan os.Signal, cancel func()) error {
	// The kernel sends the parent-death signal when the thread that started the
	// child ends, so this thread must last as long as the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	a.warnOutside(program, args)
	signal.Notify(caught, passedSignals...) // before the program can send one, or ask for one
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

// start starts the program as env(1) would. It gets SIGTERM when gpuarb is killed.
func start(program string, args, environ []string) (process *os.Process, err error) {
	err = orShell(spawn.Program{Path: program, Args: args, Environ: environ, DeathSignal: unix.SIGTERM}, func(p spawn.Program) error {
		process, err = p.Start()
		return err
	})
	return process, err
}

// orShell executes a program. A script without an interpreter line goes to the shell, as with execvp(3).
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

func exitStatus(state *os.ProcessState) error {
	status, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled():
		return &exitError{code: exitRunSignal + int(status.Signal())}
	case state.ExitCode() == 0:
		return nil
	}
	return &exitError{code: state.ExitCode()}
}

// catchSignals begins to catch what is passed on. It begins before there is a program:
// what comes until then is not lost. Signals that were ignored when gpuarb was started stay ignored.
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

// lastSignal is the highest number of a signal.
const lastSignal unix.Signal = 64

// keptSignals are never ignored: SIGCHLD because gpuarb waits for the program's end, SIGURG because Go's runtime sends it to itself.
var keptSignals = []unix.Signal{unix.SIGCHLD, unix.SIGURG}

// passedSignals are the signals that gpuarb passes on to a program, also one that it was started to ignore: the
// program may have a handler of its own for it. They are all signals that other processes may send to it, except those of a terminal's
// job control, which reach the whole group, and those that a process causes itself.
var passedSignals = append([]os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGCONT, unix.SIGWINCH,
	unix.SIGALRM, unix.SIGVTALRM, unix.SIGIO, unix.SIGPWR,
}, realTimeSignals()...)

// realTimeSignals returns the real-time signals that Go's runtime can catch: those that C's library leaves to programs, without the
// first of them.
func realTimeSignals() (all []os.Signal) {
	const first unix.Signal = 35
	for sig := first; sig <= lastSignal; sig++ {
		all = append(all, sig)
	}
	return all
}

// forward passes on what is caught until done. A signal that comes before the end of
// the program and is handled after it finds nobody, and does no harm.
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

// fromTerminal guesses whether a terminal sent sig, to the whole foreground group and
// so to the program too. The sender is not known here; that our group is in the
// foreground of our terminal is taken for a yes.
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
