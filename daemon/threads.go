package daemon

// This file records how many streams and contexts a lease has, and which threads hold them. admit.go counts objects;
// recover.go reads the rows.

import (
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/shim"
)

// keepObjectsLocked records the numbers of streams and contexts after a request. Bytes were recorded when they were
// granted.
func (d *Daemon) keepObjectsLocked(l *shim.Lease, what arbiter.RequestKind, out arbiter.Result) {
	if what != arbiter.WantsBytes { // runs after the record is written
		defer d.arb.DelegateStreams(l.ID)
	}
	switch {
	case l.Record == nil || !out.Granted || what == arbiter.WantsBytes:
		return
	case what == arbiter.WantsStreams:
		l.Record.SetObjects(uint32(out.Current), l.Record.Contexts)
	default:
		l.Record.SetObjects(l.Record.Streams, uint32(out.Current))
		d.readSoon(l.Device)
	}
	d.keepMakersLocked(l)
}

// makerOf converts a thread in a message or record for the arbiter.
func makerOf(m statefile.Maker) arbiter.Maker {
	return arbiter.Maker{Thread: m.Thread, Contexts: int(min(m.Contexts, maxClaimed)),
		Streams: int(min(m.Streams, maxClaimed)), Holds: int(min(m.Holds, maxClaimed))}
}

// keepMakersLocked records which threads hold a lease's objects, if slots belong to threads. It writes only rows that
// have changed.
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

// newThreadLocked allocates a row for a thread of a lease.
func (d *Daemon) newThreadLocked(l *shim.Lease, m statefile.Maker) {
	row, r, err := d.file.Threads.New()
	if err != nil {
		return // the arbiter remembers at most as many threads as there are rows
	}
	*r = statefile.Thread{Lease: uint32(l.Index), Maker: m}
	d.file.Threads.Commit(row)
	d.indexThreadLocked(l.Index, m.Thread, row)
}

// indexThreadLocked adds a thread's row to the index.
func (d *Daemon) indexThreadLocked(index int, thread uint32, row int) {
	if d.threadRows[index] == nil {
		d.threadRows[index] = map[uint32]int{}
	}
	d.threadRows[index][thread] = row
}

// forgetThreadsLocked frees the rows of a lease.
func (d *Daemon) forgetThreadsLocked(index int) {
	for _, row := range d.threadRows[index] {
		d.file.Threads.Free(row)
	}
	delete(d.threadRows, index)
}

// makersOfLocked reads what keepMakersLocked wrote; nil: nothing.
func (d *Daemon) makersOfLocked(index int) (makers []arbiter.Maker) {
	for _, row := range d.threadRows[index] {
		makers = append(makers, makerOf(d.file.Threads.At(row).Maker))
	}
	return makers
}
