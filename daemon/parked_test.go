package daemon

import (
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// TestNoLockOverASend: what a reply is made of may need the daemon's lock, whose holder may look at the very request
// that is answered, as a daemon does that is stopped. So neither waits for the other.
func TestNoLockOverASend(t *testing.T) {
	p := &parked{}
	sending, look := make(chan struct{}), make(chan struct{})
	ended := make(chan error)
	go func() {
		ended <- p.end(func() error {
			close(sending)
			<-look // as for the daemon's lock
			return nil
		})
	}()
	<-sending
	bounded.Within(t, "it is looked at while its reply is made", func() {
		if !p.isOver() {
			t.Error("it waits on, though its reply is on the way")
		}
		if err := p.end(func() error { t.Error("it has a second reply"); return nil }); err != nil {
			t.Error(err)
		}
		if err := p.tell(nil); err != nil { // a notice would come behind the reply
			t.Error(err)
		}
	})
	close(look)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
