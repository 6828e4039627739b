package top

// This file handles keys and the mouse outside of dialogs. update.go calls it; dialog.go has the
// keys of dialogs.

import (
	tea "charm.land/bubbletea/v2"
)

// pressKey handles a key: for the dialog if one is open, otherwise for the page.
func (m *Model) pressKey(key, text string) tea.Cmd {
	if m.dialog.prompt != noPrompt {
		return m.dialogKey(key, text)
	}
	switch key {
	case "q", "ctrl+c", "f10":
		if key == "q" && m.page != table {
			m.showPage(table)
			return nil
		}
		return tea.Quit
	case "ctrl+z":
		if m.options.Suspend {
			return tea.Suspend
		}
		m.say("cannot suspend: there is no shell that could resume it")
	case "ctrl+l":
		return tea.ClearScreen
	case "?", "h", "f1":
		m.showPage(help)
	case "enter", "d":
		m.showPage(details)
	case "esc":
		if m.page == table {
			m.filter, m.ownOnly = "", false
			m.updateRows()
		}
		m.showPage(table)
	case "l":
		m.openDialog(SetLimit)
	case "c":
		m.openDialog(CancelTicket)
	case "k", "f9":
		m.openDialog(SendSignal)
	case "f":
		m.openDialog(Suspend)
	default:
		if !m.move(key) {
			m.viewKey(key)
		}
	}
	return nil
}

// showPage opens a page. If the page is open already, it is closed.
func (m *Model) showPage(p page) {
	if m.page == p || p == details && m.selected() == nil {
		p = table
	}
	m.page, m.scroll = p, 0
	if m.ended {
		m.choose(m.at) // the row that is there now
	}
}

// move handles a key that moves the selection or the page. It returns false for any other key.
func (m *Model) move(key string) bool {
	screen := max(1, m.room())
	steps := map[string]int{"up": -1, "down": 1, "j": 1, "pgup": -screen, "pgdown": screen, "home": -len(m.rows) - m.scroll, "end": len(m.rows) + 1000}
	step, known := steps[key]
	switch {
	case !known:
		return false
	case m.page != table:
		m.scroll = max(0, m.scroll+step)
	default:
		m.choose(m.at + step)
	}
	return true
}

// viewKey handles a key that changes what is shown.
func (m *Model) viewKey(key string) {
	switch key {
	case "/", "f3", "f4":
		m.showPage(table)
		m.dialog = dialog{prompt: filterPrompt, input: m.filter}
		return
	case "t", "f5":
		m.options.Tree = !m.options.Tree
	case "s", "f6":
		m.sort = (m.sort + 1) % len(keys)
		m.reversed = false
	case "S":
		m.sort = (m.sort + len(keys) - 1) % len(keys)
		m.reversed = false
	case "r":
		m.reversed = !m.reversed
	case "u":
		m.ownOnly = !m.ownOnly
	case "C":
		m.options.Compact = !m.options.Compact
	case "m":
		m.mouse = !m.mouse
		m.say(map[bool]string{true: "the mouse selects and sorts here", false: "the mouse is the terminal's own"}[m.mouse])
	default:
		return
	}
	m.updateRows()
}

// click selects the row under the mouse. On the selected row it opens the details; on the header it
// sorts by the column.
func (m *Model) click(x, y int) {
	if m.dialog.prompt != noPrompt || m.page != table {
		return
	}
	header := 1 + len(m.drawDevices())
	at := m.first + y - header - 1
	switch {
	case y == header:
		if c := m.columnAt(x); c != nil && c.key != "" {
			k := keyNamed(c.key)
			m.reversed = k == m.sort && !m.reversed
			m.sort = k
			m.updateRows()
		}
	case y < header || at >= len(m.rows) || y > header+m.room():
	case at == m.at:
		m.showPage(details)
	default:
		m.choose(at)
	}
}

// wheel moves by three lines.
func (m *Model) wheel(up bool) {
	key := "down"
	if up {
		key = "up"
	}
	for range 3 {
		m.move(key)
	}
}
