package web

import "sync"

const (
	// maxFollowers is how many may follow at a time.
	maxFollowers = 64
	// unreadMost is how many messages a follower may leave unread; then he is dropped.
	unreadMost = 8
)

// hub hands messages to all who follow, and waits for none of them.
type hub struct {
	mu        sync.Mutex
	followers map[*follower]bool
}

// follower is one reader of the messages.
type follower struct {
	messages chan []byte // closed when he was too slow
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

// send gives a message to all, and drops those who have left too many unread.
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
