package events

// This file has the format of a line. log.go keeps lines.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Version is the version of the schema, which each line has. It changes if a field is removed or
// gets another meaning. New kinds and fields do not change it.
const Version = 1

// Kind is the kind of an event.
type Kind string

// The kinds of events. docs/reference/events.md says when each is written, and with which fields.
const (
	Granted       Kind = "granted"        // a program or a job was given something without waiting
	Refused       Kind = "refused"        // a request was refused, also after a wait
	Waited        Kind = "waited"         // a request has begun to wait
	Served        Kind = "served"         // a waiting request was granted
	Recalled      Kind = "recalled"       // idle credit was called back
	LimitChanged  Kind = "limit_changed"  // a user changed a limit
	Configured    Kind = "configured"     // a new configuration is in force
	Died          Kind = "died"           // a client ended while it held something
	Ended         Kind = "ended"          // a job ended
	Reclaimed     Kind = "reclaimed"      // the memory of a dead process has been freed
	Kept          Kind = "kept"           // the memory of a dead process has not been freed
	Deadlock      Kind = "deadlock"       // a cycle of waiting requests was broken
	Over          Kind = "over"           // a budget holds more than its limit
	Within        Kind = "within"         // a budget no longer holds more than its limit
	Clamped       Kind = "clamped"        // a lease page held impossible values
	Excess        Kind = "excess"         // a client uses memory that its allocations do not explain
	TwoCopies     Kind = "two_copies"     // a client uses two copies of a driver's library, and one is not held to limits
	DriverLimit   Kind = "driver_limit"   // the limit of a cgroup could not be set in the kernel or the driver
	NoProcess     Kind = "no_process"     // no process was in the cgroup of a job for some time after the job was opened
	Unmanaged     Kind = "unmanaged"      // a process that is not a client uses a device
	Verified      Kind = "verified"       // the device confirms a restored lease
	DeviceFound   Kind = "device_found"   // a device was found, or found again
	DeviceLost    Kind = "device_lost"    // a device fell off the bus
	DeviceHung    Kind = "device_hung"    // a device does not answer
	DeviceWoke    Kind = "device_woke"    // a device answers again
	DeviceUnknown Kind = "device_unknown" // a program uses a device that the daemon does not know
	Idle          Kind = "idle"           // a job holds something and does nothing
	Aged          Kind = "aged"           // a job holds something and has run for long
	Suspending    Kind = "suspending"     // a job is asked to give its memory back
	Suspended     Kind = "suspended"      // a job gave memory back
	SuspendFailed Kind = "suspend_failed" // a job was asked to give its memory back, and gave none
	Resuming      Kind = "resuming"       // memory is reserved for a suspended job, and the job is asked to take it
	Resumed       Kind = "resumed"        // a suspended job has its memory again
	Stuck         Kind = "stuck"          // a suspended job was asked to take its memory again, and failed
	Lost          Kind = "lost"           // lines are missing here
)

// Kinds are all kinds.
var Kinds = []Kind{Granted, Refused, Waited, Served, Recalled, LimitChanged, Configured, Died, Ended, Reclaimed, Kept, Deadlock, Over, Within,
	Clamped, Excess, TwoCopies, DriverLimit, NoProcess, Unmanaged, Verified, DeviceFound, DeviceLost, DeviceHung, DeviceWoke, DeviceUnknown, Idle, Aged, Suspending, Suspended, SuspendFailed, Resuming, Resumed, Stuck, Lost}

// Event is a line of the history. A field without a value is absent from the line; the kind decides
// which fields a line has. docs/reference/events.schema.json is the JSON schema.
type Event struct {
	V    int       `json:"v"`
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`

	Device *int   `json:"device,omitempty"` // index of the device
	UUID   string `json:"uuid,omitempty"`   // UUID of the device

	Job     uint64  `json:"job,omitempty"`
	JobName string  `json:"job_name,omitempty"`
	PID     int     `json:"pid,omitempty"`
	UID     *uint32 `json:"uid,omitempty"`
	User    string  `json:"user,omitempty"`
	Command string  `json:"command,omitempty"`

	Reason    string `json:"reason,omitempty"`     // why a request was refused, why lines are lost, or what a request waits for
	WaitedFor string `json:"waited_for,omitempty"` // what a refused request had waited for
	What      string `json:"what,omitempty"`       // kind of the request: lease, memory, stream, context, hold, job, process or return
	Ticket    uint64 `json:"ticket,omitempty"`
	WaitedMs  *int64 `json:"waited_ms,omitempty"`
	IdleMs    int64  `json:"idle_ms,omitempty"` // for how long a job has been idle
	AgeMs     int64  `json:"age_ms,omitempty"`  // for how long a job has run
	TookMs    int64  `json:"took_ms,omitempty"` // for how long a job was asked to give its memory back, or to take it again

	Bytes     uint64  `json:"bytes,omitempty"`
	Requested uint64  `json:"requested_bytes,omitempty"`
	Remaining *uint64 `json:"remaining_bytes,omitempty"`
	Limit     uint64  `json:"limit_bytes,omitempty"`
	Streams   int     `json:"streams,omitempty"`
	Contexts  int     `json:"contexts,omitempty"`
	Leases    int     `json:"leases,omitempty"`

	Setting string  `json:"setting,omitempty"` // name of the changed limit
	Whose   string  `json:"whose,omitempty"`
	From    string  `json:"from,omitempty"`
	To      string  `json:"to,omitempty"`
	ByUID   *uint32 `json:"by_uid,omitempty"` // user who changed the limit, or asked for a suspension or a return
	ByPID   int     `json:"by_pid,omitempty"`

	Parties []Party `json:"parties,omitempty"` // requests of a deadlock

	LostBytes int64 `json:"lost_bytes,omitempty"`
	LostLines int   `json:"lost_lines,omitempty"`

	Text string `json:"text"` // sentence for users
}

// Party is a request of a deadlock: what its job holds, and what it wants.
type Party struct {
	Job     uint64 `json:"job"`
	PID     int    `json:"pid,omitempty"`
	User    string `json:"user,omitempty"`
	Command string `json:"command,omitempty"`
	Holds   []Hold `json:"holds"`
	What    string `json:"what"`             // kind of the request, as in Event
	Wants   string `json:"wants"`            // text for users: "512 MiB", "a slot"
	Device  *int   `json:"device,omitempty"` // device of the request; absent: any
	Bytes   uint64 `json:"bytes,omitempty"`  // bytes that it wants
	Ticket  uint64 `json:"ticket"`
}

// Hold is the part of a device that a job holds.
type Hold struct {
	Device int    `json:"device"`
	Bytes  uint64 `json:"bytes,omitempty"`
	Slot   bool   `json:"slot,omitempty"`
}

// Bounds of a line and of its texts, in bytes. A line of the kind Lost has at most MinLine bytes,
// and other lines have at least MinLine. So a line of the kind Lost always fits in the place of
// dropped lines.
const (
	MaxLine    = 16 << 10
	MinLine    = 160
	maxCommand = 1024
	maxName    = 256
	maxText    = 4096
	maxParties = 8
)

// Line returns the event as a line with its newline, of MinLine to MaxLine bytes. Long names are
// cut, and short lines are padded with blanks.
func (e *Event) Line() []byte {
	e.V = Version
	e.Time = e.Time.UTC().Round(0).Truncate(time.Microsecond)
	e.bound()
	line := e.encode()
	if len(line) > MaxLine { // escapes can make a short text long
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
	_ = encoder.Encode(e) // cannot fail: every field can be encoded
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

// cut cuts a text to a number of bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const dots = "…"
	for most -= len(dots); most > 0 && !utf8.RuneStart(text[most]); most-- {
	}
	return text[:most] + dots
}

// ErrVersion is the error for a line of another version of the schema.
var ErrVersion = errors.New("this is not an event of version 1")

// Parse reads a line. Unknown kinds and fields are accepted.
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

// LostLine returns the line that replaces dropped lines of lost bytes. It has at most MinLine
// bytes.
func LostLine(now time.Time, lost int64) []byte {
	e := Event{Time: now, Kind: Lost, Reason: "room", LostBytes: lost, Text: "events are lost here"}
	return e.Line()
}
