package report

// This file lays out tables: columns, alignment, and what happens if the terminal is too narrow.
// The files of the tables (leases.go, devices.go and others) define the columns.

import (
	"bufio"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/gpuarb/gpuarb/accounting"
)

type alignment int

const (
	left  alignment = iota
	right           // for numbers
	last            // left, and the last column of the line
)

// column is a column of a table of T. Only the text of the last column may contain white space.
type column[T any] struct {
	name     string
	align    alignment
	text     func(Style, T) string
	dropRank int // columns with the highest number are left out first; 0: never left out
}

// plain makes a column of texts that are equal in every style.
func plain[T any](name string, align alignment, text func(T) string, dropRank int) column[T] {
	return column[T]{name, align, func(_ Style, t T) string { return text(t) }, dropRank}
}

// number makes a column of numbers.
func number[T any](name string, of func(T) int, dropRank int) column[T] {
	return plain(name, right, func(t T) string { return strconv.Itoa(of(t)) }, dropRank)
}

// device makes the column of the index of the device.
func device[T any](of func(T) int) column[T] {
	return plain("GPU", right, func(t T) string { return accounting.IndexName(of(t)) }, 0)
}

// amount makes a column of bytes.
func amount[T any](name string, of func(T) accounting.Bytes, dropRank int) column[T] {
	return column[T]{name, right, func(s Style, t T) string { return s.amount(of(t)) }, dropRank}
}

// span makes a column of times in milliseconds.
func span[T any](name string, of func(T) int64, dropRank int) column[T] {
	return column[T]{name, right, func(s Style, t T) string { return s.span(of(t)) }, dropRank}
}

const (
	maxTextCells = 16 // cells that a column of text keeps if its table is too wide
	minLastCells = 16 // cells that the last column keeps before other columns are left out
)

// table writes a header and a line per row. Each column is as wide as its widest text.
func table[T any](w io.Writer, style Style, columns []column[T], rows []T) error {
	cells := make([]string, 0, (len(rows)+1)*len(columns))
	for _, c := range columns {
		cells = append(cells, c.name)
	}
	for _, row := range rows {
		for _, c := range columns {
			cells = append(cells, c.text(style, row))
		}
	}
	widths := widthsOf(cells, len(columns))
	shown := make([]bool, len(columns))
	for i := range shown {
		shown[i] = true
	}
	if style.Width > 0 {
		fit(columns, widths, shown, style.Width)
	}
	out := bufio.NewWriter(w)
	var text []byte
	for k := 0; k < len(cells); k += len(columns) {
		text = appendLine(text[:0], columns, cells[k:k+len(columns)], widths, shown)
		if style.Width > 0 {
			text = append(text[:0], cut(string(text), style.Width)...)
		}
		out.Write(append(text, '\n'))
	}
	return out.Flush()
}

// widthsOf returns the width of each of n columns.
func widthsOf(cells []string, n int) []int {
	widths := make([]int, n)
	for k, text := range cells {
		widths[k%n] = max(widths[k%n], utf8.RuneCountInString(text))
	}
	return widths
}

// appendLine lays out the cells of one row.
func appendLine[T any](to []byte, columns []column[T], cells []string, widths []int, shown []bool) []byte {
	first := true
	for i, text := range cells {
		if !shown[i] {
			continue
		}
		if !first {
			to = append(to, ' ')
		}
		first = false
		if columns[i].align == last {
			to = append(to, text...)
			continue
		}
		text = cut(text, widths[i])
		fill := widths[i] - utf8.RuneCountInString(text)
		if columns[i].align == right {
			to = appendSpaces(to, fill)
		}
		to = append(to, text...)
		if columns[i].align == left {
			to = appendSpaces(to, fill)
		}
	}
	return to
}

func appendSpaces(to []byte, n int) []byte {
	for range n {
		to = append(to, ' ')
	}
	return to
}

// fit makes a table narrower: it shortens long columns of text, then it leaves out the columns that
// matter least.
func fit[T any](columns []column[T], widths []int, shown []bool, most int) {
	wide := func() bool {
		sum := -1
		for i := range columns {
			switch {
			case !shown[i]:
			case columns[i].align == last:
				sum += 1 + min(widths[i], minLastCells)
			default:
				sum += 1 + widths[i]
			}
		}
		return sum > most
	}
	for i, c := range columns {
		if wide() && c.align == left {
			widths[i] = min(widths[i], max(maxTextCells, len(c.name)))
		}
	}
	for wide() {
		least := -1
		for i, c := range columns {
			if shown[i] && c.dropRank > 0 && (least < 0 || c.dropRank > columns[least].dropRank) {
				least = i
			}
		}
		if least < 0 {
			return
		}
		shown[least] = false
	}
}

// cut cuts a text to a number of terminal cells. A text that was cut ends with "…".
func cut(text string, most int) string {
	if len(text) <= most { // no rune has more cells than bytes
		return text
	}
	return ansi.Truncate(text, most, "…")
}
