package daemon

import (
	"sync"

	"github.com/gpuarb/gpuarb/ipc"
)

// This file sends notices and replies of waiting requests. decidedLocked and parkLocked (queue.go) put the messages into the queue of a
// connection under the daemon's lock, in the order of the decisions. The goroutine that gives the lock back sends them (unlock, in lock.go).

// outgoing is a connection's queue of messages about a request that waits: notices, and the reply. mu guards it, and is held for no longer
// than it takes to change it: a goroutine that holds the daemon's lock takes mu, and a function of the queue may take the daemon's lock.
type outgoing struct {
	mu      sync.Mutex
	queue   []func()
	sending bool // a goroutine runs flush, and also sends the messages that are put in meanwhile
}

// putLocked puts a function that sends one message into the queue of the client's connection.
func (cl *client) putLocked(send func()) {
	cl.out.mu.Lock()
	defer cl.out.mu.Unlock()
	cl.out.queue = append(cl.out.queue, send)
	cl.d.queue.touched = append(cl.d.queue.touched, cl)
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

// noticeLocked puts a notice of how a request stands into the queue. If the connection is broken, its own goroutine finds that too.
func (p *parked) noticeLocked(notice *ipc.WaitingReply) {
	p.cl.putLocked(func() { _ = p.cl.conn.Notice(p.head, notice) })
}

// replyLocked puts the reply of a request that waited into the queue. When it is sent, the record of the request is freed. If it cannot be
// sent, what it grants is taken back.
func (p *parked) replyLocked(send func() error) {
	p.over.Store(true)
	p.cl.putLocked(func() {
		err := send()
		d := p.cl.d
		d.lock()
		defer d.unlock()
		if d.stopping() {
			return // the client reports what it holds when it resumes
		}
		d.dropPlaceLocked(p)
		if err != nil {
			p.cl.takeBackLocked()
		}
	})
}
