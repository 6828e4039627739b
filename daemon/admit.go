package daemon

import (
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/faults"
	"github.com/gpuarb/gpuarb/ipc"
)

// alloc decides on bytes: the slow path of an allocation.
func (cl *client) alloc(m ipc.Message) error {
	var req ipc.AllocRequest
	if err := ipc.Unmarshal(m.Body, &req); err != nil {
		return err
	}
	d, h := cl.d, m.Header
	place := cl.comesAgain(h, req.Flags&ipc.FlagRetry != 0)
	d.mu.Lock()
	l, err := cl.s.lease(req.Slot)
	if err != nil {
		d.mu.Unlock()
		return err
	}
	bytes := givenBytes{s: cl.s, taken: cl.s.taken, lease: l, bytes: req.Bytes}
	if req.Flags&ipc.FlagRetry != 0 && cl.answered(l, h.Request, req.Bytes) {
		d.toldAgain(cl.s, h.Request)
		cl.gaveBytes(h, bytes)
		d.cameBack(cl.conn.Peer(), h)
		d.mu.Unlock()
		return ipc.Reply(cl.conn, h, ipc.StatusOK, &ipc.AllocReply{Granted: req.Bytes, Requested: req.Bytes}, -1)
	}
	now := d.now()
	d.threads(now, cl.s)
	out := d.arb.Alloc(now, arbiter.AllocRequest{Lease: l.id, Bytes: accounting.Bytes(req.Bytes), Kind: req.Kind,
		Request: h.Request, Thread: req.Thread, NoWait: req.Flags&ipc.FlagNoWait != 0, Place: place})
	faults.At("alloc.decided")
	switch {
	case out.Granted:
		cl.gaveBytes(h, bytes)
	case out.Waiting != 0:
		cl.parkAlloc(h, out.Waiting, bytes)
	}
	if cl.leave(h, out.Waiting) {
		return cl.tellFirst()
	}
	return cl.replyAlloc(h, req.Bytes, out)
}

// parkAlloc has a request for bytes wait. It is apart from alloc for what it needs on the
// heap, which an answer at once does not. The lock is held.
func (cl *client) parkAlloc(h ipc.Header, ticket arbiter.TicketID, b givenBytes) {
	undo := func() { cl.d.giveBack(h.Request, b) }
	cl.d.park(cl, h, ticket, func(dec arbiter.Decision) verdict {
		faults.At("alloc.served")
		return verdictOf(dec.Alloc.Granted, undo, func() error { return cl.replyAlloc(h, b.bytes, *dec.Alloc) })
	})
}

// replyAlloc tells what became of a request for bytes.
func (cl *client) replyAlloc(h ipc.Header, bytes uint64, out arbiter.Outcome) error {
	rep := ipc.AllocReply{Requested: bytes}
	faults.At("alloc.drained")
	if out.Granted {
		rep.Granted = bytes
		return ipc.Reply(cl.conn, h, ipc.StatusOK, &rep, -1)
	}
	rep.Remaining, rep.Limit = uint64(out.Remaining), uint64(out.Limit)
	if out.First || isBound(out.Reason) {
		rep.Text = ipc.MakeText(out.Explain)
	}
	return replyRefusal(cl, h, out.Reason, out.Explain, &rep)
}

// isBound tells a refusal that is about the client itself rather than about what others hold: it
// is told each time.
func isBound(why arbiter.Reason) bool {
	return why == arbiter.ReasonThreads || why == arbiter.ReasonCrowded
}

// replyRefusal sends a refusal with its body, or as an error where there is none.
func replyRefusal[T ipc.Body](cl *client, h ipc.Header, reason arbiter.Reason, explain string, rep *T) error {
	status := statusOfReason(reason)
	if status.IsError() {
		return cl.conn.ReplyError(h, &ipc.ProtocolError{Status: status, Text: explain})
	}
	return ipc.Reply(cl.conn, h, status, rep, -1)
}

// givenBytes are bytes that a request was granted.
type givenBytes struct {
	s     *session
	taken int // the session's, at that time
	lease leaseRef
	bytes uint64
}

// giveBack takes bytes that were granted to somebody who was not there any more. They go
// into the lease's credit, as the client would have put them. The lock is held.
func (d *Daemon) giveBack(request uint64, b givenBytes) {
	if !b.s.untold(request, b.taken) {
		return
	}
	slot := b.s.slotOf(b.lease.device)
	if slot < 0 || b.s.page == nil {
		return // its own sum settles it when it resumes
	}
	if b.s.page.Guard(func() { b.s.page.GiveCredit(uint32(slot), b.bytes) }) == nil {
		d.arb.Freed(d.now(), b.lease.id)
	}
}

// answered says whether a request that comes again was granted before, by this
// daemon or the one before it. The lock is held.
func (cl *client) answered(l leaseRef, request, bytes uint64) bool {
	a, ok := cl.s.answers.Granted(request)
	_, index := cl.d.words.Record(l.id)
	return ok && a.Bytes == bytes && int(a.Lease) == index
}

// freed is a free that saw NOTIFY.
func (cl *client) freed(m ipc.Message) error {
	var req ipc.FreedNotice
	if err := ipc.Unmarshal(m.Body, &req); err != nil {
		return err
	}
	d := cl.d
	d.mu.Lock()
	defer d.mu.Unlock()
	l, err := cl.s.lease(req.Slot)
	if err != nil {
		return err
	}
	faults.At("freed.heard")
	d.arb.Freed(d.now(), l.id)
	faults.At("freed.taken")
	d.drainEvents()
	return nil
}

// stream takes streams or gives them back.
func (cl *client) stream(m ipc.Message) error {
	var req ipc.StreamRequest
	if err := ipc.Unmarshal(m.Body, &req); err != nil {
		return err
	}
	d, h := cl.d, m.Header
	var place arbiter.Place
	if req.Count > 0 {
		place = cl.comesAgain(h, req.Flags&ipc.FlagRetry != 0)
	}
	d.mu.Lock()
	l, err := cl.s.lease(req.Slot)
	if err != nil {
		d.mu.Unlock()
		return err
	}
	out := d.streams(cl.s, l, h.Request, arbiter.StreamRequest{Lease: l.id, Count: int(req.Count), Thread: req.Thread,
		NoWait: req.Flags&ipc.FlagNoWait != 0, Place: place})
	faults.At("streams.decided")
	taken := cl.s.taken
	undo := func() {
		d.untake(cl.s, taken, l, h.Request, arbiter.StreamRequest{Lease: l.id, Count: -int(req.Count), Thread: req.Thread})
	}
	switch {
	case out.Granted && req.Count > 0:
		cl.gave(h, undo)
	case out.Waiting != 0:
		d.park(cl, h, out.Waiting, func(dec arbiter.Decision) verdict {
			d.keepStreams(cl.s, l, h.Request, *dec.Stream)
			return verdictOf(dec.Stream.Granted, undo, func() error { return cl.replyStream(h, *dec.Stream) })
		})
	}
	if cl.leave(h, out.Waiting) {
		return cl.tellFirst()
	}
	return cl.replyStream(h, out)
}

// replyStream tells what became of a request for streams.
func (cl *client) replyStream(h ipc.Header, out arbiter.StreamOutcome) error {
	faults.At("streams.drained")
	rep := ipc.StreamReply{Current: uint32(out.Current), Max: uint32(out.Max)}
	if out.Granted {
		return ipc.Reply(cl.conn, h, ipc.StatusOK, &rep, -1)
	}
	if out.First || isBound(out.Reason) {
		rep.Text = ipc.MakeText(out.Explain)
	}
	return replyRefusal(cl, h, out.Reason, out.Explain, &rep)
}

// streams carries a request for streams out, once: one that was sent again after its
// answer was lost with the connection only asks how many there are. The lock is held.
func (d *Daemon) streams(s *session, l leaseRef, request uint64, r arbiter.StreamRequest) arbiter.StreamOutcome {
	record, index := d.words.Record(l.id)
	if record != nil && s.answers.Streamed(request, index) {
		d.toldAgain(s, request)
		r.Count = 0
	}
	now := d.now()
	d.threads(now, s)
	out := d.arb.Stream(now, r)
	if r.Count != 0 {
		d.keepStreams(s, l, request, out)
	}
	return out
}

// keepStreams writes down how many streams there are after a request. The lock is held.
func (d *Daemon) keepStreams(s *session, l leaseRef, request uint64, out arbiter.StreamOutcome) {
	if record, index := d.words.Record(l.id); record != nil && out.Granted {
		record.SetStreams(s.answers, index, request, uint32(out.Current))
		d.keepMakers(l, record)
	}
}

// untake gives streams back that were granted to somebody who was not there any more.
// The lock is held.
func (d *Daemon) untake(s *session, taken int, l leaseRef, request uint64, r arbiter.StreamRequest) {
	if s.untold(request, taken) {
		d.keepStreams(s, l, 0, d.arb.Stream(d.now(), r))
	}
}

// query answers what a program's own memory query should say.
func (cl *client) query(r *ipc.QueryRequest) (ipc.QueryReply, error) {
	room, err := cl.d.room(cl.s, r.Device)
	return ipc.QueryReply{Total: room.Total, Used: room.Used, Room: room.Room}, err
}

// room is the same with the word that it was summed by.
func (cl *client) room(r *ipc.RoomRequest) (ipc.RoomReply, error) {
	return cl.d.room(cl.s, r.Device)
}

func (d *Daemon) room(s *session, device ipc.UUID) (ipc.RoomReply, error) {
	dev, ok := d.deviceByUUID(device)
	if !ok {
		return ipc.RoomReply{}, refused(ipc.StatusNoDevice, "no device has the UUID %x", device)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	room, err := d.arb.Query(d.now(), s.id, dev.Index)
	if err != nil {
		return ipc.RoomReply{}, err
	}
	rep := ipc.RoomReply{Total: uint64(room.Total), Used: uint64(room.Used), Room: uint64(room.Room), Slot: ipc.NoSlot}
	if room.Limited {
		rep.Flags = ipc.RoomLimited
	}
	if slot := s.slotOf(dev.Index); slot >= 0 && room.Lease != 0 {
		rep.Slot = uint32(slot)
		rep.Word = uint64(ipc.MakeWord(uint64(room.Credit), d.words.Epoch(room.Lease), 0))
	}
	return rep, nil
}

// statusOfReason spells an arbiter's reason on the wire.
func statusOfReason(r arbiter.Reason) ipc.Status {
	switch r {
	case arbiter.ReasonOverBudget:
		return ipc.StatusOverBudget
	case arbiter.ReasonSharedFull:
		return ipc.StatusSharedFull
	case arbiter.ReasonDeviceFull:
		return ipc.StatusDeviceFull
	case arbiter.ReasonTooLarge:
		return ipc.StatusTooLarge
	case arbiter.ReasonStreams:
		return ipc.StatusStreams
	case arbiter.ReasonDeviceLost:
		return ipc.StatusDeviceLost
	case arbiter.ReasonDenied, arbiter.ReasonThreads:
		return ipc.StatusDenied
	case arbiter.ReasonNoLease:
		return ipc.StatusNoLease
	case arbiter.ReasonRange:
		return ipc.StatusRange
	case arbiter.ReasonBusy, arbiter.ReasonCrowded:
		return ipc.StatusBusy
	case arbiter.ReasonTimeout:
		return ipc.StatusTimeout
	case arbiter.ReasonCancelled:
		return ipc.StatusCancelled
	case arbiter.ReasonDeadlock:
		return ipc.StatusDeadlock
	case arbiter.ReasonSlots:
		return ipc.StatusSlots
	}
	return ipc.StatusInternal
}
