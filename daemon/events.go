package daemon

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/gpuarb/gpuarb/ipc"
)

// followersPerUser is how many of a user's clients may read the event history at the same time:
// each costs a goroutine and a message of 64 KiB.
const followersPerUser = 64

// followers counts the clients that read events, by user.
type followers struct {
	mu sync.Mutex
	of map[uint32]int
}

// enter counts one more client of a user; false: the user has too many.
func (f *followers) enter(uid uint32) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of[uid] >= followersPerUser {
		return false
	}
	if f.of == nil {
		f.of = map[uint32]int{}
	}
	f.of[uid]++
	return true
}

func (f *followers) leave(uid uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of[uid]--; f.of[uid] == 0 {
		delete(f.of, uid)
	}
}

// eventStream sends the event history to one client, from the offset it asked for, in a goroutine of its own beside the
// connection's: a client that does not read delays nobody else, and the end of its connection is still noticed.
type eventStream struct {
	history *history
	conn    *ipc.Conn
	head    ipc.Header
	at      int64
	lines   []byte // what is being sent: no more than one message
	follows bool
	cancel  context.CancelFunc
	ended   chan struct{}
	over    atomic.Bool // the last part is sent, or about to be
}

// events answers with the event history.
func (cl *client) events(m ipc.Message) error {
	var r ipc.EventsRequest
	if err := ipc.Unmarshal(m.Body, &r); err != nil {
		return err
	}
	d, uid := cl.d, cl.conn.Peer().UID
	if !d.followers.enter(uid) {
		return refused(ipc.StatusTooMany, "%d clients of user %d are reading the event history already: end one of them", followersPerUser, uid)
	}
	ctx, cancel := context.WithCancel(d.ctx)
	s := &eventStream{history: d.history, conn: cl.conn, head: m.Header, at: d.history.offset(&r), follows: r.Flags&ipc.EventsFollow != 0,
		cancel: cancel, ended: make(chan struct{})}
	cl.feed = s
	d.wg.Go(func() {
		defer close(s.ended)
		defer d.followers.leave(uid)
		s.run(ctx)
	})
	return nil
}

// streaming says whether a request for events of this connection goes on.
func (cl *client) streaming() bool { return cl.feed != nil && !cl.feed.over.Load() }

// endStream ends the stream, if there is one, and waits until it has ended.
func (cl *client) endStream() {
	if cl.feed != nil {
		cl.feed.cancel()
		<-cl.feed.ended
		cl.feed = nil
	}
}

// offset is where a request begins to read.
func (h *history) offset(r *ipc.EventsRequest) int64 {
	size, _ := h.Size()
	switch {
	case r.Offset == ipc.NoLimit:
		return size
	case r.Daemon != h.id || r.Offset > uint64(size):
		return 0
	}
	return int64(r.Offset)
}

// run sends the lines that are kept and, if the client follows, new ones until the stream is ended. If the connection fails, it is closed.
func (s *eventStream) run(ctx context.Context) {
	s.lines = make([]byte, 0, ipc.EventsRoom)
	if s.follows {
		defer s.history.follow()()
	}
	s.history.write()
	for ctx.Err() == nil {
		size, _ := s.history.log.Size()
		if s.at >= size {
			if !s.follows {
				break
			}
			select {
			case <-s.history.log.Grown(s.at):
			case <-ctx.Done():
			}
			continue
		}
		s.lines, s.at = s.history.log.Lines(s.lines[:0], s.history.now(), s.at)
		if s.part(0) != nil {
			return
		}
	}
	s.lines = nil
	s.over.Store(true)
	_ = s.part(1)
}

// part sends the lines that are at hand.
func (s *eventStream) part(last uint32) error {
	return s.conn.ReplyEvents(s.head, ipc.EventsPart{Daemon: s.history.id, Next: uint64(s.at), Last: last}, s.lines)
}
