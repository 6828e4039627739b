package ipc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Client is a client's end of one connection. It has one request under way at a
// time: further callers wait for their turn (or their context). A thread that
// must ask while another waits needs a Client of its own, joined to the session.
// All methods are safe for concurrent use.
//
// A context that ends while its request is under way closes the connection: that
// is what gives up the place in the daemon's queue. The Client is of no use then.
type Client struct {
	sock *socket
	path string
	turn chan struct{} // holds one token while no request is under way
	gone chan struct{} // closed by Close
	once sync.Once     // Close
	last int           // bytes of the last snapshot: the next one is about as long; turn guards it
}

// requests numbers the requests of all connections: a session has several, one after
// another too, and the number is how a request is known that comes again.
var requests atomic.Uint64

// NewRequest is a number that no request of this process had before. Whoever means to
// send a request again, should the daemon die meanwhile, takes its number beforehand.
func NewRequest() uint64 { return requests.Add(1) }

// Dial connects to the daemon at path. It waits, until ctx ends or 5 seconds
// have passed, for a daemon that has more newcomers than it can take at the
// moment; all else fails at once.
func Dial(ctx context.Context, path string) (*Client, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("%w, not %d", ErrLongPath, len(path))
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "unixpacket", path)
		if err == nil {
			return newClient(conn.(*net.UnixConn), path)
		}
		if !errors.Is(err, unix.EAGAIN) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: the daemon takes no connection: %w", path, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func newClient(conn *net.UnixConn, path string) (*Client, error) {
	sock, err := newSocket(conn, nil)
	if err != nil {
		conn.Close()
		return nil, err
	}
	c := &Client{sock: sock, path: path, turn: make(chan struct{}, 1), gone: make(chan struct{})}
	c.turn <- struct{}{}
	return c, nil
}

// Path is the socket that the client dialled.
func (c *Client) Path() string { return c.path }

// Close closes the connection. A request under way ends with net.ErrClosed.
// Calling it again does nothing.
func (c *Client) Close() (err error) {
	c.once.Do(func() {
		close(c.gone)
		err = c.sock.close()
	})
	return err
}

// Closed tells that the connection was closed from this side: by Close, or by
// a context that ended while a request was under way.
func (c *Client) Closed() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// take waits for this caller's turn to use the connection.
func (c *Client) acquire(ctx context.Context) error {
	select {
	case <-c.turn:
	default:
		select {
		case <-c.turn:
		case <-c.gone:
			return net.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := ctx.Err()
	if c.Closed() {
		err = net.ErrClosed
	}
	if err != nil {
		c.turn <- struct{}{}
	}
	return err
}

// settle ends a request. After anything but a reply, replies that are still to
// come could be taken for those of later requests: the connection is closed.
func (c *Client) finish(ctx context.Context, inTime bool, err error) error {
	if err == nil {
		return nil
	}
	var refused *ReplyError
	if errors.As(err, &refused) {
		return err
	}
	_ = c.Close()
	if !inTime {
		return ctx.Err() // that is why the request failed
	}
	return err
}

// closeWhenDone closes the connection when ctx ends. The function that it
// returns calls that off, and reports whether it was in time.
func (c *Client) closeWhenDone(ctx context.Context) func() bool {
	if ctx.Done() == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() { _ = c.Close() })
}

// send sends one message, waiting for room as long as it takes or until Close. sent, where
// there is one, is set with the message; the socket's wMu guards it.
func send[Req Body](c *Client, h Header, req *Req, fd int, sent *bool) error {
	err := c.trySend(func() error {
		c.sock.out = Marshal(c.sock.out[:0], h, req)
		err := c.sock.trySend(c.sock.out, nil, fd)
		if sent != nil {
			*sent = err == nil
		}
		return err
	})
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return c.pendingError(err)
	}
	return err
}

func (c *Client) trySend(try func() error) error {
	locked := func() error {
		c.sock.wMu.Lock()
		defer c.sock.wMu.Unlock()
		return try()
	}
	err := locked()
	if errors.Is(err, ErrSlowReader) {
		err = c.sock.sendWait(time.Time{}, locked)
	}
	return err
}

// pendingError looks for the error reply that a daemon sends before it closes a
// connection that it does not want, when sending met the closed connection.
func (c *Client) pendingError(err error) error {
	_ = c.sock.conn.SetReadDeadline(time.Now().Add(time.Second))
	_, _, fd, late := c.reply(Header{})
	var refused *ReplyError
	if errors.As(closeFD(fd, late), &refused) {
		return refused
	}
	return err
}

// reply waits for the next reply to asked. A status of 100 or more becomes a *ReplyError;
// a descriptor that came along is the caller's.
func (c *Client) reply(asked Header) (Header, []byte, int, error) {
	r, err := c.sock.receive()
	if err != nil {
		return Header{}, nil, -1, err
	}
	h, body, err := ParseReply(r.msg, r.full)
	switch connection := h.Type == ReplyBit && h.Status.IsError(); {
	case err != nil:
	case h.Status.IsError() && (connection || h.Type == asked.Type|ReplyBit && h.Request == asked.Request):
		var e ErrorReply
		if err = Unmarshal(body, &e); err == nil {
			err = &ReplyError{Type: asked.Type, Status: h.Status, Text: e.Text.String()}
		}
	case h.Type != asked.Type|ReplyBit || h.Request != asked.Request:
		err = refuse(StatusOrder, "asked %v %d, and %v %d came", asked.Type, asked.Request, h.Type, h.Request)
	case r.more || r.fd >= 0 && !lookup(asked.Type).replyFD:
		err = malformed("%v: a descriptor came, where none belongs", h.Type)
	}
	if err != nil {
		return h, nil, -1, closeFD(r.fd, err)
	}
	return h, body, r.fd, nil
}

// textOf is the sentence in the replies that have one.
func textOf[Rep Body](reply *Rep) string {
	switch r := any(reply).(type) {
	case *AllocReply:
		return r.Text.String()
	case *StreamReply:
		return r.Text.String()
	case *ContextReply:
		return r.Text.String()
	case *JobOpenReply:
		return r.Text.String()
	}
	return ""
}
