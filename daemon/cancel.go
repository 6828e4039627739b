package daemon

// This file cancels waiting requests: when their connection ends, and on request of a client or user. serve.go calls
// it.

import (
	"slices"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/ipc"
)

// abandon cleans up after a closed connection. It cancels the request that waits on the connection. unread: the
// client did not read all messages, or a reply could not be sent. abandon then takes back the last grant.
func (cl *client) abandon(unread bool) {
	d, waiting := cl.d, cl.waiting()
	cl.takeLock()
	defer d.unlock()
	switch {
	case d.stopping(): // the client reports what it holds when it resumes
	case waiting:
		d.arb.Cancel(d.now(), cl.waits.ticket, arbiter.ReasonCancelled)
	case unread:
		cl.takeBackLocked()
	}
}

// giveUp cancels the request that waits on this connection at the client's request. An earlier decision stands.
func (cl *client) giveUp(ipc.Message) error {
	cl.endStream()
	if !cl.waiting() {
		return nil
	}
	cl.takeLock()
	defer cl.d.unlock()
	cl.d.arb.Cancel(cl.d.now(), cl.waits.ticket, arbiter.ReasonCancelled)
	return nil
}

// cancelRequest cancels a ticket, the tickets of a job, or, if the request names neither, the tickets of the client's
// descendants. A user may cancel tickets of that user's programs; root may cancel all tickets.
func (cl *client) cancelRequest(r *ipc.CancelRequest) (ipc.CancelReply, error) {
	d, peer, now := cl.d, cl.conn.Peer(), cl.d.now()
	if r.Ticket == 0 && r.Job.IsZero() {
		return ipc.CancelReply{Cancelled: cl.cancelDescendants()}, nil
	}
	cl.takeLock()
	defer d.unlock()
	if r.Ticket != 0 {
		ticket := arbiter.TicketID(r.Ticket)
		owner, waits := d.arb.Owner(ticket)
		switch {
		case !waits:
			return ipc.CancelReply{}, refused(ipc.StatusRange, "no request waits with ticket %d", r.Ticket)
		case !requesterOf(peer).owns(owner.UID, owner.Namespace):
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

// cancelDescendants cancels the requests of the client's descendants that run as the client's user, and returns their
// number. For a privileged client it includes descendants of all users. The daemon finds the descendants itself
// because it sees the PIDs of all namespaces. It reads /proc without its lock, and checks the tickets again
// afterwards.
func (cl *client) cancelDescendants() uint64 {
	d, peer := cl.d, cl.conn.Peer()
	var below []arbiter.TicketID
	mine := func(uid uint32) bool { return peer.Privileged || peer.UID == uid }
	for _, t := range d.state().Queue {
		if mine(t.UID) && d.inv.Descends(t.PID, peer.PID) {
			below = append(below, arbiter.TicketID(t.Ticket))
		}
	}
	cl.takeLock()
	defer d.unlock()
	below = slices.DeleteFunc(below, func(id arbiter.TicketID) bool {
		owner, waits := d.arb.Owner(id)
		return !waits || !mine(owner.UID)
	})
	return uint64(d.arb.CancelAll(d.now(), below, arbiter.ReasonCancelled))
}
