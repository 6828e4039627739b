package web

import "sync"

const (
	// maxFollowers is how many readers of /events there may be at a time.
	maxFollowers = 64
	// unreadMost is how many messages a follower may leave unread; one more, and it is dropped.
	unreadMost = 8
)

// hub hands messages to all followers, and waits for none of them. The watcher and happened send, serveEvents enters and leaves.
type hub struct {
	mu        sync.Mutex
	followers map[*follower]bool
}

// follower is one reader of /events.
type follower struct {
	messages chan []byte // closed when it was too slow
}

func newHub() *hub { return &hub{followers: map[*follower]bool{}} }

func (h *hub) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.followers)
}

// enter adds a follower; false: there are too many.
func (h *hub) enter() (*follower, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.followers) >= maxFollowers {
		return nil, false
	}
	f := &follower{messages: make(chan []byte, unreadMost)}
	h.followers[f] = true
	return f, true
}

// leave takes a follower away. It may have been dropped already.
func (h *hub) leave(f *follower) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.followers, f)
}

// send gives a message to all, and drops those that have left too many unread.
func (h *hub) send(message []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.followers {
		select {
		case f.messages <- message:
		default:
			close(f.messages)
			delete(h.followers, f)
		}
	}
}
