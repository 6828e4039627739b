package statefile

// This file writes changes of a lease into its record, so that the next daemon can finish one or take it back if this daemon dies in between.
// doc.go has the order.

import (
	"sync/atomic"

	"github.com/gpuarb/gpuarb/internal/faults"
)

// Announce writes down a change of this lease's credit word before it is made:
// the epoch that the word will carry and what is granted once it does.
func (l *Lease) Announce(kind uint32, epoch uint16, after uint64) {
	l.Epoch = uint32(epoch)
	l.After = after
	atomic.StoreUint32(&l.Open, kind)
	switch kind {
	case ChangeTake:
		faults.At("take.announced")
	case ChangeGive:
		faults.At("give.announced")
	case ChangeFlag:
		faults.At("flag.announced")
	}
}

// Finish makes the announced change true and closes it.
func (l *Lease) Finish() {
	atomic.StoreUint64(&l.Granted, l.After)
	switch l.Open {
	case ChangeTake:
		faults.At("take.granted")
	case ChangeGive:
		faults.At("give.granted")
	case ChangeFlag:
		faults.At("flag.granted")
	}
	atomic.StoreUint32(&l.Open, ChangeNone)
}

// Withdraw closes an announced change that was not made.
func (l *Lease) Withdraw() { atomic.StoreUint32(&l.Open, ChangeNone) }

// Grant writes down that bytes went to a thread, and what is granted in all. A client that never
// hears of it says so when it resumes.
func (l *Lease) Grant(after uint64) {
	atomic.StoreUint64(&l.Granted, after)
	faults.At("grant.granted")
}

// SetObjects writes down how many streams and contexts there are, likewise.
func (l *Lease) SetObjects(streams, contexts uint32) {
	atomic.StoreUint32(&l.Streams, streams)
	faults.At("objects.counted")
	atomic.StoreUint32(&l.Contexts, contexts)
}

// Recover finishes or undoes the one open change that a killed daemon left.
// epoch is the epoch of the word as the page shows it; pageKnown is false when
// the page is lost, and the announced sum that is larger is kept then: too much
// is safe, too little is not.
func (l *Lease) Recover(epoch uint16, pageKnown bool) {
	switch kind := atomic.LoadUint32(&l.Open); {
	case kind == ChangeNone:
	case pageKnown && uint32(epoch) == l.Epoch, !pageKnown && l.After > l.Granted:
		l.Finish()
	}
	l.Withdraw()
}
