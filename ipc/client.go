package ipc

// This file has a Go client's connection to the daemon, with the order of requests on it. call.go sends requests;
// find.go chooses the daemon's path; socket.go moves the messages.

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

// Client is the client's end of one connection. It has at most one request under way: further callers wait for their
// turn or for the end of their context. A thread that must ask while another thread's request waits needs a second
// Client, joined to the session. All methods are safe for concurrent use.
//
// If a context ends while its request is under way, the connection is closed, which also gives up the place in the
// daemon's queue. That Client cannot be used any more. CallWaiting is the exception.
type Client struct {
	sock *socket
	path string
	turn chan struct{} // has one element while no request is under way
	gone chan struct{} // closed by Close
	once sync.Once     // Close
	last int           // bytes of the last snapshot, as an estimate for the next one; guarded by turn
	able atomic.Uint32 // HelloReply.Flags of the last Hello; 0: none was answered
}

// requests numbers the requests of all connections of this process. A session may have several connections, also one
// after another, and the daemon recognises a repeated request by its number.
var requests atomic.Uint64

// NewRequest returns a number that no request of this process has had. A caller that may repeat a request after the
// daemon's death takes the number before the first attempt.
func NewRequest() uint64 { return requests.Add(1) }

// Dial connects to the daemon at path. If the daemon's backlog of new connections is full, Dial tries again until ctx
// ends, for at most 5 seconds. Every other failure is returned at once.
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

// Path returns the socket's path as given to Dial.
func (c *Client) Path() string { return c.path }

// Able reports whether the reply of the last Hello has this flag (Able*): an earlier daemon lacks it.
func (c *Client) Able(flag uint32) bool { return c.able.Load()&flag != 0 }

// Close closes the connection. A request under way ends with net.ErrClosed. Further calls do nothing.
func (c *Client) Close() (err error) {
	c.once.Do(func() {
		close(c.gone)
		err = c.sock.close()
	})
	return err
}

// Closed reports whether this side has closed the connection, by Close or because a context ended during a request.
func (c *Client) Closed() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// acquire waits for this caller's turn to use the connection.
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

// finish ends a request. If the request has no reply, finish closes the connection, because a later reply could be
// taken for that of another request.
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
		return ctx.Err() // the end of ctx has closed the connection
	}
	return err
}

// closeWhenDone closes the connection when ctx ends. The returned function cancels that and reports whether it came
// before the end of ctx.
func (c *Client) closeWhenDone(ctx context.Context) func() bool {
	if ctx.Done() == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() { _ = c.Close() })
}

// send sends one message. It waits for space in the socket's buffer until Close. If sent is not nil, send sets *sent
// together with sending the message; the socket's wMu guards it.
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

// trySend calls try with wMu held, and again each time that the socket has space.
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

// pendingError is called if the daemon has closed the connection before a request was sent. It returns the error
// reply that the daemon sent before closing, or err if there is none.
func (c *Client) pendingError(err error) error {
	_ = c.sock.conn.SetReadDeadline(time.Now().Add(time.Second))
	_, _, fd, late := c.reply(Header{})
	var refused *ReplyError
	if errors.As(closeFD(fd, late), &refused) {
		return refused
	}
	return err
}

// reply waits for the next reply to asked. A status of 100 or more becomes a *ReplyError. The caller owns the
// returned descriptor; −1: none.
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

// textOf returns the sentence of a reply that has one, or "".
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
