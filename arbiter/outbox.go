package arbiter

// outboxKept is the largest capacity of a buffer that is used again. A call seldom needs more.
const outboxKept = 256

// outbox is what the daemon takes out of the arbiter after each call. Two buffers take turns: whoever makes garbage under
// the daemon's lock may have to help the collector there.
type outbox[T any] struct {
	all   []T // put since take was called last
	taken []T // what take returned last, to be used again
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
