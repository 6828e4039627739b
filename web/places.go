package web

import "sync"

// places are shared out among peers. While one is free, anybody gets it. When none is, a newcomer gets the oldest place of the
// peer that has the most, if its own peer then still has no more than that one: nobody keeps the others out by taking all, and
// one peer alone, such as a proxy, may have all.
type places struct {
	most int

	mu    sync.Mutex
	taken int
	of    map[string][]*place // by peer, the oldest first; no peer without a place
}

// place is one that is taken.
type place struct {
	peer  string
	evict func() // ends what it was taken for
}

func newPlaces(most int) *places { return &places{most: most, of: map[string][]*place{}} }

// enter takes a place for something of a peer. evict ends that, from another goroutine, when the place goes to somebody
// else; it waits for nothing. ok is false if there is no place.
func (p *places) enter(peer string, evict func()) (leave func(), ok bool) {
	mine := &place{peer, evict}
	p.mu.Lock()
	var victim *place
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

// victimLocked is the place that a newcomer gets whose peer has some already; nil: none.
func (p *places) victimLocked(has int) *place {
	var largest []*place
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

// removeLocked gives a place back, if that was not done yet.
func (p *places) removeLocked(mine *place) {
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
