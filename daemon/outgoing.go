package daemon

// This file has the queue of messages of one connection. queue.go and lock.go put notices and replies of waiting requests into it under the
// daemon's lock, in the order of the decisions. The goroutine that gives the lock back sends them (unlock, in lock.go).

import (
	"sync"
)

// outgoing is a connection's queue of messages about a request that waits: notices, and the reply. mu guards it, and is held for no longer
// than it takes to change it: a goroutine that holds the daemon's lock takes mu, and a function of the queue may take the daemon's lock.
type outgoing struct {
	mu      sync.Mutex
	queue   []func()
	sending bool // a goroutine runs flush, and also sends the messages that are put in meanwhile
}

// flush sends the messages in the queue, in order. It does not wait for the client: a client that does not read its messages loses notices, and
// in the end its connection. If a function of the queue panics, the daemon starts again.
func (o *outgoing) flush() {
	o.mu.Lock()
	if o.sending {
		o.mu.Unlock()
		return
	}
	o.sending = true
	for len(o.queue) > 0 {
		send := o.queue[0]
		o.queue = o.queue[1:]
		o.mu.Unlock()
		send()
		o.mu.Lock()
	}
	o.sending, o.queue = false, nil // still under mu: a message that was put in before is sent, a later one has its own flush
	o.mu.Unlock()
}
