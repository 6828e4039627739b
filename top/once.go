package top

import (
	"fmt"
	"io"
	"strings"

	"github.com/gpuarb/gpuarb/figures"
)

// Once writes the screen as text: all rows, or in so many lines as there are, where height is above 0.
func Once(w io.Writer, s figures.Snapshot, options Options, width, height int) error {
	m := New(nil, options)
	m.once, m.width, m.height = true, width, 0
	m.show(s)
	lines := append([]string{m.title()}, m.drawDevices()...)
	lines = append(lines, m.header())
	if len(m.rows) == 0 {
		lines = append(lines, " "+m.nobody())
	}
	for i := range m.rows {
		if height > 0 && len(lines) >= height-1 && i < len(m.rows)-1 {
			lines = append(lines, fmt.Sprintf(" and %d more", len(m.rows)-i))
			break
		}
		lines = append(lines, m.line(&m.rows[i], false))
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, m.spelled(strings.TrimRight(fit(line, width), " "))); err != nil {
			return err
		}
	}
	return nil
}
