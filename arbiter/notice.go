package arbiter

import (
	"fmt"
	"iter"
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

// where is the device at which a ticket stands in line, and the limit that refuses it there.
func (t *ticket) where() (d *device, at limitSet) {
	for i := range t.spots {
		if s := &t.spots[i]; s.at != 0 && (!s.device.lost || i == len(t.spots)-1) {
			return s.device, s.at.narrowest()
		}
	}
	return t.spots[0].device, atBytes
}

// refusedOn is what refuses a ticket on a device.
func (t *ticket) refusedOn(d *device) (at limitSet) {
	for i := range t.spots {
		if s := &t.spots[i]; s.device == d {
			at |= s.at
		}
	}
	return at
}

// position is a ticket's place among those that the same limit refuses; 1 is next.
func (a *Arbiter) position(t *ticket) int {
	o := t.obstacle()
	d, n := o.device, 1
	counts := func(u *ticket) bool {
		for at := range u.obstacles(d) {
			if at == o {
				return true
			}
		}
		return false
	}
	for _, u := range a.queue {
		if u == t {
			break
		}
		if counts(u) {
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
	held      map[obstacle]string
	states    map[obstacle]string
	listed    []*ticket // device by device in the order in which they are served, each once
}

// obstacle is a limit at which tickets wait.
type obstacle struct {
	device *device
	at     limitSet
	shared *shared // nil: not a shared budget
}

func (t *ticket) obstacle() obstacle {
	d, at := t.where()
	return t.obstacleAt(d, at)
}

// obstacleAt returns the obstacle for a limit that refuses t. A budget that several jobs share is one obstacle for all of them,
// even if it has another bit in their limit sets (atCgroup).
func (t *ticket) obstacleAt(d *device, at limitSet) obstacle {
	if sh := t.shareAt(at); sh != nil {
		return obstacle{d, atBudgets, sh}
	}
	return obstacle{d, at, nil}
}

// obstacles yields each limit that refuses t on a device.
func (t *ticket) obstacles(d *device) iter.Seq[obstacle] {
	return func(yield func(obstacle) bool) {
		for rest := t.refusedOn(d); rest != 0; rest &^= rest.narrowest() {
			if !yield(t.obstacleAt(d, rest.narrowest())) {
				return
			}
		}
	}
}

// moment counts where all waiting requests stand.
func (a *Arbiter) moment(now time.Time) *moment {
	m := &moment{a: a, now: now, positions: make(map[*ticket]int, len(a.queue)), held: make(map[obstacle]string), states: make(map[obstacle]string)}
	before := make(map[obstacle]int)
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
func (m *moment) add(d *device, t *ticket, before map[obstacle]int) {
	if _, listed := m.positions[t]; !listed {
		m.positions[t] = 0
		m.listed = append(m.listed, t)
	}
	if o := t.obstacle(); o.device == d {
		m.positions[t] = before[o] + 1
	}
	for o := range t.obstacles(d) {
		before[o]++
	}
}

// standing says how a ticket stands.
func (m *moment) standing(t *ticket) Notice {
	held := once(m.held, t.obstacle(), func(o obstacle) string { return m.a.heldAt(m.now, o) })
	return m.a.standing(m.now, t, m.positions[t], held)
}

// once is what is the same for all that wait at one limit.
func once(known map[obstacle]string, o obstacle, find func(obstacle) string) string {
	text, ok := known[o]
	if !ok {
		text = find(o)
		known[o] = text
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
func (a *Arbiter) stateOf(o obstacle) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %d", o.device.Index, o.at)
	if o.at&(atSlots|atWish) != 0 {
		fmt.Fprintf(&b, " %d", len(o.device.permits[permit.Slot]))
		for _, h := range oldestHolders(o.device) {
			b.WriteString(h.name())
		}
		return b.String()
	}
	n := 0
	for l := range a.leasesBelow(budgetOf(o.shared), o.device.Index) {
		if l.Granted() > 0 && n < namedHolders {
			fmt.Fprintf(&b, " %d", l.session.id)
			n++
		}
	}
	for _, h := range a.reservations(o.device, budgetOf(o.shared)) {
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
			a.decisions.put(Decision{Ticket: t.id, Kind: DecisionNotice, Notice: m.standing(t)})
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
