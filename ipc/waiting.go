package ipc

// This file has the client's side of a request that waits in the daemon's queue: notices before the reply, and giving
// up. call.go calls it.

import (
	"context"
	"time"
)

// Wait are the options of a request that may wait in the queue.
type Wait struct {
	// OnNotice is called with each notice about the request's state. It runs between the request and its reply and
	// must not use the Client. nil: notices are ignored.
	OnNotice func(WaitingReply)
	// Request is the request's number, from NewRequest. A repeated request with the same number and FlagRetry (or
	// JobRetry) takes its old place in the queue. 0: a new number.
	Request uint64
}

// cancelPatience bounds the time that the daemon has to answer a request that is being given up.
const cancelPatience = 10 * time.Second

// waiting is one request that may wait.
type waiting struct {
	Wait
	sent bool // the message has been sent; guarded by the socket's wMu
}

// closeUnlessSent closes the connection if ctx ends before the request has been sent.
func (c *Client) closeUnlessSent(ctx context.Context, w *waiting) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		c.sock.wMu.Lock()
		defer c.sock.wMu.Unlock()
		if !w.sent {
			_ = c.Close()
		}
	})
}

// giveUpWhenDone sends a GiveUp when ctx ends, so that the daemon answers the request under way. The returned
// function cancels that, or waits until the GiveUp has been sent; it reports whether it came before the end of ctx.
func (c *Client) giveUpWhenDone(ctx context.Context) func() bool {
	sent := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(sent)
		_ = c.sock.conn.SetReadDeadline(time.Now().Add(cancelPatience))
		c.sock.wMu.Lock()
		defer c.sock.wMu.Unlock()
		c.sock.out = Marshal(c.sock.out[:0], Header{Type: TypeGiveUp, Request: NewRequest()}, &Empty{})
		if c.sock.trySend(c.sock.out, nil, -1) != nil {
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

// answer waits for the reply that ends a request, and passes on the notices before it.
func (c *Client) answer(asked Header, w *waiting) (Header, []byte, int, error) {
	for {
		h, body, fd, err := c.reply(asked)
		if err != nil || h.Status != StatusWaiting {
			return h, body, fd, err
		}
		if err := w.passNotice(body); err != nil {
			return h, nil, -1, closeFD(fd, err)
		}
	}
}

// passNotice decodes a notice and calls OnNotice.
func (w *waiting) passNotice(body []byte) error {
	var notice WaitingReply
	if err := Unmarshal(body, &notice); err != nil {
		return err
	}
	if w != nil && w.OnNotice != nil {
		w.OnNotice(notice)
	}
	return nil
}

// cancelledError is the error of a request that was cancelled and answered, so that the connection stays usable.
type cancelledError struct{ why error }

func (e *cancelledError) Error() string   { return e.why.Error() }
func (e *cancelledError) Unwrap() []error { return []error{e.why, StatusCancelled} }
