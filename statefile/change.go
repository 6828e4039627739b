package statefile

import (
	"bytes"
	"sync/atomic"

	"github.com/gpuarb/gpuarb/faults"
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
	case ChangeGrant:
		faults.At("grant.granted")
	case ChangeFlag:
		faults.At("flag.granted")
	}
	atomic.StoreUint32(&l.Open, ChangeNone)
}

// Grant writes down that bytes went to the thread whose request this is. The
// announcement makes the two stores one: a daemon killed between them leaves an
// open change, which Recover finishes.
func (l *Lease) Grant(s Answers, index int, request, bytes, after uint64) {
	l.Request, l.Bytes, l.After = request, bytes, after
	atomic.StoreUint32(&l.Open, ChangeGrant)
	faults.At("grant.announced")
	s.remember(Answered{Request: request, Bytes: bytes, Lease: uint32(index)})
	faults.At("grant.remembered")
	l.Finish()
}

// SetStreams writes down how many streams there are after a request, in the same way.
func (l *Lease) SetStreams(s Answers, index int, request uint64, after uint32) {
	l.Request, l.After = request, uint64(after)
	atomic.StoreUint32(&l.Open, ChangeStreams)
	faults.At("streams.announced")
	s.remember(Answered{Request: request, Lease: uint32(index), Kind: AnsweredStreams})
	faults.At("streams.remembered")
	l.finishStreams()
}

func (l *Lease) finishStreams() {
	atomic.StoreUint32(&l.Streams, uint32(l.After))
	faults.At("streams.counted")
	atomic.StoreUint32(&l.Open, ChangeNone)
}

// SetContexts writes down how many contexts there are after a request, likewise.
func (l *Lease) SetContexts(s Answers, index int, request uint64, after uint32) {
	l.Request, l.After = request, uint64(after)
	atomic.StoreUint32(&l.Open, ChangeContexts)
	faults.At("contexts.announced")
	s.remember(Answered{Request: request, Lease: uint32(index), Kind: AnsweredContexts})
	faults.At("contexts.remembered")
	l.finishContexts()
}

func (l *Lease) finishContexts() {
	atomic.StoreUint32(&l.Contexts, uint32(l.After))
	faults.At("contexts.counted")
	atomic.StoreUint32(&l.Open, ChangeNone)
}

// Recover finishes or undoes the one open change that a killed daemon left.
// epoch is the epoch of the word as the page shows it; pageKnown is false when
// the page is lost, and the announced sum that is larger is kept then: too much
// is safe, too little is not.
func (l *Lease) Recover(s Answers, index int, epoch uint16, pageKnown bool) {
	switch kind := atomic.LoadUint32(&l.Open); {
	case kind == ChangeNone:
	case kind == ChangeGrant:
		s.complete(Answered{Request: l.Request, Bytes: l.Bytes, Lease: uint32(index)})
		l.Finish()
	case kind == ChangeStreams:
		s.complete(Answered{Request: l.Request, Lease: uint32(index), Kind: AnsweredStreams})
		l.finishStreams()
	case kind == ChangeContexts:
		s.complete(Answered{Request: l.Request, Lease: uint32(index), Kind: AnsweredContexts})
		l.finishContexts()
	case pageKnown && uint32(epoch) == l.Epoch, !pageKnown && l.After > l.Granted:
		l.Finish()
	default:
		atomic.StoreUint32(&l.Open, ChangeNone)
	}
}

// SetText stores s in a record's text field, cut to fit.
func SetText(field *[textSize]byte, s string) {
	*field = [textSize]byte{}
	copy(field[:textSize-1], s)
}

// SetTexts stores two texts in one field: the second behind the NUL of the first, where a daemon
// that knows of one alone does not look. It is the first that is cut to fit.
func SetTexts(field *[textSize]byte, s, second string) {
	SetText(field, s)
	if second == "" || len(second) > textSize-2 {
		return
	}
	end := min(len(TextOf(field)), textSize-2-len(second))
	clear(field[end:])
	copy(field[end+1:], second)
}

// SecondOf reads the second text of such a field.
func SecondOf(field *[textSize]byte) string {
	_, rest, _ := bytes.Cut(field[:], []byte{0})
	second, _, _ := bytes.Cut(rest, []byte{0})
	return string(second)
}

// TextOf reads a record's text field.
func TextOf(field *[textSize]byte) string {
	for i, c := range field {
		if c == 0 {
			return string(field[:i])
		}
	}
	return string(field[:])
}
