package fair

// This file limits how often a shared value, such as a snapshot or a text, is made. daemon/snapshotcache.go has the
// values. turns.go orders the requests of clients.

import (
	"sync"
	"sync/atomic"
	"time"
)

// Paced makes a value for many clients that ask for it concurrently. Clients that ask while a value is being made
// share the next one. Making values takes at most a sixth of the time, however often clients ask. The zero Paced is
// ready for use.
type Paced[T any] struct {
	begun  atomic.Int64 // number of values whose making has begun
	asking atomic.Int64 // number of calls of Get that have not returned

	mu   sync.Mutex // held while a value is made
	made T          // last value, kept while callers wait
	free time.Time  // earliest time of the next value
}

// pauseFactor sets the pause after making a value, as a multiple of its duration. Other work is thus slowed down by
// at most a fifth.
const pauseFactor = 5

// minPause is the shortest pause, because delivering a value costs time too: to open, read and close a file takes
// longer than making its content.
const minPause = time.Millisecond

// Get returns a value whose making began after the call.
func (p *Paced[T]) Get(produce func() T) T {
	before := p.begun.Load()
	p.asking.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun.Load() == before {
		time.Sleep(time.Until(p.free)) // real time, because the pause is about processor time
		p.begun.Add(1)
		began := time.Now()
		p.made = produce()
		p.free = time.Now().Add(max(minPause, pauseFactor*time.Since(began)))
	}
	made := p.made
	if p.asking.Add(-1) == 0 {
		var none T
		p.made = none
	}
	return made
}
