package top

// This file draws the screen. devices.go, table.go and details.go draw its parts.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/gpuarb/gpuarb/internal/report"
)

// View draws the screen for the terminal library.
func (m *Model) View() tea.View {
	viewKey := tea.NewView(m.draw())
	viewKey.AltScreen = true
	if m.mouse {
		viewKey.MouseMode = tea.MouseModeCellMotion
	}
	return viewKey
}

// draw returns the screen: as many lines as the terminal has, each at most as wide.
func (m *Model) draw() string {
	foot := m.foot()
	lines := []string{m.title()}
	switch m.page {
	case table:
		lines = append(lines, m.drawDevices()...)
		lines = append(lines, m.header())
		lines = append(lines, m.drawRows(m.height-len(lines)-len(foot))...)
	case details:
		lines = append(lines, m.scrolled(m.drawDetails(), m.height-1-len(foot))...)
	case help:
		lines = append(lines, m.scrolled(helpLines(m.width), m.height-1-len(foot))...)
	}
	room := max(1, m.height-len(foot))
	for len(lines) < room {
		lines = append(lines, "")
	}
	lines = append(lines[:room], foot...)
	for i := range lines {
		lines[i] = m.displayable(ansi.Truncate(lines[i], m.width, "…"))
	}
	return strings.Join(lines[:min(len(lines), m.height)], "\n")
}

// room returns the number of rows that fit on the screen.
func (m *Model) room() int {
	if m.page != table {
		return m.height - 1 - len(m.foot())
	}
	return m.height - 2 - len(m.drawDevices()) - len(m.foot())
}

// drawRows draws the rows that fit, among them the selected row.
func (m *Model) drawRows(room int) []string {
	if room <= 0 {
		return nil
	}
	if len(m.rows) == 0 {
		return []string{paint(faint, " "+m.emptyText())}
	}
	m.first = max(min(m.first, m.at, len(m.rows)-room), m.at-room+1, 0)
	lines := make([]string, 0, room)
	for i := m.first; i < min(len(m.rows), m.first+room); i++ {
		lines = append(lines, m.line(&m.rows[i], i == m.at))
	}
	return lines
}

// emptyText says why there is no row.
func (m *Model) emptyText() string {
	switch {
	case m.answered.IsZero() && !m.once:
		return "waiting for the daemon's answer"
	case m.filter != "" || m.ownOnly:
		return "no row passes the filter; esc clears it"
	}
	if len(m.state.Devices) == 0 {
		return "the daemon knows no device; `gpuarb doctor` says why"
	}
	return "nobody uses a device, and nobody waits for one"
}

// titlePart is a part of the title. Where the screen is narrow, parts of a low rank are left out.
type titlePart struct {
	rank int
	text string
}

// title returns the first line.
func (m *Model) title() string {
	parts := []titlePart{{9, paint(bold, "gpuarb top")}}
	if s := &m.state; s.TimeUnixNano != 0 {
		parts = append(parts, titlePart{8, time.Unix(0, s.TimeUnixNano).Format(time.TimeOnly)},
			titlePart{2, report.Count(len(s.Devices), "device")}, titlePart{3, report.Count(len(s.Leases), "lease")})
		if n := len(s.Queue); n > 0 {
			parts = append(parts, titlePart{7, paint(attention, fmt.Sprintf("%d waiting", n))})
		}
	}
	parts = append(parts, titlePart{1, "by " + m.sortKey().name})
	if m.filter != "" {
		parts = append(parts, titlePart{6, paint(bold, "filter "+report.Escape(m.filter))})
	}
	if m.ownOnly {
		parts = append(parts, titlePart{5, paint(bold, "only yours")})
	}
	if trouble := m.trouble(); trouble != "" {
		parts = slices.Insert(parts, 0, titlePart{10, paint(alarm, trouble)})
	}
	line := func() string {
		var texts []string
		for _, p := range parts {
			texts = append(texts, p.text)
		}
		return strings.Join(texts, "  ")
	}
	for len(parts) > 1 && ansi.StringWidth(line()) > m.width {
		lowest := slices.MinFunc(parts, func(a, b titlePart) int { return cmp.Compare(a.rank, b.rank) })
		parts = slices.DeleteFunc(parts, func(p titlePart) bool { return p == lowest })
	}
	return line()
}

// trouble says that the daemon does not answer; "": it does.
func (m *Model) trouble() string {
	switch missing := m.now.Sub(m.asked); {
	case m.away != "" && m.answered.IsZero():
		return "no daemon"
	case m.away != "":
		return fmt.Sprintf("no daemon for %ds; the figures below are old", int(m.now.Sub(m.answered).Seconds()))
	case !m.asked.IsZero() && missing > slowAnswer:
		return fmt.Sprintf("no answer for %ds", int(missing.Seconds()))
	}
	return ""
}

// foot returns the last lines: the dialog, a message, why the daemon does not answer, or the keys.
func (m *Model) foot() []string {
	switch {
	case m.dialog.prompt != noPrompt:
		return m.drawDialog()
	case m.note != "" && m.now.Before(m.noteEnd):
		return m.message(bold, m.note)
	case m.away != "":
		return m.message(alarm, m.away)
	case m.page != table:
		return []string{m.keyHints("esc", "back", m.glyphs.scroll, "scroll", "l", "limit", "c", "cancel", "k", "signal", "q", "back")}
	}
	keys := m.keyHints("q", "quit", "?", "help", m.glyphs.enter, "details", "/", "filter", "t", "tree", "s", "sort",
		"l", "limit", "c", "cancel", "k", "signal")
	if room := m.roomElsewhere(); room != "" {
		return append(m.message(attention, room), keys)
	}
	return []string{keys}
}

// roomElsewhere says which other device has room for the program of the selected row, if the row
// waits; "": none has.
func (m *Model) roomElsewhere() string {
	r := m.selected()
	if r == nil || r.ticket == nil || r.ticket.RoomOn == nil {
		return ""
	}
	d := m.state.Device(*r.ticket.RoomOn)
	if d == nil {
		return ""
	}
	return fmt.Sprintf("%s has %s free: gpuarb run --device %d, or --device emptiest", d.Called(), report.Amount(d.Free), d.Index)
}

// keyHints formats pairs of a key and its effect, as many as fit.
func (m *Model) keyHints(words ...string) string {
	line := ""
	for i := 0; i+1 < len(words); i += 2 {
		hint := paint(bold, words[i]) + " " + words[i+1]
		if i > 0 {
			hint = "  " + hint
		}
		if ansi.StringWidth(line)+ansi.StringWidth(hint) > m.width {
			break
		}
		line += hint
	}
	return line
}

// scrolled returns the lines of a page that are on the screen.
func (m *Model) scrolled(lines []string, room int) []string {
	m.scroll = max(0, min(m.scroll, len(lines)-room))
	return lines[m.scroll:min(len(lines), m.scroll+max(0, room))]
}

// displayable returns a line in characters that the terminal can show. If only ASCII can be shown,
// each cell of another character becomes a question mark.
func (m *Model) displayable(line string) string {
	if !m.options.ASCII {
		return line
	}
	var b strings.Builder
	for _, r := range line {
		switch {
		case r == '…':
			b.WriteByte('~')
		case r == '→':
			b.WriteByte('>')
		case r > '~':
			b.WriteString(strings.Repeat("?", ansi.StringWidth(string(r))))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
