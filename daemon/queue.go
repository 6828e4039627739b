package daemon

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/statefile"
)

// parked is a waiting request of a client that is connected. The goroutine of the connection still reads from it meanwhile; notices and
// the reply go through the connection's queue (outgoing.go). The daemon's lock guards all fields but over.
type parked struct {
	cl     *client
	s      *session // the session that asks; nil: it asks for a session or a job
	head   ipc.Header
	ticket arbiter.TicketID
	place  int    // index of its record in the state file's tickets; -1: none
	caller string // the name of the program that its notices begin with; "": the client adds that itself
	// decide carries out the arbiter's decision. It returns a receipt for what that gives, and a function that sends the reply. The
	// daemon's lock is held for decide, and not for that function.
	decide func(arbiter.Result) (receipt, func() error)

	over atomic.Bool // the reply is in the connection's queue
}

// waiters is the set of requests that wait.
type waiters struct {
	parked  map[arbiter.TicketID]*parked
	absent  map[requestKey]absent
	touched []*client     // clients whose queues got messages since the lock was taken
	due     time.Time     // when to call the arbiter's Tick; zero: not at all
	sooner  chan struct{} // gets a signal when due is set to an earlier time
}

func newWaiters() waiters {
	return waiters{parked: map[arbiter.TicketID]*parked{}, absent: map[requestKey]absent{}, sooner: make(chan struct{}, 1)}
}

// parkLocked enters a request that must wait, and sends its client a first notice. caller is the name of the program with which its notices
// begin; "": the client adds that itself.
func (d *Daemon) parkLocked(cl *client, caller string, h ipc.Header, ticket arbiter.TicketID, decide func(arbiter.Result) (receipt, func() error)) {
	p := &parked{cl: cl, s: cl.s, head: h, ticket: ticket, caller: caller, decide: decide, place: d.keepPlaceLocked(cl.conn.Peer(), h, ticket)}
	d.queue.parked[ticket] = p
	cl.waits = p
	p.noticeLocked(p.waitingReply(d.arb.Notice(d.now(), ticket)))
}

func (p *parked) waitingReply(n arbiter.Notice) *ipc.WaitingReply {
	return &ipc.WaitingReply{Ticket: uint64(p.ticket), Position: uint32(max(n.Position, 0)),
		Waited: uint64(max(n.Waited, 0).Milliseconds()), Text: addressed(p.caller, n.Text)}
}

// addressed returns a text that begins with the name of the program.
func addressed(caller, text string) ipc.Text {
	if caller == "" || text == "" {
		return ipc.MakeText(text)
	}
	return ipc.MakeText(caller + ": " + text)
}

// signal wakes the goroutine that receives from c, a channel with room for one element. A signal that is already there is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// decidedLocked puts the notice or the reply for a decision into the queue of the client's connection. If the ticket is not parked, the client is
// absent (absent.go), or the request has had its reply.
func (d *Daemon) decidedLocked(decision arbiter.Result) {
	p := d.queue.parked[decision.Ticket]
	switch {
	case d.stopping():
		return
	case p == nil:
		if decision.Notice == nil {
			d.absentGoneLocked(decision.Ticket)
		}
		return
	}
	if decision.Notice != nil {
		p.noticeLocked(p.waitingReply(*decision.Notice))
		return
	}
	delete(d.queue.parked, decision.Ticket)
	got, send := p.decide(decision)
	p.cl.gaveLocked(got)
	p.replyLocked(send)
}

// abandon cleans up after a connection was closed. It cancels the request that waits on the connection. unread: the client has not read all
// messages, or a reply could not be sent; abandon then takes back what the last reply granted.
func (cl *client) abandon(unread bool) {
	d, waiting := cl.d, cl.waiting()
	d.lock()
	defer d.unlock()
	cl.applyLocked()
	switch {
	case d.stopping(): // the client reports what it holds when it resumes
	case waiting:
		d.arb.Cancel(d.now(), cl.waits.ticket, arbiter.ReasonCancelled)
	case unread:
		cl.takeBackLocked()
	}
}

// giveUp cancels the request that waits on this connection, because the client asks for that. If it was decided before, the decision stands.
func (cl *client) giveUp(ipc.Message) error {
	cl.endStream()
	if !cl.waiting() {
		return nil
	}
	cl.d.lock()
	defer cl.d.unlock()
	cl.applyLocked()
	cl.d.arb.Cancel(cl.d.now(), cl.waits.ticket, arbiter.ReasonCancelled)
	return nil
}

// dismissLocked tells the clients of all waiting requests that the daemon stops. They ask the next daemon again, and keep their places. It
// is called after stopping has become true, so that no decision is sent any more. It does not use the queues, because the connections are
// closed next.
func (d *Daemon) dismissLocked() {
	gone := &ipc.ProtocolError{Status: ipc.StatusShuttingDown, Text: "the daemon is being stopped"}
	for _, p := range d.queue.parked {
		_ = p.cl.conn.ReplyError(p.head, gone)
	}
}

// tickWhenDue calls the arbiter's Tick if it is due. It returns a channel that receives when tickWhenDue must be called again; nil: no time is
// set. The caller also waits for sooner, because the deferred unlock may set an earlier time.
func (d *Daemon) tickWhenDue() <-chan time.Time {
	d.lock()
	defer d.unlock()
	now := d.now()
	if due := d.queue.due; !due.IsZero() && !now.Before(due) {
		d.queue.due = time.Time{}
		d.countThreadsLocked()
		d.searchDeadlockLocked()
		d.arb.Tick(d.now())
		d.queue.due = time.Time{} // unlock sets it again
	}
	if d.queue.due.IsZero() {
		return nil
	}
	return d.after(max(d.queue.due.Sub(now), time.Millisecond))
}

// searchDeadlockLocked starts a search for a deadlock if many requests wait and a search is due. The search runs in its own goroutine and
// without the lock, so that deadlines are kept meanwhile.
func (d *Daemon) searchDeadlockLocked() {
	search := d.arb.Search(d.now())
	if search == nil {
		return
	}
	d.wg.Go(func() {
		defer d.unlock() // if Run panics, the lock is not held: unlock starts the daemon again and does not return
		search.Run()
		d.lock()
		d.arb.Settle(d.now(), search)
	})
}

// countThreadsLocked tells the arbiter how many threads each session with a waiting request has, because a thread may have ended without a
// message.
func (d *Daemon) countThreadsLocked() {
	now := d.now()
	waiting := make(map[*session]bool)
	for _, p := range d.queue.parked {
		if p.s != nil && !waiting[p.s] {
			waiting[p.s] = true
			d.threadsLocked(now, p.s)
		}
	}
}

// threadsLocked tells the arbiter the number of threads that a session's page shows.
func (d *Daemon) threadsLocked(now time.Time, s *session) {
	if s.page == nil {
		return
	}
	var n uint32
	if s.page.Guard(func() { n = s.page.Threads().Load() }) == nil {
		d.arb.Threads(now, s.id, int(min(n, maxClaimed)))
	}
}

// cancelRequest cancels a ticket, the tickets of a job, or, if neither is named, the tickets of the client's descendants. A user may cancel
// tickets of programs of that user, root all tickets.
func (cl *client) cancelRequest(r *ipc.CancelRequest) (ipc.CancelReply, error) {
	d, peer, now := cl.d, cl.conn.Peer(), cl.d.now()
	if r.Ticket == 0 && r.Job.IsZero() {
		return ipc.CancelReply{Cancelled: cl.cancelBelow()}, nil
	}
	d.lock()
	defer d.unlock()
	cl.applyLocked()
	if r.Ticket != 0 {
		ticket := arbiter.TicketID(r.Ticket)
		owner, waits := d.arb.Owner(ticket)
		switch {
		case !waits:
			return ipc.CancelReply{}, refused(ipc.StatusRange, "no request waits with ticket %d", r.Ticket)
		case !askerOf(peer).owns(owner.UID, owner.Namespace):
			return ipc.CancelReply{}, refused(ipc.StatusPermission, "ticket %d is user %d's: only that user or root may cancel it%s", r.Ticket, owner.UID, wording.NotRoot(peer.Namespace))
		}
		d.arb.Cancel(now, ticket, arbiter.ReasonCancelled)
		return ipc.CancelReply{Cancelled: 1}, nil
	}
	j, err := d.ownJobLocked(r.Job, peer)
	if err != nil {
		return ipc.CancelReply{}, err
	}
	return ipc.CancelReply{Cancelled: uint64(d.arb.CancelJob(now, j.id))}, nil
}

// cancelBelow cancels the requests of the client's descendants that run as the client's user; if the client is privileged, of all descendants. It
// returns how many it cancelled. The daemon, and not the client, finds the descendants, because it sees the PIDs of all namespaces. It reads
// /proc for that without its lock, and then checks the tickets again.
func (cl *client) cancelBelow() uint64 {
	d, peer := cl.d, cl.conn.Peer()
	var below []arbiter.TicketID
	mine := func(uid uint32) bool { return peer.Privileged || peer.UID == uid }
	for _, t := range d.state().Queue {
		if mine(t.UID) && d.inv.Descends(t.PID, peer.PID) {
			below = append(below, arbiter.TicketID(t.Ticket))
		}
	}
	d.lock()
	defer d.unlock()
	cl.applyLocked()
	below = slices.DeleteFunc(below, func(id arbiter.TicketID) bool {
		owner, waits := d.arb.Owner(id)
		return !waits || !mine(owner.UID)
	})
	return uint64(d.arb.CancelAll(d.now(), below, arbiter.ReasonCancelled))
}

// keepPlaceLocked writes the place of a parked request to the state file, and returns the index of the record. -1: the table is full; after a restart
// of the daemon the request then comes last.
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

// dropPlaceLocked frees the record of a parked request that has had its reply.
func (d *Daemon) dropPlaceLocked(p *parked) {
	if p.place >= 0 {
		d.file.Tickets.Free(p.place)
		p.place = -1
	}
}
