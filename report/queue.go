package report

import (
	"io"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
)

// queueColumns are the columns of the table of waiting requests. Their names and order
// are an interface.
var queueColumns = []column[accounting.TicketState]{
	{"POS", right, func(t accounting.TicketState) string { return strconv.Itoa(t.Pos) }},
	{"PID", right, func(t accounting.TicketState) string { return strconv.Itoa(t.PID) }},
	{"USER", left, func(t accounting.TicketState) string { return word(t.User) }},
	{"GPU", right, func(t accounting.TicketState) string { return orAny(t.Device) }},
	{"WANTS", right, wants},
	{"WAITED", right, func(t accounting.TicketState) string { return strconv.FormatInt(t.WaitedMs/1000, 10) }},
	{"REASON", left, func(t accounting.TicketState) string { return word(t.Reason) }},
	{"TICKET", right, func(t accounting.TicketState) string { return strconv.FormatUint(t.Ticket, 10) }},
	{"COMMAND", last, func(t accounting.TicketState) string { return line(t.Command) }},
}

// orAny spells the index of a device, where below 0 is any of several.
func orAny(device int) string {
	if device < 0 {
		return "any"
	}
	return strconv.Itoa(device)
}

// wants is an amount in bytes, or the words for something else without their article.
func wants(t accounting.TicketState) string {
	if t.WantsBytes > 0 {
		return Value(t.WantsBytes)
	}
	return strings.ReplaceAll(word(strings.TrimPrefix(t.Wants, "a ")), `\x20`, "-")
}

// Queue writes the table of waiting requests: a header, and a line per ticket in the
// snapshot's order. WANTS is in bytes where it is memory, WAITED in seconds.
func Queue(w io.Writer, s accounting.Snapshot) error {
	return table(w, queueColumns, s.Queue)
}

// QueueJSON writes the waiting requests as one JSON array, an object per line. The
// fields are those of accounting.TicketState.
func QueueJSON(w io.Writer, s accounting.Snapshot) error {
	return jsonLines(w, s.Queue)
}
