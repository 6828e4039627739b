package arbiter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file makes the notices that tell waiting clients the state of their requests. tick.go calls addNotices; the daemon sends the
// notices.

// noticeEvery is the shortest time between two notices to a waiting client.
const noticeEvery = time.Second

// Notice returns the present state of a waiting ticket, and notes that its client knows that state: Decisions returns another notice only
// after a change. The zero Notice means that the ticket does not wait.
func (a *Arbiter) Notice(now time.Time, id TicketID) Notice {
	t := a.tickets[id]
	if t == nil {
		return Notice{}
	}
	m := a.viewQueue(now)
	t.lastNotice = noticeState{m.positions[t], a.holdersState(t.narrowestLimit()), m.elsewhere(t), a.aheadOf(t), m.askedText(t)}
	return m.toClient(t)
}

// queueView is a view of all waiting requests at one time. It counts their positions once, and finds the holders at each limit once for all
// requests that wait there.
type queueView struct {
	a         *Arbiter
	now       time.Time
	positions map[*ticket]int              // position among the requests that the same limit refuses; 1: next
	held      map[*limit]topHolders        // holders of bytes at a limit
	heldTexts map[*limit]string            // text with the holders of bytes at a limit, for programs that are not among the largest
	states    map[*limit]string            // holdersState of a limit
	reserved  map[*device]accounting.Bytes // allReserved of a device
	rooms     map[*device]string           // text with the free memory of a device
	asked     map[TicketID][]*job          // jobs that are asked to make room for a request
}

// viewQueue counts the positions of all waiting requests.
func (a *Arbiter) viewQueue(now time.Time) *queueView {
	m := &queueView{a: a, now: now, positions: make(map[*ticket]int, len(a.queue)), held: make(map[*limit]topHolders), heldTexts: make(map[*limit]string), states: make(map[*limit]string),
		reserved: make(map[*device]accounting.Bytes), rooms: make(map[*device]string), asked: a.askedFor()}
	before := make(map[*limit]int)
	for _, t := range a.queue {
		m.positions[t] = before[t.narrowestLimit()] + 1
		for i := range t.candidates {
			for _, f := range t.candidates[i].refusedBy {
				before[f.limit]++
			}
		}
	}
	return m
}

// byDevice returns all waiting requests, grouped by device, in the order in which they are served. A request with several candidate devices
// is in the group of the first of them.
func (m *queueView) byDevice() []*ticket {
	first := func(t *ticket) (index int) {
		index = t.candidates[0].device.Index
		for _, s := range t.candidates {
			index = min(index, s.device.Index)
		}
		return index
	}
	all := slices.Clone(m.a.queue)
	slices.SortStableFunc(all, func(x, y *ticket) int { return cmp.Compare(first(x), first(y)) })
	return all
}

// notice returns the notice about a ticket.
func (m *queueView) notice(t *ticket) Notice {
	a, at, first := m.a, t.narrowestLimit(), m.a.aheadOf(t)
	text := fmt.Sprintf(wording.Waits, a.requestText(t), t.gpu(), m.positions[t])
	held := m.heldAt(at, t)
	switch more := m.positions[t] - 2; {
	case first != nil && t.fitsButBlocked():
		text = fmt.Sprintf(wording.WaitsFor, a.requestText(t), t.gpu()) + ": " + a.keptFor(m.now, at, first, t, more)
	case first != nil && held != "":
		text += ": " + held + fmt.Sprintf(wording.Ahead, aheadName(first, t, more), wording.Span(m.now.Sub(first.place.Since)), a.requestText(first))
	case held != "":
		text += ": " + held
	case t.fitsButBlocked():
		text += ": " + wording.OthersFirst
	}
	if t.lease != nil && at.kind == limitsBytes && at.budget() == nil {
		text += a.besideReserved(t.job, at.device, a.wantsBytes(t), memoized(m.reserved, at.device, a.allReserved))
	}
	if a.isFurther(t) {
		text += "; " + wording.FurtherContext
	}
	if asked := m.askedText(t); asked != "" {
		text += fmt.Sprintf(wording.MakesRoom, asked)
	}
	return Notice{Position: m.positions[t], Waited: m.now.Sub(t.place.Since), Text: text}
}

// toClient returns the notice about a ticket. It adds the device on which the program would have room, if there is one.
func (m *queueView) toClient(t *ticket) Notice {
	n := m.notice(t)
	if d := m.elsewhere(t); d != nil {
		n.Text += "; " + memoized(m.rooms, d, func(d *device) string {
			return fmt.Sprintf(wording.RoomElsewhere, d, m.a.free(m.now, d).Human(), d.Index)
		})
	}
	return n
}

// elsewhere returns the device on which the program of a ticket would have room; nil: none, or the ticket can be served on several.
func (m *queueView) elsewhere(t *ticket) *device {
	if t.any || t.lease == nil && len(t.candidates) > 1 {
		return nil
	}
	return m.a.elsewhere(m.now, t.job, t.narrowestLimit().device, m.a.wantsBytes(t))
}

// heldAt returns a text with the holders at a limit, for the program of a ticket.
func (m *queueView) heldAt(at *limit, t *ticket) string {
	if at.kind != limitsBytes {
		return m.a.heldAt(m.now, at, t)
	}
	find := func(at *limit) topHolders { return m.a.topHolders(at.device, at.budget()) }
	held := memoized(m.held, at, find)
	text := func(at *limit) string { return m.a.bytesHeldAt(m.now, at, t, held) }
	if by := (asker{t.job, t.lease, t.namesWithin()}); by.within != nil || held.has(by) {
		return text(at)
	}
	return memoized(m.heldTexts, at, text)
}

// memoized returns the value of a limit or a device in known. If there is none yet, it adds the result of find.
func memoized[K comparable, V any](known map[K]V, at K, find func(K) V) V {
	value, ok := known[at]
	if !ok {
		value = find(at)
		known[at] = value
	}
	return value
}

// holdersState returns a text that changes when the holders at a limit change. Waiting clients then get another notice.
func (a *Arbiter) holdersState(at *limit) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %d", at.device.Index, at.kind)
	if at.kind != limitsBytes {
		fmt.Fprintf(&b, " %d", len(at.device.permits[permit.Slot]))
		for _, h := range oldestHolders(at.device) {
			b.WriteString(h.name())
		}
		return b.String()
	}
	n := 0
	for l := range a.leasesBelow(at.budget(), at.device.Index) {
		if l.Granted() > 0 && n < namedHolders {
			fmt.Fprintf(&b, " %d", l.session.id)
			n++
		}
	}
	for _, h := range a.reservations(at.device, at.budget()) {
		if j, ok := h.holder.(*job); ok {
			fmt.Fprintf(&b, " job %d", j.id)
		} else {
			b.WriteString(" " + h.holder.(*shared).describe())
		}
	}
	return b.String()
}

// addNotices adds a notice to the decisions for each waiting request whose position or holders have changed. It does so at most once in
// noticeEvery.
func (a *Arbiter) addNotices(now time.Time) {
	if !a.noticesDue || now.Sub(a.noticedAt) < noticeEvery {
		return
	}
	a.noticesDue, a.noticedAt = false, now
	m := a.viewQueue(now)
	for _, t := range m.byDevice() {
		is := noticeState{m.positions[t], memoized(m.states, t.narrowestLimit(), a.holdersState), m.elsewhere(t), a.aheadOf(t), m.askedText(t)}
		if is != t.lastNotice {
			t.lastNotice = is
			a.decisions = append(a.decisions, Result{Ticket: t.id, Notice: new(m.toClient(t))})
		}
	}
}

// noticesAt returns when addNotices is due; zero: nothing has changed.
func (a *Arbiter) noticesAt() time.Time {
	if !a.noticesDue {
		return time.Time{}
	}
	return a.noticedAt.Add(noticeEvery)
}

// askedFor returns the jobs that are being asked to make room, by the request for which they are asked. The jobs of a request are in the
// order of their IDs.
func (a *Arbiter) askedFor() map[TicketID][]*job {
	var asked map[TicketID][]*job
	for _, j := range a.jobs {
		if j.residence() != Suspending || j.suspension.waiter == 0 {
			continue
		}
		if asked == nil {
			asked = make(map[TicketID][]*job)
		}
		asked[j.suspension.waiter] = append(asked[j.suspension.waiter], j)
	}
	for _, all := range asked {
		slices.SortFunc(all, func(x, y *job) int { return cmp.Compare(x.id, y.id) })
	}
	return asked
}

// askedText returns names of the jobs that are being asked to make room for a request, as the notice to its program says them; "": none is
// asked. It names at most namedHolders jobs, and none that the program must not know. The other jobs are counted.
func (m *queueView) askedText(t *ticket) string {
	all, within := m.asked[t.id], t.namesWithin()
	var names []string
	for _, j := range all {
		if len(names) < namedHolders && (within == nil || j == within || j.isInside(within)) {
			names = append(names, j.owned())
		}
	}
	return wording.List(names, len(all))
}
