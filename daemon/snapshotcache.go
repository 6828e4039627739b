package daemon

// This file shares snapshots and texts between many readers, and limits the readers of each user. snapshots.go,
// metrics.go and events.go make the texts.

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpuarb/gpuarb/daemon/fair"
	"github.com/gpuarb/gpuarb/internal/figures"
)

const (
	// snapshotTimeout is how long a client may take to read a snapshot.
	snapshotTimeout = 10 * time.Second
	// readersPerUser is the number of a user's clients that are sent a snapshot at a time, because each slow reader
	// may keep its own text in memory.
	readersPerUser = 32
)

// followersPerUser is the number of a user's clients that may read the event history at a time. Each costs a
// goroutine and a message of 64 KiB.
const followersPerUser = 64

// snapshotCache makes snapshots of the state, and the texts of them that clients ask for.
type snapshotCache struct {
	states  fair.Paced[figures.Snapshot]
	leases  fair.Paced[figures.Snapshot]
	json    fair.Paced[text] // the whole state, as JSON
	metrics fair.Paced[text]

	mu      sync.Mutex
	readers map[uint32]*audience // audiences, by user
}

// audience is shared by all clients of one user that are sent snapshots or events.
type audience struct {
	places  chan struct{}    // one element for each client that is sent a snapshot
	follows chan struct{}    // one element for each client that is sent events
	texts   fair.Paced[text] // text for a user who may not see all command lines
}

// text is a text for clients, or the error of making it.
type text struct {
	bytes []byte
	err   error
}

// audienceOf returns the audience of a user.
func (s *snapshotCache) audienceOf(uid uint32) *audience {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers == nil {
		s.readers = map[uint32]*audience{}
	}
	r := s.readers[uid]
	if r == nil {
		r = &audience{places: make(chan struct{}, readersPerUser), follows: make(chan struct{}, followersPerUser)}
		s.readers[uid] = r
	}
	return r
}

// eventStream sends the event history to one client, in a goroutine beside that of the connection. A client that does
// not read thus delays no other client, and the end of its connection is still noticed.
type eventStream struct {
	cancel context.CancelFunc
	ended  chan struct{}
	over   atomic.Bool // the last part was sent, or is about to be
}
