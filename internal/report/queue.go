package report

// This file writes the table of waiting requests. `gpuarb queue` and /gpu/queue print it.

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// queueColumns are the columns of the table of waiting requests. Programs rely on their names and
// order.
var queueColumns = []column[figures.TicketState]{
	number("POS", func(t figures.TicketState) int { return t.Pos }, 0),
	number("PID", func(t figures.TicketState) int { return t.PID }, 0),
	plain("USER", left, func(t figures.TicketState) string { return cell(t.User) }, 0),
	plain("GPU", right, func(t figures.TicketState) string { return orAny(t.Device) }, 0),
	{"WANTS", right, func(s Style, t figures.TicketState) string { return s.wants(t.Wants, t.WantsBytes) }, 0},
	span("WAITED", func(t figures.TicketState) int64 { return t.WaitedMs }, 0),
	plain("REASON", left, func(t figures.TicketState) string { return cell(t.Reason) }, 1),
	plain("BEHIND", right, func(t figures.TicketState) string { return ticketOrNone(t.Behind) }, 2),
	plain("TICKET", right, func(t figures.TicketState) string { return strconv.FormatUint(t.Ticket, 10) }, 0),
	plain("COMMAND", last, func(t figures.TicketState) string {
		return Named(t.JobName, t.Command) + returns(t.Returns) + asks(t.Asks)
	}, 0),
}

// returns returns the text after the command of a suspended job that waits for its memory.
func returns(it bool) string {
	if it {
		return " (returns)"
	}
	return ""
}

// asks returns the text after the command of a waiting request: the jobs that are asked to make room for it.
func asks(jobs []uint64) string {
	switch len(jobs) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(" (asks job %d to make room)", jobs[0])
	}
	return " (asks jobs " + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(jobs)), ", "), "[]") + " to make room)"
}

// ticketOrNone formats the number of a ticket; 0: none.
func ticketOrNone(ticket uint64) string {
	if ticket == 0 {
		return "-"
	}
	return strconv.FormatUint(ticket, 10)
}

// orAny formats the index of a device; below 0: any of several.
func orAny(device int) string {
	if device < 0 {
		return "any"
	}
	return accounting.IndexName(device)
}

// wants formats an amount in bytes, or the name of another resource without its article.
func (s Style) wants(words string, bytes accounting.Bytes) string {
	if bytes > 0 {
		return s.amount(bytes)
	}
	return strings.ReplaceAll(cell(strings.TrimPrefix(words, "a ")), `\x20`, "-")
}

// Queue writes the table of waiting requests: a header, and a line per ticket in the order of the
// snapshot. WANTS is in bytes if the request is for memory.
func (style Style) Queue(w io.Writer, s figures.Snapshot) error {
	return table(w, style, queueColumns, style.tickets(s))
}

// tickets returns the waiting requests that are shown.
func (style Style) tickets(s figures.Snapshot) []figures.TicketState {
	sel, rows := style.Selection, make([]figures.TicketState, 0, len(s.Queue))
	for _, t := range s.Queue {
		if sel.ofUser(t.UID, true) && (t.Device < 0 || sel.onDevice(t.Device)) && sel.idle(t.WaitedMs) {
			rows = append(rows, t)
		}
	}
	sortRows(sel, queueColumns, rows)
	return rows
}

// QueueColumns returns the names by which `gpuarb queue` sorts.
func QueueColumns() []string { return columnNames(queueColumns) }
