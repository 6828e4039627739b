package statefile

import "sync/atomic"

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
	s.remember(index, request, bytes)
	l.Finish()
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
			s.remember(index, l.Request, l.Bytes)
		}
		l.Finish()
	case pageKnown && uint32(epoch) == l.Epoch, !pageKnown && l.After > l.Granted:
		l.Finish()
	default:
		atomic.StoreUint32(&l.Open, ChangeNone)
	}
}

func (s *Session) remember(lease int, request, bytes uint64) {
	s.Ring[s.RingNext%ringSize] = Answered{Request: request, Bytes: bytes, Lease: uint32(lease)}
	s.RingNext++
}

// Answered looks up a request whose answer may have been lost.
func (s *Session) Answered(request uint64) (Answered, bool) {
	for _, a := range s.Ring {
		if a.Request == request && request != 0 {
			return a, true
		}
	}
	return Answered{}, false
}

// ForgetGrants forgets the answered requests: what they granted has been settled in
// another way, and one of them that comes again is new.
func (s *Session) ForgetGrants() { s.Ring = [ringSize]Answered{} }

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
