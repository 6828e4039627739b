package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/figures"
)

// Holder is what a job, or a process that is no client, has of a device, or of none yet.
type Holder struct {
	Job       *uint64          `json:"job"`      // null: an unmanaged process that is in no job
	JobName   *string          `json:"job_name"` // null: none
	Device    *Index           `json:"device"`   // null: none yet
	PID       int              `json:"pid"`      // who asked for the job: gpuarb run, or the process itself; of what is unmanaged, the process
	UID       *uint32          `json:"uid"`
	User      *string          `json:"user"` // null: the process is dead, and its memory is not back
	Holds     []string         `json:"holds"`
	Used      accounting.Bytes `json:"used_bytes"`
	Reserved  accounting.Bytes `json:"reserved_bytes"`
	AgeMs     int64            `json:"age_ms"` // since it has that of the device; without any, since the job began
	Processes []int            `json:"processes"`
	Waits     []Wait           `json:"waits"`
	Command   string           `json:"command"`
	StillRuns *string          `json:"still_runs"` // null: the job's command goes on, or it is none of a job
}

// Wait is a request of a job that waits.
type Wait struct {
	Ticket     uint64            `json:"ticket"`
	Device     *Index            `json:"device"` // null: any of several
	Wants      string            `json:"wants"`
	WantsBytes *accounting.Bytes `json:"wants_bytes"` // null: something else than memory
	WaitedMs   int64             `json:"waited_ms"`
	Reason     string            `json:"reason"`
	Text       string            `json:"text"`
}

// What a holder may hold. A lease is there with the first allocation, context or stream; a
// slot counts where a device has a limit on them.
const (
	holdsLease       = "lease"
	holdsReservation = "reservation"
	holdsUnmanaged   = "unmanaged"
)

// spot is a job on a device.
type spot struct {
	job    uint64
	device int
}

// holdings is what a snapshot has on jobs, by job and device.
type holdings struct {
	leases map[spot]int64 // the age of the oldest, in ms
	slots  map[spot]figures.HolderState
	waits  map[uint64][]figures.TicketState
}

func index(s figures.Snapshot) holdings {
	f := holdings{map[spot]int64{}, map[spot]figures.HolderState{}, map[uint64][]figures.TicketState{}}
	for _, l := range s.Leases {
		at := spot{l.Job, l.Device}
		f.leases[at] = max(f.leases[at], l.AgeSeconds*1000)
	}
	for _, d := range s.Devices {
		for _, h := range d.Holders {
			if h.Kind != figures.HoldsSlot || d.SlotsMax > 0 {
				f.slots[spot{h.Job, d.Index}] = h
			}
		}
	}
	for _, t := range s.Queue {
		f.waits[t.Job] = append(f.waits[t.Job], t)
	}
	return f
}

// Holders are all that hold something of a device or wait for it, by device: jobs by their
// ID, then processes that are no clients; at the end the jobs that have nothing of any.
func Holders(s figures.Snapshot) []Holder {
	f := index(s)
	rows := make([]Holder, 0, len(s.Jobs))
	for i := range s.Jobs {
		rows = append(rows, f.of(&s.Jobs[i])...)
	}
	for d, u := range s.Unmanaged() {
		rows = append(rows, unmanagedHolder(d.Index, u))
	}
	slices.SortStableFunc(rows, func(x, y Holder) int { return cmp.Compare(x.order(), y.order()) })
	return rows
}

// order orders holders by device, and those without one behind them.
func (h Holder) order() int {
	if h.Device == nil {
		return math.MaxInt
	}
	return int(*h.Device)
}

// of are a job's rows: one for each device that it has something of, or waits for, and one
// that is about no device where it has nothing of any.
func (f holdings) of(j *figures.JobState) []Holder {
	var rows []Holder
	row := func() Holder {
		return Holder{Job: &j.ID, JobName: Unless(j.Name, ""), PID: j.PID, UID: &j.UID, User: &j.User, AgeMs: j.AgeMs, Processes: append([]int{}, j.Processes...),
			Holds: []string{}, Waits: []Wait{}, Command: j.Command, StillRuns: Unless(j.StillRuns, "")}
	}
	waits := f.waits[j.ID]
	for i := range j.Devices {
		on := &j.Devices[i]
		h := row()
		h.Device, h.Used, h.Reserved = new(Index(on.Device)), on.Used, on.Reserved
		h.hold(f, spot{j.ID, on.Device})
		for _, t := range waits {
			if t.Device == on.Device {
				h.Waits = append(h.Waits, waitOf(t))
			}
		}
		if len(h.Holds) > 0 || len(h.Waits) > 0 {
			rows = append(rows, h)
		}
	}
	h := row()
	for _, t := range waits {
		if t.Device < 0 {
			h.Waits = append(h.Waits, waitOf(t))
		}
	}
	if len(rows) == 0 || len(h.Waits) > 0 {
		rows = append(rows, h)
	}
	return rows
}

// hold notes what a job has of the row's device, and since when: the longest of all.
func (h *Holder) hold(f holdings, at spot) {
	ofJob, age := h.AgeMs, int64(-1)
	if opened, ok := f.leases[at]; ok {
		h.Holds = append(h.Holds, holdsLease)
		age = opened
	}
	if h.Reserved > 0 {
		h.Holds = append(h.Holds, holdsReservation)
		age = max(age, ofJob)
	}
	if x, ok := f.slots[at]; ok {
		h.Holds = append(h.Holds, string(x.Kind))
		age = max(age, x.AgeMs)
	}
	if age >= 0 {
		h.AgeMs = age
	}
}

func waitOf(t figures.TicketState) Wait {
	return Wait{Ticket: t.Ticket, Device: deviceOf(t), Wants: t.Wants, WantsBytes: Unless(t.WantsBytes, 0),
		WaitedMs: t.WaitedMs, Reason: t.Reason, Text: t.Text}
}

func unmanagedHolder(device int, u *figures.UnmanagedState) Holder {
	h := Holder{Job: Unless(u.Job, 0), JobName: Unless(u.JobName, ""), Device: new(Index(device)), PID: u.PID, Holds: []string{holdsUnmanaged}, Used: u.Bytes, AgeMs: u.AgeMs,
		Processes: []int{u.PID}, Waits: []Wait{}, Command: u.Command}
	if u.User != "" {
		h.User, h.UID = &u.User, &u.UID
	}
	return h
}

var holderColumns = []column[Holder]{
	plain("JOB", right, func(h Holder) string { return orNone(h.Job) }, 0),
	plain("GPU", right, Holder.device, 0),
	number("PID", func(h Holder) int { return h.PID }, 0),
	plain("USER", left, func(h Holder) string { return word(orZero(h.User)) }, 0),
	plain("HOLDS", left, func(h Holder) string { return word(strings.Join(h.Holds, ",")) }, 0),
	amount("USED", func(h Holder) accounting.Bytes { return h.Used }, 0),
	amount("RESERVED", func(h Holder) accounting.Bytes { return h.Reserved }, 1),
	span("AGE", func(h Holder) int64 { return h.AgeMs }, 0),
	{"WAITS", right, Style.waits, 0},
	{"WAITED", right, Style.waited, 2},
	plain("COMMAND", last, func(h Holder) string { return Named(orZero(h.JobName), h.Command) + stillRuns(h.StillRuns) }, 0),
}

// stillRuns returns what stands behind a command that has ended: the processes of its job that go on.
func stillRuns(left *string) string {
	if left == nil {
		return ""
	}
	return " (still runs: " + line(*left) + ")"
}

// waits is what a holder waits for first, and how many requests more of it wait.
func (s Style) waits(h Holder) string {
	if len(h.Waits) == 0 {
		return "-"
	}
	text := s.wants(h.Waits[0].Wants, orZero(h.Waits[0].WantsBytes))
	if more := len(h.Waits) - 1; more > 0 {
		text += fmt.Sprintf("+%d", more)
	}
	return text
}

// waited is for how long the first of a holder's requests has waited.
func (s Style) waited(h Holder) string {
	if len(h.Waits) == 0 {
		return "-"
	}
	return s.span(h.Waits[0].WaitedMs)
}

// device names the device; "-": none.
func (h Holder) device() string {
	if h.Device == nil {
		return "-"
	}
	return accounting.IndexName(int(*h.Device))
}

func orNone[T int | uint64](n *T) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatUint(uint64(*n), 10)
}

// orZero is a value, or the zero one for null.
func orZero[T any](of *T) (value T) {
	if of != nil {
		value = *of
	}
	return value
}

// Holders writes the table of all that hold something of a device or wait for it.
func (style Style) Holders(w io.Writer, s figures.Snapshot) error {
	return table(w, style, holderColumns, Holders(s))
}

// HoldersJSON writes all that hold something of a device or wait for it as one JSON array, an
// object per line.
func HoldersJSON(w io.Writer, s figures.Snapshot) error { return jsonLines(w, Holders(s)) }
