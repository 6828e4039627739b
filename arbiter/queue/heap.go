package queue

import "container/heap"

// Heap is some of which the first is at hand. Each knows where it stands in it, so that any can be taken out.
type Heap[T any] struct{ in inHeap[T] }

// NewHeap returns a heap with nobody in it. at is where one keeps its place, from 1; 0: it is not in the heap.
func NewHeap[T any](before func(x, y T) bool, at func(T) *int) Heap[T] {
	return Heap[T]{inHeap[T]{before: before, at: at}}
}

// First returns the first of them. False: there is none.
func (h *Heap[T]) First() (first T, ok bool) {
	if len(h.in.all) == 0 {
		return first, false
	}
	return h.in.all[0], true
}

// Put puts one where it belongs, whether it was in the heap or not.
func (h *Heap[T]) Put(x T) {
	if at := *h.in.at(x); at > 0 {
		heap.Fix(&h.in, at-1)
		return
	}
	heap.Push(&h.in, x)
}

// Remove takes one out, where it is in the heap.
func (h *Heap[T]) Remove(x T) {
	if at := *h.in.at(x); at > 0 {
		heap.Remove(&h.in, at-1)
	}
}

// inHeap is a heap as container/heap wants it.
type inHeap[T any] struct {
	all    []T
	before func(x, y T) bool
	at     func(T) *int
}

func (h *inHeap[T]) Len() int           { return len(h.all) }
func (h *inHeap[T]) Less(i, j int) bool { return h.before(h.all[i], h.all[j]) }

func (h *inHeap[T]) Swap(i, j int) {
	h.all[i], h.all[j] = h.all[j], h.all[i]
	*h.at(h.all[i]), *h.at(h.all[j]) = i+1, j+1
}

func (h *inHeap[T]) Push(x any) {
	h.all = append(h.all, x.(T))
	*h.at(x.(T)) = len(h.all)
}

func (h *inHeap[T]) Pop() any {
	last := len(h.all) - 1
	x := h.all[last]
	clear(h.all[last:])
	h.all = h.all[:last]
	*h.at(x) = 0
	return x
}
