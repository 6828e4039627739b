package daemon

// This file has the queue of waiting requests: parked requests, whose clients are connected, and absent requests,
// whose clients have not yet asked again. Each has a row in the state file. lock.go applies decisions; cancel.go
// cancels; recoverqueue.go reads the rows.

import (
	"errors"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// requestOf returns the number that identifies a request when its client sends it again. Numbers count within a
// session. A Hello comes before the session and gets 0, because only one Hello of a process can wait.
func requestOf(h ipc.Header) uint64 {
	if h.Type == ipc.TypeHello {
		return 0
	}
	return h.Request
}

func keyOf(peer ipc.Peer, h ipc.Header) requestKey {
	return requestKey{startedOf(peer), h.Type, requestOf(h)}
}

// ticketUnit is the unit, in bytes, of the amount of memory in a waiting request's row.
const ticketUnit = 1 << 20

// keepPlaceLocked writes the place of a parked request to the state file, and returns the index of the record. -1:
// the table is full, and after a restart of the daemon the request comes last.
func (d *Daemon) keepPlaceLocked(peer ipc.Peer, h ipc.Header, ticket arbiter.TicketID) int {
	index, record, err := d.file.Tickets.New()
	if errors.Is(err, statefile.ErrFull) {
		return -1
	}
	place := d.arb.Place(ticket)
	*record = statefile.Ticket{PID: uint32(peer.PID), StartTicks: peer.StartTicks, Type: uint16(h.Type),
		Request: requestOf(h), Arrival: place.Arrival, Since: d.bootTime(place.Since)}
	d.file.Tickets.Commit(index)
	return index
}

// dropPlaceLocked frees the record of a parked request after its reply.
func (d *Daemon) dropPlaceLocked(p *parked) {
	if p.place >= 0 {
		d.file.Tickets.Free(p.place)
		p.place = -1
	}
}

// noteRequestLocked writes the lease and the amount of a parked request to its row.
func (d *Daemon) noteRequestLocked(p *parked, l *shim.Lease, r arbiter.Request) {
	if p.place < 0 {
		return
	}
	row := d.file.Tickets.At(p.place)
	row.Lease, row.Amount = uint16(l.Index+1), uint32(r.Count)
	if r.What == arbiter.WantsBytes {
		row.Amount = uint32(min((r.Bytes+ticketUnit-1)/ticketUnit, 1<<32-1))
	}
}

// putLocked adds a function that sends one message to the queue of the client's connection.
func (cl *client) putLocked(send func()) {
	cl.out.mu.Lock()
	defer cl.out.mu.Unlock()
	cl.out.queue = append(cl.out.queue, send)
	cl.d.queue.touched = append(cl.d.queue.touched, cl)
}

// noticeLocked adds a notice of a request's state to the queue. It ignores errors: the connection's own goroutine
// also detects a broken connection.
func (p *parked) noticeLocked(notice *ipc.WaitingReply) {
	p.cl.putLocked(func() { _ = p.cl.conn.Notice(p.head, notice) })
}

func (p *parked) waitingReply(n arbiter.Notice) *ipc.WaitingReply {
	return &ipc.WaitingReply{Ticket: uint64(p.ticket), Position: uint32(max(n.Position, 0)),
		Waited: uint64(max(n.Waited, 0).Milliseconds()), Text: withProgramName(p.caller, n.Text)}
}

// withProgramName returns a text that begins with the name of the program.
func withProgramName(caller, text string) ipc.Text {
	if caller == "" || text == "" {
		return ipc.MakeText(text)
	}
	return ipc.MakeText(caller + ": " + text)
}

// parkLocked adds a request that must wait, and sends its client a first notice. caller is the name of the program
// with which its notices begin; "": the client adds the name itself.
func (d *Daemon) parkLocked(cl *client, caller string, h ipc.Header, ticket arbiter.TicketID, decide func(arbiter.Result) (receipt, func() error)) {
	p := &parked{cl: cl, s: cl.s, head: h, ticket: ticket, caller: caller, decide: decide, place: d.keepPlaceLocked(cl.conn.Peer(), h, ticket)}
	d.queue.parked[ticket] = p
	cl.waits = p
	p.noticeLocked(p.waitingReply(d.arb.Notice(d.now(), ticket)))
}

// makeAbsentLocked turns a parked request into an absent one, because its client is told to ask again. The caller must
// tell the arbiter.
func (d *Daemon) makeAbsentLocked(p *parked) {
	key := keyOf(p.cl.conn.Peer(), p.head)
	if old, twice := d.queue.absent[key]; twice { // the old entry belongs to another session of the process; its ticket will expire
		old.free()
	}
	d.queue.absent[key] = absent{p.ticket, func() { d.dropPlaceLocked(p) }}
}

// takeAbsentLocked returns the place of an absent request whose client asks again. The caller must make the new request
// next, and then call forget, which frees the rows of the absent request. If the daemon dies in between, the rows
// keep the place for the next daemon.
func (d *Daemon) takeAbsentLocked(peer ipc.Peer, h ipc.Header) (place arbiter.Place, forget func()) {
	key := keyOf(peer, h)
	x, ok := d.queue.absent[key]
	if !ok {
		return place, func() {}
	}
	delete(d.queue.absent, key)
	return d.arb.TakePlace(d.now(), x.ticket), x.free
}

// dropAbsentLocked drops an absent request whose ticket was decided: its client did not ask again in time or has
// ended, or a user cancelled it.
func (d *Daemon) dropAbsentLocked(ticket arbiter.TicketID) {
	for key, x := range d.queue.absent {
		if x.ticket == ticket {
			delete(d.queue.absent, key)
			x.free()
		}
	}
}
