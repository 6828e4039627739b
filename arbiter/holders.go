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
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file says who holds what, and who wants what. Refusals, notices and events are made of that, and the search for deadlocks asks it.

// holdersWait reports whether several processes of a job hold something, and each of them has a request that waits.
func (j *job) holdersWait() bool {
	holding := j.holding()
	return len(holding) > 1 && !slices.ContainsFunc(holding, func(s *session) bool { return len(s.waits) == 0 })
}

// committed returns the larger of what a job's living processes hold on a device, including the overhead that their leases are charged for, and
// what is reserved for the job there.
func (j *job) committed(d *device) accounting.Bytes {
	var held accounting.Bytes
	for l := range j.leasesOn(d) {
		if l.session.alive() {
			held = held.Plus(l.Granted()).Plus(l.Charged())
		}
	}
	return max(held, j.limits(d).Least())
}

// away returns how many of the bytes that a job's living processes hold are managed memory that is away from the device.
func (j *job) away(d *device) (away accounting.Bytes) {
	for l := range j.leasesOn(d) {
		if l.session.alive() {
			away = away.Plus(l.Away())
		}
	}
	return away
}

// holding returns the processes of a job that hold something.
func (j *job) holding() (holding []*session) {
	for _, s := range j.sessions {
		if s.alive() && s.holds() {
			holding = append(holding, s)
		}
	}
	return holding
}

// holds reports whether a process holds anything for which others could wait.
func (s *session) holds() bool {
	return slices.ContainsFunc(s.leases, func(l *lease) bool {
		return !l.lost && (s.budget.Account(l.device.Index).Committed > 0 || l.contexts > 0 || l.Streams() > 0 || l.holds > 0)
	})
}

// holdsNothing reports whether a job has no memory in use yet and none reserved: who waits
// as one sets nothing aside against those that run.
func (a *Arbiter) holdsNothing(j *job) bool {
	for _, d := range a.devices {
		if j.budget.Account(d.Index).Committed == 0 {
			continue
		}
		if j.limits(d).Min > 0 {
			return false
		}
		for l := range j.leasesOn(d) {
			if l.Granted() > a.idle(l) || l.session.limits(d).Min > 0 {
				return false
			}
		}
	}
	return true
}

// holds reports whether a job holds anything for which others could wait: memory in use or reserved, a context or a permit.
func (a *Arbiter) holds(j *job) bool { return j.slots > 0 || !a.holdsNothing(j) }

// heldAt says who holds what there is at a limit.
func (a *Arbiter) heldAt(now time.Time, l *limit) string {
	d, sh := l.device, l.shared
	if l.kind != limitsBytes {
		return slotsHeld(now, d)
	}
	b := budgetOf(sh)
	holders, free := a.holders(now, d, b), a.ledger.Available(b, d.Index)
	held := fmt.Sprintf(wording.MemoryHeld, free.Human(), holders)
	switch {
	case holders != "":
	case sh == nil:
		return ""
	case free > 0:
		held = fmt.Sprintf(wording.Free, free.Human())
	default:
		held = wording.NothingFree
	}
	if sh != nil {
		return fmt.Sprintf(wording.BudgetHeld, sh.describeLimit(d, sh.limits(d).Max), held)
	}
	return held
}

// slotsHeld says who has the slots of a device, and since when.
func slotsHeld(now time.Time, d *device) string {
	var names []string
	taken := len(d.permits[permit.Slot])
	for _, h := range oldestHolders(d) {
		names = append(names, wording.Holder(wording.Owned(h.Job.request.Process.User, h.name()), 0, "", now, h.since))
	}
	switch who := wording.List(names, taken); {
	case names == nil:
		return ""
	case len(d.permits[permit.Sole]) > 0:
		return fmt.Sprintf(wording.HeldAlone, who)
	case d.slotsMax() == 0:
		return fmt.Sprintf(wording.DeviceHeld, who)
	default:
		return fmt.Sprintf(wording.SlotsHeld, taken, d.slotsMax(), who)
	}
}

// oldestHolders returns those of a device's holders that a message names, the oldest first.
func oldestHolders(d *device) []*holder {
	oldest := make([]*holder, 0, namedHolders+1)
	for _, h := range d.permits[permit.Slot] {
		at, _ := slices.BinarySearchFunc(oldest, h, oldestFirst)
		oldest = slices.Insert(oldest, at, h)
		oldest = oldest[:min(len(oldest), namedHolders)]
	}
	return oldest
}

func oldestFirst(x, y *holder) int {
	c := cmp.Or(x.since.Compare(y.since), cmp.Compare(x.Job.id, y.Job.id), cmp.Compare(x.Thread, y.Thread))
	if c == 0 && x.Process != nil && y.Process != nil {
		c = cmp.Compare(x.Process.id, y.Process.id)
	}
	return c
}

// memoryHolder is who holds memory of a device: a *lease, a *job or a *shared budget for which it is reserved, or
// a program that is no client.
type memoryHolder struct {
	bytes accounting.Bytes
	who   any
}

// describe is a holder in a sentence. Only those few are asked for it that the sentence has room for.
func (h *memoryHolder) describe(now time.Time) string {
	switch who := h.who.(type) {
	case *lease:
		return wording.Holder(wording.Owned(who.session.process.User, who.session.name()), h.bytes, "", now, who.opened)
	case *job:
		return wording.Holder(wording.Owned(who.request.Process.User, who.name()), h.bytes, "reserved", now, who.opened)
	case *shared:
		return wording.Holder(who.describe(), h.bytes, "reserved", now, time.Time{})
	}
	u := h.who.(*figures.UnmanagedState)
	return wording.Holder(wording.Owned(u.User, wording.Stranger(u.Command, u.PID)), h.bytes, "unmanaged", now, u.Since)
}

// holders names the processes that use most of a budget on a device (nil: of the device), the jobs
// for which more of it is reserved than they use, and of a device the shared budgets for which that is so, and the programs
// that are no clients.
// With a time it tells since when.
func (a *Arbiter) holders(now time.Time, d *device, of *accounting.Budget) string {
	var top [namedHolders]memoryHolder
	count := 0
	insert := func(h memoryHolder) {
		if h.bytes > 0 {
			count++
		}
		for i := range top {
			if h.bytes > top[i].bytes {
				h, top[i] = top[i], h
			}
		}
	}
	for l := range a.leasesBelow(of, d.Index) {
		insert(memoryHolder{l.Granted() - a.idle(l), l})
	}
	for _, h := range a.reservations(d, of) {
		insert(h)
	}
	if of == nil {
		for i := range d.unmanagedBy {
			insert(memoryHolder{d.unmanagedBy[i].Bytes, &d.unmanagedBy[i]})
		}
	}
	var names []string
	left := JobID(0) // first of these jobs whose command has ended, while its reservation stays; 0: none
	for _, h := range top[:min(count, namedHolders)] {
		names = append(names, h.describe(now))
		if j, ok := h.who.(*job); ok && left == 0 && j.stillRuns() != "" {
			left = j.id
		}
	}
	text := wording.List(names, count)
	if left != 0 {
		text += fmt.Sprintf(wording.GiveBack, left, left)
	}
	return text
}

// reservations are the jobs for which more of a budget on a device (nil: of the device) is reserved than they hold, the oldest
// first, and of a device the shared budgets of which that is so, by name: of a budget nothing is reserved for another one.
func (a *Arbiter) reservations(d *device, of *accounting.Budget) (all []memoryHolder) {
	sums := a.ledger.Device(d.Index)
	held, promised := sums.Held, sums.Committed
	if of != nil {
		held, promised = of.Account(d.Index).Held, of.Load(d.Index)
	}
	if promised <= held { // nobody has anything reserved
		return nil
	}
	for _, j := range a.jobs {
		if n := j.unused(d, of); n > 0 {
			all = append(all, memoryHolder{n, j})
		}
	}
	jobs := len(all)
	if of == nil {
		for _, s := range a.shareds {
			if n := s.unused(d); n > 0 {
				all = append(all, memoryHolder{n, s})
			}
		}
	}
	slices.SortFunc(all[:jobs], func(x, y memoryHolder) int { return cmp.Compare(x.who.(*job).id, y.who.(*job).id) })
	slices.SortFunc(all[jobs:], func(x, y memoryHolder) int {
		s, t := x.who.(*shared), y.who.(*shared)
		return cmp.Or(cmp.Compare(s.who, t.who), cmp.Compare(s.key.rule.String(), t.key.rule.String()))
	})
	return all
}

// unused is how much more is reserved on a device for the budget itself than is held or reserved in it.
func (s *shared) unused(d *device) accounting.Bytes {
	return s.budget.Account(d.Index).Committed.Less(s.budget.Load(d.Index))
}

// unused is how much more of a budget on a device (nil: of the device) is reserved for a job than it
// holds: for its processes alone, where these count there and the job as a whole does not.
func (j *job) unused(d *device, of *accounting.Budget) (sum accounting.Bytes) {
	if of == nil || of != j.budget && countsAt(j.budget, of) {
		return unusedOf(j.budget, d)
	}
	if sh := sharedOf(of); of != j.budget && (sh == nil || !sh.ofCgroup()) {
		return 0
	}
	for _, s := range j.sessions {
		if of != s.budget && countsAt(s.budget, of) {
			sum = sum.Plus(unusedOf(s.budget, d))
		}
	}
	return sum
}

// unusedOf is how much more is reserved on a device for a budget and those below it than they hold.
func unusedOf(b *accounting.Budget, d *device) accounting.Bytes {
	sums := b.Account(d.Index)
	return sums.Committed.Less(sums.Held)
}

// countsAt reports whether what a budget holds is charged to another one too.
func countsAt(b, of *accounting.Budget) bool {
	for above := range b.Chain() {
		if above == of {
			return true
		}
	}
	return false
}

// holdings says what a job holds.
func (a *Arbiter) holdings(j *job) string {
	var parts []string
	for _, d := range a.devices {
		var what []string
		if n := j.committed(d); n > 0 {
			what = append(what, n.Human())
		} else if j.budget.Account(d.Index).Overhead > 0 {
			what = append(what, wording.Context)
		}
		if j.occupies(d) {
			what = append(what, wording.Slot)
		}
		if what != nil {
			parts = append(parts, fmt.Sprintf(wording.OnDevice, strings.Join(what, " and "), d))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), wording.Nothing)
}

// gpu says at which device a ticket waits: " on GPU 0", behind what it wants there. Who waits for any GPU wants that, and
// is told no place.
func (t *ticket) gpu() string {
	if t.any {
		return ""
	}
	return fmt.Sprintf(wording.OnDevice, "", t.obstacle().device)
}

// requestText says what a ticket wants.
func (a *Arbiter) requestText(t *ticket) string {
	n, r, what := a.wantsBytes(t), &t.job.request, wording.Slot
	switch {
	case t.kind == WantsBytes:
		return n.Human()
	case t.kind == WantsStreams:
		return wording.Stream
	case a.isFurther(t):
		return wording.AnotherContext
	case t.lease != nil:
		return wording.Context
	case t.kind != wantsSession && r.Exclusive:
		what = wording.WholeDevice
	case t.kind != wantsSession && (r.Claim || r.Any):
		what = wording.Device
	case t.kind == wantsSession || n > 0 && !slices.ContainsFunc(t.candidates, func(s candidate) bool { return s.asks[permit.Slot] && s.device.slotsMax() > 0 }):
		return fmt.Sprintf(wording.Reservation, n.Human())
	}
	if n > 0 {
		return fmt.Sprintf(wording.WithAReservation, what, n.Human())
	}
	return what
}

// wantsBytes is how many bytes a ticket wants on a device.
func (a *Arbiter) wantsBytes(t *ticket) (most accounting.Bytes) {
	if t.lease != nil || t.bytes > 0 { // or the session that waited has it by now
		return t.bytes
	}
	for i := range t.candidates {
		n, _ := t.reserves(t.candidates[i].device)
		most = max(most, n)
	}
	return most
}

// heldBy returns what a job holds on each device.
func (a *Arbiter) heldBy(j *job) []Held {
	held := []Held{}
	for _, d := range a.devices {
		h := Held{Device: d.Index, Bytes: j.committed(d), Slot: j.occupies(d)}
		if h.Bytes > 0 || h.Slot {
			held = append(held, h)
		}
	}
	return held
}
