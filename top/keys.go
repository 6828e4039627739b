package top

import (
	tea "charm.land/bubbletea/v2"
)

// press is a key: for the dialog where one is open, else for the page.
func (m *Model) press(key, text string) tea.Cmd {
	if m.dialog.asks != nothing {
		return m.answer(key, text)
	}
	switch key {
	case "q", "ctrl+c", "f10":
		if key == "q" && m.page != table {
			m.turnTo(table)
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
		m.turnTo(help)
	case "enter", "d":
		m.turnTo(details)
	case "esc":
		if m.page == table {
			m.filter, m.own = "", false
			m.arrange()
		}
		m.turnTo(table)
	case "l":
		m.begin(SetLimit)
	case "c":
		m.begin(CancelTicket)
	case "k", "f9":
		m.begin(SendSignal)
	default:
		if !m.move(key) {
			m.view(key)
		}
	}
	return nil
}

// turnTo opens a page, or closes it.
func (m *Model) turnTo(p page) {
	if m.page == p || p == details && m.selected() == nil {
		p = table
	}
	m.page, m.line1 = p, 0
	if m.ended {
		m.choose(m.at) // what stands there now
	}
}

// move is a key that moves the selection, or the page; false: it is none.
func (m *Model) move(key string) bool {
	screen := max(1, m.room())
	steps := map[string]int{"up": -1, "down": 1, "j": 1, "pgup": -screen, "pgdown": screen, "home": -len(m.rows) - m.line1, "end": len(m.rows) + 1000}
	step, known := steps[key]
	switch {
	case !known:
		return false
	case m.page != table:
		m.line1 = max(0, m.line1+step)
	default:
		m.choose(m.at + step)
	}
	return true
}

// view is a key that changes what is seen.
func (m *Model) view(key string) {
	switch key {
	case "/", "f3", "f4":
		m.turnTo(table)
		m.dialog = dialog{asks: forFilter, input: m.filter}
		return
	case "t", "f5":
		m.options.Tree = !m.options.Tree
	case "s", "f6":
		m.sort = (m.sort + 1) % len(keys)
		m.turned = false
	case "S":
		m.sort = (m.sort + len(keys) - 1) % len(keys)
		m.turned = false
	case "r":
		m.turned = !m.turned
	case "u":
		m.own = !m.own
	case "C":
		m.options.Compact = !m.options.Compact
	case "m":
		m.mouse = !m.mouse
		m.say(map[bool]string{true: "the mouse selects and sorts here", false: "the mouse is the terminal's own"}[m.mouse])
	default:
		return
	}
	m.arrange()
}

// click selects the row under the mouse, opens its details where it is selected, or sorts by a
// column.
func (m *Model) click(x, y int) {
	if m.dialog.asks != nothing || m.page != table {
		return
	}
	header := 1 + len(m.drawDevices())
	at := m.first + y - header - 1
	switch {
	case y == header:
		if c := m.columnAt(x); c != nil && c.key != "" {
			k := keyNamed(c.key)
			m.turned = k == m.sort && !m.turned
			m.sort = k
			m.arrange()
		}
	case y < header || at >= len(m.rows) || y > header+m.room():
	case at == m.at:
		m.turnTo(details)
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
