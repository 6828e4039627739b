package fair

import (
	"sync"
	"time"
)

// Paced makes something for many who ask for it, one after the other: who asks while another
// waits gets the same, made after both have asked. Making it takes a sixth of the time at
// the most, however often it is asked for.
type Paced[T any] struct {
	turn sync.Mutex // held by whoever makes one; taken before mu
	free time.Time  // when the next may be made; turn guards it

	mu      sync.Mutex
	pending *flight[T] // waits for its turn; nil: none does
}

// flight is for everybody who asked before it was made.
type flight[T any] struct {
	done chan struct{}
	made T
}

// paceRest is how many times as long as it took to make one the next has to wait: what others have
// to do takes a fifth longer at the most, whoever looks.
const paceRest = 5

// paceLeast is how long it has to wait at least, since bringing it takes time as well: of a file that is opened, read and
// closed more than making what is in it.
const paceLeast = time.Millisecond

// Get returns one that is made after it was asked for.
func (p *Paced[T]) Get(produce func() T) T {
	p.mu.Lock()
	if f := p.pending; f != nil {
		p.mu.Unlock()
		<-f.done
		return f.made
	}
	f := &flight[T]{done: make(chan struct{})}
	p.pending = f
	p.mu.Unlock()

	p.turn.Lock()
	defer p.turn.Unlock()
	time.Sleep(time.Until(p.free)) // of the processor's time, not of the daemon's clock
	p.mu.Lock()
	p.pending = nil
	p.mu.Unlock()
	defer close(f.done)
	began := time.Now()
	f.made = produce()
	p.free = time.Now().Add(max(paceLeast, paceRest*time.Since(began)))
	return f.made
}
