package report

// This file formats amounts, times, numbers and texts. All other files of the package use it.

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gpuarb/gpuarb/accounting"
)

// Style says how a table is printed. The zero Style is for files and scripts: bytes, seconds, and
// all columns.
type Style struct {
	// Human: amounts are rounded ("3.5GiB"), and times have a unit ("5min").
	Human bool
	// Width is the width of the terminal; 0: no terminal. If a table is wider, the columns that
	// matter least are left out. A text that is still too long is cut, and ends with "…".
	Width int
	// Selection is the rows that the tables of programs, jobs and requests show.
	Selection Selection
}

// Value formats an amount as a file shows it: bytes in decimal, or "max".
func Value(b accounting.Bytes) string {
	if b == accounting.Max {
		return "max"
	}
	return strconv.FormatUint(uint64(b), 10)
}

// amount formats an amount for a table: as Value, or rounded without a space, such as "3.5GiB".
func (s Style) amount(b accounting.Bytes) string {
	if !s.Human {
		return Value(b)
	}
	if b < 1024 {
		return fmt.Sprintf("%dB", b)
	}
	return strings.Replace(b.Human(), " ", "", 1)
}

// span formats a time in ms for a table: in seconds, or rounded with a unit.
func (s Style) span(ms int64) string {
	seconds := ms / 1000
	switch {
	case !s.Human:
		return strconv.FormatInt(seconds, 10)
	case seconds < 120:
		return fmt.Sprintf("%ds", seconds)
	case seconds < 2*60*60:
		return fmt.Sprintf("%dmin", seconds/60)
	case seconds < 2*24*60*60:
		return fmt.Sprintf("%dh", seconds/60/60)
	}
	return fmt.Sprintf("%dd", seconds/60/60/24)
}

// Amount formats an amount for users, in a table: "3.5GiB".
func Amount(b accounting.Bytes) string { return Style{Human: true}.amount(b) }

// Span formats a time in ms for users: "5min".
func Span(ms int64) string { return Style{Human: true}.span(ms) }

// count formats a limit on a number of things; 0: no limit.
func count(n int) string {
	if n == 0 {
		return "max"
	}
	return strconv.Itoa(n)
}

// Count formats a number of things for users: "1 device", "2 devices".
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Escape makes s safe as the rest of a line. Characters that are not printed as themselves are
// escaped as in Go: control characters, line ends, marks that change the writing direction, invalid
// UTF-8. A backslash is doubled. So two different strings never look the same.
func Escape(s string) string {
	if isPlain(s) || strings.IndexFunc(s, mustEscape) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\\':
			b.WriteString(`\\`)
		case mustEscape(r) && r != utf8.RuneError:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
		i += size
	}
	return b.String()
}

// isPlain reports whether a text is ASCII without anything to escape, as nearly all texts are.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '\\' {
			return false
		}
	}
	return true
}

// mustEscape reports true for RuneError, which may stand for an invalid byte.
func mustEscape(r rune) bool {
	return r == '\\' || r == utf8.RuneError || !unicode.IsPrint(r)
}

// line escapes s; the empty string becomes "-".
func line(s string) string {
	if s == "" {
		return "-"
	}
	return Escape(s)
}

// Named returns an escaped command after the name of its job: "train-a: python3 train.py".
func Named(job, command string) string {
	if job == "" {
		return line(command)
	}
	return Escape(job) + ": " + line(command)
}

// cell escapes s for a column that is not the last: as line does, and without white space.
func cell(s string) string { return strings.ReplaceAll(line(s), " ", `\x20`) }
