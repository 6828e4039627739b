package top

// This file asks the user before a change: which limit, which signal, and whether to do it.
// action.go has the changes, keys.go opens a dialog.

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
)

// signals are the signals that the user can send, by key.
var signals = []struct{ key, name string }{
	{"t", "TERM"}, {"i", "INT"}, {"k", "KILL"}, {"h", "HUP"}, {"s", "STOP"}, {"c", "CONT"}, {"1", "USR1"}, {"2", "USR2"},
}

// insert adds text that was typed or pasted. It drops characters that cannot be printed.
func (d *dialog) insert(text string) {
	if d.prompt == filterPrompt || d.prompt == limitPrompt {
		d.input += strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return -1
			}
			return r
		}, text)
		d.wrong = ""
	}
}

func (d *dialog) erase() {
	_, size := utf8.DecodeLastRuneInString(d.input)
	d.input = d.input[:len(d.input)-size]
	d.wrong = ""
}

// openDialog opens the dialog for a change of the selected row.
func (m *Model) openDialog(kind Kind) {
	r := m.selected()
	if r == nil {
		return
	}
	action := Action{Kind: kind, PID: r.pid, Job: r.job, Device: r.device}
	switch kind {
	case SetLimit:
		if r.kind == unmanagedRow {
			m.say(fmt.Sprintf("process %d runs without gpuarb: no limit holds for it", r.pid))
			return
		}
		if r.kind != leaseRow {
			action.PID, action.Device = 0, AllDevices
		}
		m.dialog = dialog{prompt: limitPrompt, action: action, input: "memory.max="}
	case CancelTicket:
		if r.ticket == nil {
			m.say("it waits for nothing: there is no request to cancel")
			return
		}
		action.Ticket, action.PID = r.ticket.Ticket, r.ticket.PID
		m.dialog = dialog{prompt: confirmPrompt, action: action}
	case SendSignal:
		m.dialog = dialog{prompt: signalPrompt, action: action}
	case Suspend:
		j := m.state.Job(r.job)
		if j == nil {
			m.say(fmt.Sprintf("process %d runs without gpuarb: it cannot be suspended", r.pid))
			return
		}
		if j.Residence != "" && j.Residence != figures.Resuming {
			action.Kind = Resume
		}
		action.PID, action.Device = 0, AllDevices
		m.dialog = dialog{prompt: confirmPrompt, action: action}
	}
	m.dialog.whose = fmt.Sprintf("%s's %s", orDash(r.user), report.Named(r.name, r.command))
	if kind == CancelTicket {
		m.dialog.whose += ", which waits for " + report.Escape(r.ticket.Wants)
	}
}

// applyInput applies the filter after each letter that is typed.
func (m *Model) applyInput() {
	if m.dialog.prompt == filterPrompt {
		m.filter = m.dialog.input
		m.updateRows()
	}
}

// dialogKey handles a key while a dialog is open.
func (m *Model) dialogKey(key, text string) tea.Cmd {
	d := &m.dialog
	if key == "esc" || key == "ctrl+c" {
		if d.prompt == filterPrompt {
			d.input = ""
			m.applyInput()
		} else {
			m.say("nothing was changed")
		}
		*d = dialog{}
		return nil
	}
	switch d.prompt {
	case signalPrompt:
		for _, s := range signals {
			if key == s.key {
				d.action.Signal, d.prompt = s.name, confirmPrompt
			}
		}
	case confirmPrompt:
		asked := *d
		*d = dialog{}
		if key != "y" && key != "Y" {
			m.say("nothing was changed")
			return nil
		}
		m.say("requested: " + asked.action.description(&m.state))
		return m.do(asked.action)
	default:
		m.inputKey(key, text)
	}
	return nil
}

// inputKey handles a key in a line of input.
func (m *Model) inputKey(key, text string) {
	d := &m.dialog
	switch {
	case key == "enter" && d.prompt == filterPrompt:
		*d = dialog{}
	case key == "enter":
		name, value, _ := strings.Cut(strings.TrimSpace(d.input), "=")
		d.action.Limit, d.action.Value = strings.TrimSpace(name), strings.TrimSpace(value)
		if err := m.daemon.Check(d.action); err != nil {
			d.wrong = oneLine(err)
			return
		}
		d.prompt = confirmPrompt
	case key == "backspace":
		d.erase()
	case key == "ctrl+u":
		d.input, d.wrong = "", ""
	default:
		d.insert(text)
	}
	m.applyInput()
}

// do returns a function that carries out an action. The terminal library calls the function in
// another goroutine, so the screen is still drawn meanwhile.
func (m *Model) do(action Action) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), daemonTimeout)
		defer cancel()
		return actionDone{action, m.daemon.Do(ctx, action)}
	}
}

// drawDialog draws the lines at the foot of the screen while a dialog is open.
func (m *Model) drawDialog() []string {
	d := &m.dialog
	switch d.prompt {
	case filterPrompt:
		return []string{paint(bold, "filter: ") + report.Escape(d.input) + paint(inverse, " ") + paint(faint, "  enter keeps it, esc clears it")}
	case limitPrompt:
		lines := append(m.question("Which limit of "+d.action.subject(&m.state)+" ("+d.whose+")?"),
			report.Escape(d.input)+paint(inverse, " ")+paint(faint, "  memory.max, memory.min or streams.max; 2G, 25%, max"))
		if d.wrong != "" {
			lines = append(lines, m.message(alarm, d.wrong)...)
		}
		return lines
	case signalPrompt:
		var offers []string
		for _, s := range signals {
			offers = append(offers, paint(bold, s.key)+" "+s.name)
		}
		return append(m.question(fmt.Sprintf("Send which signal to process %d (%s)?", d.action.PID, d.whose)), strings.Join(offers, "  ")+"  "+paint(bold, "esc")+" none")
	}
	text := d.action.description(&m.state)
	return append(m.question(strings.ToUpper(text[:1])+text[1:]+" ("+d.whose+")?"), paint(bold, "y")+" yes   "+paint(bold, "any other key")+" no")
}

// question returns the lines of a question; at most three, and the last may be cut.
func (m *Model) question(text string) []string {
	lines := m.message("", text)
	for i := range lines {
		lines[i] = paint(inverse, fit(lines[i], m.width))
	}
	return lines
}

// message returns a text at the foot, in at most three lines.
func (m *Model) message(attribute, text string) []string {
	lines := wrap(text, m.width)
	lines = lines[:min(len(lines), 3)]
	for i := range lines {
		lines[i] = paint(attribute, lines[i])
	}
	return lines
}
