package web

// This file hands messages to all readers of /events. stream.go sends them to one reader.

import (
	"slices"
	"sync"
)

const (
	// Number of readers of /events at a time.
	maxFollowers = 64
	// Number of messages that a follower may leave unread. With one more it is dropped.
	maxUnread = 8
)

// event returns a server-sent event. data must be a single line.
func event(name string, data []byte) []byte {
	return slices.Concat([]byte("event: "+name+"\ndata: "), data, []byte("\n\n"))
}

// hub hands messages to all followers without waiting for them. The watcher and the eventLog send;
// serveEvents adds and removes followers.
type hub struct {
	peerSlots *peerSlots

	mu        sync.Mutex
	followers map[*follower]bool
}

// follower is a reader of /events.
type follower struct {
	messages chan []byte // closed if the reader was too slow, or if a reader of another peer took its slot
	leave    func()      // frees its slot
}

func newHub() *hub {
	return &hub{peerSlots: newPeerSlots(maxFollowers), followers: map[*follower]bool{}}
}

func (h *hub) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.followers)
}

// enter adds a follower of a peer. It returns false if there are too many.
func (h *hub) enter(peer string) (*follower, bool) {
	f := &follower{messages: make(chan []byte, maxUnread)}
	h.mu.Lock()
	h.followers[f] = true
	h.mu.Unlock()
	var ok bool
	if f.leave, ok = h.peerSlots.enter(peer, func() { h.drop(f) }); !ok {
		h.drop(f)
		return nil, false
	}
	return f, true
}

// leave removes a follower, which may have been dropped already.
func (h *hub) leave(f *follower) {
	h.drop(f)
	f.leave()
}

// drop ends the messages of a follower.
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

// send hands a message to all followers, and drops those that have left too many unread.
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
