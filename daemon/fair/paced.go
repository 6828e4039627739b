package fair

import (
	"sync"
	"sync/atomic"
	"time"
)

// Paced makes something for many clients that ask for it, one after the other: clients that ask while another one is made get the next
// one, which is made for all of them. Making them takes a sixth of the time at
// the most, however often one is asked for. The zero Paced is ready.
type Paced[T any] struct {
	begun  atomic.Int64 // how many were begun
	asking atomic.Int64 // calls of Get that have not returned

	mu   sync.Mutex // held while one is made
	made T          // the last one, as long as callers ask
	free time.Time  // when the next may be made
}

// pauseFactor is how many times as long as it took to make one the next has to wait: what others have
// to do takes a fifth longer at the most, whoever looks.
const pauseFactor = 5

// minPause is how long it has to wait at least, since bringing it takes time as well: of a file that is opened, read and
// closed more than making what is in it.
const minPause = time.Millisecond

// Get returns one that was begun after the call.
func (p *Paced[T]) Get(produce func() T) T {
	before := p.begun.Load()
	p.asking.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun.Load() == before {
		time.Sleep(time.Until(p.free)) // of the processor's time, not of the daemon's clock
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
