package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
)

// The exit codes; docs/reference/exit-codes.md says what they mean. They are never reused for another thing.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnavailable = 69
	exitBusy        = 75
	exitConfig      = 78
	exitTimeout     = 124
	exitRunFailed   = 125
	exitRunDenied   = 126
	exitRunNotFound = 127
	exitRunSignal   = 128 // + the signal's number
)

// app is the command line: the flags that several commands have.
type app struct {
	socket string // --socket
	json   bool   // --json
}

// exitError ends the program with a code. With err nil there is nothing to say.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// coded is an error with its exit code, or this one where it has none.
func coded(err error, code int) *exitError {
	var exit *exitError
	if errors.As(err, &exit) {
		return exit
	}
	return &exitError{code, err}
}

// fail returns an error that ends the program with code.
func fail(code int, format string, args ...any) error {
	return &exitError{code, fmt.Errorf(format, args...)}
}

// say prints a message for people: one line on stderr, with gpuarb's name before it.
func (a *app) say(format string, args ...any) {
	text := strings.TrimSpace(fmt.Sprintf(format, args...))
	fmt.Fprintf(os.Stderr, "gpuarb: %s\n", strings.ReplaceAll(printable(text), "\n", "\n  "))
}

// printable spells as Go does what a terminal would obey, as in an argument that a message repeats. What is escaped already stays.
func printable(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r == '\n' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// jsonFlag adds --json to a command.
func (a *app) jsonFlag(command *cobra.Command) *cobra.Command {
	command.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return command
}
