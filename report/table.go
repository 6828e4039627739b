package report

import (
	"bufio"
	"io"
	"unicode/utf8"
)

type alignment int

const (
	left  alignment = iota
	right           // numbers
	last            // left, and nothing behind it
)

// column is one column of a table of T. The text is without white space, but for
// the last column's.
type column[T any] struct {
	name  string
	align alignment
	text  func(T) string
}

// spaces is cut to pad; a wider column is padded in pieces.
const spaces = "                                "

// table writes a header and a line per row, each column as wide as its widest text.
func table[T any](w io.Writer, columns []column[T], rows []T) error {
	widths := make([]int, len(columns))
	cells := make([]string, 0, (len(rows)+1)*len(columns))
	add := func(i int, text string) {
		widths[i] = max(widths[i], utf8.RuneCountInString(text))
		cells = append(cells, text)
	}
	for i, c := range columns {
		add(i, c.name)
	}
	for _, row := range rows {
		for i, c := range columns {
			add(i, c.text(row))
		}
	}
	out := bufio.NewWriter(w)
	for k, text := range cells {
		i := k % len(columns)
		fill := widths[i] - utf8.RuneCountInString(text)
		switch columns[i].align {
		case right:
			pad(out, fill)
			out.WriteString(text)
		case left:
			out.WriteString(text)
			pad(out, fill)
		case last:
			out.WriteString(text)
		}
		if i == len(columns)-1 {
			out.WriteByte('\n')
		} else {
			out.WriteByte(' ')
		}
	}
	return out.Flush()
}

func pad(out *bufio.Writer, n int) {
	for ; n > len(spaces); n -= len(spaces) {
		out.WriteString(spaces)
	}
	if n > 0 {
		out.WriteString(spaces[:n])
	}
}
