package top

// This file makes the rows of a snapshot, sorts and filters them, and arranges them as a tree.
// table.go draws them.

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// rowKind is the kind of a row.
type rowKind int

const (
	leaseRow     rowKind = iota
	jobRow               // heads the rows of a job in the tree
	ownerRow             // a job that has the device as a whole, has memory reserved, or is suspended, and uses nothing
	ticketRow            // a waiting request without a lease on its device
	unmanagedRow         // a process without gpuarb
)

// row is a line below the devices. Its texts are as programs chose them; they are escaped when they
// are drawn.
type row struct {
	kind    rowKind
	pid     int
	device  int // -1: any device, or none yet
	job     uint64
	uid     uint32
	owned   bool // whether uid is known
	user    string
	name    string // name of the job; "": none
	command string
	state   string
	used    accounting.Bytes
	budget  accounting.Bytes
	min     accounting.Bytes
	peak    accounting.Bytes
	streams int
	ageMs   int64
	util    int                  // percent; -1: not known
	idleMs  int64                // time without a call and without use of the device; -1: not known
	ticket  *figures.TicketState // request that the row waits with; nil: none
	branch  string               // characters of the tree before the command
	bypass  figures.Bypass       // how an unmanaged process bypasses the library
	charged bool                 // what an unmanaged process uses counts against the budget of its job
}

// id identifies a row in this snapshot and the next.
type id struct {
	kind   rowKind
	pid    int
	device int
	job    uint64
}

func (r *row) id() id { return id{r.kind, r.pid, r.device, r.job} }

func (r *row) waitedMs() int64 {
	if r.ticket == nil {
		return -1
	}
	return r.ticket.WaitedMs
}

// wantsBytes returns how much memory the row waits for; 0: none.
func (r *row) wantsBytes() accounting.Bytes {
	if r.ticket == nil {
		return 0
	}
	return r.ticket.WantsBytes
}

// jobDevice identifies a job on a device.
type jobDevice struct {
	job    uint64
	device int
}

// rowsOf returns the rows of a snapshot in its order.
func rowsOf(s *figures.Snapshot) []row {
	rows := make([]row, 0, len(s.Leases)+len(s.Queue))
	tickets := make(map[int][]*figures.TicketState, len(s.Queue)) // by PID
	for i := range s.Queue {
		tickets[s.Queue[i].PID] = append(tickets[s.Queue[i].PID], &s.Queue[i])
	}
	shown := make(map[uint64]bool, len(s.Queue)) // tickets that the row of a lease shows
	leased := make(map[jobDevice]bool, len(s.Leases))
	for i := range s.Leases {
		l := &s.Leases[i]
		r := row{kind: leaseRow, util: -1, idleMs: l.UnusedMs, pid: l.PID, device: l.Device, job: l.Job, uid: l.UID, owned: true, user: l.User, name: l.JobName, command: l.Command,
			state: string(l.State), used: l.Used, budget: l.Budget, min: l.Min, peak: l.Peak, streams: l.Streams, ageMs: l.AgeSeconds * 1000}
		if l.Util != nil {
			r.util = *l.Util
		}
		for _, t := range tickets[l.PID] {
			if !shown[t.Ticket] && (t.Device == l.Device || t.Device < 0) {
				r.ticket, shown[t.Ticket] = t, true
				break
			}
		}
		leased[jobDevice{l.Job, l.Device}] = true
		rows = append(rows, r)
	}
	for i := range s.Devices {
		rows = append(rows, ownersOf(&s.Devices[i], leased)...)
	}
	for i := range s.Queue {
		if t := &s.Queue[i]; !shown[t.Ticket] {
			rows = append(rows, row{kind: ticketRow, util: -1, idleMs: -1, pid: t.PID, device: t.Device, job: t.Job, uid: t.UID, owned: true, user: t.User, name: t.JobName,
				command: t.Command, state: string(figures.StateWaiting), budget: accounting.Max, ageMs: t.WaitedMs, ticket: t})
		}
	}
	rows = append(rows, reservedOf(s, rows)...)
	return append(rows, unmanagedOf(s)...)
}

// ownersOf returns rows of jobs that have a device as a whole, and no lease on it.
func ownersOf(d *figures.DeviceState, leased map[jobDevice]bool) (rows []row) {
	for _, h := range d.Owners() {
		if !leased[jobDevice{h.Job, d.Index}] {
			rows = append(rows, row{kind: ownerRow, util: -1, idleMs: -1, pid: h.PID, device: d.Index, job: h.Job, uid: h.UID, owned: true, user: h.User, name: h.JobName,
				command: h.Command, state: string(h.Kind), budget: accounting.Max, ageMs: h.AgeMs})
		}
	}
	return rows
}

// reservedOf returns rows of jobs that have only a reservation, or gave all of their memory back, and so have no other row.
func reservedOf(s *figures.Snapshot, others []row) (rows []row) {
	shown := make(map[uint64]bool, len(s.Jobs))
	for i := range others {
		shown[others[i].job] = true
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		for _, on := range j.Devices {
			if max(on.Reserved, on.Suspended) > 0 && !shown[j.ID] {
				rows = append(rows, row{kind: ownerRow, util: -1, idleMs: -1, pid: j.PID, device: on.Device, job: j.ID, uid: j.UID, owned: true, user: j.User, name: j.Name,
					command: j.Command, state: cmp.Or(string(j.Residence), "reserved"), budget: on.Max, min: on.Reserved, ageMs: j.AgeMs})
			}
		}
	}
	return rows
}

func unmanagedOf(s *figures.Snapshot) (rows []row) {
	for d, u := range s.Unmanaged() {
		rows = append(rows, row{kind: unmanagedRow, util: -1, idleMs: -1, job: u.Job, name: u.JobName, pid: u.PID, device: d.Index, uid: u.UID, owned: u.User != "", user: u.User, command: u.Command, bypass: u.Bypass, charged: u.Charged,
			state: "unmanaged", used: u.Bytes, budget: accounting.Max, ageMs: u.AgeMs})
	}
	return rows
}

// key is a property by which rows can be sorted.
type key struct {
	name    string
	largest bool // largest first, unless the order is reversed
	compare func(a, b *row) int
}

var keys = []key{
	{"pid", false, func(a, b *row) int { return cmp.Compare(a.pid, b.pid) }},
	{"user", false, func(a, b *row) int { return cmp.Compare(a.user, b.user) }},
	{"gpu", false, func(a, b *row) int { return cmp.Compare(a.device, b.device) }},
	{"state", false, func(a, b *row) int { return cmp.Compare(a.state, b.state) }},
	{"used", true, func(a, b *row) int { return cmp.Compare(a.used, b.used) }},
	{"budget", true, func(a, b *row) int { return cmp.Compare(a.budget, b.budget) }},
	{"peak", true, func(a, b *row) int { return cmp.Compare(a.peak, b.peak) }},
	{"age", true, func(a, b *row) int { return cmp.Compare(a.ageMs, b.ageMs) }},
	{"wants", true, func(a, b *row) int { return cmp.Compare(a.wantsBytes(), b.wantsBytes()) }},
	{"util", true, func(a, b *row) int { return cmp.Compare(a.util, b.util) }},
	{"idle", true, func(a, b *row) int { return cmp.Compare(a.idleMs, b.idleMs) }},
	{"waited", true, func(a, b *row) int { return cmp.Compare(a.waitedMs(), b.waitedMs()) }},
	{"command", false, func(a, b *row) int { return cmp.Compare(a.command, b.command) }},
}

// SortKeys returns the names of the properties by which rows can be sorted.
func SortKeys() (names []string) {
	for _, k := range keys {
		names = append(names, k.name)
	}
	return names
}

// keyNamed returns the index of a key; -1: no key has the name.
func keyNamed(name string) int {
	return slices.IndexFunc(keys, func(k key) bool { return k.name == name })
}

// sortRows sorts rows by a key. Rows with equal keys are sorted by device and PID, so that they
// keep their places in the next snapshot.
func sortRows(rows []row, k key, reversed bool) {
	slices.SortFunc(rows, func(a, b row) int {
		order := k.compare(&a, &b)
		if k.largest != reversed {
			order = -order
		}
		return cmp.Or(order, cmp.Compare(a.device, b.device), cmp.Compare(a.pid, b.pid), cmp.Compare(a.kind, b.kind))
	})
}

// matches reports whether the texts of the row contain the filter, which is in lower case.
func (r *row) matches(filter string) bool {
	if filter == "" {
		return true
	}
	for _, text := range []string{r.user, r.command, r.name, r.state} {
		if strings.Contains(strings.ToLower(text), filter) {
			return true
		}
	}
	return strings.Contains(strconv.Itoa(r.pid), filter)
}

// tree puts each job above its rows. The jobs are sorted by their sums.
func tree(s *figures.Snapshot, rows []row, g glyphs, k key, reversed bool) []row {
	members := make(map[uint64][]row, len(s.Jobs))
	for _, r := range rows {
		members[r.job] = append(members[r.job], r)
	}
	var heads []row
	for i := range s.Jobs {
		if j := &s.Jobs[i]; len(members[j.ID]) > 0 {
			heads = append(heads, headOf(j, members[j.ID]))
		}
	}
	sortRows(heads, k, reversed)
	all := make([]row, 0, len(rows)+len(heads))
	for _, head := range heads {
		all = append(all, head)
		below := members[head.job]
		for i := range below {
			below[i].branch = g.branch
		}
		below[len(below)-1].branch = g.corner
		all = append(all, below...)
	}
	return append(all, members[0]...) // unmanaged processes without a job
}

// headOf returns the row of a job: sums of the rows below it.
func headOf(j *figures.JobState, below []row) row {
	head := row{kind: jobRow, util: -1, idleMs: -1, pid: j.PID, device: below[0].device, job: j.ID, uid: j.UID, owned: true, user: j.User, name: j.Name, command: j.Command,
		state: string(j.State), budget: accounting.Max, ageMs: j.AgeMs}
	for i := range below {
		r := &below[i]
		if r.device != head.device {
			head.device = -1
		}
		if r.kind != unmanagedRow || r.charged { // other such memory is outside the budget of the job
			head.used, head.streams = head.used.Plus(r.used), head.streams+r.streams
		}
		if r.waitedMs() > head.waitedMs() {
			head.ticket = r.ticket
		}
		if r.util >= 0 {
			head.util = max(head.util, 0) + r.util
		}
		if r.idleMs >= 0 && (head.idleMs < 0 || r.idleMs < head.idleMs) {
			head.idleMs = r.idleMs
		}
	}
	for i := range j.Devices {
		head.budget = min(head.budget, j.Devices[i].Max)
		head.min, head.peak = head.min.Plus(j.Devices[i].Min), head.peak.Plus(j.Devices[i].Peak)
	}
	return head
}
