package ipc

// This file sends a request and waits for its reply, also if the request has to wait in the daemon's queue. client.go
// has the connection, waiting.go the notices during a wait; requests.go and shimclient.go have one function for each
// request.

import (
	"context"
	"errors"
	"time"
)

// Call sends one request and waits for its reply. It decodes the reply into *reply if the reply's status is below 99.
// Any status but StatusOK is also returned, as a *ReplyError.
//
// Other errors are net.ErrClosed, io.EOF if the daemon closed the connection, ctx's error, or a *ProtocolError about
// the daemon's message. After these errors the Client is closed. Use CallWaiting for a request that may have to wait.
func Call[Req, Rep Body](ctx context.Context, c *Client, typ Type, req *Req, reply *Rep) error {
	return closeFD(callFD(ctx, c, typ, req, -1, reply, nil))
}

// replyTo does the work of Call and returns the reply.
func replyTo[Rep, Req Body](ctx context.Context, c *Client, typ Type, req Req) (reply Rep, err error) {
	err = Call(ctx, c, typ, &req, &reply)
	return reply, err
}

// callFD does the work of Call, with a descriptor in either direction; −1: none. The caller keeps the descriptor that
// it sends and owns the one that callFD returns. If w is nil, the end of ctx closes the connection.
func callFD[Req, Rep Body](ctx context.Context, c *Client, typ Type, req *Req, fd int, reply *Rep, w *waiting) (int, error) {
	if err := c.acquire(ctx); err != nil {
		return -1, err
	}
	defer func() { c.turn <- struct{}{} }()
	h := Header{Type: typ}
	if w != nil {
		h.Request = w.Request
	}
	if h.Request == 0 {
		h.Request = NewRequest()
	}
	if w != nil {
		return callWaiting(ctx, c, h, req, fd, reply, w)
	}
	stop := c.closeWhenDone(ctx)
	err := send(c, h, req, fd, nil)
	got := -1
	if err == nil {
		got, err = receiveReply(c, h, reply, nil)
	}
	return got, c.finish(ctx, stop(), err)
}

// receiveReply waits for the reply to a request and decodes it.
func receiveReply[Rep Body](c *Client, asked Header, reply *Rep, w *waiting) (int, error) {
	h, body, got, err := c.answer(asked, w)
	if err != nil {
		return got, err
	}
	if err := Unmarshal(body, reply); err != nil {
		return -1, closeFD(got, err)
	}
	if h.Status != StatusOK {
		return got, &ReplyError{Type: asked.Type, Status: h.Status, Text: textOf(reply)}
	}
	return got, nil
}

// CallWaiting does the work of Call for a request that may have to wait. When ctx ends, CallWaiting cancels the
// request, and the connection stays usable. If the daemon grants the request before the cancellation arrives, the
// grant stands and the error is nil. Otherwise the error is ctx's.
func CallWaiting[Req, Rep Body](ctx context.Context, c *Client, typ Type, req *Req, reply *Rep, w Wait) error {
	return closeFD(callFD(ctx, c, typ, req, -1, reply, &waiting{Wait: w}))
}

// callWaiting does the work of callFD for a request that may wait. After the request has been sent, only its reply
// decides about it: the end of ctx merely makes the daemon reply at once.
func callWaiting[Req, Rep Body](ctx context.Context, c *Client, h Header, req *Req, fd int, reply *Rep, w *waiting) (int, error) {
	stop := c.closeUnlessSent(ctx, w)
	err := send(c, h, req, fd, &w.sent)
	if stop(); err != nil {
		return -1, c.finish(ctx, ctx.Err() == nil, err)
	}
	stop = c.giveUpWhenDone(ctx)
	got, err := receiveReply(c, h, reply, w)
	inTime := stop()
	if !inTime {
		_ = c.sock.conn.SetReadDeadline(time.Time{}) // ignore its error: the next request fails if the connection is closed
		if errors.Is(err, StatusCancelled) {
			return got, &cancelledError{ctx.Err()}
		}
	}
	return got, c.finish(ctx, inTime, err)
}
