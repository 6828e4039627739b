package daemon

// This file sends the event history to clients. serve.go calls it; package history has the lines.

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/gpuarb/gpuarb/internal/events"
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
	shown := d.eventsWithin(cl.within())
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
			func(lines []byte, next int64) error { return part(shown(lines), next, 0) })
		if err == nil {
			s.over.Store(true)
			_ = part(nil, at, 1)
		}
	})
	return nil
}

// eventsWithin returns a function that leaves those lines of events that a program inside a job may see: the lines about
// the jobs inside that job, from when the function first saw them, and about devices. 0: it leaves all lines.
func (d *Daemon) eventsWithin(job uint64) func(lines []byte) []byte {
	if job == 0 {
		return func(lines []byte) []byte { return lines }
	}
	seen := map[uint64]bool{job: true}
	return func(lines []byte) (left []byte) {
		for _, j := range d.state().Within(job).Jobs {
			seen[j.ID] = seen[j.ID] || seen[j.Inside]
		}
		for line := range bytes.Lines(lines) {
			var is struct {
				Job  uint64      `json:"job"`
				Kind events.Kind `json:"kind"`
			}
			switch err := json.Unmarshal(line, &is); {
			case err != nil:
			case is.Kind == events.Deadlock && seen[is.Job]:
				left = append(left, withoutParties(line, seen)...)
			case seen[is.Job], is.Job == 0 && slices.Contains(deviceEvents, is.Kind):
				left = append(left, line...)
			}
		}
		return left
	}
}

// withoutParties returns the line of a deadlock event without the parties whose jobs are not in seen. The text of the event stays: it was
// made without names that the reader must not see.
func withoutParties(line []byte, seen map[uint64]bool) []byte {
	var e events.Event
	if json.Unmarshal(line, &e) != nil {
		return nil
	}
	e.Parties = slices.DeleteFunc(e.Parties, func(p events.Party) bool { return !seen[p.Job] })
	return e.Line()
}

// deviceEvents are the events about devices, which name no program.
var deviceEvents = []events.Kind{events.DeviceFound, events.DeviceLost, events.DeviceHung, events.DeviceWoke, events.Lost}

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
