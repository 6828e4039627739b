package web

// This file answers /events: a stream of states and events for one reader. watcher.go and
// eventlog.go produce the messages, and hub.go hands them to the readers.

import (
	"net/http"
	"slices"
	"strconv"
	"time"
)

// writeTimeout bounds how long a reader may take for one message.
const writeTimeout = 10 * time.Second

// serveEvents sends states and events until the reader disconnects or stops to read. A reader that
// has the events up to an ID from /history asks with after=ID. It gets all later events, also those
// from before it became a follower.
func (w *watcher) serveEvents(to http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(to)
	// The read deadline of the server would end this stream, because its reader sends nothing more.
	// For readers that do not read, the write deadline ends the stream.
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		http.Error(to, "events cannot be sent on this connection", http.StatusInternalServerError)
		return
	}
	var missed []byte
	seen, replay := uint64(0), r.URL.Query().Has("after")
	if replay {
		var err error
		if seen, err = strconv.ParseUint(r.URL.Query().Get("after"), 10, 64); err != nil {
			http.Error(to, "after= must be the id of an event, a number as in /history", http.StatusBadRequest)
			return
		}
	}
	to.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return
	}
	f, ok := w.follow(peerFrom(r.Context()))
	if !ok {
		to.Header().Set("Retry-After", "30")
		http.Error(to, "too many pages are open already; try again later", http.StatusServiceUnavailable)
		return
	}
	defer w.hub.leave(f)
	write := func(message []byte) error {
		if err := control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return err
		}
		if _, err := to.Write(message); err != nil {
			return err
		}
		return control.Flush()
	}
	if replay {
		missed = w.events.after(seen)
	}
	message, ok := slices.Concat([]byte("retry: 2000\n\n"), missed, w.latest().message()), true
	for ok && write(message) == nil {
		select {
		case message, ok = <-f.messages:
		case <-r.Context().Done():
			return
		}
	}
}
