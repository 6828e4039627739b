package statefile

import (
	"slices"
	"sync/atomic"
)

// Announce writes down a change of this lease's credit word before it is made:
// the epoch that the word will carry and what is granted once it does.
func (l *Lease) Announce(kind uint32, epoch uint16, after uint64) {
	l.Epoch = uint32(epoch)
	l.After = after
	atomic.StoreUint32(&l.Open, kind)
}

// Finish makes the announced change true and closes it.
func (l *Lease) Finish() {
	atomic.StoreUint64(&l.Granted, l.After)
	atomic.StoreUint32(&l.Open, ChangeNone)
}

// Grant writes down that bytes went to the thread whose request this is. The
// announcement makes the two stores one: a daemon killed between them leaves an
// open change, which Recover finishes.
func (l *Lease) Grant(s *Session, index int, request, bytes, after uint64) {
	l.Request, l.Bytes, l.After = request, bytes, after
	atomic.StoreUint32(&l.Open, ChangeGrant)
	s.remember(Answered{Request: request, Bytes: bytes, Lease: uint32(index)})
	l.Finish()
}

// SetStreams writes down how many streams there are after a request, in the same way.
func (l *Lease) SetStreams(s *Session, index int, request uint64, after uint32) {
	l.Request, l.After = request, uint64(after)
	atomic.StoreUint32(&l.Open, ChangeStreams)
	s.remember(Answered{Request: request, Lease: uint32(index), Kind: AnsweredStreams})
	l.finishStreams()
}

func (l *Lease) finishStreams() {
	atomic.StoreUint32(&l.Streams, uint32(l.After))
	atomic.StoreUint32(&l.Open, ChangeNone)
}

// SetContexts writes down how many contexts there are after a request, likewise.
func (l *Lease) SetContexts(s *Session, index int, request uint64, after uint32) {
	l.Request, l.After = request, uint64(after)
	atomic.StoreUint32(&l.Open, ChangeContexts)
	s.remember(Answered{Request: request, Lease: uint32(index), Kind: AnsweredContexts})
	l.finishContexts()
}

func (l *Lease) finishContexts() {
	atomic.StoreUint32(&l.Contexts, uint32(l.After))
	atomic.StoreUint32(&l.Open, ChangeNone)
}

// Recover finishes or undoes the one open change that a killed daemon left.
// epoch is the epoch of the word as the page shows it; pageKnown is false when
// the page is lost, and the announced sum that is larger is kept then: too much
// is safe, too little is not.
func (l *Lease) Recover(s *Session, index int, epoch uint16, pageKnown bool) {
	switch kind := atomic.LoadUint32(&l.Open); {
	case kind == ChangeNone:
	case kind == ChangeGrant:
		if _, ok := s.Answered(l.Request); !ok {
			s.remember(Answered{Request: l.Request, Bytes: l.Bytes, Lease: uint32(index)})
		}
		l.Finish()
	case kind == ChangeStreams:
		if !s.has(l.Request, uint32(index), AnsweredStreams) {
			s.remember(Answered{Request: l.Request, Lease: uint32(index), Kind: AnsweredStreams})
		}
		l.finishStreams()
	case kind == ChangeContexts:
		if !s.has(l.Request, uint32(index), AnsweredContexts) {
			s.remember(Answered{Request: l.Request, Lease: uint32(index), Kind: AnsweredContexts})
		}
		l.finishContexts()
	case pageKnown && uint32(epoch) == l.Epoch, !pageKnown && l.After > l.Granted:
		l.Finish()
	default:
		atomic.StoreUint32(&l.Open, ChangeNone)
	}
}

func (s *Session) remember(a Answered) {
	s.Ring[s.RingNext%ringSize] = a
	s.RingNext++
}

// Answered looks up a grant whose answer may have been lost.
func (s *Session) Answered(request uint64) (Answered, bool) {
	for _, a := range s.Ring {
		if a.Request == request && request != 0 && a.Kind == AnsweredGrant {
			return a, true
		}
	}
	return Answered{}, false
}

// Streamed says whether a request for streams of a lease was carried out before the
// session was taken up again.
func (s *Session) Streamed(request uint64, lease int) bool {
	return s.has(request, uint32(lease), AnsweredBefore)
}

// Contexted says the same of a request for contexts.
func (s *Session) Contexted(request uint64, lease int) bool {
	return s.has(request, uint32(lease), AnsweredContextsBefore)
}

// Forget is for a request that was carried out and is to be taken back, because nobody
// heard the answer: asked again, it is new. False: it is not known any more. Whoever calls
// it knows that the session was not taken up again since, which would have settled it.
func (s *Session) Forget(request uint64) bool {
	i := slices.IndexFunc(s.Ring[:], func(a Answered) bool { return request != 0 && a.Request == request })
	if i < 0 {
		return false
	}
	s.Ring[i] = Answered{}
	return true
}

func (s *Session) has(request uint64, lease, kind uint32) bool {
	return request != 0 && slices.ContainsFunc(s.Ring[:], func(a Answered) bool {
		return a.Request == request && a.Lease == lease && a.Kind == kind
	})
}

// Resumed is for a session that is taken up again. What was granted and did not
// arrive has been settled then in another way, and is forgotten: when it is asked for
// again, that is new. Requests for streams can come again.
func (s *Session) Resumed() {
	for i := range s.Ring {
		switch a := &s.Ring[i]; a.Kind {
		case AnsweredStreams:
			a.Kind = AnsweredBefore
		case AnsweredContexts:
			a.Kind = AnsweredContextsBefore
		case AnsweredGrant:
			*a = Answered{}
		}
	}
}

// SetText stores s in a record's text field, cut to fit.
func SetText(field *[textSize]byte, s string) {
	*field = [textSize]byte{}
	copy(field[:textSize-1], s)
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
