package arbiter

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// noticeEvery is how often a waiting client hears of changes, at most.
const noticeEvery = time.Second

// Notice tells how a ticket stands at this moment; the zero Notice for one that does not
// wait. What is told so is not told again by Decisions before it changes.
func (a *Arbiter) Notice(now time.Time, id TicketID) Notice {
	t := a.tickets[id]
	if t == nil {
		return Notice{}
	}
	n := (&moment{a: a, now: now}).standing(t)
	t.told = told{n.Position, a.stateOf(t)}
	return n
}

// where is the device at which a ticket stands in line, and the limit that refuses it there.
func (t *ticket) where() (d *device, at limits) {
	for i := range t.spots {
		s := &t.spots[i]
		for _, at := range [...]limits{atUser, atShared, atWish, atSlots, atBytes} {
			if s.at&at != 0 && (!s.device.lost || i == len(t.spots)-1) {
				return s.device, at
			}
		}
	}
	return t.spots[0].device, atBytes
}

// waitsAt reports whether a ticket is refused by a limit on a device.
func (t *ticket) waitsAt(d *device, at limits) bool {
	return slices.ContainsFunc(t.spots, func(s spot) bool { return s.device == d && s.at&at != 0 })
}

// position is a ticket's place among those that the same limit refuses; 1 is next.
func (a *Arbiter) position(t *ticket) int {
	d, at := t.where()
	n := 1
	for _, u := range d.queue {
		if u == t {
			break
		}
		if u.waitsAt(d, at) && (at&atBudgets == 0 || u.job.shareAt(at) == t.job.shareAt(at)) {
			n++
		}
	}
	return n
}

// moment is how all who wait stand at one time. What would be counted anew for each of
// them, who comes before it and who holds what it waits for, is found once. Of thousands
// that takes longer than anybody should hold the daemon's lock: they are counted in parts.
type moment struct {
	a         *Arbiter
	now       time.Time
	positions map[*ticket]int // nil: each is counted by itself
	held      map[obstacle]string
	states    map[obstacle]string
	queues    []queueOf        // still to be counted
	before    map[obstacle]int // in the first of these, as far as it was counted
	listed    []*ticket        // those counted, device by device in the order that they are served in, each once
	seen      map[*ticket]bool // those listed
}

// queueOf is who waits at a device.
type queueOf struct {
	device  *device
	tickets []*ticket
}

// obstacle is a limit at which tickets wait.
type obstacle struct {
	device *device
	at     limits
	shared *shared // nil: not a shared budget
}

func (t *ticket) obstacle() obstacle {
	d, at := t.where()
	return obstacle{d, at, t.job.shareAt(at)}
}

// moment begins to count where everybody stands.
func (a *Arbiter) moment(now time.Time) *moment {
	m := &moment{a: a, now: now, positions: make(map[*ticket]int, len(a.tickets)), seen: make(map[*ticket]bool, len(a.tickets)),
		held: make(map[obstacle]string), states: make(map[obstacle]string), before: make(map[obstacle]int)}
	for _, d := range a.devices {
		m.queues = append(m.queues, queueOf{d, slices.Clone(d.queue)})
	}
	return m
}

// countedAtOnce is how many times as many tickets are counted at once as are described.
const countedAtOnce = 4

// count counts up to so many; those that wait no longer are left out. False: all are counted.
func (m *moment) count(most int) (more bool) {
	for ; len(m.queues) > 0; m.queues = m.queues[1:] {
		q := &m.queues[0]
		for ; len(q.tickets) > 0; q.tickets = q.tickets[1:] {
			if most--; most < 0 {
				return true
			}
			if t := q.tickets[0]; !t.done {
				m.add(q.device, t)
			}
		}
		clear(m.before)
	}
	return false
}

// add counts one, at a device.
func (m *moment) add(d *device, t *ticket) {
	if !m.seen[t] {
		m.seen[t] = true
		m.listed = append(m.listed, t)
	}
	if o := t.obstacle(); o.device == d {
		m.positions[t] = m.before[o] + 1
	}
	for _, at := range [...]limits{atWish, atSlots, atBytes} {
		if t.waitsAt(d, at) {
			m.before[obstacle{d, at, nil}]++
		}
	}
	for i, sh := range t.job.shares() {
		if at := atUser << i; t.waitsAt(d, at) {
			m.before[obstacle{d, at, sh}]++
		}
	}
}

// next returns the next of those counted that waits still; nil: that was all.
func (m *moment) next() *ticket {
	for len(m.listed) > 0 {
		t := m.listed[0]
		if m.listed = m.listed[1:]; !t.done {
			return t
		}
	}
	return nil
}

func (m *moment) position(t *ticket) int {
	if m.positions != nil {
		return m.positions[t]
	}
	return m.a.position(t)
}

// state is what a notice to a ticket is about: the same for all that wait at one limit.
func (m *moment) state(t *ticket) string {
	o := t.obstacle()
	state, known := m.states[o]
	if !known {
		state = m.a.stateOf(t)
		m.states[o] = state
	}
	return state
}

func (m *moment) heldBy(t *ticket) string {
	o := t.obstacle()
	held, known := m.held[o]
	if !known {
		held = m.a.heldBy(m.now, t, o.device, o.at)
		if m.held != nil {
			m.held[o] = held
		}
	}
	return held
}

// standing says how a ticket stands.
func (m *moment) standing(t *ticket) Notice {
	n := Notice{Position: m.position(t), Waited: m.now.Sub(t.place.Since)}
	n.Text = fmt.Sprintf("waits for %s on %s, position %d", m.a.wants(t), t.gpu(), n.Position)
	switch held := m.heldBy(t); {
	case held != "":
		n.Text += ": " + held
	case t.turn():
		n.Text += ": others come first"
	}
	if m.a.isFurther(t) {
		n.Text += "; its job's memory.min has room for one context, and this is a further one"
	}
	return n
}

// gpu names the device at which a ticket waits.
func (t *ticket) gpu() string {
	if t.any {
		return "any GPU"
	}
	d, _ := t.where()
	return fmt.Sprintf("GPU %d", d.Index)
}

// wants says what a ticket wants.
func (a *Arbiter) wants(t *ticket) string {
	switch t.kind {
	case WantsStreams:
		return "a stream"
	case WantsContexts, WantsHolds:
		if a.isFurther(t) {
			return "a further context"
		}
		return "a context"
	case WantsBytes:
		return t.bytes.Human()
	case wantsSession:
		return "its memory.min of " + a.wantsBytes(t).Human()
	}
	r := &t.job.request
	n := a.wantsBytes(t)
	what := "a slot"
	switch {
	case r.Exclusive:
		what = "a GPU of its own"
	case r.Claim, r.Any:
		what = "a GPU"
	case n > 0 && !slices.ContainsFunc(t.spots, func(s spot) bool { return s.enters && s.device.slotsMax() > 0 }):
		return "its memory.min of " + n.Human()
	}
	if n > 0 {
		what += " with a memory.min of " + n.Human()
	}
	return what
}

// WantsBytes is how many bytes a ticket wants on a device.
func (a *Arbiter) wantsBytes(t *ticket) (most accounting.Bytes) {
	if t.lease != nil {
		return t.bytes
	}
	for i := range t.spots {
		n, _ := t.reserves(t.spots[i].device)
		most = max(most, n)
	}
	return most
}

// heldBy says who holds what a ticket waits for.
func (a *Arbiter) heldBy(now time.Time, t *ticket, d *device, at limits) string {
	switch at {
	case atSlots, atWish:
		return a.slotHolders(now, d)
	case atUser, atShared:
		s := t.job.shareAt(at)
		names := a.holders(now, d, owners(s.budget.Leases(d.Index)), false)
		return fmt.Sprintf("of %s, %s", s.named(d, s.limits(d).Max), cmp.Or(names, "nothing is free"))
	}
	names := a.holders(now, d, a.leasesOn(d), true)
	if names == "" {
		return ""
	}
	return fmt.Sprintf("%s free; holds: %s", a.ledger.Left(nil, d.Index).Human(), names)
}

// slotHolders names who has the slots of a device, and since when.
func (a *Arbiter) slotHolders(now time.Time, d *device) string {
	var names []string
	for _, h := range sortedHolders(d) {
		if len(names) == namedHolders {
			break
		}
		names = append(names, fmt.Sprintf("%s for %s", owned(h.key.job.request.Process.User, h.name()), brief(now.Sub(h.since))))
	}
	who := listed(names, len(d.holders))
	switch {
	case len(names) == 0:
		return ""
	case d.exclusive != nil:
		return "alone there: " + who
	case d.slotsMax() == 0:
		return "there: " + who
	}
	return fmt.Sprintf("%d of %d (slots.max) taken: %s", len(d.holders), d.slotsMax(), who)
}

// sortedHolders returns a device's holders, the oldest first.
func sortedHolders(d *device) []*holder {
	return slices.SortedFunc(maps.Values(d.holders), oldestFirst)
}

func oldestFirst(x, y *holder) int {
	p, q := x.key, y.key
	c := cmp.Or(x.since.Compare(y.since), cmp.Compare(p.job.id, q.job.id), cmp.Compare(p.thread, q.thread))
	if c == 0 && p.session != nil && q.session != nil {
		c = cmp.Compare(p.session.id, q.session.id)
	}
	return c
}

// name is how people know a holder.
func (h *holder) name() string {
	if s := h.key.session; s != nil {
		if h.key.thread != 0 {
			return fmt.Sprintf("thread %d of %s", h.key.thread, s.name())
		}
		return s.name()
	}
	return h.key.job.name()
}

// name is how people know a job: "job 3 (python3)", or "train-a (job 3, python3)".
func (j *job) name() string {
	if !j.run && len(j.sessions) == 1 {
		return j.sessions[0].name()
	}
	words := strings.Fields(cmp.Or(j.request.Command, j.request.Process.Command))
	switch name := rules.Plain(j.request.Name); {
	case len(words) == 0 && name == "":
		return fmt.Sprintf("job %d", j.id)
	case len(words) == 0:
		return fmt.Sprintf("%s (job %d)", name, j.id)
	case name != "":
		return fmt.Sprintf("%s (job %d, %s)", name, j.id, rules.Plain(path.Base(words[0])))
	}
	return fmt.Sprintf("job %d (%s)", j.id, rules.Plain(path.Base(words[0])))
}

// brief writes a duration for a sentence.
func brief(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d h", d/time.Hour)
}

// failed says that a ticket ends unserved.
func (a *Arbiter) failed(t *ticket, waited time.Duration, why string) string {
	return fmt.Sprintf("%s did not get %s on %s within %s: %s", t.name(), a.wants(t), t.gpu(), brief(waited), why)
}

// ticketEvent notes an event about a ticket.
func (a *Arbiter) ticketEvent(now time.Time, t *ticket, kind Kind, text string) {
	p := t.process()
	e := Event{Time: now, Kind: kind, Device: -1, PID: p.PID, UID: p.UID, Job: t.job.id, Ticket: t.id,
		Reason: t.why.reason, Requested: a.wantsBytes(t), WaitedMs: max(0, now.Sub(t.place.Since).Milliseconds()), Text: text}
	if !t.any && len(t.spots) > 0 {
		e.Device = t.spots[0].device.Index
	}
	if t.lease != nil {
		e.Lease = t.lease.id
	}
	a.event(e)
}

// explainSlots says why there is no slot, or no device, for somebody.
func (a *Arbiter) explainSlots(t *ticket) string {
	d, at := t.where()
	text := fmt.Sprintf("no slot on GPU %d", d.Index)
	if t.any {
		text = "no GPU is free"
	}
	if held := a.heldBy(t.parkedOr(), t, d, at); held != "" {
		text += ": " + held
	}
	if t.turn() {
		text += "; others wait for it and come first"
	}
	return text
}

// parkedOr is a moment by which a ticket's holders are aged in a sentence.
func (t *ticket) parkedOr() time.Time { return t.place.Since }

// stateOf is what a notice is about: it is told again when that changes.
func (a *Arbiter) stateOf(t *ticket) string {
	d, at := t.where()
	var b strings.Builder
	fmt.Fprintf(&b, "%d %d", d.Index, at)
	switch at {
	case atSlots, atWish:
		for _, h := range sortedHolders(d) {
			b.WriteString(h.name())
		}
	case atUser, atShared:
		a.writeHolders(&b, d, t.job.shareAt(at))
	default:
		a.writeHolders(&b, d, nil)
	}
	return b.String()
}

// writeHolders writes who holds bytes at a device, or of a shared budget there.
func (a *Arbiter) writeHolders(b *strings.Builder, d *device, sh *shared) {
	leases := a.leasesOn(d)
	if sh != nil {
		leases = owners(sh.budget.Leases(d.Index))
	}
	n := 0
	for l := range leases {
		if l.sum.Granted() > 0 && n < namedHolders {
			fmt.Fprintf(b, " %d", l.session.id)
			n++
		}
	}
	if sh != nil {
		return
	}
	for j := range a.reserved(d) {
		fmt.Fprintf(b, " job %d", j.id)
	}
}

// toldAtOnce is how many of those who wait are told something each time that the arbiter ticks.
const toldAtOnce = 128

// tell sends notices to those for whom something has changed, in one pass a second.
func (a *Arbiter) tell(now time.Time) {
	if a.telling == nil {
		if !a.noticesDue || now.Sub(a.noticedAt) < noticeEvery {
			return
		}
		a.noticesDue, a.noticedAt, a.telling = false, now, a.moment(now)
	}
	m := a.telling
	if m.count(countedAtOnce * toldAtOnce) {
		return
	}
	for range toldAtOnce {
		t := m.next()
		if t == nil {
			a.telling = nil
			return
		}
		is := told{m.position(t), m.state(t)}
		if is != t.told {
			t.told = is
			a.decisions = append(a.decisions, Decision{Ticket: t.id, Kind: DecisionNotice, Notice: m.standing(t)})
		}
	}
}

// noticesAt is when notices are due; zero: nothing has changed.
func (a *Arbiter) noticesAt() time.Time {
	switch {
	case a.telling != nil: // not all have been told
		return a.noticedAt
	case !a.noticesDue:
		return time.Time{}
	}
	return a.noticedAt.Add(noticeEvery)
}
