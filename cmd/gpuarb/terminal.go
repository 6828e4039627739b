package main

// This file finds out about the terminal: its width, and whether messages may be printed on it.
// The commands call it.

import (
	"cmp"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// quiet reports whether GPUARB_QUIET is set. The library then prints nothing, and so gpuarb prints
// no message that the user did not ask for.
func (a *app) quiet() bool {
	value := os.Getenv("GPUARB_QUIET")
	return value != "" && value != "0"
}

// slowAfter is the time after which a command says what it waits for.
const slowAfter = time.Second

// slow says on stderr what the command waits for, if the wait takes longer than slowAfter and
// stderr is a terminal. The caller must call done when the wait is over.
func (a *app) slow(what string) (done func()) {
	if !isTerminal(os.Stderr) || a.quiet() {
		return func() {}
	}
	timer := time.AfterFunc(slowAfter, func() { a.say("waiting for %s", what) })
	return func() { timer.Stop() }
}

// defaultWidth is used for a terminal that does not report its width, in columns.
const defaultWidth = 80

// terminalWidth returns the columns of the terminal on stdout; 0: stdout is not a terminal. COLUMNS
// overrides the width, as it does for ps(1).
func terminalWidth() int {
	size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return cmp.Or(cells(os.Getenv("COLUMNS")), int(size.Col), defaultWidth)
}

// cells reads a width or height from the environment; 0: not a number.
func cells(text string) int {
	n, err := strconv.ParseUint(text, 10, 15)
	if err != nil {
		return 0
	}
	return int(n)
}

// isTerminal reports whether a file is a terminal.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
