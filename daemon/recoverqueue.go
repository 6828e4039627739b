package daemon

// This file recovers the waiting requests of the last daemon. From each row in the state file it makes a ticket in
// the arbiter, which blocks later requests as before (arbiter/absent.go). The client asks again with the number of
// its request, and the new request replaces the absent one (takeAbsentLocked, in queue.go). recover.go calls this file.

import (
	"cmp"
	"slices"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// recoverTicketsLocked makes tickets from the rows of waiting requests, also of those with which suspended jobs return. It must be called after jobs and sessions are
// recovered, and before a new row is allocated: rows of jobs and sessions that wait for their start are not
// committed, and so count as free.
func (d *Daemon) recoverTicketsLocked(saved *savedProcesses) {
	var rows []int
	d.file.Tickets.Each(func(i int, _ *statefile.Ticket) { rows = append(rows, i) })
	slices.SortFunc(rows, func(x, y int) int {
		return cmp.Compare(d.file.Tickets.At(x).Arrival, d.file.Tickets.At(y).Arrival)
	})
	d.arb.Restore(d.now(), func() {
		for _, i := range rows {
			d.recoverTicketLocked(i, saved)
		}
		d.arb.ContinueSuspensions(d.now())
	})
}

// recoverTicketLocked makes a ticket from one row. It frees the row if the process has ended or the arbiter does not
// let the request wait.
func (d *Daemon) recoverTicketLocked(i int, saved *savedProcesses) {
	r := d.file.Tickets.At(i)
	key := requestKey{procfacts.Started{PID: int(r.PID), StartTicks: r.StartTicks}, ipc.Type(r.Type), r.Request}
	proc, lives := saved.facts[key.Started]
	_, twice := d.queue.absent[key]
	var x absent
	if lives && !twice {
		d.applyLocked(key.Started)
		x = d.waitAgainLocked(r, key, proc)
	}
	if x.ticket == 0 {
		d.file.Tickets.Free(i)
		return
	}
	row := x.free
	x.free = func() {
		d.file.Tickets.Free(i)
		row()
	}
	d.queue.absent[key] = x
}

// waitAgainLocked makes the arbiter's ticket from a row, and a function that frees the row of the job or session that
// the request opens. The zero value: the job, session or lease is gone, or the arbiter does not let the request wait.
func (d *Daemon) waitAgainLocked(r *statefile.Ticket, key requestKey, proc rules.Process) absent {
	place := arbiter.Place{Arrival: r.Arrival, Since: d.fromBootTime(r.Since), Absent: true}
	switch key.typ {
	case ipc.TypeJobOpen:
		return d.jobWaitsAgainLocked(key, proc, place)
	case ipc.TypeBind:
		return d.bindingWaitsAgainLocked(key, place)
	case ipc.TypeHello:
		return d.sessionWaitsAgainLocked(key, proc, place)
	}
	l := d.leaseOfTicketLocked(r, key)
	if l == nil {
		return absent{}
	}
	ask := arbiter.Request{Lease: l.ID, What: arbiter.WantsBytes, Place: place}
	switch amount := max(r.Amount, 1); key.typ {
	case ipc.TypeStream:
		ask.What, ask.Count = arbiter.WantsStreams, int(min(amount, maxClaimed))
	case ipc.TypeContext:
		ask.What, ask.Count = arbiter.WantsContexts, int(min(amount, maxClaimed))
	default:
		ask.Bytes = accounting.Bytes(amount) * ticketUnit
	}
	return absent{d.arb.Ask(d.now(), ask).Waiting, func() {}}
}

// leaseOfTicketLocked returns the lease of the request in a row. If the row does not name the lease, it returns the
// first lease of the process. nil: there is none.
func (d *Daemon) leaseOfTicketLocked(r *statefile.Ticket, key requestKey) *shim.Lease {
	for _, s := range d.sessionsByPID[key.PID] {
		if s.dead || startedOf(s.peer) != key.Started {
			continue
		}
		for l := range s.open() {
			if r.Lease == 0 || l.Index == int(r.Lease)-1 {
				return l
			}
		}
	}
	return nil
}

// jobWaitsAgainLocked makes the ticket of a job that waited for its start.
func (d *Daemon) jobWaitsAgainLocked(key requestKey, proc rules.Process, place arbiter.Place) absent {
	i := d.file.Jobs.Reserve(func(j *statefile.Job) bool {
		return int(j.RunnerPID) == key.PID && j.RunnerStart == key.StartTicks && j.Request == key.request
	})
	if i < 0 {
		return absent{}
	}
	record := d.file.Jobs.At(i)
	setRecordedUser(&proc, record.UID, record.GID, false)
	request := jobRequest(proc, record)
	request.Place, request.Around = place, idOf(d.bindingOfLocked(proc.Cgroups))
	info, _ := d.arb.OpenJob(d.now(), request) // a refusal is repeated when the client asks again
	return d.absentWithRow(info.Waiting, func() { d.file.Jobs.Free(i) })
}

// bindingWaitsAgainLocked makes the ticket of a cgroup's job that waited for its reservation. The record of the
// cgroup has all that the ticket needs.
func (d *Daemon) bindingWaitsAgainLocked(key requestKey, place arbiter.Place) absent {
	i := d.file.Bindings.Reserve(func(row *statefile.Binding) bool {
		r := &row.Job
		return int(r.RunnerPID) == key.PID && r.RunnerStart == key.StartTicks && r.Request == key.request
	})
	if i < 0 {
		return absent{}
	}
	b, r := d.bindingIn(i), &d.file.Bindings.At(i).Job
	if rules.CheckCgroup(b.path) != nil || d.bindings[b.path] != nil {
		return d.absentWithRow(0, func() { d.file.Bindings.Free(i) })
	}
	request := d.boundRequestLocked(b, d.boundProcess(b.path, r), r, d.aroundLocked(b.path))
	request.Place, request.OpenWithin = place, openWithin(r.WaitMillis)
	info, _ := d.arb.OpenJob(d.now(), request) // a refusal is repeated when the client asks again
	return d.absentWithRow(info.Waiting, func() { d.file.Bindings.Free(i) })
}

// sessionWaitsAgainLocked makes the ticket of a session that waited for its memory.min.
func (d *Daemon) sessionWaitsAgainLocked(key requestKey, proc rules.Process, place arbiter.Place) absent {
	i := d.file.Sessions.Reserve(func(s *statefile.Session) bool {
		return int(s.PID) == key.PID && s.StartTicks == key.StartTicks
	})
	if i < 0 {
		return absent{}
	}
	record := d.file.Sessions.At(i)
	setRecordedUser(&proc, record.UID, record.GID, false)
	request := sessionOf(i, record).request(proc)
	request.Place = place
	info, _ := d.arb.OpenSession(d.now(), request)
	return d.absentWithRow(info.Waiting, func() { d.file.Sessions.Free(i) })
}

// absentWithRow returns the absent request with a ticket, whose free function frees a row. Without a ticket it frees the
// row and returns the zero value.
func (d *Daemon) absentWithRow(ticket arbiter.TicketID, free func()) absent {
	if ticket == 0 {
		free()
		return absent{}
	}
	return absent{ticket, free}
}
