package ipc

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Wait says how a request is asked that may have to wait.
type Wait struct {
	// Told is called with each notice of how the request stands. It runs between the
	// request and its reply and must not use the Client. nil: nobody is told.
	Told func(WaitingReply)
	// Request is the request's number, from NewRequest. Sent again with the same number and
	// FlagRetry (or JobRetry), a request has its old place. 0: a number of its own.
	Request uint64
}

// CallWaiting is Call for a request that may have to wait. When ctx ends, the request is
// cancelled, and the connection can be used further. What the daemon granted in that very
// moment is granted: the error is then nil. Else it is ctx's.
func CallWaiting[Req, Rep Body](ctx context.Context, c *Client, typ Type, req *Req, reply *Rep, w Wait) error {
	return closeFD(callFD(ctx, c, typ, req, -1, reply, &waiting{Wait: w}))
}

// HelloShimWaiting is HelloShim for a session whose memory.min may have to be waited for.
func (c *Client) HelloShimWaiting(ctx context.Context, req HelloRequest, w Wait) (*ShimSession, error) {
	return c.helloShim(ctx, req, &waiting{Wait: w})
}

// AllocWaiting is Alloc that tells of the wait and can be given up: see CallWaiting.
func (c *Client) AllocWaiting(ctx context.Context, req AllocRequest, w Wait) (AllocReply, error) {
	return c.alloc(ctx, req, &waiting{Wait: w})
}

// StreamWaiting takes or gives back streams in a thread's name: see CallWaiting.
func (c *Client) StreamWaiting(ctx context.Context, req StreamRequest, w Wait) (StreamReply, error) {
	var reply StreamReply
	err := CallWaiting(ctx, c, TypeStream, &req, &reply, w)
	return reply, err
}

// ContextWaiting takes or gives back contexts in a thread's name: see CallWaiting.
func (c *Client) ContextWaiting(ctx context.Context, req ContextRequest, w Wait) (ContextReply, error) {
	var reply ContextReply
	err := CallWaiting(ctx, c, TypeContext, &req, &reply, w)
	return reply, err
}

// OpenJobWaiting is OpenJob that tells of the wait and can be given up: see CallWaiting.
func (c *Client) OpenJobWaiting(ctx context.Context, req JobOpenRequest, w Wait) (JobOpenReply, error) {
	var reply JobOpenReply
	err := CallWaiting(ctx, c, TypeJobOpen, &req, &reply, w)
	return reply, err
}

// cancelPatience is how long the daemon has to answer a Cancel.
const cancelPatience = 10 * time.Second

// waiting is one request that may wait, and the Cancel that gives it up.
type waiting struct {
	Wait
	cancel   atomic.Uint64 // the number of the Cancel; 0: none was sent
	answered bool          // the Cancel was
}

// request is the number that the request is to have, or 0.
func (w *waiting) request() uint64 {
	if w == nil {
		return 0
	}
	return w.Request
}

// cancelNumber is the number of the Cancel whose reply may come, or 0.
func (w *waiting) cancelNumber() uint64 {
	if w == nil {
		return 0
	}
	return w.cancel.Load()
}

// answer waits for the reply that ends a request, past the notices before it.
func (c *Client) answer(asked Header, w *waiting) (Header, []byte, int, error) {
	for {
		h, body, fd, err := c.reply(asked, w)
		switch {
		case err != nil:
			return h, body, fd, err
		case h.Type == TypeCancel|ReplyBit && w != nil && asked.Type != TypeCancel:
			w.answered = true
		case h.Status != StatusWaiting:
			return h, body, fd, nil
		default:
			if err := w.tell(body); err != nil {
				return h, nil, -1, closeFD(fd, err)
			}
		}
	}
}

// tell passes a notice on.
func (w *waiting) tell(body []byte) error {
	var notice WaitingReply
	if err := Unmarshal(body, &notice); err != nil {
		return err
	}
	if w != nil && w.Told != nil {
		w.Told(notice)
	}
	return nil
}

// cancelWhenDone cancels the request under way when ctx ends. The function that it
// returns calls that off, or waits until it is done; it reports whether it was in time.
func (c *Client) cancelWhenDone(ctx context.Context, w *waiting) func() bool {
	if ctx.Done() == nil {
		return func() bool { return true }
	}
	sent := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(sent)
		w.cancel.Store(NewRequest())
		_ = c.sock.conn.SetReadDeadline(time.Now().Add(cancelPatience))
		if send(c, Header{Type: TypeCancel, Request: w.cancel.Load()}, &CancelRequest{}, -1) != nil {
			_ = c.Close()
		}
	})
	return func() bool {
		if stop() {
			return true
		}
		<-sent
		return false
	}
}

// afterCancel reads the reply to a Cancel that was sent, if it has not come before the
// request's own. It returns what the request itself has come to.
func (c *Client) afterCancel(ctx context.Context, w *waiting, err error) error {
	number := w.cancel.Load()
	var refused *ReplyError
	if number == 0 || err != nil && !errors.As(err, &refused) {
		return err
	}
	if !w.answered {
		if _, _, fd, late := c.reply(Header{Type: TypeCancel, Request: number}, nil); late != nil && !errors.As(late, &refused) {
			return c.unlessGranted(err, closeFD(fd, late))
		}
	}
	if late := c.sock.conn.SetReadDeadline(time.Time{}); late != nil {
		return c.unlessGranted(err, late)
	}
	if errors.Is(err, StatusCancelled) {
		return &givenUp{ctx.Err()}
	}
	return err
}

// unlessGranted returns what went wrong after a request's reply had been read. What that
// granted counts all the same: the daemon knows that it was read, and only the connection is lost.
func (c *Client) unlessGranted(err, late error) error {
	if err != nil {
		return late
	}
	_ = c.Close()
	return nil
}

// givenUp is the error of a request that was cancelled in good order: the connection
// can be used further.
type givenUp struct{ why error }

func (e *givenUp) Error() string   { return e.why.Error() }
func (e *givenUp) Unwrap() []error { return []error{e.why, StatusCancelled} }
