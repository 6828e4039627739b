package report

// This file finds what each job holds on each device and what it waits for. `gpuarb jobs` prints
// it. why.go uses its index.

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// Holder is a job, or a process without gpuarb, with the things that it has of a device.
type Holder struct {
	Job       *uint64          `json:"job"`      // null: an unmanaged process without a job
	JobName   *string          `json:"job_name"` // null: no name
	Device    *Index           `json:"device"`   // null: nothing of any device yet
	PID       int              `json:"pid"`      // process that opened the job (gpuarb run, or the program itself), or the unmanaged process
	UID       *uint32          `json:"uid"`
	User      *string          `json:"user"` // null: the process is dead, and its memory has not been freed
	Holds     []string         `json:"holds"`
	Used      accounting.Bytes `json:"used_bytes"`
	Reserved  accounting.Bytes `json:"reserved_bytes"`
	Suspended accounting.Bytes `json:"suspended_bytes"` // given back while the job is suspended
	Residence *string          `json:"residence"`       // null: the job has its memory
	AgeMs     int64            `json:"age_ms"`          // time for which it has had something of the device, in ms; if it has nothing, age of the job
	Processes []int            `json:"processes"`
	Waits     []Wait           `json:"waits"`
	Command   string           `json:"command"`
	StillRuns *string          `json:"still_runs"` // null: the command of the job still runs, or there is no job
	NoProcess bool             `json:"no_process"` // no process was in the job's cgroup in the first ten minutes, and none has come since
	Wall
}

// Wait is a waiting request of a job.
type Wait struct {
	Ticket     uint64            `json:"ticket"`
	Device     *Index            `json:"device"` // null: any of several devices
	Wants      string            `json:"wants"`
	WantsBytes *accounting.Bytes `json:"wants_bytes"` // null: it does not wait for memory
	WaitedMs   int64             `json:"waited_ms"`
	Reason     string            `json:"reason"`
	Text       string            `json:"text"`
	RoomOn     *Index            `json:"room_on"`    // null: on no other device its program would have room now
	Behind     *uint64           `json:"behind"`     // null: no request is ahead of it
	Kept       *accounting.Bytes `json:"kept_bytes"` // null: nothing is free and kept for the request that is ahead
	Asks       []uint64          `json:"asks"`       // jobs that are asked to make room for it
	Returns    bool              `json:"returns"`    // the job is suspended, and waits for all that it gave back
}

// The kinds of things that a holder has. A lease exists from the first allocation, context or stream. A slot
// counts only on a device with a limit on slots.
const (
	holdsLease       = "lease"
	holdsReservation = "reservation"
	holdsUnmanaged   = "unmanaged"
	holdsCharged     = "charged" // beside holdsUnmanaged: it counts against the budget of the job
)

// jobDevice identifies a job on a device.
type jobDevice struct {
	job    uint64
	device int
}

// holdings indexes a snapshot by job and device.
type holdings struct {
	leases map[jobDevice]int64 // age of the oldest lease, in ms
	slots  map[jobDevice]figures.HolderState
	waits  map[uint64][]figures.TicketState
}

func indexJobs(s figures.Snapshot) holdings {
	f := holdings{map[jobDevice]int64{}, map[jobDevice]figures.HolderState{}, map[uint64][]figures.TicketState{}}
	for _, l := range s.Leases {
		at := jobDevice{l.Job, l.Device}
		f.leases[at] = max(f.leases[at], l.AgeSeconds*1000)
	}
	for _, d := range s.Devices {
		for _, h := range d.Holders {
			if h.Kind != figures.HoldsSlot || d.SlotsMax > 0 {
				f.slots[jobDevice{h.Job, d.Index}] = h
			}
		}
	}
	for _, t := range s.Queue {
		f.waits[t.Job] = append(f.waits[t.Job], t)
	}
	return f
}

// Holders returns all holders and waiting jobs, sorted by device: jobs by ID, then processes
// without gpuarb. Jobs that have nothing of any device come last.
func Holders(s figures.Snapshot) []Holder {
	f := indexJobs(s)
	rows := make([]Holder, 0, len(s.Jobs))
	for i := range s.Jobs {
		rows = append(rows, f.rows(&s.Jobs[i])...)
	}
	for d, u := range s.Unmanaged() {
		rows = append(rows, unmanagedHolder(d.Index, u))
	}
	slices.SortStableFunc(rows, func(x, y Holder) int { return cmp.Compare(x.order(), y.order()) })
	return rows
}

// order returns the sort key of a holder: its device. Holders without a device come last.
func (h Holder) order() int {
	if h.Device == nil {
		return math.MaxInt
	}
	return int(*h.Device)
}

// rows returns the rows of a job: one for each device of which it has something, or for which it
// waits. A job without such a device has one row without a device.
func (f holdings) rows(j *figures.JobState) []Holder {
	var rows []Holder
	row := func() Holder {
		return Holder{Job: &j.ID, JobName: Unless(j.Name, ""), PID: j.PID, UID: &j.UID, User: &j.User, AgeMs: j.AgeMs, Processes: append([]int{}, j.Processes...),
			Holds: []string{}, Waits: []Wait{}, Command: j.Command, StillRuns: Unless(j.StillRuns, ""), NoProcess: j.NoProcess,
			Residence: Unless(string(j.Residence), "")}
	}
	waits := f.waits[j.ID]
	for i := range j.Devices {
		on := &j.Devices[i]
		h := row()
		h.Device, h.Used, h.Reserved, h.Suspended, h.Wall = new(Index(on.Device)), on.Used, on.Reserved, on.Suspended, wallOf(on)
		h.hold(f, jobDevice{j.ID, on.Device})
		for _, t := range waits {
			if t.Device == on.Device {
				h.Waits = append(h.Waits, waitOf(t))
			}
		}
		if len(h.Holds) > 0 || len(h.Waits) > 0 || h.Suspended > 0 {
			rows = append(rows, h)
		}
	}
	h := row()
	h.Wall = anyWall(j)
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

// hold records what a job has of the device of the row, and for how long. The longest time counts.
func (h *Holder) hold(f holdings, at jobDevice) {
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
		WaitedMs: t.WaitedMs, Reason: t.Reason, Text: t.Text, RoomOn: roomOn(t), Behind: Unless(t.Behind, 0), Kept: Unless(t.Kept, 0),
		Asks: append([]uint64{}, t.Asks...), Returns: t.Returns}
}

func unmanagedHolder(device int, u *figures.UnmanagedState) Holder {
	h := Holder{Job: Unless(u.Job, 0), JobName: Unless(u.JobName, ""), Device: new(Index(device)), PID: u.PID, Holds: []string{holdsUnmanaged}, Used: u.Bytes, AgeMs: u.AgeMs,
		Processes: []int{u.PID}, Waits: []Wait{}, Command: u.Command}
	if u.Charged {
		h.Holds = append(h.Holds, holdsCharged)
	}
	if u.User != "" {
		h.User, h.UID = &u.User, &u.UID
	}
	return h
}

var holderColumns = []column[Holder]{
	plain("JOB", right, func(h Holder) string { return orNone(h.Job) }, 0),
	plain("GPU", right, Holder.device, 0),
	number("PID", func(h Holder) int { return h.PID }, 0),
	plain("USER", left, func(h Holder) string { return cell(orZero(h.User)) }, 0),
	plain("HOLDS", left, func(h Holder) string { return cell(strings.Join(h.Holds, ",")) }, 0),
	amount("USED", func(h Holder) accounting.Bytes { return h.Used }, 0),
	amount("RESERVED", func(h Holder) accounting.Bytes { return h.Reserved }, 1),
	span("AGE", func(h Holder) int64 { return h.AgeMs }, 0),
	{"WAITS", right, Style.waits, 0},
	{"WAITED", right, Style.waited, 2},
	plain("COMMAND", last, func(h Holder) string {
		return Named(orZero(h.JobName), h.Command) + stillRuns(h.StillRuns) + noProcess(h.NoProcess) + h.residence() + h.text()
	}, 0),
}

// residence returns the text after the command of a job that is asked to give its memory back, or has given it back.
func (h Holder) residence() string {
	switch {
	case h.Residence == nil:
		return ""
	case h.Suspended > 0:
		return fmt.Sprintf(" (%s: %s given back)", *h.Residence, h.Suspended.Human())
	}
	return " (" + *h.Residence + ")"
}

// noProcess returns the text after the command or the cgroup of a job; none is the field NoProcess of its row.
func noProcess(none bool) string {
	if none {
		return " (no process has been in it yet)"
	}
	return ""
}

// stillRuns returns the text after a command that has ended: which processes of its job still run.
func stillRuns(left *string) string {
	if left == nil {
		return ""
	}
	return " (still runs: " + line(*left) + ")"
}

// waits names the first request that a holder waits for, and how many more wait.
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

// waited says how long the first request of a holder has waited.
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

// orZero returns the value, or the zero value for nil.
func orZero[T any](of *T) (value T) {
	if of != nil {
		value = *of
	}
	return value
}

// Holders writes the table of all holders of devices and waiting jobs.
func (style Style) Holders(w io.Writer, s figures.Snapshot) error {
	return table(w, style, holderColumns, style.holders(s))
}

// HoldersJSON writes the holders of devices and waiting jobs as one JSON array, an object per line.
func (style Style) HoldersJSON(w io.Writer, s figures.Snapshot) error {
	return jsonLines(w, style.holders(s))
}

// holders returns the holders and waiting jobs that are shown.
func (style Style) holders(s figures.Snapshot) []Holder {
	sel := style.Selection
	rows := slices.DeleteFunc(Holders(s), func(h Holder) bool {
		return !sel.ofUser(orZero(h.UID), h.UID != nil) || sel.Devices != nil && (h.Device == nil || !sel.onDevice(int(*h.Device))) ||
			!sel.idle(h.idleMs(s))
	})
	sortRows(sel, holderColumns, rows)
	return rows
}

// idleMs returns for how long a holder has done nothing on its device, in ms: the shortest time of
// its leases there. A job without a lease there does nothing as long as it has something of the
// device. Of a process without gpuarb it is not known, and counts as 0.
func (h *Holder) idleMs(s figures.Snapshot) int64 {
	switch {
	case h.Job == nil || slices.Contains(h.Holds, holdsUnmanaged) || len(h.Waits) > 0:
		return 0
	case h.Device == nil:
		return h.AgeMs
	}
	least := h.AgeMs
	for i := range s.Leases {
		if l := &s.Leases[i]; l.Job == *h.Job && l.Device == int(*h.Device) {
			least = min(least, l.UnusedMs)
		}
	}
	return least
}

// HolderColumns returns the names by which `gpuarb jobs` sorts.
func HolderColumns() []string { return columnNames(holderColumns) }
