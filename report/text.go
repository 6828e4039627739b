package report

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gpuarb/gpuarb/accounting"
)

// Value spells an amount as a file shows it: bytes in decimal, or "max".
func Value(b accounting.Bytes) string {
	if b == accounting.Max {
		return "max"
	}
	return strconv.FormatUint(uint64(b), 10)
}

// Size spells an amount for a message: "4.0 GiB", "512 B", "max". It rounds to the
// nearest tenth.
func Size(b accounting.Bytes) string {
	const units = "KMGTPE"
	if b == accounting.Max {
		return "max"
	}
	if b < 1024 {
		return fmt.Sprintf("%d B", b)
	}
	amount, unit := float64(b)/1024, 0
	for amount >= 1023.95 { // it would be rounded to 1024.0
		amount /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", amount, units[unit])
}

// compact is Size without its space, for a column.
func compact(b accounting.Bytes) string { return strings.Replace(Size(b), " ", "", 1) }

// count spells a limit on a number of things, where 0 limits nothing.
func count(n int) string {
	if n == 0 {
		return "max"
	}
	return strconv.Itoa(n)
}

// Escape makes s fit for the rest of a line: whatever is not printed as itself
// (control characters, line ends, marks that turn the direction of writing, broken
// UTF-8) is spelled as in Go, \n, \x1b, \u202e, and a backslash is doubled, so that
// two different strings never look the same.
func Escape(s string) string {
	if strings.IndexFunc(s, mustEscape) < 0 {
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

// word makes s fit for a column that is not the last: as line, and without white space.
func word(s string) string { return strings.ReplaceAll(line(s), " ", `\x20`) }
