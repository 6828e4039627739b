package main

// This file owns what every command shares: the exit codes, the errors that carry one, and messages
// to the user on stderr. run (root.go) turns the error of a command into the exit code of the
// process. json.go has the output on stdout.

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
)

// // The exit codes; docs/reference/exit-codes.md explains each. A code is never reused for another
// meaning.
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

// app is the command line: it holds the flags that several commands have.
type app struct {
	socket string // --socket
	json   bool   // --json
}

// exitError ends the program with a code. If err is nil, no message is printed.
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

// withCode returns the exitError that err wraps. If err wraps none, it returns err with code.
func withCode(err error, code int) *exitError {
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

// say prints a message for users: one line on stderr, which begins with "gpuarb: ".
func (a *app) say(format string, args ...any) {
	text := strings.TrimSpace(fmt.Sprintf(format, args...))
	fmt.Fprintf(os.Stderr, "gpuarb: %s\n", strings.ReplaceAll(printable(text), "\n", "\n  "))
}

// printable escapes the control characters of text as a Go string literal does, so that a terminal
// does not obey them. Arguments that a message repeats may contain such characters. Escapes that
// text has already stay as they are.
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
