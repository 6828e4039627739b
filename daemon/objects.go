package daemon

import (
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/faults"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
	"github.com/gpuarb/gpuarb/statefile"
)

// stream takes streams or gives them back.
func (cl *client) stream(h ipc.Header, req ipc.StreamRequest) error {
	r := arbiter.Request{What: arbiter.WantsStreams, Count: int(req.Count), Thread: req.Thread}
	return cl.ask(h, req.Slot, req.Flags, r)
}

// context asks for contexts before they are made, or tells that they are gone.
func (cl *client) context(h ipc.Header, req ipc.ContextRequest) error {
	r := arbiter.Request{What: arbiter.WantsContexts, Count: int(req.Count), Thread: req.Thread, Noticed: req.Flags&ipc.FlagNoticed != 0}
	if req.Flags&ipc.FlagHold != 0 {
		r.What = arbiter.WantsHolds
	}
	return cl.ask(h, req.Slot, req.Flags, r)
}

// objects counts what a client that was taken up says its threads have made and hold.
func (cl *client) objects(req *ipc.ObjectsRequest) (rep ipc.Empty, err error) {
	d := cl.d
	d.lock()
	defer d.unlock()
	cl.applyLocked()
	l, err := cl.leaseLocked(req.Slot)
	if err != nil {
		return rep, err
	}
	if cl.makersOf != l {
		cl.makersOf, cl.makers = l, nil
	}
	if n := len(cl.makers) + int(req.Count); n > arbiter.MaxThreads+ipc.ObjectsMakers { // before they take memory here
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
		d.arb.LendStreams(l.ID)
		l.Hide()
	}
	return rep, nil
}

// keepObjectsLocked writes down how many there are after a request; bytes were written down as they were granted.
func (d *Daemon) keepObjectsLocked(l *shim.Lease, what arbiter.What, out arbiter.Result) {
	if what != arbiter.WantsBytes { // with what is written down by then
		defer d.arb.LendStreams(l.ID)
	}
	switch {
	case l.Record == nil || !out.Granted || what == arbiter.WantsBytes:
		return
	case what == arbiter.WantsStreams:
		l.Record.SetObjects(uint32(out.Current), l.Record.Contexts)
	default:
		l.Record.SetObjects(l.Record.Streams, uint32(out.Current))
	}
	d.keepMakersLocked(l)
}

// keepMakersLocked writes down which threads hold a lease's objects, where slots are theirs: of
// those for which that has changed.
func (d *Daemon) keepMakersLocked(l *shim.Lease) {
	for _, m := range d.arb.Makers(l.ID) {
		now := statefile.Maker{Thread: m.Thread, Contexts: uint32(m.Contexts), Streams: uint32(m.Streams), Holds: uint32(m.Holds)}
		none := now == statefile.Maker{Thread: m.Thread}
		row, known := d.threadRows[l.Index][m.Thread]
		switch {
		case !known && !none:
			d.newThreadLocked(l, now)
		case known && none:
			d.file.Threads.Free(row)
			delete(d.threadRows[l.Index], m.Thread)
		case known:
			d.file.Threads.At(row).Maker = now
		}
	}
}

// newThreadLocked takes a row for a thread of a lease.
func (d *Daemon) newThreadLocked(l *shim.Lease, m statefile.Maker) {
	row, r, err := d.file.Threads.New()
	if err != nil {
		return // the arbiter remembers no more of them than there are rows
	}
	*r = statefile.Thread{Lease: uint32(l.Index), Maker: m}
	d.file.Threads.Commit(row)
	d.knownThreadLocked(l.Index, m.Thread, row)
}

// knownThreadLocked enters a thread's row where it is looked for.
func (d *Daemon) knownThreadLocked(index int, thread uint32, row int) {
	if d.threadRows[index] == nil {
		d.threadRows[index] = map[uint32]int{}
	}
	d.threadRows[index][thread] = row
}

// forgetThreadsLocked drops the rows of a lease.
func (d *Daemon) forgetThreadsLocked(index int) {
	for _, row := range d.threadRows[index] {
		d.file.Threads.Free(row)
	}
	delete(d.threadRows, index)
}

// makerOf is a thread that a client, or a record, tells of.
func makerOf(m statefile.Maker) arbiter.Maker {
	return arbiter.Maker{Thread: m.Thread, Contexts: int(min(m.Contexts, maxClaimed)),
		Streams: int(min(m.Streams, maxClaimed)), Holds: int(min(m.Holds, maxClaimed))}
}

// makersOfLocked reads what keepMakersLocked wrote; nil: nothing.
func (d *Daemon) makersOfLocked(index int) (makers []arbiter.Maker) {
	for _, row := range d.threadRows[index] {
		makers = append(makers, makerOf(d.file.Threads.At(row).Maker))
	}
	return makers
}
