package daemon

import (
	"slices"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// TestSentInOrder: messages that are put in while another goroutine sends are sent after those before them. A function of the queue may need
// the daemon's lock while another goroutine that holds it puts messages in.
func TestSentInOrder(t *testing.T) {
	d := &Daemon{queue: newWaiters()}
	cl := &client{d: d}
	var sent []int
	sending, more := make(chan struct{}), make(chan struct{})
	flushed := make(chan struct{})
	cl.putLocked(func() {
		close(sending)
		<-more // as for the daemon's lock
		sent = append(sent, 1)
	})
	go func() {
		defer close(flushed)
		cl.out.flush()
	}()
	<-sending
	bounded.Within(t, "messages are put in while one is sent", func() {
		cl.putLocked(func() { sent = append(sent, 2) })
		cl.out.flush() // leaves them to the goroutine that sends
		cl.putLocked(func() { sent = append(sent, 3) })
	})
	close(more)
	<-flushed
	if !slices.Equal(sent, []int{1, 2, 3}) {
		t.Errorf("sent %v", sent)
	}
}
