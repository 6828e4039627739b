package arbiter

// outboxKept is how much room a buffer has at most that is used again: seldom is more needed.
const outboxKept = 256

// outbox is what the daemon takes out of the arbiter after each call. Two buffers take turns: whoever makes garbage under
// the daemon's lock may have to help the collector there.
type outbox[T any] struct {
	all   []T
	taken []T // before: nobody looks at it any more
}

func (o *outbox[T]) put(x T) { o.all = append(o.all, x) }

// take returns all that was put there since it was called last.
func (o *outbox[T]) take() []T {
	all := o.all
	if clear(o.taken); cap(o.taken) > outboxKept {
		o.taken = nil
	}
	o.all, o.taken = o.taken[:0], all
	return all
}
