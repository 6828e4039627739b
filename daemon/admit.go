package daemon

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/ipc"
)

// alloc decides on bytes: the slow path of an allocation.
func (cl *client) alloc(m ipc.Message) error {
	var req ipc.AllocRequest
	if err := ipc.Unmarshal(m.Body, &req); err != nil {
		return err
	}
	d := cl.d
	d.mu.Lock()
	l, err := cl.s.lease(req.Slot)
	if err != nil {
		d.mu.Unlock()
		return err
	}
	if req.Flags&ipc.FlagRetry != 0 && cl.answered(l, m.Header.Request, req.Bytes) {
		d.mu.Unlock()
		return ipc.Reply(cl.conn, m.Header, ipc.StatusOK,
			&ipc.AllocReply{Granted: req.Bytes, Requested: req.Bytes}, -1)
	}
	out := d.arb.Alloc(time.Now(), arbiter.AllocRequest{Lease: l.id, Bytes: accounting.Bytes(req.Bytes),
		Kind: req.Kind, Request: m.Header.Request})
	d.drainEvents()
	d.mu.Unlock()

	rep := ipc.AllocReply{Requested: req.Bytes}
	if out.Granted {
		rep.Granted = req.Bytes
		return ipc.Reply(cl.conn, m.Header, ipc.StatusOK, &rep, -1)
	}
	rep.Remaining, rep.Limit = uint64(out.Remaining), uint64(out.Limit)
	if out.First {
		rep.Text = ipc.MakeText(out.Explain)
	}
	status := statusOfReason(out.Reason)
	if status.IsError() {
		return refused(status, "%s", out.Explain)
	}
	return ipc.Reply(cl.conn, m.Header, status, &rep, -1)
}

// answered says whether a request that comes again was granted before, by this
// daemon or the one before it. The lock is held.
func (cl *client) answered(l leaseRef, request, bytes uint64) bool {
	a, ok := cl.s.record.Answered(request)
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
	d.arb.Freed(time.Now(), l.id)
	d.drainEvents()
	return nil
}

// stream takes streams or gives them back.
func (cl *client) stream(m ipc.Message) error {
	var req ipc.StreamRequest
	if err := ipc.Unmarshal(m.Body, &req); err != nil {
		return err
	}
	d := cl.d
	d.mu.Lock()
	l, err := cl.s.lease(req.Slot)
	if err != nil {
		d.mu.Unlock()
		return err
	}
	out := d.streams(cl.s, l, m.Header.Request, int(req.Count))
	d.drainEvents()
	d.mu.Unlock()

	rep := ipc.StreamReply{Current: uint32(out.Current), Max: uint32(out.Max)}
	if out.Granted {
		return ipc.Reply(cl.conn, m.Header, ipc.StatusOK, &rep, -1)
	}
	if out.First {
		rep.Text = ipc.MakeText(out.Explain)
	}
	status := statusOfReason(out.Reason)
	if status.IsError() {
		return refused(status, "%s", out.Explain)
	}
	return ipc.Reply(cl.conn, m.Header, status, &rep, -1)
}

// streams carries a request for streams out, once: one that was sent again after its
// answer was lost with the connection only asks how many there are. The lock is held.
func (d *Daemon) streams(s *session, l leaseRef, request uint64, count int) arbiter.StreamOutcome {
	record, index := d.words.Record(l.id)
	if record != nil && s.record.Streamed(request, index) {
		count = 0
	}
	out := d.arb.Stream(time.Now(), arbiter.StreamRequest{Lease: l.id, Count: count})
	if record != nil && out.Granted && count != 0 {
		record.SetStreams(s.record, index, request, uint32(out.Current))
	}
	return out
}

// context counts contexts.
func (cl *client) context(r *ipc.ContextRequest) (ipc.ContextReply, error) {
	d := cl.d
	d.mu.Lock()
	defer d.mu.Unlock()
	l, err := cl.s.lease(r.Slot)
	if err != nil {
		return ipc.ContextReply{}, err
	}
	current := d.arb.Context(time.Now(), arbiter.ContextRequest{Lease: l.id, Count: int(r.Count)}).Current
	if record, _ := d.words.Record(l.id); record != nil {
		record.Contexts = uint32(current)
	}
	return ipc.ContextReply{Current: uint32(current)}, nil
}

// query answers what a program's own memory query should say.
func (cl *client) query(r *ipc.QueryRequest) (ipc.QueryReply, error) {
	dev, ok := cl.d.deviceByUUID(r.Device)
	if !ok {
		return ipc.QueryReply{}, refused(ipc.StatusNoDevice, "no device has the UUID %x", r.Device)
	}
	cl.d.mu.Lock()
	defer cl.d.mu.Unlock()
	room, err := cl.d.arb.Query(time.Now(), cl.s.id, dev.Index)
	if err != nil {
		return ipc.QueryReply{}, err
	}
	return ipc.QueryReply{Total: uint64(room.Total), Used: uint64(room.Used), Room: uint64(room.Room)}, nil
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
	case arbiter.ReasonDenied:
		return ipc.StatusDenied
	case arbiter.ReasonNoLease:
		return ipc.StatusNoLease
	case arbiter.ReasonRange:
		return ipc.StatusRange
	case arbiter.ReasonBusy:
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
