package daemon

// This file has the outgoing queue of one connection. queue.go and lock.go put notices and replies of waiting
// requests into it under the daemon's lock, in the order of the decisions. The goroutine that releases the lock sends
// them (unlock, in lock.go).

import (
	"sync"
)

// outgoing is a connection's queue of messages about a waiting request: notices and the reply. mu guards it, and is
// held only while the queue changes. Lock order: a goroutine that holds the daemon's lock may take mu. A function of
// the queue may take the daemon's lock, because mu is not held while it runs.
type outgoing struct {
	mu      sync.Mutex
	queue   []func()
	sending bool // a goroutine runs flush, and also sends messages that are added meanwhile
}

// flush sends the messages in the queue, in order. It does not wait for the client: a client that does not read loses
// notices, and eventually its connection. If a function of the queue panics, the daemon restarts.
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
	o.sending, o.queue = false, nil // under mu: a message that was added before is sent; a later message has its own flush
	o.mu.Unlock()
}
