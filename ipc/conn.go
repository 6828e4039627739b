package ipc

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

// Conn is the daemon's end of one connection. One goroutine at a time may call
// ReadMessage; replies may be written by any goroutine, and Close may be called
// by any, any number of times.
type Conn struct {
	sock        *socket
	listener    *Listener
	peer        Peer
	pidfd       atomic.Int64 // −1 when taken or closed
	descriptors atomic.Int32 // descriptors, as the limits count them; 0 when closed
	once        sync.Once
	accepted    bool // by Accepted; the reader's
	readLate    bool // what came in time was looked for after the deadline; the reader's
}

// Message is one request as it came. Body lies in the connection's buffer and is
// valid until the next ReadMessage.
type Message struct {
	Header Header
	Body   []byte // exactly as long as Header.Type says; Unmarshal checks what is in it
	FD     int    // the page's memfd with a Resume whose HasPage is 1: the caller's to close. Else −1
}

// Peer is who connected. PIDFD belongs to the connection, see TakePIDFD.
func (c *Conn) Peer() Peer {
	p := c.peer
	p.PIDFD = int(c.pidfd.Load())
	return p
}

// PeerLives says that the peer's process had not ended at the time of the call. It can be told for as long
// as the connection has its pidfd: who has that from TakePIDFD afterwards knows that it was not closed meanwhile.
func (c *Conn) PeerLives() bool {
	fd := int(c.pidfd.Load())
	return fd >= 0 && checkAlive(fd) == nil
}

// TakePIDFD hands the peer's pidfd over to the caller, who closes it, so that it
// can outlive the connection. It returns −1 when it was taken before, or when
// the connection is closed.
func (c *Conn) TakePIDFD() int { return int(c.pidfd.Swap(-1)) }

// MarkJoined gives back what the connection needs no more when it belongs to the session of another of the same
// process, which has the process's pidfd. It counts less from then on.
func (c *Conn) MarkJoined() {
	_ = closeFD(c.TakePIDFD(), nil)
	if c.descriptors.CompareAndSwap(soloWeight, joinedWeight) {
		c.listener.limits.join(c.peer)
	}
}

// ReadMessage waits for the next request and checks all of it but the values in
// its body. At the end of the connection the error is io.EOF, or ECONNRESET where the
// client went without having read all that was sent to it, after Close net.ErrClosed.
//
// A *ProtocolError says that what came is no proper request. The message's
// Header is then what could be made out of it, so that ReplyError can answer;
// its Body is nil. The next message can be read, but when the error is Fatal
// the connection is better closed. Descriptors that do not belong are closed
// before this returns.
func (c *Conn) ReadMessage() (Message, error) {
	r, err := c.sock.receive()
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.readLate {
		// Where this process was held up itself, what came in time lies there. Looked for once: no
		// stream of rubbish keeps a connection open.
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

// MarkAccepted tells that a message of the client was a proper one: from here on the connection may
// be silent for as long as it likes. It is for the goroutine that reads.
func (c *Conn) MarkAccepted() {
	if !c.accepted {
		c.accepted = true
		_ = c.sock.conn.SetReadDeadline(time.Time{})
	}
}

// ReplySilent tells a client that its connection is closed because of it.
func (c *Conn) ReplySilent() {
	_ = Reply(c, Header{}, StatusOrder, &ErrorReply{Text: MakeText(fmt.Sprintf(
		"nothing that is a message came for %v: connect again when there is something to ask", c.listener.opts.Patience))}, -1)
}

// checkDescriptor holds what came along against what the message says.
func checkDescriptor(m *Message, r received) error {
	s := lookup(m.Header.Type)
	switch {
	case s.requestFD && r.more && r.fd < 0:
		return nil // there was no room for it here: as if it could not be opened
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

// Reply answers the request req with a body of its reply's type. A descriptor
// goes along unless fd is negative; it stays the caller's. It never waits: a
// client that has let its replies pile up until the kernel has no more room for
// them (about 200 KiB) is dropped, with ErrSlowReader. After any error but that the
// client has gone, EPIPE or ECONNRESET, the connection is closed. It allocates nothing.
func Reply[T Body](c *Conn, req Header, status Status, body *T, fd int) error {
	h := Header{Type: req.Type | ReplyBit, Status: status, Request: req.Request}
	c.sock.wMu.Lock()
	c.sock.out = Marshal(c.sock.out[:0], h, body)
	err := c.sock.trySend(c.sock.out, nil, fd)
	c.sock.wMu.Unlock()
	return c.sent(err)
}

// LastReply is when, by Clock, the last message was handed to the kernel. While it sends one, the kernel may have the processor
// run something else: the client, above all, that it wakes.
func (c *Conn) LastReply() time.Duration {
	c.sock.wMu.Lock()
	defer c.sock.wMu.Unlock()
	return c.sock.sentAt
}

// noticeRoom is how many bytes of a connection's buffer notices may fill: the rest is
// for the reply itself, however long a client does not read.
const noticeRoom = 16 << 10

// Notice tells the asker of req how its request stands that waits. It never waits. A
// notice that the client has no room for is left out, and that is no error. Other errors are
// as Reply's.
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

// ReplyError answers req with an error: the status and text of a *ProtocolError,
// StatusInternal and the error's own words for any other. It never waits, and
// fails as Reply does.
func (c *Conn) ReplyError(req Header, err error) error {
	status, words := StatusInternal, err.Error()
	var p *ProtocolError
	if errors.As(err, &p) {
		status, words = p.Status, p.Text
	}
	return Reply(c, req, status, &ErrorReply{Text: MakeText(words)}, -1)
}

// snapshotPart is the JSON bytes in one part of a snapshot.
const snapshotPart = MaxReply - HeaderSize - 8

// ReplySnapshot answers a Snapshot or Metrics request with a text of any length, in parts. It
// is the one reply that waits for a client to read, at most until timeout from
// now for all parts together; then the client is dropped with ErrSlowReader.
// Only the caller waits: other goroutines can write to the connection meanwhile.
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

// sendPart sends a body with more bytes behind it, and waits for room until the deadline; zero: until Close.
func sendPart[T Body](c *Conn, h Header, part *T, data []byte, deadline time.Time) error {
	return c.sock.sendWait(deadline, func() error {
		c.sock.wMu.Lock()
		defer c.sock.wMu.Unlock()
		c.sock.out = marshalPart(c.sock.out[:0], h, part, len(data))
		return c.sock.trySend(c.sock.out, data, -1)
	})
}

// sent closes the connection when a reply could not be sent. Where the client has gone,
// its reader comes to the end by itself, after what was sent before.
func (c *Conn) sent(err error) error {
	if err == nil || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return err
	}
	_ = c.Close()
	return err
}

// Close ends the connection and closes the pidfd, unless it was taken. A
// ReadMessage in progress returns net.ErrClosed.
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

// IsEnd tells the errors with which a connection ends in the ordinary course:
// the peer closed it or died, or we closed it.
func IsEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}
