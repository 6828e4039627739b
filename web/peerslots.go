package web

// This file shares a bounded number of slots among peers. limits.go uses it for connections, and
// hub.go for readers of /events.

import "sync"

// peerSlots are slots that peers share. While a slot is free, any peer gets it. When no slot is
// free, a newcomer may get the oldest slot of the peer with the most slots. It gets that slot only
// if its own peer then has no more slots than the other peer. So no peer can lock the others out,
// and a single peer, such as a proxy, may use all slots.
type peerSlots struct {
	most int

	mu    sync.Mutex
	taken int
	of    map[string][]*peerSlot // by peer, oldest first; a peer without slots has no entry
}

// peerSlot is a slot in use.
type peerSlot struct {
	peer  string
	evict func() // ends what the slot is used for
}

func newPeerSlots(most int) *peerSlots { return &peerSlots{most: most, of: map[string][]*peerSlot{}} }

// enter takes a slot for a peer. If another peer gets the slot later, evict is called from another
// goroutine; it must end the use of the slot without waiting. ok is false if there is no slot.
func (p *peerSlots) enter(peer string, evict func()) (leave func(), ok bool) {
	mine := &peerSlot{peer, evict}
	p.mu.Lock()
	var victim *peerSlot
	if p.taken == p.most {
		if victim = p.victimLocked(len(p.of[peer])); victim == nil {
			p.mu.Unlock()
			return nil, false
		}
		p.removeLocked(victim)
	}
	p.of[peer] = append(p.of[peer], mine)
	p.taken++
	p.mu.Unlock()
	if victim != nil {
		victim.evict()
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.removeLocked(mine)
	}, true
}

// victimLocked returns the slot that a newcomer gets whose peer has a number of slots already; nil:
// none.
func (p *peerSlots) victimLocked(has int) *peerSlot {
	var largest []*peerSlot
	for _, list := range p.of {
		if len(list) > len(largest) {
			largest = list
		}
	}
	if len(largest) < has+2 {
		return nil
	}
	return largest[0]
}

// removeLocked frees a slot, if that was not done before.
func (p *peerSlots) removeLocked(mine *peerSlot) {
	list := p.of[mine.peer]
	for i, other := range list {
		if other != mine {
			continue
		}
		p.taken--
		if p.of[mine.peer] = append(list[:i:i], list[i+1:]...); len(list) == 1 {
			delete(p.of, mine.peer)
		}
		return
	}
}
