package ipc

// This file has a session with leases for Go programs: it makes the requests of a process that has the library
// preloaded. The tests use it. requests.go has the requests of commands.

import (
	"context"
	"errors"
	"fmt"
)

// ShimSession is a session with a lease page, for a Go program that acts as a client with the library: a test, or a
// program that wants a lease without the preload. Main is its first connection. Its methods are safe for concurrent
// use; requests on Main wait for each other.
type ShimSession struct {
	Main  *Client
	Page  *LeasePage
	Hello HelloReply

	asked HelloRequest // repeated by Resume
}

// HelloShim opens a session with a lease page on the connection, and maps the page. HelloShim sets req.Kind. Unless
// there is an error, the session owns the connection.
func (c *Client) HelloShim(ctx context.Context, req HelloRequest) (*ShimSession, error) {
	return c.helloShim(ctx, req, nil)
}

// helloShim does the work of HelloShim; if w is nil, the end of ctx closes the connection.
func (c *Client) helloShim(ctx context.Context, req HelloRequest, w *waiting) (*ShimSession, error) {
	req.Kind = KindShim
	s := &ShimSession{Main: c, asked: req}
	fd, err := callFD(ctx, c, TypeHello, &req, -1, &s.Hello, w)
	if err != nil {
		return nil, closeFD(fd, err)
	}
	if fd < 0 {
		return nil, malformed("Hello reply: no lease page came along")
	}
	if s.Page, err = ReceivePage(fd); err != nil {
		return nil, closeFD(fd, err)
	}
	return s, nil
}

// Resume continues the session s on a new connection, with the process's own counts of its leases. It sends the page.
// If the daemon made a new page, Resume closes the old one and s has the new one. On success s owns c, and Resume
// closes the connection that s had before. No other method of s may run at that time.
func (s *ShimSession) Resume(ctx context.Context, c *Client, leases []ResumeLease) error {
	req := ResumeRequest{Session: s.Hello.Session, Hello: s.asked, Count: uint32(len(leases))}
	if len(leases) > PageSlots {
		return refuse(StatusRange, "%d leases, a session has at most %d", len(leases), PageSlots)
	}
	copy(req.Leases[:], leases)
	pageFD := -1
	if s.Page != nil {
		req.HasPage, pageFD = 1, s.Page.FD()
	}
	var reply HelloReply
	fd, err := callFD(ctx, c, TypeResume, &req, pageFD, &reply, nil)
	if err != nil {
		return closeFD(fd, err)
	}
	if fd >= 0 {
		page, err := ReceivePage(fd)
		if err != nil {
			return closeFD(fd, err)
		}
		if s.Page != nil {
			err = s.Page.Close()
		}
		s.Page = page
		if err != nil {
			return err
		}
	}
	if s.Main != nil && s.Main != c {
		_ = s.Main.Close()
	}
	s.Main, s.Hello = c, reply
	return nil
}

// Join makes c another connection of the session.
func (s *ShimSession) Join(ctx context.Context, c *Client) error { return c.Join(ctx, s.Hello.Session) }

// Close closes the first connection, as the end of a process does, and unmaps the page.
func (s *ShimSession) Close() error {
	var err error
	if s.Page != nil {
		err = s.Page.Close()
		s.Page = nil
	}
	return errors.Join(err, s.Main.Close())
}

// Join makes this connection part of an existing session.
func (c *Client) Join(ctx context.Context, session Token) error {
	return Call(ctx, c, TypeJoin, &JoinRequest{Session: session}, &JoinReply{})
}

// Attach opens the lease on a device.
func (c *Client) Attach(ctx context.Context, device UUID) (AttachReply, error) {
	return replyTo[AttachReply](ctx, c, TypeAttach, AttachRequest{Device: device})
}

// Alloc asks for bytes, and may wait as long as the rules allow. After a refusal the reply has the figures, and the
// error is a *ReplyError.
func (c *Client) Alloc(ctx context.Context, req AllocRequest) (AllocReply, error) {
	return c.alloc(ctx, req, nil)
}

// alloc does the work of Alloc; if w is nil, the end of ctx closes the connection.
func (c *Client) alloc(ctx context.Context, req AllocRequest, w *waiting) (AllocReply, error) {
	var reply AllocReply
	err := closeFD(callFD(ctx, c, TypeAlloc, &req, -1, &reply, w))
	switch {
	case err == nil && reply.Granted != req.Bytes:
		err = malformed("Alloc reply: %d bytes granted, %d asked for", reply.Granted, req.Bytes)
	case err != nil && reply.Granted != 0:
		err = fmt.Errorf("Alloc reply: %d bytes granted with a refusal: %w", reply.Granted, err)
	}
	return reply, err
}

// Freed tells the daemon that memory was freed. It must be called after each free that finds FlagNotify in the credit
// word, because a request waits then. The daemon sends no reply.
func (c *Client) Freed(slot uint32) error {
	return send(c, Header{Type: TypeFreed}, &FreedNotice{Slot: slot}, -1, nil)
}

// Stream asks for streams (count > 0) or gives them back (count < 0).
func (c *Client) Stream(ctx context.Context, slot uint32, count int32) (StreamReply, error) {
	return replyTo[StreamReply](ctx, c, TypeStream, StreamRequest{Slot: slot, Count: count})
}

// Context asks before contexts are made (count > 0), or reports that contexts are gone (count < 0).
func (c *Client) Context(ctx context.Context, slot uint32, count int32) (ContextReply, error) {
	return replyTo[ContextReply](ctx, c, TypeContext, ContextRequest{Slot: slot, Count: count})
}

// Objects reports, after a Resume, the contexts, streams and holds of each thread on a lease.
func (c *Client) Objects(ctx context.Context, slot uint32, makers ...ObjectsMaker) error {
	for {
		req := ObjectsRequest{Slot: slot}
		req.Count = uint32(copy(req.Makers[:], makers))
		if makers = makers[req.Count:]; len(makers) > 0 {
			req.Flags = ObjectsMore
		}
		if err := Call(ctx, c, TypeObjects, &req, &Empty{}); err != nil || len(makers) == 0 {
			return err
		}
	}
}

// Query asks which figures a memory query on the device should return.
func (c *Client) Query(ctx context.Context, device UUID) (QueryReply, error) {
	return replyTo[QueryReply](ctx, c, TypeQuery, QueryRequest{Device: device})
}

// HelloShimWaiting does the work of HelloShim for a session that may have to wait for its reservation.
func (c *Client) HelloShimWaiting(ctx context.Context, req HelloRequest, w Wait) (*ShimSession, error) {
	return c.helloShim(ctx, req, &waiting{Wait: w})
}

// AllocWaiting does the work of Alloc, reports the wait to w.OnNotice, and can be cancelled: see CallWaiting.
func (c *Client) AllocWaiting(ctx context.Context, req AllocRequest, w Wait) (AllocReply, error) {
	return c.alloc(ctx, req, &waiting{Wait: w})
}
