package daemon

// This file has the snapshots and texts that many readers share, and how many readers a user may have. snapshots.go, metrics.go and events.go
// make the texts.

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
	// readersPerUser is how many of a user's clients are sent one at the same time:
	// each slow reader may keep a text of its own in memory.
	readersPerUser = 32
)

// followersPerUser is how many of a user's clients may read the event history at the same time:
// each costs a goroutine and a message of 64 KiB.
const followersPerUser = 64

// snapshots makes the state, and the texts of it that clients ask for.
type snapshotCache struct {
	states  fair.Paced[figures.Snapshot]
	leases  fair.Paced[figures.Snapshot]
	json    fair.Paced[text] // of all that there is
	metrics fair.Paced[text]

	mu      sync.Mutex
	readers map[uint32]*audience // by user
}

// audience is shared by the clients of one user that are sent snapshots or events.
type audience struct {
	places  chan struct{}    // a token for each that is sent a snapshot
	follows chan struct{}    // and for each that is sent events
	texts   fair.Paced[text] // if that user may not see all
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

// eventStream sends the event history to one client, in a goroutine of its own beside the
// connection's: a client that does not read delays no other client, and the end of its connection is still noticed.
type eventStream struct {
	cancel context.CancelFunc
	ended  chan struct{}
	over   atomic.Bool // the last part is sent, or about to be
}
