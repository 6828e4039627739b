package arbiter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file makes the messages of refusals, and the events about requests. refuse.go and deadlock.go call it. holders.go has the texts
// about holders.

// lostRefusal returns the refusal of a request on a lost device.
func lostRefusal(d *device) *Result {
	return &Result{Reason: ReasonDeviceLost, Explain: fmt.Sprintf(wording.Lost, d, wording.Plain(d.Name))}
}

// notItsDevice returns the refusal of a lease on a device that is not one of the job's.
func (j *job) notItsDevice(d *device) *Result {
	var indices []string
	for _, x := range j.devices {
		indices = append(indices, fmt.Sprint(x.Index))
	}
	return &Result{Reason: ReasonDenied, Explain: fmt.Sprintf(wording.NotGiven, d, j.id, strings.Join(indices, ", "))}
}

// mostUUIDs bounds the UUIDs in a message, which must fit into the text of a reply.
const mostUUIDs = 4

// notAllowed returns the refusal of a request on a device that the rule of its job does not allow. It says what to do: which variable lets
// the program see the devices that the rule allows, or that the rule must change because none of its devices is here.
func (a *Arbiter) notAllowed(j *job, d *device) string {
	text := fmt.Sprintf(wording.DeviceNotOfRule, d, j.Rule.Name, a.listAllowed(j.Rule))
	var uuids []string
	here := false // a device that the rule allows is here, of whichever vendor
	for _, x := range a.devices {
		here = here || x.IsGPU() && !x.lost && j.Rule.Devices.Has(x.Device) && !a.divided(x)
		if x.Vendor == d.Vendor && j.Rule.Devices.Has(x.Device) && !a.divided(x) && x.UUID != "" {
			uuids = append(uuids, x.UUID)
		}
	}
	variable, list := rules.VisibleBy[d.Vendor], strings.Join(uuids, ",")
	several := len(uuids) == 0 || len(uuids) > mostUUIDs
	switch {
	case !here:
		return text + fmt.Sprintf(wording.ChangeDevices, j.Rule.Name)
	case several && j.Rule.ByProgram: // gpuarb run, as another program, would be under another rule
		return text + fmt.Sprintf(wording.SetToThose, variable)
	case several:
		return text + fmt.Sprintf(wording.StartWithRun, variable)
	case j.Rule.ByProgram:
		return text + fmt.Sprintf(wording.SetAlone, variable, list)
	}
	return text + fmt.Sprintf(wording.SetVariable, variable, list)
}

// eventOf returns an event about a ticket.
func (a *Arbiter) eventOf(now time.Time, t *ticket, kind Kind, text string) Event {
	e := Event{Time: now, Kind: kind, Device: -1, What: t.kind.asked(), Ticket: t.id, Reason: t.evaluation.reason, Requested: a.wantsBytes(t),
		WaitedMs: max(0, now.Sub(t.place.Since).Milliseconds()), Text: text}
	e.about(t.process())
	e.in(t.job)
	if !t.any && len(t.candidates) > 0 {
		e.Device = t.candidates[0].device.Index
	}
	if t.lease != nil {
		e.Lease = t.lease.id
	}
	return e
}

// explain fills in Holders and Explain of a refused request.
func (a *Arbiter) explain(l *lease, o *Result, r *accounting.Refusal, aside string) {
	d, asked := l.device, o.Requested.Exact()
	switch o.Reason {
	case ReasonDeviceLost:
		o.Explain = lostRefusal(d).Explain
		return
	case ReasonDenied:
		o.Explain = a.notAllowed(l.session.job, d)
		return
	case ReasonStreams:
		o.Explain = fmt.Sprintf(wording.NoStream, d, r.Requested, l.Streams(), l.StreamsMax())
		return
	case ReasonBusy, ReasonSlots:
		o.Explain = fmt.Sprintf(wording.WouldWait, d, l.session.name(), cmp.Or(aside, slotsHeld(l.touched, d, l.session.job.binding()), wording.OthersFirst))
		o.Explain += a.orElsewhere(l, o)
		return
	case ReasonTooLarge:
		var at *accounting.Budget
		if o.Limit < d.grantable() {
			at = l.limiter()
		}
		o.Explain = fmt.Sprintf(wording.TooLarge, d, asked, l.limitAt(at, o.Limit))
		if at == nil {
			o.Explain += a.orElsewhere(l, o)
		}
		return
	}
	o.Explain = fmt.Sprintf(wording.OutOfMemory, d, asked, o.Remaining.Exact(), l.limitAt(r.Budget, o.Limit))
	if aside != "" {
		o.Explain += ": " + aside
	}
	if held := a.holders(time.Time{}, d, r.Budget, l); held != "" {
		o.Explain += fmt.Sprintf(wording.Holds, held)
	}
	if r.Budget == nil {
		o.Explain += a.besideReserved(l.session.job, d, o.Requested, a.allReserved(d))
	}
	if r.Budget == l.session.job.budget && l.crowdedOut(o) {
		o.Explain += wording.OwnProcesses
	}
	if o.Reason != ReasonOverBudget {
		o.Explain += a.orElsewhere(l, o)
	}
}

// orElsewhere returns the end of a refusal that says which other device has room for the program of a lease; "": none has.
func (a *Arbiter) orElsewhere(l *lease, o *Result) string {
	if text := a.roomElsewhere(l.touched, l.session.job, l.device, o.Requested); text != "" {
		return "; " + text
	}
	return ""
}

// lastRefused says in a few words why a request was refused, for the account of its job: " for 5 GiB: its budget is 4 GiB (--memory)".
func (a *Arbiter) lastRefused(l *lease, o *Result, r *accounting.Refusal) string {
	switch o.Reason {
	case ReasonOverBudget, ReasonDeviceFull, ReasonSharedFull, ReasonTooLarge:
	default:
		return firstPart(o.Explain)
	}
	at := r.Budget
	if o.Reason == ReasonTooLarge && o.Limit < l.device.grantable() {
		at = l.limiter()
	}
	j, bounds, asked := l.session.job, l.device.bounds(), o.Requested.Human()
	limit := l.limitAt(at, o.Limit)
	if at == nil {
		limit = fmt.Sprintf(wording.DevicesLimit, l.device, o.Limit.Human())
	}
	switch {
	case o.Reason == ReasonTooLarge && (at == nil || sharedOf(at) != nil):
		return fmt.Sprintf(wording.LastNever, asked, limit)
	case at == nil || sharedOf(at) != nil:
		return fmt.Sprintf(wording.LastLeft, asked, o.Remaining.Human(), limit)
	}
	by := l.session.Memory(bounds).MaxBy
	if at == j.budget && j.run {
		by = j.Memory(bounds).MaxBy
	}
	return fmt.Sprintf(wording.LastBudget, asked, o.Limit.Human(), strings.TrimPrefix(by, "gpuarb run "))
}

// firstPart returns the first part of a message for the account of a job, without the holders and the advice behind it.
func firstPart(message string) string {
	first, _, _ := strings.Cut(message, "; ")
	return fmt.Sprintf(wording.LastWhy, first)
}

// driverFull returns the message for a request of the lease asks. The budgets and the device allow the request, but the driver had no
// memory for it. The message names the largest programs that the device shows.
func (a *Arbiter) driverFull(asks *lease, what string) string {
	var top topHolders
	d := asks.device
	for pid, figure := range d.figures {
		i := slices.IndexFunc(d.byPID[pid], func(l *lease) bool { return l.reads(figure) })
		if i >= 0 {
			top.insert(memoryHolder{figure.Bytes, d.byPID[pid][i]})
		}
	}
	for i := range d.unmanagedBy {
		top.insert(memoryHolder{d.unmanagedBy[i].Bytes, &d.unmanagedBy[i]})
	}
	return fmt.Sprintf(wording.DriverFull, d, what, cmp.Or(top.text(a, time.Time{}, asker{within: asks.session.job.binding()}), wording.ShowsNone))
}

// explainThreads returns the message for a thread whose objects cannot be tracked.
func (a *Arbiter) explainThreads(l *lease, thread uint32) string {
	uid, name := l.session.process.UID, l.session.name()
	if l.makers.Len() >= MaxThreads {
		return fmt.Sprintf(wording.ThreadsOfProcess, MaxThreads, name, l.device, thread)
	}
	return fmt.Sprintf(wording.ThreadsInAll, a.threads, a.threadsOf[uid], uid, MaxThreadsInAll, thread, name)
}

// crowdedOut reports whether a request would fit in its job's budget without the other processes of the job.
func (l *lease) crowdedOut(o *Result) bool {
	j := l.session.job
	return j.run && l.Granted().Plus(l.Charged()).Plus(o.Requested) <= o.Limit &&
		slices.ContainsFunc(j.sessions, func(s *session) bool { return s != l.session && s.alive() && s.holds() })
}

// explainBlocked returns a text with what is free at the limit that refuses a lease's bytes but kept for earlier requests, and for which.
// "": nothing is. It lowers r.Remaining to what the request would have been granted.
func (a *Arbiter) explainBlocked(now time.Time, t *ticket, why Reason, r *accounting.Refusal) string {
	if t.lease == nil || t.bytes == 0 || why != ReasonDeviceFull && why != ReasonSharedFull && why != ReasonBusy {
		return ""
	}
	d, s := t.lease.device, t.only()
	i := slices.IndexFunc(s.refusedBy, refusingLimit.ofBytes) // the narrowest limit of bytes
	if i < 0 {
		return ""
	}
	at := s.refusedBy[i].limit
	first, free := a.blockerOf(at, t, s.heldSince), a.ledger.Available(at.budget(), d.Index)
	if first == nil || free == 0 {
		return ""
	}
	r.Remaining = min(r.Remaining, a.wouldGrant(now, t.lease, t.bytes))
	more := 0
	for _, other := range a.queue {
		if other.on(d) && other != first && other != t && a.compare(other, t) < 0 {
			more++
		}
	}
	return a.keptFor(now, at, first, t, more)
}

// aheadOf returns the first request that blocks a ticket at the narrowest limit that refuses the ticket; nil: none does.
func (a *Arbiter) aheadOf(t *ticket) *ticket {
	at := t.narrowestLimit()
	for i := range t.candidates {
		s := &t.candidates[i]
		if len(s.refusedBy) == 0 || s.refusedBy[0].limit != at {
			continue
		}
		if at.kind == limitsBytes {
			return a.blockerOf(at, t, s.heldSince)
		}
		return a.blockerOf(at, t, time.Time{})
	}
	return nil
}

// keptFor returns a text for the program of t. It says what is free at a limit, but kept for requests that are ahead of t: the request
// first, and others, whose number is more.
func (a *Arbiter) keptFor(now time.Time, at *limit, first, t *ticket, more int) string {
	whom, waited := aheadName(first, t, more), wording.Span(now.Sub(first.place.Since))
	if at.kind != limitsBytes {
		return fmt.Sprintf(wording.SlotKeptFor, whom, waited, a.requestText(first))
	}
	free := a.ledger.Available(at.budget(), at.device.Index)
	return fmt.Sprintf(wording.KeptFor, free.Human(), whom, waited, a.requestText(first))
}

// aheadName returns the name of the request first, which is ahead of t, and the number of further requests ahead (more). In the
// message the text "has waited" follows.
func aheadName(first, t *ticket, more int) string {
	name := first.nameFor(t.namesWithin())
	if more > 0 {
		return fmt.Sprintf(wording.FirstOf, name, more)
	}
	return fmt.Sprintf(wording.First, name)
}

// plain returns the reason of a wait as a text for users.
func (r Reason) plain() string {
	switch r {
	case ReasonDeviceFull:
		return wording.DeviceFull
	case ReasonSharedFull:
		return wording.SharedFull
	case ReasonOverBudget:
		return wording.AroundFull
	case ReasonSlots:
		return wording.NoSlotFree
	}
	return r.String()
}

// explainMin returns a message that says why there is no room for a memory.min. It is the memory.min of job j, or of one of its processes;
// nil: of a shared budget. within limits the names in the message, as in asker.
func (a *Arbiter) explainMin(j, within *job, r *accounting.Refusal, why Reason) string {
	d := a.device(r.Device)
	if why == ReasonTooLarge {
		return d.tooMuch(r.Requested)
	}
	where, context := j.limitAt(r.Budget, r.Limit), ""
	if sh := sharedOf(r.Budget); sh != nil {
		where = sh.describeLimit(d, r.Limit)
	}
	if r.Budget == nil {
		where = fmt.Sprintf(wording.DevicesLimit, d, r.Limit.Human())
		if cost := d.headroomCost(); cost > 0 {
			context = fmt.Sprintf(wording.BesideContext, cost.Human())
		}
	}
	top := a.topHolders(d, r.Budget)
	if held := top.text(a, time.Time{}, asker{job: j, within: within}); held != "" {
		where += fmt.Sprintf(wording.Holds, held)
	}
	return fmt.Sprintf(wording.MinRefused, r.Requested.Human(), d, r.Remaining.Human(), context, where)
}

// tooMuch returns the message for a reservation that can never be used in full.
func (d *device) tooMuch(least accounting.Bytes) string {
	text := fmt.Sprintf(wording.MinTooLarge, least.Human(), d, d.mostMin().Human(), d.grantable().Human())
	if cost := d.headroomCost(); cost > 0 {
		text += fmt.Sprintf(wording.MinAndContext, cost.Human())
	}
	return text
}

// explainSlots returns the message for a job that gets no slot or no device.
func (a *Arbiter) explainSlots(t *ticket) string {
	o, text := t.narrowestLimit(), wording.NoGPU
	if !t.any {
		text = fmt.Sprintf(wording.NoSlot, o.device)
	}
	if held := a.heldAt(t.place.Since, o, t); held != "" {
		text += ": " + held
	}
	if t.fitsButBlocked() {
		text += wording.OthersWait
	}
	return text
}

// explainDeadlock returns the message of a deadlock: what each job holds and asks for. all[0] is the victim.
func (a *Arbiter) explainDeadlock(all []*ticket) string {
	youngest := all[0]
	if j := youngest.job; len(all) == 1 && len(j.holding()) > 1 {
		return fmt.Sprintf(wording.DeadlockWithin, j.name(), a.holdings(j), youngest.name(), a.requestText(youngest), youngest.gpu())
	}
	var parties []string
	for _, t := range all[:min(len(all), namedParties)] {
		parties = append(parties, fmt.Sprintf(wording.DeadlockParty, t.nameFor(youngest.namesWithin()), a.holdings(t.job), a.requestText(t), t.gpu()))
	}
	return fmt.Sprintf(wording.Deadlock, strings.Join(parties, ", "), youngest.name())
}

// namedParties is how many requests of a deadlock the message names.
const namedParties = 8

// parties describes the requests of a deadlock.
func (a *Arbiter) parties(of []*ticket) []Party {
	var all []Party
	for _, t := range of {
		p, on := t.process(), -1
		if !t.any && len(t.candidates) > 0 {
			on = t.candidates[0].device.Index
		}
		all = append(all, Party{Job: t.job.id, PID: p.PID, User: p.User, Command: p.Command, Holds: a.heldBy(t.job),
			What: t.kind.asked(), Wants: a.requestText(t), Device: on, Bytes: a.wantsBytes(t), Ticket: t.id})
	}
	return all
}
