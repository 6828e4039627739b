package statefile

import (
	"iter"
	"sync/atomic"
)

// Answers are the requests of a session that were answered lately: the last of them in the
// session's record, those before them in the annex. As many as a process may have waiting
// can be decided in one moment, and die with the daemon before one reply is sent.
type Answers struct {
	record *Session
	older  *Older // nil: none
}

// Answers are those of a session, whose record has its token already.
func (f *File) Answers(session int) Answers {
	return Answers{record: f.Sessions.At(session), older: f.Older(session)}
}

// remember takes the place of the oldest in the record, which goes into the annex.
func (s Answers) remember(a Answered) {
	last := &s.record.Ring[s.record.RingNext%ringSize]
	if s.older != nil && last.Request != 0 {
		s.older.Next++
		s.older.Ring[(s.older.Next-1)%olderSize].set(*last)
	}
	// The count comes first: an entry that a dying daemon has just completed is not the next
	// one's first to overwrite.
	s.record.RingNext++
	last.set(a)
}

// set writes an entry so that a daemon killed in the middle of it leaves none: without its
// number it is nobody's.
func (a *Answered) set(to Answered) {
	atomic.StoreUint64(&a.Request, 0)
	atomic.StoreUint64(&a.Bytes, to.Bytes)
	atomic.StoreUint32(&a.Lease, to.Lease)
	atomic.StoreUint32(&a.Kind, to.Kind)
	atomic.StoreUint64(&a.Request, to.Request)
}

// complete remembers what the last daemon had announced, where it had not come to that. An
// entry with its number and other figures was written by halves.
func (s Answers) complete(a Answered) {
	for was := range s.of(a.Request) {
		if *was == a {
			if was == &s.record.Ring[s.record.RingNext%ringSize] { // all that lacks is that it was counted
				s.record.RingNext++
			}
			return
		}
	}
	s.Forget(a.Request)
	s.remember(a)
}

// all yields every entry.
func (s Answers) all() iter.Seq[*Answered] {
	return func(yield func(*Answered) bool) {
		for i := range s.record.Ring {
			if !yield(&s.record.Ring[i]) {
				return
			}
		}
		for i := 0; s.older != nil && i < len(s.older.Ring); i++ {
			if !yield(&s.older.Ring[i]) {
				return
			}
		}
	}
}

// of yields the entries of a request.
func (s Answers) of(request uint64) iter.Seq[*Answered] {
	return func(yield func(*Answered) bool) {
		for a := range s.all() {
			if request != 0 && a.Request == request && !yield(a) {
				return
			}
		}
	}
}

// Granted looks up a grant whose answer may have been lost.
func (s Answers) Granted(request uint64) (Answered, bool) {
	for a := range s.of(request) {
		if a.Kind == AnsweredGrant {
			return *a, true
		}
	}
	return Answered{}, false
}

// Streamed says whether a request for streams of a lease was carried out before the
// session was taken up again.
func (s Answers) Streamed(request uint64, lease int) bool {
	return s.has(request, uint32(lease), AnsweredBefore)
}

// Contexted says the same of a request for contexts.
func (s Answers) Contexted(request uint64, lease int) bool {
	return s.has(request, uint32(lease), AnsweredContextsBefore)
}

func (s Answers) has(request uint64, lease, kind uint32) bool {
	for a := range s.of(request) {
		if a.Lease == lease && a.Kind == kind {
			return true
		}
	}
	return false
}

// Forget is for a request that was carried out and is to be taken back, because nobody
// heard the answer: asked again, it is new. False: it is not known any more. Whoever calls
// it knows that the session was not taken up again since, which would have settled it.
func (s Answers) Forget(request uint64) (known bool) {
	for a := range s.of(request) {
		a.set(Answered{})
		known = true
	}
	return known
}

// Resumed is for a session that is taken up again. What was granted and did not
// arrive has been settled then in another way, and is forgotten: when it is asked for
// again, that is new. Requests for streams can come again.
func (s Answers) Resumed() {
	for a := range s.all() {
		switch a.Kind {
		case AnsweredStreams:
			a.Kind = AnsweredBefore
		case AnsweredContexts:
			a.Kind = AnsweredContextsBefore
		case AnsweredGrant:
			a.set(Answered{})
		}
	}
}
