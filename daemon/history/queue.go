package history

// This file has the queue of the daemon's log. daemon/start.go makes it. It does not use the history.

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Queue is a slog.Handler that never waits, because a message that is logged under the daemon's lock must not wait
// for the reader of the log. If the queue is full, the message is lost. The next message that fits reports the number
// of lost messages.
type Queue struct {
	to slog.Handler
	*queue
}

type queue struct {
	records chan *logged
	lost    atomic.Int64
	end     chan struct{} // closed by the first Stop
	once    sync.Once     // guards end
	ended   chan struct{} // closed when all messages are written
}

// logged is a record with the handler of its logger.
type logged struct {
	to     slog.Handler
	record slog.Record
}

// queueSize is the number of messages that may be pending; logPatience is the time for writing them at the end.
const (
	queueSize   = 4096
	logPatience = 300 * time.Millisecond
)

// NewQueue starts a queue before a handler.
func NewQueue(to slog.Handler) *Queue {
	q := &Queue{to: to, queue: &queue{records: make(chan *logged, queueSize),
		end: make(chan struct{}), ended: make(chan struct{})}}
	go q.run()
	return q
}

// Enabled asks the handler behind the queue.
func (q *Queue) Enabled(ctx context.Context, level slog.Level) bool {
	return q.to.Enabled(ctx, level)
}

// WithAttrs returns a handler that shares the queue.
func (q *Queue) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Queue{q.to.WithAttrs(attrs), q.queue}
}

// WithGroup returns a handler that shares the queue.
func (q *Queue) WithGroup(name string) slog.Handler {
	return &Queue{q.to.WithGroup(name), q.queue}
}

// Handle puts a record into the queue.
func (q *Queue) Handle(_ context.Context, r slog.Record) error {
	select {
	case q.records <- &logged{q.to, r.Clone()}:
	default:
		q.lost.Add(1)
	}
	return nil
}

func (q *queue) run() {
	defer close(q.ended)
	for {
		select {
		case l := <-q.records:
			q.write(l)
		case <-q.end:
			for {
				select {
				case l := <-q.records:
					q.write(l)
				default:
					return
				}
			}
		}
	}
}

func (q *queue) write(l *logged) {
	if n := q.lost.Swap(0); n > 0 {
		r := slog.NewRecord(time.Now(), slog.LevelWarn, "whoever reads the log is too slow: messages were lost", 0)
		r.Add("messages", n)
		_ = l.to.Handle(context.Background(), r)
	}
	_ = l.to.Handle(context.Background(), l.record)
}

// Stop writes the messages in the queue, for logPatience at most. Later messages are lost.
func (q *queue) Stop() {
	q.once.Do(func() { close(q.end) })
	select {
	case <-q.ended:
	case <-time.After(logPatience):
	}
}
