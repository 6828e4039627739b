package web

import (
	"slices"
	"sync"
)

const (
	// maxFollowers is how many readers of /events there may be at a time.
	maxFollowers = 64
	// unreadMost is how many messages a follower may leave unread; one more, and it is dropped.
	unreadMost = 8
)

// event spells a server-sent event; data is one line.
func event(name string, data []byte) []byte {
	return slices.Concat([]byte("event: "+name+"\ndata: "), data, []byte("\n\n"))
}

// hub hands messages to all followers, and waits for none of them. The watcher and happened send, serveEvents enters and leaves.
type hub struct {
	places *places

	mu        sync.Mutex
	followers map[*follower]bool
}

// follower is one reader of /events.
type follower struct {
	messages chan []byte // closed when it was too slow, or another peer's reader has its place
	leave    func()      // gives its place back
}

func newHub() *hub { return &hub{places: newPlaces(maxFollowers), followers: map[*follower]bool{}} }

func (h *hub) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.followers)
}

// enter adds a follower of a peer; false: there are too many.
func (h *hub) enter(peer string) (*follower, bool) {
	f := &follower{messages: make(chan []byte, unreadMost)}
	h.mu.Lock()
	h.followers[f] = true
	h.mu.Unlock()
	var ok bool
	if f.leave, ok = h.places.enter(peer, func() { h.drop(f) }); !ok {
		h.drop(f)
		return nil, false
	}
	return f, true
}

// leave takes a follower away. It may have been dropped already.
func (h *hub) leave(f *follower) {
	h.drop(f)
	f.leave()
}

// drop ends a follower's messages.
func (h *hub) drop(f *follower) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropLocked(f)
}

func (h *hub) dropLocked(f *follower) {
	if h.followers[f] {
		close(f.messages)
		delete(h.followers, f)
	}
}

// send gives a message to all, and drops those that have left too many unread.
func (h *hub) send(message []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.followers {
		select {
		case f.messages <- message:
		default:
			h.dropLocked(f)
		}
	}
}
