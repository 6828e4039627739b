package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Version is the version of the schema, in each line. It changes when a field is removed or its meaning changes;
// new kinds and fields are added without a new version.
const Version = 1

// Kind says what an event is about.
type Kind string

// The kinds of events. docs/reference/events.md says when each of them is written, and with which fields.
const (
	Granted       Kind = "granted"        // a program, or a job, was given something without waiting
	Refused       Kind = "refused"        // a request was refused, or waited in vain
	Waited        Kind = "waited"         // a request has begun to wait
	Served        Kind = "served"         // a request that waited was granted
	Recalled      Kind = "recalled"       // idle credit was called back
	LimitChanged  Kind = "limit_changed"  // a user changed a limit
	Configured    Kind = "configured"     // a new configuration is in force
	Died          Kind = "died"           // a client ended with what it held
	Ended         Kind = "ended"          // a job ended
	Reclaimed     Kind = "reclaimed"      // a dead process's memory is back
	Kept          Kind = "kept"           // a dead process's memory is not back
	Deadlock      Kind = "deadlock"       // a circle of waiting requests was broken
	Over          Kind = "over"           // a budget holds more than its limit
	Within        Kind = "within"         // it no longer does
	Clamped       Kind = "clamped"        // a lease page held impossible values
	Excess        Kind = "excess"         // a client uses memory that none of its allocations accounts for
	TwoCopies     Kind = "two_copies"     // a client uses two copies of a driver's library, and one is not held to limits
	Unmanaged     Kind = "unmanaged"      // a process that is not a client uses a device
	Verified      Kind = "verified"       // the device confirms a restored lease
	DeviceFound   Kind = "device_found"   // a device was found, or found again
	DeviceLost    Kind = "device_lost"    // a device fell off the bus
	DeviceHung    Kind = "device_hung"    // a device does not answer
	DeviceWoke    Kind = "device_woke"    // it answers again
	DeviceUnknown Kind = "device_unknown" // a program uses a device that the daemon does not know
	Lost          Kind = "lost"           // lines that should be here are not
)

// Kinds are all of them.
var Kinds = []Kind{Granted, Refused, Waited, Served, Recalled, LimitChanged, Configured, Died, Ended, Reclaimed, Kept, Deadlock, Over, Within,
	Clamped, Excess, TwoCopies, Unmanaged, Verified, DeviceFound, DeviceLost, DeviceHung, DeviceWoke, DeviceUnknown, Lost}

// Event is one line of the history. A field that a line does not have is absent from it: which are there
// follows from the kind. docs/reference/events.schema.json has the same in JSON's own words.
type Event struct {
	V    int       `json:"v"`
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`

	Device *int   `json:"device,omitempty"` // index
	UUID   string `json:"uuid,omitempty"`   // of that device

	Job     uint64  `json:"job,omitempty"`
	JobName string  `json:"job_name,omitempty"`
	PID     int     `json:"pid,omitempty"`
	UID     *uint32 `json:"uid,omitempty"`
	User    string  `json:"user,omitempty"`
	Command string  `json:"command,omitempty"`

	Reason    string `json:"reason,omitempty"`     // why it was refused or lines are lost, or what it waits for
	WaitedFor string `json:"waited_for,omitempty"` // of what waited in vain
	What      string `json:"what,omitempty"`       // was asked for: lease, memory, stream, context, hold, job, process
	Ticket    uint64 `json:"ticket,omitempty"`
	WaitedMs  *int64 `json:"waited_ms,omitempty"`

	Bytes     uint64  `json:"bytes,omitempty"`
	Requested uint64  `json:"requested_bytes,omitempty"`
	Remaining *uint64 `json:"remaining_bytes,omitempty"`
	Limit     uint64  `json:"limit_bytes,omitempty"`
	Streams   int     `json:"streams,omitempty"`
	Contexts  int     `json:"contexts,omitempty"`
	Leases    int     `json:"leases,omitempty"`

	Setting string  `json:"setting,omitempty"` // which limit was changed,
	Whose   string  `json:"whose,omitempty"`
	From    string  `json:"from,omitempty"`
	To      string  `json:"to,omitempty"`
	ByUID   *uint32 `json:"by_uid,omitempty"` // and by whom
	ByPID   int     `json:"by_pid,omitempty"`

	Parties []Party `json:"parties,omitempty"` // of a deadlock

	LostBytes int64 `json:"lost_bytes,omitempty"`
	LostLines int   `json:"lost_lines,omitempty"`

	Text string `json:"text"` // the same for people
}

// Party is one request of a deadlock: what its job holds, and what it requests.
type Party struct {
	Job     uint64 `json:"job"`
	PID     int    `json:"pid,omitempty"`
	User    string `json:"user,omitempty"`
	Command string `json:"command,omitempty"`
	Holds   []Hold `json:"holds"`
	What    string `json:"what"`             // it wants, as of an event
	Wants   string `json:"wants"`            // the same for people: "512 MiB", "a slot"
	Device  *int   `json:"device,omitempty"` // where; absent: any
	Bytes   uint64 `json:"bytes,omitempty"`  // of what it wants
	Ticket  uint64 `json:"ticket"`
}

// Hold is what a job has of a device.
type Hold struct {
	Device int    `json:"device"`
	Bytes  uint64 `json:"bytes,omitempty"`
	Slot   bool   `json:"slot,omitempty"`
}

// Bounds of a line and of the texts in it, in bytes. No line is shorter than a line of the kind Lost, so that one always fits in the
// place of dropped lines.
const (
	MaxLine    = 16 << 10
	MinLine    = 160
	maxCommand = 1024
	maxName    = 256
	maxText    = 4096
	maxParties = 8
)

// Line is the event as a line, with its newline, of MinLine to MaxLine bytes: long names are cut, and short lines are padded with blanks.
func (e *Event) Line() []byte {
	e.V = Version
	e.Time = e.Time.UTC().Round(0).Truncate(time.Microsecond)
	e.bound()
	line := e.encode()
	if len(line) > MaxLine { // escapes make long what is short
		e.Command, e.Parties = "", nil
		e.Text = cut(e.Text, maxName)
		line = e.encode()
	}
	if short := MinLine - len(line); short > 0 && e.Kind != Lost {
		line = append(append(line[:len(line)-1], bytes.Repeat([]byte(" "), short)...), '\n')
	}
	return line
}

func (e *Event) encode() []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(e) // it cannot fail: every field can be encoded
	return b.Bytes()
}

func (e *Event) bound() {
	for text, most := range map[*string]int{&e.Command: maxCommand, &e.JobName: maxName, &e.User: maxName, &e.Whose: maxName, &e.Text: maxText} {
		*text = cut(*text, most)
	}
	if len(e.Parties) > maxParties {
		e.Parties = e.Parties[:maxParties]
	}
	for i := range e.Parties {
		p := &e.Parties[i]
		p.Command, p.User = cut(p.Command, maxName), cut(p.User, maxName)
	}
}

// cut is a text of at most so many bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const dots = "…"
	for most -= len(dots); most > 0 && !utf8.RuneStart(text[most]); most-- {
	}
	return text[:most] + dots
}

// ErrVersion says that a line is of another version of the schema than this program reads.
var ErrVersion = errors.New("this is not an event of version 1")

// Parse reads a line. Kinds and fields that this version does not know are no error.
func Parse(line []byte) (Event, error) {
	var e Event
	if err := json.Unmarshal(line, &e); err != nil {
		return Event{}, err
	}
	if e.V != Version {
		return Event{}, fmt.Errorf("version %d: %w", e.V, ErrVersion)
	}
	return e, nil
}

// LostLine stands in the place of lines that were dropped, lost bytes of them. It has MinLine bytes at most.
func LostLine(now time.Time, lost int64) []byte {
	e := Event{Time: now, Kind: Lost, Reason: "room", LostBytes: lost, Text: "events are lost here"}
	return e.Line()
}
