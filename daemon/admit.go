package daemon

// This file answers requests for memory, streams and contexts of a lease, and reports of frees. serve.go calls it for
// each such message. queue.go holds the requests that must wait.

import (
	"math"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/internal/faults"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// alloc answers a request for bytes. A client sends it when its credit is too small for an allocation.
func (cl *client) alloc(h ipc.Header, req ipc.AllocRequest) error {
	return cl.ask(h, req.Slot, req.Flags, arbiter.Request{What: arbiter.WantsBytes, Bytes: accounting.Bytes(req.Bytes),
		Managed: req.Kind == ipc.MemoryManaged, Thread: req.Thread, Fresh: req.Flags&ipc.FlagFresh != 0,
		Looked: req.Flags&(ipc.FlagCaches|ipc.FlagNoCaches) != 0, Caches: req.Flags&ipc.FlagCaches != 0, Chosen: req.Flags&ipc.FlagChosen != 0,
		DriverFull: req.Flags&ipc.FlagDriverFull != 0, DriverFullAgain: req.Flags&ipc.FlagDriverFullAgain != 0})
}

// stream answers a request for streams (a positive count), or a report that streams are gone (a negative count).
func (cl *client) stream(h ipc.Header, req ipc.StreamRequest) error {
	r := arbiter.Request{What: arbiter.WantsStreams, Count: int(req.Count), Thread: req.Thread}
	return cl.ask(h, req.Slot, req.Flags, r)
}

// context answers a request for contexts before the client makes them, or a report that contexts are gone.
func (cl *client) context(h ipc.Header, req ipc.ContextRequest) error {
	r := arbiter.Request{What: arbiter.WantsContexts, Count: int(req.Count), Thread: req.Thread, Noticed: req.Flags&ipc.FlagNoticed != 0,
		DriverFull: req.Flags&ipc.FlagDriverFull != 0, DriverFullAgain: req.Flags&ipc.FlagDriverFullAgain != 0}
	if req.Flags&ipc.FlagHold != 0 {
		r.What = arbiter.WantsHolds
	}
	return cl.ask(h, req.Slot, req.Flags, r)
}

// leaseLocked returns the lease of a slot that a client names. It refuses a connection that joined the session before
// the session's last Resume: the client's report in that Resume does not include what was granted or freed over such a
// connection.
func (cl *client) leaseLocked(slot uint32) (*shim.Lease, error) {
	if cl.resumes != cl.s.resumes {
		return nil, refused(ipc.StatusNoSession, "the session was resumed on another connection: join it anew")
	}
	return cl.s.lease(slot)
}

// ask decides a request of a lease, and sends the reply or a notice that the request waits.
func (cl *client) ask(h ipc.Header, slot, flags uint32, r arbiter.Request) error {
	r.NoWait, r.Aside, r.Again = flags&ipc.FlagNoWait != 0, flags&ipc.FlagAside != 0, flags&ipc.FlagAgain != 0
	retry := flags&ipc.FlagRetry != 0
	began := cl.d.now()
	if r.DriverFull || r.DriverFullAgain {
		if err := cl.readDevice(slot); err != nil {
			return err
		}
	}
	for ; ; retry = false {
		out, device, err := cl.decide(h, slot, retry, &r)
		if err != nil || out.Waiting != 0 {
			return err
		}
		if out.Reason != arbiter.ReasonReading {
			return cl.replyDecision(h, r, out)
		}
		left := readingPatience - cl.d.now().Sub(began)
		r.Read, r.Asked = left <= 0, true
		cl.turn.WhileReleased(func() { cl.d.awaitReading(device, left) })
	}
}

// readDevice waits, for readingPatience at most, for a reading of the device of a lease, because the driver had no
// memory for what was granted there.
func (cl *client) readDevice(slot uint32) error {
	d := cl.d
	cl.takeLock()
	l, err := cl.leaseLocked(slot)
	d.unlock()
	if err == nil {
		cl.turn.WhileReleased(func() { d.awaitReading(l.Device, readingPatience) })
	}
	return err
}

// readingPatience is how long a request waits for readings, at most: for one that shows contexts, or for one after the
// driver had no memory. It is less than the time after which a library takes the daemon for gone.
const readingPatience = 2 * time.Second

// decide asks the arbiter to decide a request of a lease, and records the grant or the waiting request. It returns the
// device of the lease. If the arbiter wants a reading first, nothing is recorded, and r keeps the place in the queue.
func (cl *client) decide(h ipc.Header, slot uint32, retry bool, r *arbiter.Request) (arbiter.Result, int, error) {
	d := cl.d
	cl.takeLock()
	defer d.unlock()
	l, err := cl.leaseLocked(slot)
	if err != nil {
		return arbiter.Result{}, 0, err
	}
	r.Lease = l.ID
	now := d.now()
	d.threadsLocked(now, cl.s)
	if retry { // under the same lock as the request, so that no other request gets the room that the old ticket frees
		place, forget := d.takeAbsentLocked(cl.conn.Peer(), h)
		r.Place = place
		defer forget()
		if r.Count < 0 {
			r.Count = 0 // Resume has reported the lower count already. A client of an old version keeps the higher count.
		}
	}
	out := d.arb.Ask(now, *r)
	switch {
	case out.Reason == arbiter.ReasonReading:
		return out, l.Device, nil
	case r.What == arbiter.WantsBytes:
		faults.At("alloc.decided")
	case r.Count != 0:
		l.Hide() // the free memory on the page may be less now: streams can be charged, and a context takes memory
		d.keepObjectsLocked(l, r.What, out)
		faults.At("objects.decided")
	}
	if out.Waiting != 0 {
		cl.parkRequestLocked(h, l, *r, out.Waiting)
	} else {
		cl.noteReceiptLocked(receipt{lease: l, got: out.Receipt})
	}
	return out, l.Device, nil
}

// parkRequestLocked parks a request of a lease that must wait. It is a separate function because its closures move its
// arguments to the heap. A request that is decided at once avoids that cost.
func (cl *client) parkRequestLocked(h ipc.Header, l *shim.Lease, r arbiter.Request, ticket arbiter.TicketID) {
	cl.d.parkLocked(cl, cl.s.caller, h, ticket, func(dec arbiter.Result) (receipt, func() error) {
		faults.At("asked.served")
		cl.d.keepObjectsLocked(l, r.What, dec)
		return receipt{lease: l, got: dec.Receipt},
			func() error { return cl.replyDecision(h, r, dec) }
	})
	cl.d.noteRequestLocked(cl.waits, l, r)
}

// replyDecision sends the reply to a decided request of a lease. The lock is released: unlock has drained the arbiter's
// decisions into the queues of their clients, and the grant is in the state file. The faults alloc.drained and
// objects.drained end the daemon at that moment, before the reply is sent.
func (cl *client) replyDecision(h ipc.Header, r arbiter.Request, out arbiter.Result) error {
	if r.What == arbiter.WantsBytes {
		faults.At("alloc.drained")
		rep := ipc.AllocReply{Requested: uint64(r.Bytes), Remaining: uint64(out.Remaining), Limit: uint64(out.Limit)}
		if out.Granted {
			rep.Granted = uint64(r.Bytes)
			return ipc.Reply(cl.conn, h, ipc.StatusOK, &rep, -1)
		}
		if rep.Text = cl.refusalText(out); out.Reason == arbiter.ReasonCrowded {
			rep.Limit = patienceMillis(out.Patience)
		}
		return reply(cl, h, out, &rep)
	}
	faults.At("objects.drained")
	if r.What == arbiter.WantsStreams {
		rep := ipc.StreamReply{Current: uint32(out.Current), Max: uint32(out.Max), Text: cl.refusalText(out)}
		if out.Reason == arbiter.ReasonCrowded {
			rep.Max = uint32(min(patienceMillis(out.Patience), math.MaxUint32))
		}
		return reply(cl, h, out, &rep)
	}
	rep := ipc.ContextReply{Current: uint32(out.Current), Requested: uint64(out.Requested), Remaining: uint64(out.Remaining), Text: cl.refusalText(out)}
	if out.Reason == arbiter.ReasonCrowded {
		rep.Remaining = patienceMillis(out.Patience)
	}
	return reply(cl, h, out, &rep)
}

// freed handles a Freed message: the client freed memory while NOTIFY was set in its credit word.
func (cl *client) freed(_ ipc.Header, req ipc.FreedNotice) error {
	d := cl.d
	cl.takeLock()
	defer d.unlock()
	l, err := cl.s.lease(req.Slot)
	if err != nil {
		return err
	}
	faults.At("freed.heard")
	d.arb.Freed(d.now(), l.ID)
	faults.At("freed.taken")
	return nil
}

// objects counts the streams and contexts that a resumed client reports for its threads.
func (cl *client) objects(req *ipc.ObjectsRequest) (rep ipc.Empty, err error) {
	d := cl.d
	cl.takeLock()
	defer d.unlock()
	l, err := cl.leaseLocked(req.Slot)
	if err != nil {
		return rep, err
	}
	if cl.makersOf != l {
		cl.makersOf, cl.makers = l, nil
	}
	if n := len(cl.makers) + int(req.Count); n > arbiter.MaxThreads+ipc.ObjectsMakers { // checked before the entries take memory here
		return rep, refused(ipc.StatusTooMany, "the objects of %d threads: of a lease so many are remembered", n)
	}
	for _, said := range req.Makers[:req.Count] {
		cl.makers = append(cl.makers, makerOf(statefile.Maker(said)))
	}
	if req.Flags&ipc.ObjectsMore == 0 {
		streams, contexts := d.arb.Objects(d.now(), l.ID, cl.makers)
		cl.makersOf, cl.makers = nil, nil
		faults.At("resume.objects")
		l.Record.SetObjects(uint32(streams), uint32(contexts))
		d.keepMakersLocked(l)
		d.arb.DelegateStreams(l.ID)
		l.Hide()
	}
	return rep, nil
}
