package history

// This file has the queue of the daemon's log. It knows nothing of the history.

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Queue is a slog.Handler that never waits: what is logged under the daemon's lock
// must not hang on whoever reads the log. A message that finds the queue full is lost,
// and the next one that does not says how many were.
type Queue struct {
	to slog.Handler
	*queue
}

type queue struct {
	records chan logged
	lost    atomic.Int64
	end     chan struct{} // closed by the first Stop
	once    sync.Once     // of Stop
	ended   chan struct{} // closed when all is written
}

// logged is a record with the handler that its logger had.
type logged struct {
	to     slog.Handler
	record slog.Record
}

// queueSize is how many messages may wait; logPatience, how long for them at the end.
const (
	queueSize   = 4096
	logPatience = 300 * time.Millisecond
)

// NewQueue starts a queue before a handler.
func NewQueue(to slog.Handler) *Queue {
	q := &Queue{to: to, queue: &queue{records: make(chan logged, queueSize),
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
	case q.records <- logged{q.to, r.Clone()}:
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

func (q *queue) write(l logged) {
	if n := q.lost.Swap(0); n > 0 {
		r := slog.NewRecord(time.Now(), slog.LevelWarn, "whoever reads the log is too slow: messages were lost", 0)
		r.Add("messages", n)
		_ = l.to.Handle(context.Background(), r)
	}
	_ = l.to.Handle(context.Background(), l.record)
}

// Stop writes what is in the queue, for as long as that may take. What is logged
// afterwards is lost.
func (q *queue) Stop() {
	q.once.Do(func() { close(q.end) })
	select {
	case <-q.ended:
	case <-time.After(logPatience):
	}
}
