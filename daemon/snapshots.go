package daemon

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/gpuarb/gpuarb/ipc"
)

const (
	// snapshotTimeout is how long a client may take to read a snapshot.
	snapshotTimeout = 10 * time.Second
	// readersPerUser is how many of a user's clients are sent one at the same time:
	// each slow reader may keep a text of its own in memory.
	readersPerUser = 32
)

// snapshots makes the texts that clients ask for, one at a time: who asks while
// another waits for his turn gets the same text, which is made after both have asked.
type snapshots struct {
	turn sync.Mutex // held by whoever makes a text; taken before mu

	mu      sync.Mutex
	pending *flight                  // waits for its turn; nil: none does
	readers map[uint32]chan struct{} // by user: a token for each that is sent one
}

// flight is a text for everybody who asked before it was made.
type flight struct {
	done chan struct{}
	text []byte
	err  error
}

// text returns a text that is made after it was asked for.
func (s *snapshots) text(marshal func() ([]byte, error)) ([]byte, error) {
	s.mu.Lock()
	if f := s.pending; f != nil {
		s.mu.Unlock()
		<-f.done
		return f.text, f.err
	}
	f := &flight{done: make(chan struct{})}
	s.pending = f
	s.mu.Unlock()

	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	s.pending = nil
	s.mu.Unlock()
	defer close(f.done)
	f.text, f.err = marshal()
	return f.text, f.err
}

// enter waits for a place among a user's readers; false: none came free in time.
func (s *snapshots) enter(uid uint32) (leave func(), ok bool) {
	s.mu.Lock()
	if s.readers == nil {
		s.readers = map[uint32]chan struct{}{}
	}
	places := s.readers[uid]
	if places == nil {
		places = make(chan struct{}, readersPerUser)
		s.readers[uid] = places
	}
	s.mu.Unlock()
	late := time.NewTimer(snapshotTimeout)
	defer late.Stop()
	select {
	case places <- struct{}{}:
		return func() { <-places }, true
	case <-late.C:
		return nil, false
	}
}

// snapshot answers with the whole state as JSON.
func (cl *client) snapshot(m ipc.Message) error {
	uid := uint32(cl.conn.Peer().UID)
	leave, ok := cl.d.texts.enter(uid)
	if !ok {
		return refused(ipc.StatusTooMany, "%d clients of user %d are reading snapshots, and do not come to an end", readersPerUser, uid)
	}
	defer leave()
	text, err := cl.d.texts.text(func() ([]byte, error) { return json.Marshal(cl.d.Snapshot()) })
	if err != nil {
		return err
	}
	return cl.conn.ReplySnapshot(m.Header, text, snapshotTimeout)
}
