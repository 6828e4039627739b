package ipc

// This file sends a request and waits for its reply, also if the request has to wait. client.go has the connection, waiting.go the notices of a
// request that waits; requests.go and shimclient.go have the requests.

import (
	"context"
	"errors"
	"time"
)

// Call sends one request and waits for its reply, which is decoded into *reply
// when its status is below 99. Any status but StatusOK is also returned as a
// *ReplyError. Other errors: net.ErrClosed, io.EOF when the daemon closed the
// connection, ctx's, or a *ProtocolError about what the daemon sent; after these
// the Client is closed. See CallWaiting for a request that may have to wait.
func Call[Req, Rep Body](ctx context.Context, c *Client, typ Type, req *Req, reply *Rep) error {
	return closeFD(callFD(ctx, c, typ, req, -1, reply, nil))
}

// replyTo is Call, and returns the reply.
func replyTo[Rep, Req Body](ctx context.Context, c *Client, typ Type, req Req) (reply Rep, err error) {
	err = Call(ctx, c, typ, &req, &reply)
	return reply, err
}

// callFD is Call with a descriptor either way; −1 is none. The one sent stays
// the caller's, the one returned is the caller's too. With w nil the end of ctx closes
// the connection.
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

// receiveReply waits for the reply to a request, and decodes it.
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

// CallWaiting is Call for a request that may have to wait. When ctx ends, the request is
// cancelled, and the connection can be used further. If the daemon has granted the request in that very
// moment, it is granted: the error is then nil. Else the error is ctx's.
func CallWaiting[Req, Rep Body](ctx context.Context, c *Client, typ Type, req *Req, reply *Rep, w Wait) error {
	return closeFD(callFD(ctx, c, typ, req, -1, reply, &waiting{Wait: w}))
}

// callWaiting is callFD for a request that may wait. Its reply decides, and nothing else:
// once it has gone out, the end of ctx only asks for that reply.
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
		_ = c.sock.conn.SetReadDeadline(time.Time{}) // a closed connection tells the next request
		if errors.Is(err, StatusCancelled) {
			return got, &givenUp{ctx.Err()}
		}
	}
	return got, c.finish(ctx, inTime, err)
}
