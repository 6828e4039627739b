package top

// This file draws the table of rows. rows.go makes the rows.

import (
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
)

// column is a column of the table.
type column struct {
	title string
	key   string // sort key of the column; "": none
	cells int
	from  int  // the screen must have at least this width to show the column
	right bool // align to the right
	text  func(*row) string
}

// The last column takes the rest of the line.
var columns = []column{
	{"PID", "pid", 7, 0, true, func(r *row) string { return strconv.Itoa(r.pid) }},
	{"USER", "user", 8, 0, false, func(r *row) string { return orDash(r.user) }},
	{"GPU", "gpu", 3, 0, true, (*row).deviceCell},
	{"STATE", "state", 10, 0, false, (*row).stateCell},
	{"USED", "used", 8, 0, true, func(r *row) string { return report.Amount(r.used) }},
	{"BUDGET", "budget", 8, 0, true, (*row).budgetCell},
	{"", "used", 10, 100, false, nil}, // bar of the budget
	{"PEAK", "peak", 8, 110, true, func(r *row) string { return report.Amount(r.peak) }},
	{"STREAMS", "", 7, 120, true, func(r *row) string { return strconv.Itoa(r.streams) }},
	{"WAITED", "waited", 6, 100, true, (*row).waitedCell},
	{"AGE", "age", 6, 0, true, func(r *row) string { return report.Span(r.ageMs) }},
	{"COMMAND", "command", 0, 0, false, (*row).commandCell},
}

// columns yields the columns that fit on the screen.
func (m *Model) columns() iter.Seq[*column] {
	return func(yield func(*column) bool) {
		for i := range columns {
			if c := &columns[i]; m.width >= c.from && !yield(c) {
				return
			}
		}
	}
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return report.Escape(text)
}

func (r *row) deviceCell() string {
	switch {
	case r.device >= 0:
		return accounting.IndexName(r.device)
	case r.kind == jobRow:
		return "+" // several
	}
	return "any"
}

// commandCell returns the command without the folder of its program, which would fill the column.
// The name of the job comes first, unless the row of the job is above.
func (r *row) commandCell() string {
	program, arguments, _ := strings.Cut(r.command, " ")
	command := program[strings.LastIndex(program, "/")+1:]
	if arguments != "" {
		command += " " + arguments
	}
	if r.branch != "" {
		return r.branch + report.Named("", command)
	}
	return report.Named(r.name, command)
}

// stateCell returns the state. For a waiting request it is the place in the queue.
func (r *row) stateCell() string {
	if r.ticket != nil && r.ticket.Pos > 0 {
		return fmt.Sprintf("waits #%d", r.ticket.Pos)
	}
	return report.Escape(r.state)
}

func (r *row) budgetCell() string {
	if r.kind == unmanagedRow {
		return "-"
	}
	return report.Amount(r.budget)
}

func (r *row) waitedCell() string {
	if r.ticket == nil {
		return "-"
	}
	return report.Span(r.ticket.WaitedMs)
}

// attribute returns the colour in which the state of the row is drawn, as a terminal attribute; "":
// the usual colour.
func (r *row) attribute() string {
	switch figures.State(r.state) {
	case figures.StateOver, figures.StateLost:
		return alarm
	}
	switch {
	case r.ticket != nil:
		return attention
	case r.kind == unmanagedRow:
		return unmanaged
	}
	return ""
}

// header returns the line above the rows.
func (m *Model) header() string {
	var b strings.Builder
	b.WriteByte(' ')
	left := m.width - 1
	for c := range m.columns() {
		title := c.title
		if title != "" && c.key == m.sortKey().name {
			mark := m.glyphs.up
			if m.sortKey().largest != m.reversed {
				mark = m.glyphs.down
			}
			title += mark
		}
		b.WriteString(c.fit(title, left))
		b.WriteByte(' ')
		left -= c.cells + 1
	}
	if m.once {
		return paint(bold, strings.TrimRight(b.String(), " "))
	}
	return paint(inverse, fit(strings.TrimSuffix(b.String(), " "), m.width))
}

// fit lays out a text in the column. The last column gets the rest of the line.
func (c *column) fit(text string, left int) string {
	switch {
	case c.cells == 0:
		return fit(text, max(0, left))
	case c.right:
		return alignRight(text, c.cells)
	}
	return fit(text, c.cells)
}

// line draws a row. Rows of other users are faint, and the selected row is inverse.
func (m *Model) line(r *row, selected bool) string {
	var b strings.Builder
	mark := " "
	if selected {
		mark = ">"
	}
	b.WriteString(mark)
	left := m.width - 1
	for c := range m.columns() {
		switch {
		case c.text == nil:
			b.WriteString(m.leaseBar(r, c.cells))
		case c.title == "STATE":
			b.WriteString(paint(r.attribute(), c.fit(c.text(r), left)))
		default:
			b.WriteString(c.fit(c.text(r), left))
		}
		b.WriteByte(' ')
		left -= c.cells + 1
	}
	text := b.String()
	if selected || m.isOtherUsers(r) {
		text = ansi.Strip(text) // the whole line gets one attribute
	}
	text = fit(strings.TrimSuffix(text, " "), m.width)
	if m.once {
		text = strings.TrimRight(text, " ")
	}
	switch {
	case selected:
		return paint(inverse, text)
	case m.isOtherUsers(r):
		return paint(faint, text)
	case r.kind == jobRow:
		return paint(bold, text)
	}
	return text
}

// leaseBar draws how much of a budget is used.
func (m *Model) leaseBar(r *row, cells int) string {
	if r.kind == ticketRow || r.kind == ownerRow {
		return strings.Repeat(" ", cells)
	}
	g, total := &m.glyphs, r.budget
	if d := m.state.Device(r.device); d != nil {
		total = min(total, d.Capacity.Plus(d.Unmanaged))
	}
	return bar([]part{{"used", g.used, used, r.used}, {"kept", g.kept, kept, r.min.Less(r.used)}, {"free", g.free, faint, 0}}, total, cells)
}

// isOtherUsers reports whether a row belongs to another user than Options.UID. For root no row
// does.
func (m *Model) isOtherUsers(r *row) bool {
	return m.options.UID != 0 && (!r.owned || r.uid != m.options.UID)
}

// columnAt returns the column at a place of the header; nil: none.
func (m *Model) columnAt(x int) *column {
	at := 1
	for c := range m.columns() {
		if at += c.cells + 1; x < at || c.cells == 0 {
			return c
		}
	}
	return nil
}
