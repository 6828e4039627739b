package main

import (
	"cmp"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// quiet tells that the library is to print nothing, and so nobody who did not ask for it.
func (a *app) quiet() bool {
	value := os.Getenv("GPUARB_QUIET")
	return value != "" && value != "0"
}

// slowAfter is how long a command may take before it says what it waits for.
const slowAfter = time.Second

// slow says on stderr what is being waited for, if that takes longer than slowAfter and stderr is a terminal. The
// caller calls done when the wait is over.
func (a *app) slow(what string) (done func()) {
	if !isTerminal(os.Stderr) || a.quiet() {
		return func() {}
	}
	timer := time.AfterFunc(slowAfter, func() { a.say("waiting for %s", what) })
	return func() { timer.Stop() }
}

// customaryWidth is that of a terminal that does not say how wide it is.
const customaryWidth = 80

// terminalWidth is how many columns the terminal has that stdout is; 0: it is none. COLUMNS
// says otherwise, as it does to ps(1).
func terminalWidth() int {
	size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return cmp.Or(cells(os.Getenv("COLUMNS")), int(size.Col), customaryWidth)
}

// cells reads a width or height from the environment; 0: it is none.
func cells(text string) int {
	n, err := strconv.ParseUint(text, 10, 15)
	if err != nil {
		return 0
	}
	return int(n)
}

// isTerminal says whether a file is a terminal.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
