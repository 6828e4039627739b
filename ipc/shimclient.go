package ipc

import (
	"context"
	"errors"
	"fmt"
)

// ShimSession is a session as a shimmed process has it, for Go programs that act
// as one: tests, and programs that want a lease without the preload. Main is its
// first connection; Page is the lease page. Its methods are safe for concurrent
// use, but those that ask on Main wait for each other.
type ShimSession struct {
	Main  *Client
	Page  *LeasePage
	Hello HelloReply

	asked HelloRequest
}

// HelloShim opens a shim's session on the connection and maps its lease page.
// req.Kind is set here. The session owns the connection, unless there is an error.
func (c *Client) HelloShim(ctx context.Context, req HelloRequest) (*ShimSession, error) {
	return c.helloShim(ctx, req, nil)
}

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

// Resume takes up on a fresh connection the session that s was, with what the
// process itself counts. The page goes along; when the daemon made a new one, s
// has that from here on and the old one is closed. On success s owns c, and the
// connection it had before is closed. It must not run beside other methods of s.
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

// Join makes c a further connection of the session.
func (s *ShimSession) Join(ctx context.Context, c *Client) error { return c.Join(ctx, s.Hello.Session) }

// Close closes the first connection, as a process does that ends, and unmaps the page.
func (s *ShimSession) Close() error {
	var err error
	if s.Page != nil {
		err = s.Page.Close()
		s.Page = nil
	}
	return errors.Join(err, s.Main.Close())
}

// Join makes this connection one of a session that there is already.
func (c *Client) Join(ctx context.Context, session Token) error {
	return Call(ctx, c, TypeJoin, &JoinRequest{Session: session}, &JoinReply{})
}

// Attach opens the lease on a device.
func (c *Client) Attach(ctx context.Context, device UUID) (AttachReply, error) {
	return replyTo[AttachReply](ctx, c, TypeAttach, AttachRequest{Device: device})
}

// Alloc asks for bytes, and may wait for as long as the rules say. The reply is
// filled in with a refusal too, which is then also the error.
func (c *Client) Alloc(ctx context.Context, req AllocRequest) (AllocReply, error) {
	return c.alloc(ctx, req, nil)
}

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

// Freed reports a free that saw Notify. Nothing answers.
func (c *Client) Freed(slot uint32) error {
	return send(c, Header{Type: TypeFreed}, &FreedNotice{Slot: slot}, -1, nil)
}

// Stream takes (count > 0) or gives back (count < 0) streams.
func (c *Client) Stream(ctx context.Context, slot uint32, count int32) (StreamReply, error) {
	return replyTo[StreamReply](ctx, c, TypeStream, StreamRequest{Slot: slot, Count: count})
}

// Context asks before contexts are made (count > 0), or tells that they are gone (count < 0).
func (c *Client) Context(ctx context.Context, slot uint32, count int32) (ContextReply, error) {
	return replyTo[ContextReply](ctx, c, TypeContext, ContextRequest{Slot: slot, Count: count})
}

// Objects tells, after a Resume, all that the threads of a lease have made and hold.
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

// Query asks what a memory query on the device should answer.
func (c *Client) Query(ctx context.Context, device UUID) (QueryReply, error) {
	return replyTo[QueryReply](ctx, c, TypeQuery, QueryRequest{Device: device})
}

// HelloShimWaiting is HelloShim for a session whose memory.min may have to be waited for.
func (c *Client) HelloShimWaiting(ctx context.Context, req HelloRequest, w Wait) (*ShimSession, error) {
	return c.helloShim(ctx, req, &waiting{Wait: w})
}

// AllocWaiting is Alloc that tells of the wait and can be given up: see CallWaiting.
func (c *Client) AllocWaiting(ctx context.Context, req AllocRequest, w Wait) (AllocReply, error) {
	return c.alloc(ctx, req, &waiting{Wait: w})
}
