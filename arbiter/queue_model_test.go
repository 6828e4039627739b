package arbiter_test

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file has the reference of the queue: each rule of the documentation, evaluated from scratch over all objects. It computes usage by
// its own counts, and does not know credit words, kept queues, or which state has changed. queue_drive_test.go compares the arbiter with
// it; queue_deadlock_test.go has its search for deadlocks.

type refDevice struct {
	index int
	total accounting.Bytes
	slots int // 0: no limit
	lost  bool

	known   bool // the fields below were counted after the last change
	holders []refHolder
	room    accounting.Bytes
	eves    accounting.Bytes
	of      map[uint32]accounting.Bytes // bytes held by or reserved for each user's jobs
}

type refJob struct {
	id        arbiter.JobID
	uid       uint32
	run       bool
	wait      bool // allocations of the job wait
	noWait    bool
	exclusive bool
	claim     bool
	min, max  accounting.Bytes // limits on each of its devices
	priority  int
	on        []int // devices that the job may use; nil: all
	kept      []int // devices on which the job keeps a slot until it ends
	spare     []int // devices on which the job always has a slot, used by any of its processes
	tail      []int // devices whose slot the processes go on to share after its release
	pending   bool
	released  bool
	closed    bool
	sessions  []*refSession
	timeout   time.Duration
	live      bool // max was set as a live limit
	request   arbiter.JobRequest
	begun     time.Time
	age       time.Duration // age after which its requests block jobs that have held memory for longer; 0: never
	gaveBack  bool          // on a copy: the job holds nothing any more
}

type refSession struct {
	id      arbiter.SessionID
	job     *refJob
	cgroup  int // index in refCgroups
	beside  int // index in refCgroups of its cgroup in another hierarchy
	wish    int // own slot limit (GPUARB_SLOTS); 0: none
	threads int
	dead    bool
	leases  []*refLease
	request arbiter.SessionRequest
}

type refLease struct {
	*client
	session *refSession
	device  *refDevice
	used    accounting.Bytes
	managed accounting.Bytes // part of used that is managed memory; no reading shows it on the device
	costs   accounting.Bytes // cost of its contexts, without the one that uses the job's headroom
	threads [4]refMaker      // objects by thread; 0: an unknown thread
	gone    bool
	lost    bool // its device was lost
	opened  time.Time
	quiet   [4]bool // on a copy: threads whose slots were taken back
}

type refMaker struct {
	contexts, streams int
	bytes             bool
}

type refTicket struct {
	id       arbiter.TicketID
	arrival  int
	since    time.Time
	parked   time.Time
	kind     byte // a: bytes, s: streams, c: contexts, j: the start of a job
	job      *refJob
	lease    *refLease
	thread   uint32
	n        accounting.Bytes
	managed  bool // n is managed memory
	count    int
	any      bool
	choice   []*refDevice // candidate devices of a job
	deadline time.Time
	of       *refTicket // on a copy: the ticket that this is a copy of; else nil
}

type reference struct {
	scope   rules.Scope
	grace   time.Duration
	shared  accounting.Bytes            // budget of the students
	caps    map[uint32]accounting.Bytes // caps of users
	cgroups map[int]accounting.Bytes    // caps of cgroups, by index in refCgroups
	context accounting.Bytes            // cost of a context
	devices []*refDevice
	jobs    []*refJob
	tickets []*refTicket // in the order of arrival
	now     time.Time
}

// outcome is the outcome of a ticket.
type outcome struct {
	ticket *refTicket
	reason arbiter.Reason // ReasonNone: the ticket was served
	device int            // device on which a job that may choose was served
}

func (j *refJob) uses(d *refDevice) bool { return j.on == nil || slices.Contains(j.on, d.index) }

func (j *refJob) alive() bool {
	return !j.closed || slices.ContainsFunc(j.sessions, func(s *refSession) bool { return !s.dead })
}

// reserved returns the memory.min in force.
func (j *refJob) reserved(d *refDevice) accounting.Bytes {
	if j.pending || j.released || j.gaveBack || !j.alive() || !j.uses(d) {
		return 0
	}
	return min(j.min, j.max, d.total)
}

// usedBy returns the sum over a job's leases on a device, for living processes only or for all.
func usedBy(j *refJob, d *refDevice, living bool) (n accounting.Bytes) {
	for _, s := range j.sessions {
		for _, l := range s.leases {
			if l.device == d && !l.gone && !(living && s.dead) {
				n += l.used
			}
		}
	}
	return n
}

// thereBy returns usedBy without managed memory, which takes no memory of the device.
func thereBy(j *refJob, d *refDevice, living bool) (n accounting.Bytes) {
	n = usedBy(j, d, living)
	for _, s := range j.sessions {
		for _, l := range s.leases {
			if l.device == d && !l.gone && !(living && s.dead) {
				n -= l.managed
			}
		}
	}
	return n
}

// costOf returns the cost of a job's contexts on a device, for living processes only or for all.
func costOf(j *refJob, d *refDevice, living bool) (n accounting.Bytes) {
	for _, s := range j.sessions {
		for _, l := range s.leases {
			if l.device == d && !l.gone && !(living && s.dead) {
				n += l.costs
			}
		}
	}
	return n
}

// headroom returns the memory reserved for a job's context above the cost of its present contexts.
func (r *reference) headroom(j *refJob, d *refDevice) accounting.Bytes {
	if j.reserved(d) == 0 {
		return 0
	}
	return r.context.Less(costOf(j, d, false))
}

// beside returns what a ticket takes from a device but from no budget: contexts without headroom, and the headroom of a reservation.
func (r *reference) beside(t *refTicket) accounting.Bytes {
	switch {
	case t.kind == 'j' && t.job.min > 0:
		return r.context
	case t.kind != 'c':
		return 0
	}
	n := t.count
	if t.lease.isOffered() {
		n--
	}
	return r.context.Times(uint64(n))
}

// isOffered reports whether the headroom of a lease's job is free for its next context.
func (l *refLease) isOffered() bool {
	j := l.session.job
	free := j.reserved(l.device) > 0
	for _, s := range j.sessions {
		for _, x := range s.leases {
			free = free && (s.dead || x.gone || x.device != l.device || x.contexts() == 0)
		}
	}
	return free
}

func (l *refLease) contexts() (n int) {
	for i := range l.threads {
		n += l.threads[i].contexts
	}
	return n
}

func committed(j *refJob, d *refDevice) accounting.Bytes {
	return max(usedBy(j, d, false), j.reserved(d))
}

// committedThere returns the bytes of a device that a job's memory takes, or that are reserved for it.
func committedThere(j *refJob, d *refDevice) accounting.Bytes {
	return max(thereBy(j, d, false), j.reserved(d))
}

// changed marks all counts as out of date.
func (r *reference) changed() {
	for _, d := range r.devices {
		d.known = false
	}
}

// count computes the state of a device: the holders of slots, the free bytes, and the free bytes of the students' shared budget.
func (r *reference) count(d *refDevice) *refDevice {
	if d.known {
		return d
	}
	d.known, d.holders, d.of = true, r.findHolders(d, d.holders[:0]), map[uint32]accounting.Bytes{}
	var all, eves accounting.Bytes
	for _, j := range r.jobs {
		n := committed(j, d)
		all += committedThere(j, d) + costOf(j, d, false) + r.headroom(j, d)
		d.of[j.uid] += n
		if student(j.uid) {
			eves += n
		}
	}
	d.room, d.eves = d.total.Less(all), min(r.shared, d.total).Less(eves)
	return d
}

// fresh reports whether a job holds nothing yet.
func (r *reference) fresh(j *refJob) bool {
	for _, d := range r.devices {
		if committed(j, d) > 0 {
			return false
		}
	}
	return true
}

func (l *refLease) has(thread int) bool {
	m := &l.threads[thread]
	return !l.quiet[thread] && (m.contexts > 0 || m.streams > 0 || m.bytes && l.used > 0)
}

func (l *refLease) objects() bool {
	if l.used > 0 {
		return true
	}
	for i := range l.threads {
		if l.threads[i].contexts+l.threads[i].streams > 0 {
			return true
		}
	}
	return false
}

// refHolder is the owner of a slot.
type refHolder struct {
	job     *refJob
	session *refSession
	thread  int
	claim   bool
}

// findHolders finds the holders of slots of a device from all objects.
func (r *reference) findHolders(d *refDevice, all []refHolder) []refHolder {
	for _, j := range r.jobs {
		kept := slices.Contains(j.kept, d.index)
		if kept {
			all = append(all, refHolder{job: j, claim: j.claim})
			continue // its processes share the slot
		}
		before, whole := len(all), false
		tail := slices.Contains(j.tail, d.index)
		for _, s := range j.sessions {
			for _, l := range s.leases {
				if s.dead || l.gone || l.device != d || !l.objects() {
					continue
				}
				switch {
				case !tail && r.scope == rules.ScopeThread:
					for t := range l.threads {
						if l.has(t) {
							all = append(all, refHolder{job: j, session: s, thread: t})
						}
					}
				case !tail && r.scope == rules.ScopeProcess:
					all = append(all, refHolder{job: j, session: s})
				default:
					if !whole {
						whole = true
						all = append(all, refHolder{job: j})
					}
				}
			}
		}
		if len(all) == before && slices.Contains(j.spare, d.index) {
			all = append(all, refHolder{job: j})
		}
	}
	return all
}

func (r *reference) holdersOf(d *refDevice) []refHolder { return r.count(d).holders }

// enters reports whether a request of a lease needs a slot that its owner does not have.
func (r *reference) enters(t *refTicket) bool {
	for _, h := range r.holdersOf(t.lease.device) {
		if h.job == t.job && (h.session == nil ||
			h.session == t.lease.session && (r.scope != rules.ScopeThread || h.thread == int(t.thread))) {
			return false
		}
	}
	return true
}

// noSlot reports whether a device has no slot for one more owner (full), or only the program's own slot limit refuses it (own).
func (r *reference) noSlot(d *refDevice, j *refJob, wish int, start bool) (full, own bool) {
	holders := r.holdersOf(d)
	claims := 0
	for _, h := range holders {
		if h.claim {
			claims++
		}
		if h.job != j && (start && j.exclusive || h.job.exclusive && slices.Contains(h.job.kept, d.index)) {
			return true, false
		}
	}
	switch {
	case start && j.exclusive:
		return false, false
	case d.slots > 0 && len(holders) >= d.slots:
		return true, false
	case start && j.claim && d.slots == 0 && claims > 0:
		return true, false
	}
	return false, wish > 0 && len(holders) >= wish
}

// keeps reports whether a job takes a slot on a device at its start.
func (r *reference) keeps(j *refJob, d *refDevice) bool {
	return j.run && !j.released && !d.lost && j.uses(d) && (j.exclusive || j.claim || j.noWait ||
		r.scope == rules.ScopeJob && (d.slots > 0 || len(j.request.Devices) > 0 || j.min > 0))
}

// need describes the limits that refuse a ticket on a device. hard: a limit has no room; else earlier tickets block it.
type need struct {
	cgroups, hardCgroups            cgroupSet
	user, shared, wish, slot, bytes bool // limits that refuse the ticket
	hardUser, hardShared, hardSlot  bool
	hardBytes                       bool
	enters                          bool
}

func (n need) any() bool { return n.cgroups != 0 || n.user || n.shared || n.wish || n.slot || n.bytes }

// bar says which later tickets the waiting tickets block at a limit.
type bar struct {
	on    bool
	since time.Time // jobs that have held memory since before this time are not blocked
}

func (b *bar) add(c bar) {
	if c.on && (!b.on || c.since.Before(b.since)) {
		*b = c
	}
}

func (b bar) stops(since time.Time) bool { return b.on && !since.Before(b.since) }

// bars has a bar for each limit of a device.
type bars struct {
	slots, claims, entrants bool

	shared, bytes bar
	users         [8]bar // by userOf
	cgroups       [4]bar // by index in refCgroups
}

// neverHeld stands for the time since when a job holds memory, if it holds none.
var neverHeld = start.Add(1 << 61)

// heldSince returns since when a job holds memory on a device: since the opening of its first lease that holds some, or since its
// reservation was made.
func (r *reference) heldSince(j *refJob, d *refDevice) time.Time {
	since := neverHeld
	if j.reserved(d) > 0 {
		since = j.begun
	}
	for _, s := range j.sessions {
		for _, l := range s.leases {
			if l.device == d && !l.gone && l.used > 0 && l.opened.Before(since) {
				since = l.opened
			}
		}
	}
	return since
}

// blocks returns which later tickets a waiting ticket blocks at a limit of a device.
func (r *reference) blocks(t *refTicket, d *refDevice) bar {
	if t.job.age > 0 && r.now.Sub(t.since) >= t.job.age {
		return bar{on: true}
	}
	return bar{true, r.heldSince(t.job, d)}
}

// refCgroups lists the cgroups of processes, the longer paths first.
var refCgroups = []string{"/box/in", "/box", "/o", "/"}

// cgroupSet has a bit for each of refCgroups.
type cgroupSet uint8

func (s cgroupSet) has(c int) bool { return s&(1<<c) != 0 }

// around returns the cgroups with a limit that a process is in, the innermost first.
func (r *reference) around(s *refSession) (all []int) {
	for c := range refCgroups {
		if _, limited := r.cgroups[c]; limited && s.isIn(c) {
			all = append(all, c)
		}
	}
	return all
}

func (s *refSession) isIn(c int) bool {
	return accounting.InCgroup(refCgroups[s.cgroup], refCgroups[c]) || accounting.InCgroup(refCgroups[s.beside], refCgroups[c])
}

// within returns the bytes that the jobs' processes in a cgroup hold on a device, for living processes only or for all.
func within(jobs []*refJob, c int, d *refDevice, living bool) (n accounting.Bytes) {
	for _, j := range jobs {
		for _, s := range j.sessions {
			for _, l := range s.leases {
				if s.isIn(c) && l.device == d && !l.gone && !(living && s.dead) {
					n += l.used
				}
			}
		}
	}
	return n
}

// lookAround sets in n whether the limits of cgroups refuse a ticket.
func (r *reference) lookAround(t *refTicket, d *refDevice, b bars, n *need) {
	if t.lease == nil || t.n == 0 || t.kind != 'a' {
		return
	}
	for _, c := range r.around(t.lease.session) {
		if t.n > min(r.cgroups[c], d.total).Less(within(r.jobs, c, d, false)) {
			n.hardCgroups |= 1 << c
		}
		if n.hardCgroups.has(c) || b.cgroups[c].stops(r.heldSince(t.job, d)) {
			n.cgroups |= 1 << c
		}
	}
}

// userOf returns the index of a user in bars.users.
func userOf(uid uint32) int {
	if uid < bob {
		return 0
	}
	return 1 + int(uid-bob)
}

// capOf returns how much all programs of a user may hold on a device.
func (r *reference) capOf(uid uint32, d *refDevice) accounting.Bytes {
	if most, ok := r.caps[uid]; ok {
		return min(most, d.total)
	}
	return accounting.Max
}

// lines has the bars of each device.
type lines []bars

func (b *bars) add(c bars) {
	b.slots, b.claims, b.entrants = b.slots || c.slots, b.claims || c.claims, b.entrants || c.entrants
	b.shared.add(c.shared)
	b.bytes.add(c.bytes)
	for i := range b.users {
		b.users[i].add(c.users[i])
	}
	for i := range b.cgroups {
		b.cgroups[i].add(c.cgroups[i])
	}
}

// blocks reports whether an earlier ticket blocks t.
func (b bars) blocks(t *refTicket) bool {
	alone, claims := t.kind == 'j' && t.job.exclusive, t.kind == 'j' && t.job.claim
	return b.slots || b.claims && (claims || alone) || b.entrants && alone
}

// look returns the limits that refuse a ticket on a device, with earlier tickets in b.
func (r *reference) look(t *refTicket, d *refDevice, b bars) (n need) {
	j := t.job
	var grow, there accounting.Bytes // growth of the budgets, and growth of the use of the device
	if t.kind == 'j' {
		grow = min(j.min, j.max, d.total)
		there = grow
		if n.enters = r.keeps(j, d); n.enters {
			n.hardSlot, n.wish = r.noSlot(d, j, 0, true)
		}
	} else {
		used, least := usedBy(j, d, false), j.reserved(d)
		grow = max(used+t.n, least) - max(used, least)
		if used := thereBy(j, d, false); !t.managed {
			there = max(used+t.n, least) - max(used, least)
		}
		if n.enters = r.enters(t); n.enters {
			n.hardSlot, n.wish = r.noSlot(d, j, t.lease.session.wish, false)
		}
	}
	n.slot = n.hardSlot || n.enters && !n.wish && b.blocks(t)
	if takes := there + r.beside(t); takes > 0 {
		n.hardBytes = takes > r.count(d).room
		n.bytes = n.hardBytes || b.bytes.stops(r.heldSince(j, d))
	}
	r.lookAround(t, d, b, &n)
	if _, capped := r.caps[j.uid]; capped && grow > 0 {
		n.hardUser = grow > r.capOf(j.uid, d).Less(r.count(d).of[j.uid])
		n.user = n.hardUser || b.users[userOf(j.uid)].stops(r.heldSince(j, d))
	}
	if grow > 0 && student(j.uid) {
		n.hardShared = grow > r.count(d).eves
		n.shared = n.hardShared || b.shared.stops(r.heldSince(j, d))
	}
	return n
}

// mustRead reports whether a request that is refused for lack of bytes has room on the device as far as readings have shown contexts. No
// reading has shown those of living processes.
func (r *reference) mustRead(t *refTicket, n need) bool {
	if t.lease == nil || n.slot || n.wish || n.shared || n.user || n.cgroups != 0 || !n.bytes {
		return false
	}
	d := t.lease.device
	var all, unread accounting.Bytes
	for _, j := range r.jobs {
		unread += costOf(j, d, true)
		costs := costOf(j, d, false) - costOf(j, d, true)
		if j.reserved(d) > 0 {
			costs = max(costs, r.context)
		}
		all += committedThere(j, d) + costs
	}
	room := r.count(d).room
	r.count(d).room = d.total.Less(all)
	fits := !r.look(t, d, bars{}).hardBytes
	r.count(d).room = room
	return fits && unread > 0
}

func (r *reference) spots(t *refTicket) []*refDevice {
	if t.kind == 'j' && t.any { // a lost device may come back
		return slices.DeleteFunc(slices.Clone(t.choice), func(d *refDevice) bool { return d.lost })
	}
	if t.kind == 'j' {
		return t.choice
	}
	return []*refDevice{t.lease.device}
}

// never returns the reason if a ticket is refused at once, whatever other jobs do.
func (r *reference) never(t *refTicket) arbiter.Reason {
	lost := func(d *refDevice) bool { return d.lost }
	switch {
	case t.lease != nil && t.lease.lost, !t.any && slices.ContainsFunc(r.spots(t), lost), t.any && len(r.spots(t)) == 0:
		return arbiter.ReasonDeviceLost
	}
	if t.kind != 'a' && t.kind != 'c' {
		return arbiter.ReasonNone
	}
	d, j := t.lease.device, t.job
	if t.kind == 'c' {
		if n := r.beside(t); r.look(t, d, bars{}).hardBytes && t.lease.used-t.lease.managed+n > d.total {
			return arbiter.ReasonDeviceFull
		}
		return arbiter.ReasonNone
	}
	most := min(j.max, d.total)
	if t.managed && j.max == accounting.Max {
		most = accounting.Max
	}
	if student(j.uid) {
		most = min(most, r.shared, d.total)
	}
	most = min(most, r.capOf(j.uid, d))
	for _, c := range r.around(t.lease.session) {
		most = min(most, r.cgroups[c], d.total)
	}
	switch {
	case t.n > most:
		return arbiter.ReasonTooLarge
	case j.max < accounting.Max && usedBy(j, d, false)+t.n > min(j.max, d.total):
		return arbiter.ReasonOverBudget
	}
	n := r.look(t, d, bars{})
	for c := range refCgroups {
		if n.hardCgroups.has(c) && within([]*refJob{j}, c, d, true)+t.n > min(r.cgroups[c], d.total) {
			return arbiter.ReasonSharedFull
		}
	}
	switch {
	case n.hardUser && usedBy(j, d, true)+t.n > r.capOf(j.uid, d):
		return arbiter.ReasonSharedFull
	case n.hardShared && usedBy(j, d, true)+t.n > min(r.shared, d.total):
		return arbiter.ReasonSharedFull
	case n.hardBytes && t.lease.used-t.lease.managed+t.n > d.total:
		return arbiter.ReasonDeviceFull
	}
	return arbiter.ReasonNone
}

func (r *reference) rank(t *refTicket) int {
	return t.job.priority + int(r.now.Sub(t.since)/time.Minute)
}

// order returns the tickets in the order in which they are served.
func (r *reference) order() []*refTicket {
	sorted := slices.Clone(r.tickets)
	if !slices.ContainsFunc(sorted, func(t *refTicket) bool { return t.job.priority != sorted[0].job.priority }) {
		return sorted
	}
	slices.SortStableFunc(sorted, func(x, y *refTicket) int { return r.rank(y) - r.rank(x) })
	return sorted
}

// behind returns the bars of a device after a waiting ticket was added.
func (r *reference) behind(t *refTicket, needs []need, i int) (b bars) {
	n := needs[i]
	if !t.any {
		for _, o := range needs {
			n.cgroups |= o.cgroups
			n.user, n.shared, n.wish = n.user || o.user, n.shared || o.shared, n.wish || o.wish
			n.slot, n.bytes = n.slot || o.slot, n.bytes || o.bytes
		}
	}
	blocks := r.blocks(t, r.spots(t)[i])
	for c := range refCgroups {
		if n.cgroups.has(c) {
			b.cgroups[c] = blocks
			return b
		}
	}
	switch {
	case n.user:
		b.users[userOf(t.job.uid)] = blocks
	case n.shared:
		b.shared = blocks
	}
	if n.user || n.shared || n.wish {
		return b
	}
	if needs[i].enters {
		start := t.kind == 'j'
		b.slots = start && t.job.exclusive || r.spots(t)[i].slots > 0
		b.claims = !b.slots && start && t.job.claim
		b.entrants = !b.slots && !b.claims
	}
	if n.bytes && !n.slot {
		b.bytes = blocks
	}
	return b
}

// evaluate evaluates a ticket behind the earlier tickets of each device.
func (r *reference) evaluate(t *refTicket, behind lines) (needs []need, at *refDevice, ok bool) {
	spots := r.spots(t)
	ok = !t.any
	for _, d := range spots {
		b := behind[d.index]
		if !student(t.job.uid) {
			b.shared = bar{}
		}
		n := r.look(t, d, b)
		needs = append(needs, n)
		if t.any && !n.any() && (at == nil || len(r.holdersOf(at)) > 0 && len(r.holdersOf(d)) == 0) {
			at = d
		}
		ok = ok && !n.any()
	}
	return needs, at, ok || at != nil
}

// serve grants a ticket.
func (r *reference) serve(t *refTicket, at *refDevice) outcome {
	r.drop(t)
	defer r.changed()
	f := outcome{ticket: t, device: -1}
	costs := r.beside(t)
	if t.kind == 'c' && t.lease.isOffered() {
		costs += r.headroom(t.job, t.lease.device)
	}
	if l := t.lease; l != nil {
		if j := t.job; j.request.NoWait && !j.exclusive && !j.claim && r.scope != rules.ScopeJob && r.keeps(j, l.device) && !slices.Contains(j.spare, l.device.index) {
			j.spare = append(j.spare, l.device.index) // the job began while the device was lost, and had no slot there
		}
		m := &l.threads[t.thread]
		switch t.kind {
		case 'a':
			m.bytes = m.bytes && l.used > 0 || m.contexts+m.streams == 0
			l.used += t.n
			if t.managed {
				l.managed += t.n
				l.word.told.Managed = l.managed
			}
		case 's':
			m.streams += t.count
		case 'c':
			m.contexts += t.count
			l.costs += costs
		}
		return f
	}
	if t.any {
		t.job.on, f.device = []int{at.index}, at.index
	}
	t.job.pending, t.job.begun = false, r.now
	for _, d := range t.choice {
		r.keep(t.job, d)
	}
	return f
}

// keep gives a job the slot that it takes on a device at its start, if any.
func (r *reference) keep(j *refJob, d *refDevice) {
	switch {
	case !r.keeps(j, d):
	case r.scope != rules.ScopeJob && !j.exclusive && !j.claim:
		j.spare = append(j.spare, d.index)
	default:
		j.kept = append(j.kept, d.index)
	}
}

// add adds a ticket to the waiting ones, in the order of arrival.
func (r *reference) add(t *refTicket) {
	at, _ := slices.BinarySearchFunc(r.tickets, t, func(x, y *refTicket) int { return x.arrival - y.arrival })
	r.tickets = slices.Insert(r.tickets, at, t)
}

func (r *reference) drop(t *refTicket) {
	r.tickets = slices.DeleteFunc(r.tickets, func(x *refTicket) bool { return x == t })
}

// step decides the first ticket that can be decided. It returns false if there is none.
func (r *reference) step() (outcome, bool) {
	behind := make(lines, len(r.devices))
	for _, t := range r.order() {
		if why := r.never(t); why != arbiter.ReasonNone {
			r.drop(t)
			return outcome{ticket: t, reason: why}, true
		}
		needs, at, ok := r.evaluate(t, behind)
		if ok {
			return r.serve(t, at), true
		}
		if t.lease != nil && !t.job.wait && !needs[0].slot && !needs[0].wish && !r.mustRead(t, needs[0]) { // it has its slot, and does not wait for bytes
			r.drop(t)
			why := arbiter.ReasonDeviceFull
			if needs[0].shared || needs[0].user || needs[0].cgroups != 0 {
				why = arbiter.ReasonSharedFull
			}
			return outcome{ticket: t, reason: why}, true
		}
		r.barAll(t, needs, behind)
	}
	return outcome{}, false
}

func (r *reference) barAll(t *refTicket, needs []need, behind lines) {
	for i, d := range r.spots(t) {
		b := behind[d.index]
		add := r.behind(t, needs, i)
		if !student(t.job.uid) {
			add.shared = bar{}
		}
		b.add(add)
		behind[d.index] = b
	}
}

// runCycles decides tickets until none can be served and no deadlock of blocked jobs is left.
func (r *reference) runCycles() (fates []outcome) {
	for len(r.tickets) > 0 {
		f, ok := r.step()
		if !ok {
			f, ok = r.breakDeadlock(true, nil)
		}
		if !ok {
			break
		}
		fates = append(fates, f)
	}
	return fates
}
