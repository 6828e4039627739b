package daemon

// This file sends the event history to clients. serve.go calls it; package history has the lines.

import (
	"context"

	"github.com/gpuarb/gpuarb/ipc"
)

// events answers with the kept lines of the event history and, if the client follows, with new lines until the stream
// ends. If the connection fails, the stream is closed.
func (cl *client) events(h ipc.Header, r ipc.EventsRequest) error {
	d, uid := cl.d, cl.conn.Peer().UID
	followers := d.cache.audienceOf(cl.reader()).follows
	select {
	case followers <- struct{}{}:
	default:
		return refused(ipc.StatusTooMany, "%d clients of user %d are reading the event history already: end one of them", followersPerUser, uid)
	}
	from, follow := d.offset(&r), r.Flags&ipc.EventsFollow != 0
	ctx, cancel := context.WithCancel(d.ctx)
	s := &eventStream{cancel: cancel, ended: make(chan struct{})}
	cl.feed = s
	d.wg.Go(func() {
		defer d.catchPanic(nil)
		defer close(s.ended)
		defer func() { <-followers }()
		part := func(lines []byte, next int64, last uint32) error {
			return cl.conn.ReplyEvents(h, ipc.EventsPart{Daemon: d.history.ID, Next: uint64(next), Last: last}, lines)
		}
		at, err := d.history.Read(ctx, from, follow, ipc.MaxEventLines,
			func(lines []byte, next int64) error { return part(lines, next, 0) })
		if err == nil {
			s.over.Store(true)
			_ = part(nil, at, 1)
		}
	})
	return nil
}

// offset returns the offset at which a request begins to read.
func (d *Daemon) offset(r *ipc.EventsRequest) int64 {
	size, _ := d.history.Size()
	switch {
	case r.Offset == ipc.NoLimit:
		return size
	case r.Daemon != d.history.ID || r.Offset > uint64(size):
		return 0
	}
	return int64(r.Offset)
}
