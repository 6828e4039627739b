package top

// This file draws the screen. devices.go, table.go and details.go draw its parts.

import (
	"fmt"
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

// title returns the first line.
func (m *Model) title() string {
	left := paint(bold, "gpuarb top")
	if s := &m.state; s.TimeUnixNano != 0 {
		at := time.Unix(0, s.TimeUnixNano).Format(time.TimeOnly)
		left += fmt.Sprintf("  %s  %s  %s", at, report.Count(len(s.Devices), "device"), report.Count(len(s.Leases), "lease"))
		if n := len(s.Queue); n > 0 {
			left += "  " + paint(attention, fmt.Sprintf("%d waiting", n))
		}
	}
	left += fmt.Sprintf("  by %s", m.sortKey().name)
	if m.filter != "" {
		left += "  " + paint(bold, "filter "+report.Escape(m.filter))
	}
	if m.ownOnly {
		left += "  " + paint(bold, "only yours")
	}
	if missing := m.now.Sub(m.asked); m.away == "" && !m.asked.IsZero() && missing > slowAnswer {
		left = paint(alarm, fmt.Sprintf("no answer for %ds", int(missing.Seconds()))) + "  " + left
	}
	if m.away != "" {
		text := "no daemon"
		if !m.answered.IsZero() {
			text = fmt.Sprintf("no daemon for %ds; the figures below are old", int(m.now.Sub(m.answered).Seconds()))
		}
		left = paint(alarm, text) + "  " + left
	}
	return left
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
		return []string{keyHints([]string{"esc", "back", m.glyphs.scroll, "scroll", "l", "limit", "c", "cancel", "k", "signal", "q", "back"})}
	}
	return []string{keyHints([]string{"q", "quit", "?", "help", "/", "filter", "t", "tree", "s", "sort", m.glyphs.enter, "details",
		"l", "limit", "c", "cancel", "k", "signal"})}
}

// keyHints formats pairs of a key and its effect.
func keyHints(words []string) string {
	var b strings.Builder
	for i := 0; i+1 < len(words); i += 2 {
		b.WriteString(paint(bold, words[i]) + " " + words[i+1] + "  ")
	}
	return strings.TrimRight(b.String(), " ")
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
