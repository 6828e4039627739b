package web

import (
	"net/http"
	"slices"
	"time"
)

// writeWithin is how long a reader may take for one message.
const writeWithin = 10 * time.Second

// serveEvents sends what the watcher sees until the reader goes, or does not read.
func (w *watcher) serveEvents(to http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(to)
	// The server's read deadline would end the stream of a reader that sends nothing more, as is normal here. Readers that do not
	// read end by the write deadline.
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		http.Error(to, "events cannot be sent on this connection", http.StatusInternalServerError)
		return
	}
	to.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return
	}
	f, ok := w.follow(peerIn(r.Context()))
	if !ok {
		to.Header().Set("Retry-After", "30")
		http.Error(to, "too many pages are open already; try again later", http.StatusServiceUnavailable)
		return
	}
	defer w.hub.leave(f)
	write := func(message []byte) error {
		if err := control.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
			return err
		}
		if _, err := to.Write(message); err != nil {
			return err
		}
		return control.Flush()
	}
	message, ok := slices.Concat([]byte("retry: 2000\n"), w.latest().message()), true
	for ok && write(message) == nil {
		select {
		case message, ok = <-f.messages:
		case <-r.Context().Done():
			return
		}
	}
}
