package top

import (
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/figures"
	"github.com/gpuarb/gpuarb/report"
)

// column is a column of the table of leases.
type column struct {
	title string
	key   string // that it is sorted by
	cells int
	from  int  // how wide a screen has it
	right bool // its texts end at its right end
	text  func(*row) string
}

// The last column takes what is left.
var columns = []column{
	{"PID", "pid", 7, 0, true, func(r *row) string { return strconv.Itoa(r.pid) }},
	{"USER", "user", 8, 0, false, func(r *row) string { return orDash(r.user) }},
	{"GPU", "gpu", 3, 0, true, (*row).deviceCell},
	{"STATE", "state", 10, 0, false, (*row).stateCell},
	{"USED", "used", 8, 0, true, func(r *row) string { return report.Amount(r.used) }},
	{"BUDGET", "budget", 8, 0, true, (*row).budgetCell},
	{"", "used", 10, 100, false, nil}, // the bar
	{"PEAK", "peak", 8, 110, true, func(r *row) string { return report.Amount(r.peak) }},
	{"STREAMS", "", 7, 120, true, func(r *row) string { return strconv.Itoa(r.streams) }},
	{"WAITED", "waited", 6, 100, true, (*row).waitedCell},
	{"AGE", "age", 6, 0, true, func(r *row) string { return report.Span(r.ageMs) }},
	{"COMMAND", "command", 0, 0, false, (*row).commandCell},
}

// columns are those that the screen is wide enough for.
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
	case r.is == aJob:
		return "+" // several
	}
	return "any"
}

// commandCell is the command without the folder of its program, which would fill the column; behind
// the name of the job, unless that stands above it.
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

// stateCell is the state, with the place in the queue of what waits.
func (r *row) stateCell() string {
	if r.ticket != nil && r.ticket.Pos > 0 {
		return fmt.Sprintf("waits #%d", r.ticket.Pos)
	}
	return report.Escape(r.state)
}

func (r *row) budgetCell() string {
	if r.is == anUnmanaged {
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

// attribute is how a state is painted.
func (r *row) attribute() string {
	switch figures.State(r.state) {
	case figures.StateOver, figures.StateLost:
		return alarm
	}
	switch {
	case r.ticket != nil:
		return attention
	case r.is == anUnmanaged:
		return unmanaged
	}
	return ""
}

// header is the line above the rows.
func (m *Model) header() string {
	var b strings.Builder
	b.WriteByte(' ')
	left := m.width - 1
	for c := range m.columns() {
		title := c.title
		if title != "" && c.key == m.sortKey().name {
			mark := m.glyphs.up
			if m.sortKey().largest != m.turned {
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

// fit lays a text out in the column; the last one has what is left of the line.
func (c *column) fit(text string, left int) string {
	switch {
	case c.cells == 0:
		return fit(text, max(0, left))
	case c.right:
		return alignRight(text, c.cells)
	}
	return fit(text, c.cells)
}

// line draws a row. That of somebody else is faint, and the one that is selected inverse.
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
	if selected || m.isOthers(r) {
		text = ansi.Strip(text) // the line has an attribute of its own
	}
	text = fit(strings.TrimSuffix(text, " "), m.width)
	if m.once {
		text = strings.TrimRight(text, " ")
	}
	switch {
	case selected:
		return paint(inverse, text)
	case m.isOthers(r):
		return paint(faint, text)
	case r.is == aJob:
		return paint(bold, text)
	}
	return text
}

// leaseBar draws what is used of a budget.
func (m *Model) leaseBar(r *row, cells int) string {
	if r.is == aTicket || r.is == anOwner {
		return strings.Repeat(" ", cells)
	}
	g, total := &m.glyphs, r.budget
	if d := m.state.Device(r.device); d != nil {
		total = min(total, d.Capacity.Plus(d.Unmanaged))
	}
	return bar([]part{{"used", g.used, used, r.used}, {"kept", g.kept, kept, r.min.Less(r.used)}, {"free", g.free, faint, 0}}, total, cells)
}

// isOthers reports whether a row is of somebody else than who looks; to root nobody's is.
func (m *Model) isOthers(r *row) bool {
	return m.options.UID != 0 && (!r.owned || r.uid != m.options.UID)
}

// columnAt is the column at a place of the header; nil: there is none.
func (m *Model) columnAt(x int) *column {
	at := 1
	for c := range m.columns() {
		if at += c.cells + 1; x < at || c.cells == 0 {
			return c
		}
	}
	return nil
}
