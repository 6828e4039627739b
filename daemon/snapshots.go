package daemon

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/daemon/fair"
	"github.com/gpuarb/gpuarb/ipc"
)

const (
	// snapshotTimeout is how long a client may take to read a snapshot.
	snapshotTimeout = 10 * time.Second
	// readersPerUser is how many of a user's clients are sent one at the same time:
	// each slow reader may keep a text of its own in memory.
	readersPerUser = 32
)

// snapshots makes the state, and the texts of it that clients ask for.
type snapshots struct {
	states fair.Paced[accounting.Snapshot]
	texts  fair.Paced[text]

	mu      sync.Mutex
	readers map[uint32]chan struct{} // by user: a token for each that is sent one
}

type text struct {
	json []byte
	err  error
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
	made := cl.d.texts.texts.Get(func() (t text) {
		t.json, t.err = json.Marshal(cl.d.snapshot())
		return t
	})
	if made.err != nil {
		return made.err
	}
	return cl.conn.ReplySnapshot(m.Header, made.json, snapshotTimeout)
}
