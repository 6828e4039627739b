package daemon

import (
	"math"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/faults"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// This file answers requests of a lease: for memory, streams and contexts, and queries of how much memory there is.

// alloc answers a request for bytes, which a client makes if its credit is too small for an allocation.
func (cl *client) alloc(h ipc.Header, req ipc.AllocRequest) error {
	return cl.ask(h, req.Slot, req.Flags, arbiter.Request{What: arbiter.WantsBytes, Bytes: accounting.Bytes(req.Bytes),
		Managed: req.Kind == ipc.MemoryManaged, Thread: req.Thread})
}

// ask decides on a request of a lease for anything, and sends the reply, or a notice that the request waits.
func (cl *client) ask(h ipc.Header, slot, flags uint32, r arbiter.Request) error {
	r.NoWait, r.Aside, r.Again = flags&ipc.FlagNoWait != 0, flags&ipc.FlagAside != 0, flags&ipc.FlagAgain != 0
	retry := flags&ipc.FlagRetry != 0
	out, err := cl.decide(h, slot, retry, r)
	if err != nil || out.Waiting != 0 {
		return err
	}
	return cl.replyAsked(h, r, out)
}

// decide asks the arbiter for a decision on a request of a lease, and records a grant or the waiting request.
func (cl *client) decide(h ipc.Header, slot uint32, retry bool, r arbiter.Request) (arbiter.Result, error) {
	d := cl.d
	d.lock()
	defer d.unlock()
	cl.applyLocked()
	l, err := cl.leaseLocked(slot)
	if err != nil {
		return arbiter.Result{}, err
	}
	r.Lease = l.ID
	now := d.now()
	d.threadsLocked(now, cl.s)
	if retry { // under the same lock as the request, so that no other request gets what the old ticket leaves
		place, forget := d.returnsLocked(cl.conn.Peer(), h)
		r.Place = place
		defer forget()
		if r.Count < 0 {
			r.Count = 0 // the client's Resume has reported the lower count; a client of an old version keeps the higher count
		}
	}
	out := d.arb.Ask(now, r)
	switch {
	case r.What == arbiter.WantsBytes:
		faults.At("alloc.decided")
	case r.Count != 0:
		l.Hide() // the room that the page shows may have shrunk: streams can be charged, and a context takes memory
		d.keepObjectsLocked(l, r.What, out)
		faults.At("objects.decided")
	}
	if out.Waiting != 0 {
		cl.parkAskedLocked(h, l, r, out.Waiting)
	} else {
		cl.gaveLocked(receipt{lease: l, got: out.Receipt})
	}
	return out, nil
}

// parkAskedLocked parks a request of a lease that must wait. It is a function of its own because its closures move its arguments to the heap, which a
// request that is decided at once need not pay for.
func (cl *client) parkAskedLocked(h ipc.Header, l *shim.Lease, r arbiter.Request, ticket arbiter.TicketID) {
	cl.d.parkLocked(cl, cl.s.caller, h, ticket, func(dec arbiter.Result) (receipt, func() error) {
		faults.At("asked.served")
		cl.d.keepObjectsLocked(l, r.What, dec)
		return receipt{lease: l, got: dec.Receipt},
			func() error { return cl.replyAsked(h, r, dec) }
	})
	cl.d.noteAskedLocked(cl.waits, l, r)
}

// replyAsked sends the reply for a decided request of a lease.
func (cl *client) replyAsked(h ipc.Header, r arbiter.Request, out arbiter.Result) error {
	if r.What == arbiter.WantsBytes {
		faults.At("alloc.drained")
		rep := ipc.AllocReply{Requested: uint64(r.Bytes), Remaining: uint64(out.Remaining), Limit: uint64(out.Limit)}
		if out.Granted {
			rep.Granted = uint64(r.Bytes)
			return ipc.Reply(cl.conn, h, ipc.StatusOK, &rep, -1)
		}
		if rep.Text = cl.told(out); out.Reason == arbiter.ReasonCrowded {
			rep.Limit = patienceMillis(out.Patience)
		}
		return reply(cl, h, out, &rep)
	}
	faults.At("objects.drained")
	if r.What == arbiter.WantsStreams {
		rep := ipc.StreamReply{Current: uint32(out.Current), Max: uint32(out.Max), Text: cl.told(out)}
		if out.Reason == arbiter.ReasonCrowded {
			rep.Max = uint32(min(patienceMillis(out.Patience), math.MaxUint32))
		}
		return reply(cl, h, out, &rep)
	}
	rep := ipc.ContextReply{Current: uint32(out.Current), Requested: uint64(out.Requested), Remaining: uint64(out.Remaining), Text: cl.told(out)}
	if out.Reason == arbiter.ReasonCrowded {
		rep.Remaining = patienceMillis(out.Patience)
	}
	return reply(cl, h, out, &rep)
}

// patienceMillis returns how long a client may ask again, in the encoding of replies with StatusCrowded.
func patienceMillis(patience time.Duration) uint64 {
	if patience < 0 {
		return ipc.NoLimit
	}
	return uint64(patience.Milliseconds())
}

// told returns the line that a refused program must print: for its first refusal, and for each refusal whose cause is not memory that other programs
// hold, but the program's own threads or the full queue. "": it prints none.
func (cl *client) told(out arbiter.Result) (text ipc.Text) {
	if out.First || out.Reason == arbiter.ReasonThreads || out.Reason == arbiter.ReasonCrowded {
		text = addressed(cl.s.caller, out.Explain)
	}
	return text
}

// reply sends a decision with its body; if the status is an error, which has no body, as an error.
func reply[T ipc.Body](cl *client, h ipc.Header, out arbiter.Result, rep *T) error {
	status := ipc.StatusOK
	if !out.Granted {
		status = statusOfReason(out.Reason)
	}
	if status.IsError() {
		return cl.conn.ReplyError(h, &ipc.ProtocolError{Status: status, Text: out.Explain})
	}
	return ipc.Reply(cl.conn, h, status, rep, -1)
}

// freed handles the report of a client that freed memory while NOTIFY was set in its credit word.
func (cl *client) freed(_ ipc.Header, req ipc.FreedNotice) error {
	d := cl.d
	d.lock()
	defer d.unlock()
	cl.applyLocked()
	l, err := cl.s.lease(req.Slot)
	if err != nil {
		return err
	}
	faults.At("freed.heard")
	d.arb.Freed(d.now(), l.ID)
	faults.At("freed.taken")
	return nil
}

// query answers a Query request: the total and free memory that a program sees when it asks for them.
func (cl *client) query(r *ipc.QueryRequest) (ipc.QueryReply, error) {
	room, err := cl.room(&ipc.RoomRequest{Device: r.Device})
	return ipc.QueryReply{Total: room.Total, Used: room.Used, Room: room.Room}, err
}

// room answers a Room request: as query, and with the credit word for which the figures hold.
func (cl *client) room(r *ipc.RoomRequest) (ipc.RoomReply, error) {
	d, s := cl.d, cl.s
	dev, ok := d.deviceByUUID(r.Device)
	if !ok {
		return ipc.RoomReply{}, refused(ipc.StatusNoDevice, "no device has the UUID %x", r.Device)
	}
	d.lock()
	defer d.unlock()
	cl.applyLocked()
	room, err := d.arb.Query(d.now(), s.id, dev.Index)
	if err != nil {
		return ipc.RoomReply{}, err
	}
	rep := ipc.RoomReply{Total: uint64(room.Total), Used: uint64(room.Used), Room: uint64(room.Room), Slot: ipc.NoSlot}
	if room.Limited {
		rep.Flags = ipc.RoomLimited
	}
	if l := s.leaseOn(dev.Index); l != nil && room.Lease != 0 {
		d.shown[l] = showing{s, showFor}
		showRoomLocked(l, room)
		rep.Slot = l.Record.Slot
		rep.Word = uint64(ipc.MakeWord(uint64(room.Credit), l.Epoch(), 0))
	}
	return rep, nil
}

// reasonStatuses maps the arbiter's reasons to the statuses of replies.
var reasonStatuses = map[arbiter.Reason]ipc.Status{
	arbiter.ReasonOverBudget: ipc.StatusOverBudget, arbiter.ReasonSharedFull: ipc.StatusSharedFull,
	arbiter.ReasonDeviceFull: ipc.StatusDeviceFull, arbiter.ReasonTooLarge: ipc.StatusTooLarge,
	arbiter.ReasonStreams: ipc.StatusStreams, arbiter.ReasonDeviceLost: ipc.StatusDeviceLost,
	arbiter.ReasonDenied: ipc.StatusDenied, arbiter.ReasonThreads: ipc.StatusDenied,
	arbiter.ReasonNoLease: ipc.StatusNoLease, arbiter.ReasonRange: ipc.StatusRange,
	arbiter.ReasonBusy: ipc.StatusBusy, arbiter.ReasonCrowded: ipc.StatusCrowded,
	arbiter.ReasonTimeout: ipc.StatusTimeout, arbiter.ReasonCancelled: ipc.StatusCancelled,
	arbiter.ReasonDeadlock: ipc.StatusDeadlock, arbiter.ReasonSlots: ipc.StatusSlots,
}

func statusOfReason(r arbiter.Reason) ipc.Status {
	if status, ok := reasonStatuses[r]; ok {
		return status
	}
	return ipc.StatusInternal
}
