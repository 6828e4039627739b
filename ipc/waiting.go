package ipc

import (
	"context"
	"time"
)

// Wait says how a request is asked that may have to wait.
type Wait struct {
	// OnNotice is called with each notice of how the request stands. It runs between the
	// request and its reply and must not use the Client. nil: nobody is told.
	OnNotice func(WaitingReply)
	// Request is the request's number, from NewRequest. Sent again with the same number and
	// FlagRetry (or JobRetry), a request has its old place. 0: a number of its own.
	Request uint64
}

// giveUpPatience is how long the daemon has to answer a request that is given up.
const giveUpPatience = 10 * time.Second

// waiting is one request that may wait.
type waiting struct {
	Wait
	sent bool // it has gone out; the socket's wMu guards it
}

// closeUnlessSent closes the connection when ctx ends before the request has gone out.
func (c *Client) closeUnlessSent(ctx context.Context, w *waiting) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		c.sock.wMu.Lock()
		defer c.sock.wMu.Unlock()
		if !w.sent {
			_ = c.Close()
		}
	})
}

// giveUpWhenDone has the daemon answer the request under way when ctx ends. The function
// that it returns calls that off, or waits until it is done; it reports whether it was in time.
func (c *Client) giveUpWhenDone(ctx context.Context) func() bool {
	told := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(told)
		_ = c.sock.conn.SetReadDeadline(time.Now().Add(giveUpPatience))
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
		<-told
		return false
	}
}

// answer waits for the reply that ends a request, past the notices before it.
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

// tell passes a notice on.
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

// givenUp is the error of a request that was cancelled in good order: the connection
// can be used further.
type givenUp struct{ why error }

func (e *givenUp) Error() string   { return e.why.Error() }
func (e *givenUp) Unwrap() []error { return []error{e.why, StatusCancelled} }
