package arbiter

import "container/heap"

// ticketHeap is tickets of which the first is at hand. Each ticket knows where it stands in it,
// so that any can be taken out.
type ticketHeap struct {
	tickets []*ticket
	before  func(x, y *ticket) bool
	at      func(*ticket) *int // where it stands, from 1; 0: it is not in the heap
}

func (h *ticketHeap) Len() int           { return len(h.tickets) }
func (h *ticketHeap) Less(i, j int) bool { return h.before(h.tickets[i], h.tickets[j]) }

func (h *ticketHeap) Swap(i, j int) {
	h.tickets[i], h.tickets[j] = h.tickets[j], h.tickets[i]
	*h.at(h.tickets[i]), *h.at(h.tickets[j]) = i+1, j+1
}

// Push and Pop are container/heap's.
func (h *ticketHeap) Push(x any) {
	t := x.(*ticket)
	h.tickets = append(h.tickets, t)
	*h.at(t) = len(h.tickets)
}

func (h *ticketHeap) Pop() any {
	last := len(h.tickets) - 1
	t := h.tickets[last]
	h.tickets[last] = nil
	h.tickets = h.tickets[:last]
	*h.at(t) = 0
	return t
}

// first returns the first of them; nil: there is none.
func (h *ticketHeap) first() *ticket {
	if len(h.tickets) == 0 {
		return nil
	}
	return h.tickets[0]
}

// put puts a ticket where it belongs, whether it was in the heap or not.
func (h *ticketHeap) put(t *ticket) {
	if at := *h.at(t); at > 0 {
		heap.Fix(h, at-1)
		return
	}
	heap.Push(h, t)
}

// remove takes a ticket out, where it is in the heap.
func (h *ticketHeap) remove(t *ticket) {
	if at := *h.at(t); at > 0 {
		heap.Remove(h, at-1)
	}
}
