package top

// This file prints the screen once, for `gpuarb top --once`. cmd/gpuarb/top.go calls it; screen.go
// draws.

import (
	"fmt"
	"io"
	"strings"

	"github.com/gpuarb/gpuarb/internal/figures"
)

// Once writes the screen as text with all rows. If height is above 0, it writes at most that number
// of lines.
func Once(w io.Writer, s figures.Snapshot, options Options, width, height int) error {
	m := New(nil, options)
	m.once, m.width, m.height = true, width, 0
	m.show(s)
	lines := append([]string{m.title()}, m.drawDevices()...)
	lines = append(lines, m.header())
	if len(m.rows) == 0 {
		lines = append(lines, " "+m.emptyText())
	}
	for i := range m.rows {
		if height > 0 && len(lines) >= height-1 && i < len(m.rows)-1 {
			lines = append(lines, fmt.Sprintf(" and %d more", len(m.rows)-i))
			break
		}
		lines = append(lines, m.line(&m.rows[i], false))
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, m.displayable(strings.TrimRight(fit(line, width), " "))); err != nil {
			return err
		}
	}
	return nil
}
