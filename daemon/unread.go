package daemon

import "github.com/gpuarb/gpuarb/ipc"

// grant is what the last reply on a connection gave, for as long as the client is not known
// to have read it. A client that goes without that counts nothing for it.
type grant struct {
	request uint64
	undo    func() // takes it back; nil: it is bytes. The daemon's lock is held
	bytes   givenBytes
}

// gave notes what a reply that is about to be sent gives. The lock is held.
func (cl *client) gave(h ipc.Header, undo func()) {
	cl.last = grant{request: h.Request, undo: undo}
	cl.unread.Store(&cl.last)
}

// gaveBytes is gave for bytes, which are asked for so often that it allocates nothing.
func (cl *client) gaveBytes(h ipc.Header, b givenBytes) {
	cl.last = grant{request: h.Request, bytes: b}
	cl.unread.Store(&cl.last)
}

// takeBack undoes, once, what a reply gave that was not read. The lock is held.
func (cl *client) takeBack() {
	g := cl.unread.Swap(nil)
	switch {
	case g == nil:
		return
	case g.undo != nil:
		g.undo()
	default:
		cl.d.giveBack(g.request, g.bytes)
	}
	cl.d.drainEvents()
}

// unsent is for a reply that could not be sent.
func (cl *client) unsent() {
	cl.d.mu.Lock()
	defer cl.d.mu.Unlock()
	if !cl.d.stopping {
		cl.takeBack()
	}
}

// toldAgain is for a request that came again after its answer was lost, and has it now: what
// the lost answer gave stays given, whenever the end of its connection is seen. The lock is held.
func (d *Daemon) toldAgain(s *session, request uint64) {
	for c := range s.conns {
		d.conns[c].hasRead(request)
	}
}

// hasRead is for a client that has what a reply to this request gave.
func (cl *client) hasRead(request uint64) {
	if cl == nil {
		return
	}
	if g := cl.unread.Load(); g != nil && g.request == request {
		cl.unread.CompareAndSwap(g, nil)
	}
}

// untold tells whether what a request of a session was given can be taken back: not when
// the session was taken up again since, by taken, because its own sums have settled it then.
// Asked again, the request is new. The lock is held.
func (s *session) untold(request uint64, taken int) bool {
	if s.dead || s.taken != taken {
		return false
	}
	s.answers.Forget(request)
	return true
}
