package queue

import "slices"

// Queue is those who wait, the first to be served first. Most come at its end and leave at its front: both ends are
// cheap, however many are in between.
type Queue[T comparable] struct {
	all   []T
	order func(x, y T) int
}

// New returns a queue with nobody in it. The order is of any two; it may change as long as Sort follows.
func New[T comparable](order func(x, y T) int) Queue[T] { return Queue[T]{order: order} }

// All are those in it, the first one first. They are good until the queue changes.
func (q *Queue[T]) All() []T { return q.all }

// Len is how many they are.
func (q *Queue[T]) Len() int { return len(q.all) }

// First is the first of them; the zero T: there is nobody.
func (q *Queue[T]) First() (first T) {
	if len(q.all) > 0 {
		first = q.all[0]
	}
	return first
}

// Before are those who come before somebody, whether that one is in the queue or not. They are good until it changes.
func (q *Queue[T]) Before(x T) []T {
	at, _ := slices.BinarySearchFunc(q.all, x, q.order)
	return q.all[:at]
}

// After are those who come after somebody, likewise.
func (q *Queue[T]) After(x T) []T {
	at, found := slices.BinarySearchFunc(q.all, x, q.order)
	if found {
		at++
	}
	return q.all[at:]
}

// Insert puts somebody behind those that come first.
func (q *Queue[T]) Insert(x T) {
	at := len(q.all)
	if at > 0 && q.order(q.all[at-1], x) > 0 {
		at, _ = slices.BinarySearchFunc(q.all, x, q.order)
	}
	q.all = slices.Insert(q.all, at, x)
}

// Remove takes somebody out who is in the queue.
func (q *Queue[T]) Remove(x T) {
	if q.all[0] == x { // as is most often so
		clear(q.all[:1])
		q.all = q.all[1:]
		return
	}
	at, _ := slices.BinarySearchFunc(q.all, x, q.order)
	if at == len(q.all) || q.all[at] != x { // two of whom the order says nothing, or it has changed
		at = slices.Index(q.all, x)
	}
	if at > len(q.all)/2 {
		q.all = slices.Delete(q.all, at, at+1)
		return
	}
	copy(q.all[1:at+1], q.all[:at])
	clear(q.all[:1])
	q.all = q.all[1:]
}

// Sort puts them in order, after that has changed.
func (q *Queue[T]) Sort() { slices.SortFunc(q.all, q.order) }
