package daemon

import (
	"slices"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/faults"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/statefile"
)

// context asks for contexts before they are made, or tells that they are gone.
func (cl *client) context(m ipc.Message) error {
	var req ipc.ContextRequest
	if err := ipc.Unmarshal(m.Body, &req); err != nil {
		return err
	}
	d, h := cl.d, m.Header
	var place arbiter.Place
	if req.Count > 0 && req.Flags&ipc.FlagNoticed == 0 {
		place = cl.comesAgain(h, req.Flags&ipc.FlagRetry != 0)
	}
	d.mu.Lock()
	l, err := cl.s.lease(req.Slot)
	if err != nil {
		d.mu.Unlock()
		return err
	}
	r := arbiter.ContextRequest{Lease: l.id, Count: int(req.Count), Thread: req.Thread,
		NoWait: req.Flags&ipc.FlagNoWait != 0, Noticed: req.Flags&ipc.FlagNoticed != 0,
		Hold: req.Flags&ipc.FlagHold != 0, Place: place}
	out := d.contexts(cl.s, l, h.Request, r)
	faults.At("contexts.decided")
	taken := cl.s.taken
	undo := func() { d.uncount(cl.s, taken, l, h.Request, r) }
	switch {
	case out.Granted && r.Count > 0 && !r.Noticed: // what is only noticed is there, whoever reads that
		cl.gave(h, undo)
	case out.Waiting != 0:
		d.park(cl, h, out.Waiting, func(dec arbiter.Decision) verdict {
			d.keepContexts(cl.s, l, h.Request, *dec.Context)
			return verdictOf(dec.Context.Granted, undo, func() error { return cl.replyContext(h, *dec.Context) })
		})
	}
	if cl.leave(h, out.Waiting) {
		return cl.tellFirst()
	}
	return cl.replyContext(h, out)
}

// replyContext tells what became of a request for contexts.
func (cl *client) replyContext(h ipc.Header, out arbiter.ContextOutcome) error {
	faults.At("contexts.drained")
	rep := ipc.ContextReply{Current: uint32(out.Current)}
	if out.Granted {
		return ipc.Reply(cl.conn, h, ipc.StatusOK, &rep, -1)
	}
	rep.Requested, rep.Remaining = uint64(out.Requested), uint64(out.Remaining)
	if out.First || isBound(out.Reason) {
		rep.Text = ipc.MakeText(out.Explain)
	}
	return replyRefusal(cl, h, out.Reason, out.Explain, &rep)
}

// contexts carries a request for contexts out, once, as streams does. The lock is held.
func (d *Daemon) contexts(s *session, l leaseRef, request uint64, r arbiter.ContextRequest) arbiter.ContextOutcome {
	if record, index := d.words.Record(l.id); record != nil && s.answers.Contexted(request, index) {
		d.toldAgain(s, request)
		return arbiter.ContextOutcome{Granted: true, Current: int(record.Contexts)}
	}
	now := d.now()
	d.threads(now, s)
	out := d.arb.Context(now, r)
	d.keepContexts(s, l, request, out)
	return out
}

// keepContexts writes down how many contexts there are after a request. The lock is held.
func (d *Daemon) keepContexts(s *session, l leaseRef, request uint64, out arbiter.ContextOutcome) {
	if record, index := d.words.Record(l.id); record != nil && out.Granted {
		record.SetContexts(s.answers, index, request, uint32(out.Current))
		d.keepMakers(l, record)
	}
}

// uncount takes contexts back that were granted to somebody who was not there any more.
// The lock is held.
func (d *Daemon) uncount(s *session, taken int, l leaseRef, request uint64, r arbiter.ContextRequest) {
	if s.untold(request, taken) {
		r.Count, r.Place = -r.Count, arbiter.Place{}
		d.keepContexts(s, l, 0, d.arb.Context(d.now(), r))
	}
}

// keepMakers writes down which threads hold a lease's objects, where slots are theirs: of
// those for which that has changed. The first few lie in the lease's record, the others in
// rows of their own. The lock is held.
func (d *Daemon) keepMakers(l leaseRef, record *statefile.Lease) {
	_, index := d.words.Record(l.id)
	for _, m := range d.arb.Makers(l.id) {
		now := statefile.Maker{Thread: m.Thread, Contexts: uint32(m.Contexts), Streams: uint32(m.Streams), Holds: uint32(m.Holds)}
		if now == (statefile.Maker{Thread: m.Thread}) {
			now = statefile.Maker{}
		}
		at := slices.IndexFunc(record.Makers[:], func(x statefile.Maker) bool { return x != (statefile.Maker{}) && x.Thread == m.Thread })
		row, has := d.threadRows[index][m.Thread]
		if at < 0 && !has {
			at = slices.Index(record.Makers[:], statefile.Maker{})
		}
		switch {
		case at >= 0:
			record.Makers[at] = now
		case !has:
			d.newThread(index, record, now)
		case now == (statefile.Maker{}):
			d.file.Threads.Free(row)
			delete(d.threadRows[index], m.Thread)
		default:
			d.file.Threads.At(row).Maker = now
		}
	}
}

// newThread takes a row for a thread of a lease. The lock is held.
func (d *Daemon) newThread(index int, record *statefile.Lease, m statefile.Maker) {
	if m == (statefile.Maker{}) {
		return
	}
	row, r, err := d.file.Threads.New()
	if err != nil {
		return // the arbiter remembers no more of them than there are rows
	}
	*r = statefile.Thread{Lease: uint32(index), OpenedAt: record.OpenedAt, Maker: m}
	d.file.Threads.Commit(row)
	d.knownThread(index, m.Thread, row)
}

// knownThread enters a thread's row where it is looked for. The lock is held.
func (d *Daemon) knownThread(index int, thread uint32, row int) {
	if d.threadRows[index] == nil {
		d.threadRows[index] = map[uint32]int{}
	}
	d.threadRows[index][thread] = row
}

// forgetThreads drops the rows of a lease. The lock is held.
func (d *Daemon) forgetThreads(index int) {
	for _, row := range d.threadRows[index] {
		d.file.Threads.Free(row)
	}
	delete(d.threadRows, index)
}

// makersOf reads what keepMakers wrote; nil: nothing. Rows that do not add up to what the
// lease has are not believed: a daemon that does not know of them ran in between. The lock
// is held.
func (d *Daemon) makersOf(index int, record *statefile.Lease) (makers []arbiter.Maker) {
	var contexts, streams int
	add := func(m statefile.Maker) {
		to := arbiter.Maker{Thread: m.Thread, Contexts: int(min(m.Contexts, maxClaimed)),
			Streams: int(min(m.Streams, maxClaimed)), Holds: int(min(m.Holds, maxClaimed))}
		contexts, streams = contexts+to.Contexts, streams+to.Streams
		makers = append(makers, to)
	}
	for _, m := range record.Makers {
		if m != (statefile.Maker{}) {
			add(m)
		}
	}
	own := len(makers)
	for _, row := range d.threadRows[index] {
		add(d.file.Threads.At(row).Maker)
	}
	if len(makers) > own && (contexts != int(record.Contexts) || streams != int(record.Streams)) {
		d.forgetThreads(index)
		makers = makers[:own]
	}
	return makers
}
