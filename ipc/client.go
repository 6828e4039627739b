package ipc

import (
	"context"
	"errors"
	"fmt"
	"io"
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
func (c *Client) take(ctx context.Context) error {
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
	if err := c.take(ctx); err != nil {
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
	return got, c.settle(ctx, stop(), err)
}

// settle ends a request. After anything but a reply, replies that are still to
// come could be taken for those of later requests: the connection is closed.
func (c *Client) settle(ctx context.Context, inTime bool, err error) error {
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
		return c.lastWords(err)
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

// lastWords looks for the error reply that a daemon sends before it closes a
// connection that it does not want, when sending met the closed connection.
func (c *Client) lastWords(err error) error {
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

// Bye ends the session in good order and closes the connection.
func (c *Client) Bye(ctx context.Context) error {
	err := Call(ctx, c, TypeBye, &Empty{}, &Empty{})
	return errors.Join(err, c.Close())
}

// Hello opens a session of a tool: no lease page, no lease. req.Kind is set here.
func (c *Client) Hello(ctx context.Context, req HelloRequest) (HelloReply, error) {
	req.Kind = KindTool
	return replyTo[HelloReply](ctx, c, TypeHello, req)
}

// OpenJob opens a job, which lives as long as this process or any process in it. It
// waits for what the job is to hold: see OpenJobWaiting.
func (c *Client) OpenJob(ctx context.Context, req JobOpenRequest) (JobOpenReply, error) {
	return replyTo[JobOpenReply](ctx, c, TypeJobOpen, req)
}

// CloseJob gives back what a job holds beyond its processes: claim, slots, reservation.
func (c *Client) CloseJob(ctx context.Context, job Token) error {
	return Call(ctx, c, TypeJobClose, &JobCloseRequest{Job: job}, &Empty{})
}

// SetLimit changes limits of a process, a job or a device. The daemon answers a wish
// that is not permitted with StatusPermission, one that makes no sense with StatusRange.
func (c *Client) SetLimit(ctx context.Context, req LimitRequest) error {
	return Call(ctx, c, TypeLimit, &req, &Empty{})
}

// SetCgroupLimit changes what all programs in a cgroup may hold. The daemon answers as to SetLimit; one that knows no
// such limit, with StatusUnknownType.
func (c *Client) SetCgroupLimit(ctx context.Context, path string, req LimitRequest) error {
	return Call(ctx, c, TypeCgroup, &CgroupRequest{Limit: req, Path: MakeText(path)}, &Empty{})
}

// Tally returns what became of a job so far. A daemon that keeps no such count answers with
// StatusUnknownType.
func (c *Client) Tally(ctx context.Context, job Token) (JobTallyReply, error) {
	return replyTo[JobTallyReply](ctx, c, TypeJobTally, JobTallyRequest{Job: job})
}

// Beside returns which processes of a job used a device past the library. A daemon that does not know this message answers
// with StatusUnknownType.
func (c *Client) Beside(ctx context.Context, job Token) (BesideReply, error) {
	return replyTo[BesideReply](ctx, c, TypeBeside, BesideRequest{Job: job})
}

// Cancel takes waiting requests out of the queue, and returns how many they were.
func (c *Client) Cancel(ctx context.Context, req CancelRequest) (int, error) {
	var reply CancelReply
	err := Call(ctx, c, TypeCancel, &req, &reply)
	return int(reply.Cancelled), err
}

// maxSnapshot is the most bytes that Snapshot and Metrics take from a daemon.
const maxSnapshot = 256 << 20

// Snapshot is the daemon's whole state at one moment, as JSON.
func (c *Client) Snapshot(ctx context.Context) ([]byte, error) { return c.inParts(ctx, TypeSnapshot) }

// Metrics are the daemon's metrics at one moment, in the text format of Prometheus, version 0.0.4. A daemon that has
// none answers with StatusUnknownType.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) { return c.inParts(ctx, TypeMetrics) }

// inParts asks for a text that comes in parts, and returns it whole.
func (c *Client) inParts(ctx context.Context, typ Type) (whole []byte, err error) {
	err = parts(ctx, c, typ, &Empty{}, func(part *SnapshotPart, text []byte) (last bool, err error) {
		if whole == nil {
			whole = make([]byte, 0, max(len(text), c.last+c.last/8))
		}
		if whole = append(whole, text...); part.Last == 1 {
			c.last = len(whole)
		} else if len(whole) > maxSnapshot {
			err = fmt.Errorf("%v: more than %d bytes: %w", typ, maxSnapshot, io.ErrShortBuffer)
		}
		return part.Last == 1, err
	})
	if err != nil {
		return nil, err
	}
	return whole, nil
}

// parts asks for what comes in parts, and hands on each, with the bytes behind it, until each says that it was the last one.
func parts[Req, Part Body](ctx context.Context, c *Client, typ Type, req *Req, each func(part *Part, rest []byte) (last bool, err error)) error {
	if err := c.take(ctx); err != nil {
		return err
	}
	defer func() { c.turn <- struct{}{} }()
	stop := c.closeWhenDone(ctx)
	small := c.sock.in
	c.sock.in = make([]byte, MaxReply)
	defer func() { c.sock.in = small }()
	h := Header{Type: typ, Request: NewRequest()}
	err := send(c, h, req, -1, nil)
	for last := false; err == nil && !last; {
		var part Part
		var rest []byte
		if rest, err = receivePart(c, h, &part); err == nil {
			last, err = each(&part, rest)
		}
	}
	return c.settle(ctx, stop(), err)
}

// receivePart waits for the next part of an answer that comes in parts.
func receivePart[Part Body](c *Client, asked Header, part *Part) (rest []byte, err error) {
	got, body, _, err := c.reply(asked)
	if err != nil {
		return nil, err
	}
	if got.Status != StatusOK {
		return nil, &ReplyError{Type: asked.Type, Status: got.Status}
	}
	n := size[Part]()
	return body[n:], Unmarshal(body[:n], part)
}
