package arbiter

import (
	"fmt"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/wording"
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
	o, position := t.obstacle(), a.position(t)
	t.told = told{position, a.stateOf(o)}
	return a.standing(now, t, position, a.heldAt(now, o))
}

// obstacle returns the limit at which a ticket stands in line: the narrowest that refuses it.
func (t *ticket) obstacle() *limit {
	for i := range t.spots {
		if s := &t.spots[i]; len(s.full) > 0 && (!s.device.lost || i == len(t.spots)-1) {
			return s.full[0].limit
		}
	}
	return &t.spots[0].device.bytes
}

// refusedAt reports whether a limit refuses a ticket.
func (t *ticket) refusedAt(l *limit) bool {
	return t.lacks(func(f full) bool { return f.limit == l })
}

// position is a ticket's place among those that the same limit refuses; 1 is next.
func (a *Arbiter) position(t *ticket) int {
	at, n := t.obstacle(), 1
	for _, u := range a.queue {
		if u == t {
			break
		}
		if u.refusedAt(at) {
			n++
		}
	}
	return n
}

// moment describes all waiting requests at one time. It finds once, for all of them, which ones come before each and
// which programs hold what each waits for.
type moment struct {
	a         *Arbiter
	now       time.Time
	positions map[*ticket]int
	held      map[*limit]string
	states    map[*limit]string
	listed    []*ticket // device by device in the order in which they are served, each once
}

// moment counts where all waiting requests stand.
func (a *Arbiter) moment(now time.Time) *moment {
	m := &moment{a: a, now: now, positions: make(map[*ticket]int, len(a.queue)), held: make(map[*limit]string), states: make(map[*limit]string)}
	before := make(map[*limit]int)
	for _, d := range a.devices {
		for _, t := range a.queue {
			if t.on(d) {
				m.add(d, t, before)
			}
		}
	}
	return m
}

// add counts a request at a device. before counts the requests at each limit that come before it.
func (m *moment) add(d *device, t *ticket, before map[*limit]int) {
	if _, listed := m.positions[t]; !listed {
		m.positions[t] = 0
		m.listed = append(m.listed, t)
	}
	if at := t.obstacle(); at.device == d {
		m.positions[t] = before[at] + 1
	}
	for i := range t.spots {
		for _, f := range t.spots[i].full {
			if f.device == d {
				before[f.limit]++
			}
		}
	}
}

// standing says how a ticket stands.
func (m *moment) standing(t *ticket) Notice {
	held := once(m.held, t.obstacle(), func(at *limit) string { return m.a.heldAt(m.now, at) })
	return m.a.standing(m.now, t, m.positions[t], held)
}

// once is what is the same for all that wait at one limit.
func once(known map[*limit]string, at *limit, find func(*limit) string) string {
	text, ok := known[at]
	if !ok {
		text = find(at)
		known[at] = text
	}
	return text
}

// standing says how a ticket stands; held is who holds what it waits for.
func (a *Arbiter) standing(now time.Time, t *ticket, position int, held string) Notice {
	text := fmt.Sprintf(wording.Waits, a.requestText(t), t.gpu(), position)
	switch {
	case held != "":
		text += ": " + held
	case t.onlyBehind():
		text += ": " + wording.OthersFirst
	}
	if a.isFurther(t) {
		text += "; " + wording.FurtherContext
	}
	return Notice{Position: position, Waited: now.Sub(t.place.Since), Text: text}
}

// stateOf is what a notice is about: it is told again when that changes.
func (a *Arbiter) stateOf(at *limit) string {
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
	for l := range a.leasesBelow(budgetOf(at.shared), at.device.Index) {
		if l.Granted() > 0 && n < namedHolders {
			fmt.Fprintf(&b, " %d", l.session.id)
			n++
		}
	}
	for _, h := range a.reservations(at.device, budgetOf(at.shared)) {
		if j, ok := h.who.(*job); ok {
			fmt.Fprintf(&b, " job %d", j.id)
		} else {
			b.WriteString(" " + h.who.(*shared).called())
		}
	}
	return b.String()
}

// tell sends notices to those for whom something has changed, once a second.
func (a *Arbiter) tell(now time.Time) {
	if !a.noticesDue || now.Sub(a.noticedAt) < noticeEvery {
		return
	}
	a.noticesDue, a.noticedAt = false, now
	m := a.moment(now)
	for _, t := range m.listed {
		is := told{m.positions[t], once(m.states, t.obstacle(), a.stateOf)}
		if is != t.told {
			t.told = is
			a.decisions.put(Result{Ticket: t.id, Notice: new(m.standing(t))})
		}
	}
}

// noticesAt is when notices are due; zero: nothing has changed.
func (a *Arbiter) noticesAt() time.Time {
	if !a.noticesDue {
		return time.Time{}
	}
	return a.noticedAt.Add(noticeEvery)
}
