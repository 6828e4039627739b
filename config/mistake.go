package config

import (
	"strconv"
	"strings"
)

// Mistake is one thing that is wrong in a configuration file.
type Mistake struct {
	File   string
	Line   int // from 1; 0 when it is the whole file
	Reason string
}

// Error spells the mistake as "file:line: reason".
func (m Mistake) Error() string {
	if m.Line == 0 {
		return m.File + ": " + m.Reason
	}
	return m.File + ":" + strconv.Itoa(m.Line) + ": " + m.Reason
}

// Mistakes is everything that is wrong in a configuration, in the order of the files
// and lines. It is the error that Load returns for bad contents.
type Mistakes []Mistake

// Error gives one line per mistake, without a newline at the end.
func (m Mistakes) Error() string {
	lines := make([]string, len(m))
	for i, mistake := range m {
		lines[i] = mistake.Error()
	}
	return strings.Join(lines, "\n")
}
