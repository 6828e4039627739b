package statefile

// This file writes changes of a lease to its record, so that the next daemon can finish or withdraw a change if this
// daemon dies in between. doc.go has the order; package shim calls it.

import (
	"sync/atomic"

	"github.com/gpuarb/gpuarb/internal/faults"
)

// Announce records a change of the lease's credit word before it is made: the epoch that the word will have, and the
// bytes that are granted afterwards. It stores the kind last, so that an incomplete announcement does not count.
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

// Finish applies the announced change to the record and closes it.
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

// Grant records the sum of granted bytes after a grant to a thread. If the client never reads the reply, it reports a
// lower sum when it resumes.
func (l *Lease) Grant(after uint64) {
	atomic.StoreUint64(&l.Granted, after)
	faults.At("grant.granted")
}

// SetObjects records the numbers of streams and contexts. The client corrects them when it resumes.
func (l *Lease) SetObjects(streams, contexts uint32) {
	atomic.StoreUint32(&l.Streams, streams)
	faults.At("objects.counted")
	atomic.StoreUint32(&l.Contexts, contexts)
}

// Recover finishes or withdraws the change that a killed daemon left open. epoch is the epoch of the word on the
// page. If the page is lost, pageKnown is false, and the larger sum is kept: too much is safe, too little is not.
func (l *Lease) Recover(epoch uint16, pageKnown bool) {
	switch kind := atomic.LoadUint32(&l.Open); {
	case kind == ChangeNone:
	case pageKnown && uint32(epoch) == l.Epoch, !pageKnown && l.After > l.Granted:
		l.Finish()
	}
	l.Withdraw()
}
