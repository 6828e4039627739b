package report

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gpuarb/gpuarb/accounting"
)

// Style says how a table is printed. The zero Style is that of files and scripts: bytes,
// seconds, and nothing left out.
type Style struct {
	// Human: amounts are rounded ("3.5GiB"), times have their unit ("5min").
	Human bool
	// Width is that of the terminal; 0: there is none. Where a table is wider, the columns
	// that matter least are left out, and what is still too long is cut, with "…" at its end.
	Width int
}

// Value spells an amount as a file shows it: bytes in decimal, or "max".
func Value(b accounting.Bytes) string {
	if b == accounting.Max {
		return "max"
	}
	return strconv.FormatUint(uint64(b), 10)
}

// amount spells an amount for a table: as Value, or for people as in messages, without a space: "3.5GiB".
func (s Style) amount(b accounting.Bytes) string {
	if !s.Human {
		return Value(b)
	}
	if b < 1024 {
		return fmt.Sprintf("%dB", b)
	}
	return strings.Replace(b.Human(), " ", "", 1)
}

// span spells a time, given in ms, for a table: in seconds, or for people with its unit.
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

// Amount spells an amount for people, in a table: "3.5GiB".
func Amount(b accounting.Bytes) string { return Style{Human: true}.amount(b) }

// Span spells a time, given in ms, for people: "5min".
func Span(ms int64) string { return Style{Human: true}.span(ms) }

// count spells a limit on a number of things, where 0 limits nothing.
func count(n int) string {
	if n == 0 {
		return "max"
	}
	return strconv.Itoa(n)
}

// Count spells a number of things for people: "1 device", "2 devices".
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Escape makes s fit for the rest of a line: whatever is not printed as itself
// (control characters, line ends, marks that turn the direction of writing, broken
// UTF-8) is spelled as in Go, \n, \x1b, \u202e, and a backslash is doubled, so that
// two different strings never look the same.
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

// isPlain tells that a text is of ASCII, without anything to escape: nearly all are.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '\\' {
			return false
		}
	}
	return true
}

// mustEscape is true for RuneError, which may stand for a broken byte.
func mustEscape(r rune) bool {
	return r == '\\' || r == utf8.RuneError || !unicode.IsPrint(r)
}

// line is Escape, with "-" for nothing.
func line(s string) string {
	if s == "" {
		return "-"
	}
	return Escape(s)
}

// Named is a command, escaped, behind the name of its job: "train-a: python3 train.py".
func Named(job, command string) string {
	if job == "" {
		return line(command)
	}
	return Escape(job) + ": " + line(command)
}

// word makes s fit for a column that is not the last: as line, and without white space.
func word(s string) string { return strings.ReplaceAll(line(s), " ", `\x20`) }
