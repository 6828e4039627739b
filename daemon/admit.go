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

// alloc decides on bytes: the slow path of an allocation.
func (cl *client) alloc(h ipc.Header, req ipc.AllocRequest) error {
	return cl.ask(h, req.Slot, req.Flags, arbiter.Request{What: arbiter.WantsBytes, Bytes: accounting.Bytes(req.Bytes),
		Managed: req.Kind == ipc.MemoryManaged, Thread: req.Thread})
}

// ask has a request of a lease decided, whatever it asks for, and answers it or tells that it waits.
func (cl *client) ask(h ipc.Header, slot, flags uint32, r arbiter.Request) error {
	r.NoWait, r.Aside, r.Again = flags&ipc.FlagNoWait != 0, flags&ipc.FlagAside != 0, flags&ipc.FlagAgain != 0
	retry := flags&ipc.FlagRetry != 0
	out, err := cl.decide(h, slot, retry, r)
	if err != nil || out.Waiting != 0 {
		return err
	}
	return cl.replyAsked(h, r, out)
}

// decide has the arbiter decide on a request of a lease, and writes down what comes of it.
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
	if retry { // next to the request, so that no other one gets what it leaves
		place, forget := d.returnsLocked(cl.conn.Peer(), h)
		r.Place = place
		defer forget()
		if r.Count < 0 {
			r.Count = 0 // its client has said what it has since it gave that back, or is of an old version: then it stays counted
		}
	}
	out := d.arb.Ask(now, r)
	switch {
	case r.What == arbiter.WantsBytes:
		faults.At("alloc.decided")
	case r.Count != 0:
		l.Hide() // a stream may be charged, and what a context is expected to take is not free
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

// parkAskedLocked has a request of a lease wait. It is apart from decide for what it needs on the
// heap, which an answer at once does not.
func (cl *client) parkAskedLocked(h ipc.Header, l *shim.Lease, r arbiter.Request, ticket arbiter.TicketID) {
	cl.d.parkLocked(cl, cl.s.caller, h, ticket, func(dec arbiter.Result) (receipt, func() error) {
		faults.At("asked.served")
		cl.d.keepObjectsLocked(l, r.What, dec)
		return receipt{lease: l, got: dec.Receipt},
			func() error { return cl.replyAsked(h, r, dec) }
	})
	cl.d.noteAskedLocked(cl.waits, l, r)
}

// replyAsked tells what became of a request of a lease.
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

// patienceMillis returns how long a client may go on asking, as replies with StatusCrowded say it.
func patienceMillis(patience time.Duration) uint64 {
	if patience < 0 {
		return ipc.NoLimit
	}
	return uint64(patience.Milliseconds())
}

// told is the line that a refused program is to print: of its first refusal, and of each that is about
// the client itself rather than about what others hold.
func (cl *client) told(out arbiter.Result) (text ipc.Text) {
	if out.First || out.Reason == arbiter.ReasonThreads || out.Reason == arbiter.ReasonCrowded {
		text = addressed(cl.s.caller, out.Explain)
	}
	return text
}

// reply sends what became of a request with its body, or as an error where there is none.
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

// freed is a free that saw NOTIFY.
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

// query answers what a program's own memory query should say.
func (cl *client) query(r *ipc.QueryRequest) (ipc.QueryReply, error) {
	room, err := cl.room(&ipc.RoomRequest{Device: r.Device})
	return ipc.QueryReply{Total: room.Total, Used: room.Used, Room: room.Room}, err
}

// room is the same with the word that it was summed by.
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

// reasonStatuses spell the arbiter's reasons on the wire.
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
