package top

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/figures"
)

// sort of thing that a row is about.
type sortOf int

const (
	aLease      sortOf = iota
	aJob               // heads the others in the tree
	anOwner            // has a device as a whole, or memory of it reserved, and uses nothing of it
	aTicket            // waits, and has no lease there
	anUnmanaged        // a process that is no client
)

// row is one line below the devices. Its texts are as programs chose them: they are escaped when
// they are drawn.
type row struct {
	is      sortOf
	pid     int
	device  int // -1: any, or none yet
	job     uint64
	uid     uint32
	owned   bool // uid is known
	user    string
	name    string // of the job
	command string
	state   string
	used    accounting.Bytes
	budget  accounting.Bytes
	min     accounting.Bytes
	peak    accounting.Bytes
	streams int
	ageMs   int64
	ticket  *figures.TicketState // that it waits with; nil: for nothing
	branch  string               // in the tree
	bypass  figures.Bypass       // of what is unmanaged
}

// id tells a row from the others, in this snapshot and the next.
type id struct {
	is     sortOf
	pid    int
	device int
	job    uint64
}

func (r *row) id() id { return id{r.is, r.pid, r.device, r.job} }

func (r *row) waitedMs() int64 {
	if r.ticket == nil {
		return -1
	}
	return r.ticket.WaitedMs
}

// spot is a job on a device.
type spot struct {
	job    uint64
	device int
}

// rowsOf are the rows of a snapshot, in its order.
func rowsOf(s *figures.Snapshot) []row {
	rows := make([]row, 0, len(s.Leases)+len(s.Queue))
	tickets := make(map[int][]*figures.TicketState, len(s.Queue)) // by process
	for i := range s.Queue {
		tickets[s.Queue[i].PID] = append(tickets[s.Queue[i].PID], &s.Queue[i])
	}
	shown := make(map[uint64]bool, len(s.Queue)) // tickets that a lease has
	leased := make(map[spot]bool, len(s.Leases))
	for i := range s.Leases {
		l := &s.Leases[i]
		r := row{is: aLease, pid: l.PID, device: l.Device, job: l.Job, uid: l.UID, owned: true, user: l.User, name: l.JobName, command: l.Command,
			state: string(l.State), used: l.Used, budget: l.Budget, min: l.Min, peak: l.Peak, streams: l.Streams, ageMs: l.AgeSeconds * 1000}
		for _, t := range tickets[l.PID] {
			if !shown[t.Ticket] && (t.Device == l.Device || t.Device < 0) {
				r.ticket, shown[t.Ticket] = t, true
				break
			}
		}
		leased[spot{l.Job, l.Device}] = true
		rows = append(rows, r)
	}
	for i := range s.Devices {
		rows = append(rows, ownersOf(&s.Devices[i], leased)...)
	}
	for i := range s.Queue {
		if t := &s.Queue[i]; !shown[t.Ticket] {
			rows = append(rows, row{is: aTicket, pid: t.PID, device: t.Device, job: t.Job, uid: t.UID, owned: true, user: t.User, name: t.JobName,
				command: t.Command, state: string(figures.StateWaiting), budget: accounting.Max, ageMs: t.WaitedMs, ticket: t})
		}
	}
	rows = append(rows, reservedOf(s, rows)...)
	return append(rows, unmanagedOf(s)...)
}

// ownersOf are the rows of those who have a device as a whole and no lease there.
func ownersOf(d *figures.DeviceState, leased map[spot]bool) (rows []row) {
	for _, h := range d.Owners() {
		if !leased[spot{h.Job, d.Index}] {
			rows = append(rows, row{is: anOwner, pid: h.PID, device: d.Index, job: h.Job, uid: h.UID, owned: true, user: h.User, name: h.JobName,
				command: h.Command, state: string(h.Kind), budget: accounting.Max, ageMs: h.AgeMs})
		}
	}
	return rows
}

// reservedOf are the rows of jobs of which there is no other: something is reserved for them, and that is all.
func reservedOf(s *figures.Snapshot, others []row) (rows []row) {
	shown := make(map[uint64]bool, len(s.Jobs))
	for i := range others {
		shown[others[i].job] = true
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		for _, on := range j.Devices {
			if on.Reserved > 0 && !shown[j.ID] {
				rows = append(rows, row{is: anOwner, pid: j.PID, device: on.Device, job: j.ID, uid: j.UID, owned: true, user: j.User, name: j.Name,
					command: j.Command, state: "reserved", budget: on.Max, min: on.Reserved, ageMs: j.AgeMs})
			}
		}
	}
	return rows
}

func unmanagedOf(s *figures.Snapshot) (rows []row) {
	for d, u := range s.Unmanaged() {
		rows = append(rows, row{is: anUnmanaged, job: u.Job, name: u.JobName, pid: u.PID, device: d.Index, uid: u.UID, owned: u.User != "", user: u.User, command: u.Command, bypass: u.Bypass,
			state: "unmanaged", used: u.Bytes, budget: accounting.Max, ageMs: u.AgeMs})
	}
	return rows
}

// key is what the rows can be sorted by.
type key struct {
	name    string
	largest bool // first, unless it is turned round
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
	{"waited", true, func(a, b *row) int { return cmp.Compare(a.waitedMs(), b.waitedMs()) }},
	{"command", false, func(a, b *row) int { return cmp.Compare(a.command, b.command) }},
}

// SortKeys are the names of what the rows can be sorted by.
func SortKeys() (names []string) {
	for _, k := range keys {
		names = append(names, k.name)
	}
	return names
}

// keyNamed is the place of a key; -1: there is none of that name.
func keyNamed(name string) int {
	return slices.IndexFunc(keys, func(k key) bool { return k.name == name })
}

// inOrder sorts rows by a key; equal ones by device and PID, so that they stay where they are.
func inOrder(rows []row, k key, turned bool) {
	slices.SortFunc(rows, func(a, b row) int {
		order := k.compare(&a, &b)
		if k.largest != turned {
			order = -order
		}
		return cmp.Or(order, cmp.Compare(a.device, b.device), cmp.Compare(a.pid, b.pid), cmp.Compare(a.is, b.is))
	})
}

// matches reports whether a filter, which is in lower case, is found in what a row shows.
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

// tree puts each job above its rows. Jobs are sorted as rows are, by their sums.
func tree(s *figures.Snapshot, rows []row, g glyphs, k key, turned bool) []row {
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
	inOrder(heads, k, turned)
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
	return append(all, members[0]...) // unmanaged processes that are in no job
}

// headOf is the row of a job: sums of what is below it.
func headOf(j *figures.JobState, below []row) row {
	head := row{is: aJob, pid: j.PID, device: below[0].device, job: j.ID, uid: j.UID, owned: true, user: j.User, name: j.Name, command: j.Command,
		state: string(j.State), budget: accounting.Max, ageMs: j.AgeMs}
	for i := range below {
		r := &below[i]
		if r.device != head.device {
			head.device = -1
		}
		if r.is != anUnmanaged { // such memory is outside the job's budget
			head.used, head.streams = head.used.Plus(r.used), head.streams+r.streams
		}
		if r.waitedMs() > head.waitedMs() {
			head.ticket = r.ticket
		}
	}
	for i := range j.Devices {
		head.budget = min(head.budget, j.Devices[i].Max)
		head.min, head.peak = head.min.Plus(j.Devices[i].Min), head.peak.Plus(j.Devices[i].Peak)
	}
	return head
}
