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
	cells int    // width; of a column with least, the largest width
	right bool   // align to the right
	text  func(*row) string
	// The screen must have at least this width to show the column if no request waits, and if one
	// does.
	from, fromWaiting int
	least             int // width if all texts are short; 0: the width is always cells
}

// never is wider than any screen.
const never = 1 << 20

// The last column takes the rest of the line.
var columns = []column{
	{"PID", "pid", 7, true, func(r *row) string { return strconv.Itoa(r.pid) }, 0, 0, 4},
	{"USER", "user", 8, false, func(r *row) string { return orDash(r.user) }, 0, 0, 5},
	{"GPU", "gpu", 3, true, (*row).deviceCell, 0, 0, 0},
	{"STATE", "state", 10, false, (*row).stateCell, 0, 0, 0},
	{"USED", "used", 7, true, func(r *row) string { return report.Amount(r.used) }, 0, 0, 0},
	{"BUDGET", "budget", 7, true, (*row).budgetCell, 68, 76, 0},
	{"", "used", 10, false, nil, 120, 140, 0}, // bar of the budget
	{"PEAK", "peak", 7, true, func(r *row) string { return report.Amount(r.peak) }, 110, 130, 0},
	{"STREAMS", "", 7, true, func(r *row) string { return strconv.Itoa(r.streams) }, 130, 150, 0},
	{"WANTS", "wants", 7, true, (*row).wantsCell, never, 68, 0},
	{"WAITED", "waited", 6, true, (*row).waitedCell, never, 68, 0},
	{"UTIL", "util", 4, true, (*row).utilCell, 80, 96, 0},
	{"IDLE", "idle", 5, true, (*row).idleCell, 76, 96, 0},
	{"AGE", "age", 5, true, func(r *row) string { return report.Span(r.ageMs) }, 100, 104, 0},
	{"COMMAND", "command", 0, false, (*row).commandCell, 0, 0, 0},
}

// narrowColumns are the columns of a narrow screen. A waiting request has what it wants in its state.
var narrowColumns = []column{
	{"USER", "user", 7, false, func(r *row) string { return orDash(r.user) }, 0, 0, 5},
	{"GPU", "gpu", 3, true, (*row).deviceCell, 0, 0, 0},
	{"USED", "used", 7, true, func(r *row) string { return report.Amount(r.used) }, 0, 0, 0},
	{"STATE", "state", 9, false, (*row).narrowStateCell, 0, 0, 0},
	{"COMMAND", "command", 0, false, (*row).commandCell, 0, 0, 0},
}

// columns yields the columns that fit on the screen.
func (m *Model) columns() iter.Seq[*column] {
	all := columns
	if m.width < narrow {
		all = narrowColumns
	}
	return func(yield func(*column) bool) {
		for i := range all {
			c, from := all[i], all[i].from
			if c.least > 0 {
				c.cells = min(max(c.least, m.widest[c.title]), c.cells)
			}
			if len(m.state.Queue) > 0 {
				from = c.fromWaiting
			}
			if m.width >= from && !yield(&c) {
				return
			}
		}
	}
}

// measure computes how wide the columns are whose width depends on their texts.
func (m *Model) measure() {
	m.widest = map[string]int{}
	for i := range columns {
		c := &columns[i]
		for k := range m.rows {
			if c.least > 0 {
				m.widest[c.title] = max(m.widest[c.title], ansi.StringWidth(c.text(&m.rows[k])))
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

// commandCell returns the command without the folders of its program and of a script, which would
// fill the column. The name of the job comes first, unless the row of the job is above.
func (r *row) commandCell() string {
	words := strings.SplitN(r.command, " ", 3)
	words[0] = words[0][strings.LastIndex(words[0], "/")+1:]
	if len(words) > 1 && strings.HasPrefix(words[1], "/") {
		words[1] = words[1][strings.LastIndex(words[1], "/")+1:]
	}
	command := strings.Join(words, " ")
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

// narrowStateCell returns the state. For a waiting request it is the place in the queue and what it
// wants.
func (r *row) narrowStateCell() string {
	if r.ticket != nil && r.ticket.Pos > 0 {
		return fmt.Sprintf("#%d %s", r.ticket.Pos, r.wantsCell())
	}
	return r.stateCell()
}

// wantsCell returns what the row waits for; "-": nothing.
func (r *row) wantsCell() string {
	switch {
	case r.ticket == nil:
		return "-"
	case r.ticket.WantsBytes > 0:
		return report.Amount(r.ticket.WantsBytes)
	}
	return strings.TrimPrefix(report.Escape(r.ticket.Wants), "a ")
}

// utilCell returns how busy the device was with the process; "-": not known.
func (r *row) utilCell() string {
	if r.util < 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", r.util)
}

// idleCell returns for how long the process has done nothing on the device; "-": not known.
func (r *row) idleCell() string {
	if r.idleMs < 0 {
		return "-"
	}
	return report.Span(r.idleMs)
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
	case figures.StateOver, figures.StateLost, figures.StateStuck:
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

// header returns the line above the rows. It is called before the rows are drawn, and measures the columns.
func (m *Model) header() string {
	m.measure()
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
