package ipc

// This file has the daemon's end of one connection: it reads requests and writes replies. accept.go makes a Conn,
// socket.go moves its messages, and codec.go encodes them. The daemon's loop calls it for each connection.

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Conn is the daemon's end of one connection. ReadMessage is for one goroutine at a time. Any goroutine may write
// replies. Close may be called from any goroutine, several times.
type Conn struct {
	sock        *socket
	listener    *Listener
	peer        Peer
	pidfd       atomic.Int64 // the peer's pidfd; −1: taken or closed
	descriptors atomic.Int32 // number that the limits count for this connection; 0: closed
	once        sync.Once
	accepted    bool // set by MarkAccepted; for the reading goroutine only
	readLate    bool // ReadMessage has used its only read after the deadline; for the reading goroutine only
}

// Message is one received request. Body lies in the connection's buffer and is valid until the next ReadMessage.
type Message struct {
	Header Header
	Body   []byte // has the length that belongs to Header.Type; Unmarshal checks its values
	FD     int    // the page's memfd of a Resume whose HasPage is 1, which the caller must close; else −1
}

// Peer returns the identity of the process that connected. Its PIDFD belongs to the connection, see TakePIDFD.
func (c *Conn) Peer() Peer {
	p := c.peer
	p.PIDFD = int(c.pidfd.Load())
	return p
}

// PeerLives reports whether the peer's process was alive at the time of the call. It returns false after TakePIDFD or
// Close. If a later TakePIDFD returns a descriptor, the answer was not caused by a close.
func (c *Conn) PeerLives() bool {
	fd := int(c.pidfd.Load())
	return fd >= 0 && checkAlive(fd) == nil
}

// TakePIDFD transfers the peer's pidfd to the caller, who must close it, so that it can outlive the connection. It
// returns −1 if the pidfd was taken before or the connection is closed.
func (c *Conn) TakePIDFD() int { return int(c.pidfd.Swap(-1)) }

// MarkJoined records that the connection has joined a session of its own process. It closes the pidfd, because the
// session has one already. From then on the limits count one descriptor less for the connection.
func (c *Conn) MarkJoined() {
	_ = closeFD(c.TakePIDFD(), nil)
	if c.descriptors.CompareAndSwap(soloWeight, joinedWeight) {
		c.listener.limits.join(c.peer)
	}
}

// ReadMessage waits for the next request and checks everything except the values in its body. At the end of the
// connection the error is io.EOF, or ECONNRESET if the client left messages unread. After Close the error is
// net.ErrClosed.
//
// A *ProtocolError means that the message is malformed. Its Header then has the fields that could be read, for
// ReplyError, and its Body is nil. The next message can be read, but if the error is Fatal the connection should be
// closed. ReadMessage closes descriptors that do not belong to the message.
func (c *Conn) ReadMessage() (Message, error) {
	r, err := c.sock.receive()
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.readLate {
		// If this process was delayed, a message that came in time may lie in the buffer. It is read once only, so
		// that malformed messages cannot keep a connection open.
		c.readLate = true
		r, err = c.sock.receiveNow()
	}
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = ErrSilent
		}
		return Message{FD: -1}, closeFD(r.fd, err)
	}
	m := Message{FD: -1}
	m.Header, m.Body, err = ParseRequest(r.msg, r.full)
	if err == nil {
		err = checkDescriptor(&m, r)
	}
	if err == nil {
		m.FD = r.fd
		return m, nil
	}
	m.Body = nil
	return m, closeFD(r.fd, err)
}

// MarkAccepted records that the client has sent a valid message: from then on the connection may be silent without a
// time limit. Only the reading goroutine may call it.
func (c *Conn) MarkAccepted() {
	if !c.accepted {
		c.accepted = true
		_ = c.sock.conn.SetReadDeadline(time.Time{})
	}
}

// ReplySilent sends a client the reason why its silent connection is being closed.
func (c *Conn) ReplySilent() {
	_ = Reply(c, Header{}, StatusOrder, &ErrorReply{Text: MakeText(fmt.Sprintf(
		"nothing that is a message came for %v: connect again when there is something to ask", c.listener.opts.Patience))}, -1)
}

// checkDescriptor checks that a descriptor came if and only if the message announces one.
func checkDescriptor(m *Message, r received) error {
	s := lookup(m.Header.Type)
	switch {
	case s.requestFD && r.more && r.fd < 0:
		return nil // this process had no descriptor left: treat the page as one that cannot be opened
	case r.more:
		return malformed("%v: more than one descriptor came, or one that could not be received", m.Header.Type)
	case !s.requestFD && r.fd >= 0:
		return malformed("%v: a descriptor came, where none belongs", m.Header.Type)
	case !s.requestFD:
		return nil
	}
	var resume ResumeRequest
	if err := Unmarshal(m.Body, &resume); err != nil {
		return err
	}
	if has := r.fd >= 0; has != (resume.HasPage == 1) {
		return malformed("%v: HasPage is %d, and a descriptor came: %t", m.Header.Type, resume.HasPage, has)
	}
	return nil
}

// Reply answers the request req with a body of its reply's type. It sends fd along unless fd is negative; the caller
// keeps fd. Reply never waits. If unread replies have filled the kernel's buffer (about 200 KiB), Reply closes the
// connection and returns ErrSlowReader. It also closes the connection after every other error but EPIPE and
// ECONNRESET, which mean that the client has gone. It allocates nothing.
func Reply[T Body](c *Conn, req Header, status Status, body *T, fd int) error {
	h := Header{Type: req.Type | ReplyBit, Status: status, Request: req.Request}
	c.sock.wMu.Lock()
	c.sock.out = Marshal(c.sock.out[:0], h, body)
	err := c.sock.trySend(c.sock.out, nil, fd)
	c.sock.wMu.Unlock()
	return c.sent(err)
}

// LastReply returns the time, by Clock, just before the last message was given to the kernel. The time after the
// system call would be too late: the kernel may first run the client that the message wakes.
func (c *Conn) LastReply() time.Duration {
	c.sock.wMu.Lock()
	defer c.sock.wMu.Unlock()
	return c.sock.sentAt
}

// noticeRoom bounds the unread bytes of a connection up to which notices are sent. The rest of the buffer is kept for
// the reply, in case the client does not read for a long time.
const noticeRoom = 16 << 10

// Notice sends the client the state of its waiting request req. It never waits. If the buffer has no space, Notice
// leaves the message out and returns nil. Other errors are those of Reply.
func (c *Conn) Notice(req Header, body *WaitingReply) error {
	h := Header{Type: req.Type | ReplyBit, Status: StatusWaiting, Request: req.Request}
	c.sock.wMu.Lock()
	var err error
	if c.sock.unread() < noticeRoom {
		c.sock.out = Marshal(c.sock.out[:0], h, body)
		err = c.sock.trySend(c.sock.out, nil, -1)
	}
	c.sock.wMu.Unlock()
	if errors.Is(err, ErrSlowReader) {
		return nil
	}
	return c.sent(err)
}

// ReplyError answers req with an error: the status and text of a *ProtocolError, or StatusInternal and the text of
// any other error. It never waits, and it fails as Reply does.
func (c *Conn) ReplyError(req Header, err error) error {
	status, words := StatusInternal, err.Error()
	var p *ProtocolError
	if errors.As(err, &p) {
		status, words = p.Status, p.Text
	}
	return Reply(c, req, status, &ErrorReply{Text: MakeText(words)}, -1)
}

// snapshotPart is the most bytes of text in one part of a snapshot.
const snapshotPart = MaxReply - HeaderSize - 8

// ReplySnapshot answers a Snapshot or Metrics request with a text of any length, in parts. It waits for the client to
// read, for at most timeout in total; after that it closes the connection and returns ErrSlowReader. Other goroutines
// can write to the connection during the wait.
func (c *Conn) ReplySnapshot(req Header, json []byte, timeout time.Duration) error {
	h := Header{Type: req.Type | ReplyBit, Request: req.Request}
	deadline := time.Now().Add(timeout)
	for {
		part := SnapshotPart{}
		data := json[:min(len(json), snapshotPart)]
		json = json[len(data):]
		if len(json) == 0 {
			part.Last = 1
		}
		if err := sendPart(c, h, &part, data, deadline); err != nil || part.Last == 1 {
			return c.sent(err)
		}
	}
}

// sendPart sends a body with data behind it, and waits for space in the socket's buffer until the deadline. A zero
// deadline means until Close.
func sendPart[T Body](c *Conn, h Header, part *T, data []byte, deadline time.Time) error {
	return c.sock.sendWait(deadline, func() error {
		c.sock.wMu.Lock()
		defer c.sock.wMu.Unlock()
		c.sock.out = marshalPart(c.sock.out[:0], h, part, len(data))
		return c.sock.trySend(c.sock.out, data, -1)
	})
}

// sent closes the connection if err means that a reply could not be sent. If the client has gone, the connection
// stays open: its reader first gets the messages sent before the end.
func (c *Conn) sent(err error) error {
	if err == nil || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return err
	}
	_ = c.Close()
	return err
}

// Close ends the connection and closes the pidfd, unless TakePIDFD has transferred it. A ReadMessage in progress
// returns net.ErrClosed.
func (c *Conn) Close() error {
	err := error(net.ErrClosed)
	c.once.Do(func() {
		err = closeFD(c.TakePIDFD(), c.sock.close())
		c.listener.limits.leave(c.peer, int(c.descriptors.Swap(0)))
	})
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// IsEnd reports whether err is an ordinary end of a connection: the peer closed it or died, or this side closed it.
func IsEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}
