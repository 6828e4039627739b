package main

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// customaryWidth is that of a terminal that does not say how wide it is.
const customaryWidth = 80

// terminalWidth is how many columns the terminal has that stdout is; 0: it is none. COLUMNS
// says otherwise, as it does to ps(1).
func terminalWidth() int {
	size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if n, err := strconv.ParseUint(os.Getenv("COLUMNS"), 10, 15); err == nil && n > 0 {
		return int(n)
	}
	if size.Col > 0 {
		return int(size.Col)
	}
	return customaryWidth
}

// isTerminal says whether a file is a terminal.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
