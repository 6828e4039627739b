package daemon

import (
	"slices"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks the outgoing queue of one connection: messages leave it in the order in which they were added, and
// adding a message does not wait for a send in progress. outgoing.go has the queue.

// TestSentInOrder checks that messages which are added while another goroutine sends are sent after the earlier ones.
// A function of the queue may need the daemon's lock while a goroutine that holds the lock adds messages.
func TestSentInOrder(t *testing.T) {
	d := &Daemon{queue: newWaiters()}
	cl := &client{d: d}
	var sent []int
	sending, more := make(chan struct{}), make(chan struct{})
	flushed := make(chan struct{})
	cl.putLocked(func() {
		close(sending)
		<-more // as if waiting for the daemon's lock
		sent = append(sent, 1)
	})
	go func() {
		defer close(flushed)
		cl.out.flush()
	}()
	<-sending
	bounded.Within(t, "messages are put in while one is sent", func() {
		cl.putLocked(func() { sent = append(sent, 2) })
		cl.out.flush() // leaves the messages to the goroutine that sends
		cl.putLocked(func() { sent = append(sent, 3) })
	})
	close(more)
	<-flushed
	if !slices.Equal(sent, []int{1, 2, 3}) {
		t.Errorf("sent %v", sent)
	}
}
