package config

// This file has the errors of the package: mistakes with their places.

import (
	"strconv"
	"strings"
)

// Mistake is a mistake in a configuration file.
type Mistake struct {
	File   string
	Line   int // from 1; 0: the whole file
	Reason string
}

// Error returns the mistake as "file:line: reason".
func (m Mistake) Error() string {
	if m.Line == 0 {
		return m.File + ": " + m.Reason
	}
	return m.File + ":" + strconv.Itoa(m.Line) + ": " + m.Reason
}

// Mistakes are all mistakes of a configuration, in the order of the files and lines. Load returns
// them as its error.
type Mistakes []Mistake

// Error returns one line per mistake, without a newline at the end.
func (m Mistakes) Error() string {
	lines := make([]string, len(m))
	for i, mistake := range m {
		lines[i] = mistake.Error()
	}
	return strings.Join(lines, "\n")
}
