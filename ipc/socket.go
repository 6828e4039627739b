package ipc

// This file moves whole messages, each with at most one descriptor, over a Unix socket. conn.go uses it for the
// daemon, client.go for clients. codec.go knows what is in a message.

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// readSize is the daemon's buffer for one request: the length of the longest, a Resume. A longer message is refused
// by its true length, which the kernel reports.
const readSize = HeaderSize + 1368 // TestReadSize checks it against the table of messages

// replySize is a client's buffer for one reply: the length of a JobOpenReply, the longest except for the parts of a
// snapshot.
const replySize = HeaderSize + 1576

// rights is control data for exactly one descriptor, with the layout of CMSG_SPACE(4).
type rights struct {
	h  unix.Cmsghdr
	fd int32
	_  int32
}

// oneRight is CMSG_LEN(4). With this much space the kernel installs at most one descriptor, and drops all others.
const oneRight = unix.SizeofCmsghdr + 4

// socket is one end of a SOCK_SEQPACKET connection. It moves whole messages with at most one descriptor each, and
// allocates nothing after its first messages.
//
// Package net owns the descriptor and waits on it. The socket makes the send and receive calls itself: net's calls
// would allocate, and would hide a message's true length.
type socket struct {
	conn *net.UnixConn
	raw  syscall.RawConn

	// Fields of the reader. One goroutine reads at a time.
	buffers *sync.Pool // of *[readSize]byte
	in      []byte     // nil while there is nothing to read, where buffers are shared
	rIov    unix.Iovec
	rMsg    unix.Msghdr
	rCtl    rights
	rN      int
	rErr    syscall.Errno
	recvF   func(fd uintptr) bool

	// Fields of the writer, guarded by wMu. Any goroutine may send: it holds wMu for one non-blocking system call,
	// never while it waits.
	wMu    sync.Mutex
	out    []byte
	wIov   [2]unix.Iovec
	wMsg   unix.Msghdr
	wCtl   rights
	wErr   syscall.Errno
	sendF  func(fd uintptr)
	sentAt time.Duration // by Clock, when the last message was given to the kernel

	reset atomic.Bool // the kernel has reported ECONNRESET
}

// newSocket takes over a connection. The sockets of a listener share their buffers, because most of them have nothing
// to read at any moment. If shared is nil, the socket has its own buffer.
func newSocket(conn *net.UnixConn, shared *sync.Pool) (*socket, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &socket{conn: conn, raw: raw, buffers: shared}
	if shared == nil {
		s.in = make([]byte, replySize)
	}
	s.recvF = s.recvOnce
	s.sendF = s.sendOnce
	return s, nil
}

// received is one message from the peer.
type received struct {
	msg  []byte // the part that fitted into the buffer; valid until the next receive
	full int    // the message's true length
	fd   int    // a descriptor, owned by the caller of receive; −1: none
	more bool   // more than one descriptor came, and the kernel dropped the others
}

// receive waits for the next message until the connection's read deadline. io.EOF is the orderly end; ECONNRESET is
// the end if the peer left messages unread. A message without bytes has full == 0.
func (s *socket) receive() (received, error) {
	if err := s.raw.Read(s.recvF); err != nil {
		return received{fd: -1}, err
	}
	return s.result()
}

// receiveNow returns a message that is already there, whatever the deadline is, or os.ErrDeadlineExceeded.
func (s *socket) receiveNow() (received, error) {
	there := false
	if err := s.raw.Control(func(fd uintptr) { there = s.recvF(fd) }); err != nil {
		return received{fd: -1}, err
	}
	if !there {
		return received{fd: -1}, os.ErrDeadlineExceeded
	}
	return s.result()
}

// result returns what recvOnce has received.
func (s *socket) result() (received, error) {
	if s.rErr != 0 {
		return received{fd: -1}, os.NewSyscallError("recvmsg", s.rErr)
	}
	r := received{full: s.rN, fd: s.receivedFD(), more: s.rMsg.Flags&unix.MSG_CTRUNC != 0}
	r.msg = s.in[:min(s.rN, len(s.in))]
	if s.rN == 0 && r.fd < 0 && !r.more && s.hungUp() {
		r.msg = nil
		s.releaseBuffer()
		return r, s.endError()
	}
	return r, nil
}

// endError returns the error of the connection's end. If the peer left messages unread, the kernel reports ECONNRESET
// once, to the first send, receive or SO_ERROR query. A peer that has only shut the connection down still has its
// unread messages, so endError checks for those first.
func (s *socket) endError() error {
	unread, why := s.unread(), 0
	_ = s.raw.Control(func(fd uintptr) { why, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR) })
	if unread > 0 || why == int(unix.ECONNRESET) || s.reset.Load() {
		return os.NewSyscallError("recvmsg", unix.ECONNRESET)
	}
	return io.EOF
}

// recvOnce makes one non-blocking recvmsg(2). It returns false if there is nothing to read, and must then be called
// again after the socket is readable.
func (s *socket) recvOnce(fd uintptr) bool {
	s.acquireBuffer()
	s.rIov.Base = unsafe.SliceData(s.in)
	s.rIov.SetLen(len(s.in))
	s.rMsg = unix.Msghdr{Iov: &s.rIov, Control: (*byte)(unsafe.Pointer(&s.rCtl))}
	s.rMsg.SetIovlen(1)
	s.rMsg.SetControllen(oneRight)
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&s.rMsg)),
			unix.MSG_DONTWAIT|unix.MSG_TRUNC|unix.MSG_CMSG_CLOEXEC)
		switch errno {
		case unix.EINTR:
			continue
		case unix.ECONNRESET: // reported before the messages that the peer sent earlier
			if !s.reset.Swap(true) {
				continue
			}
		case unix.EAGAIN:
			s.releaseBuffer()
			return false
		}
		s.rN, s.rErr = int(n), errno
		return true
	}
}

// acquireBuffer takes a read buffer if the socket has none.
func (s *socket) acquireBuffer() {
	if s.in != nil {
		return
	}
	if room, ok := s.buffers.Get().(*[readSize]byte); ok {
		s.in = room[:]
	} else {
		s.in = make([]byte, readSize)
	}
}

// releaseBuffer returns a shared read buffer before the reader waits, because other sockets may need it.
func (s *socket) releaseBuffer() {
	if s.buffers != nil {
		s.buffers.Put((*[readSize]byte)(s.in))
		s.in, s.rIov.Base = nil, nil
	}
}

// receivedFD returns the descriptor in the control data of the last message, or −1.
func (s *socket) receivedFD() int {
	c := &s.rCtl
	if s.rMsg.Controllen < oneRight || c.h.Level != unix.SOL_SOCKET || c.h.Type != unix.SCM_RIGHTS {
		return -1
	}
	return int(c.fd)
}

// hungUp reports whether the peer has gone. recvmsg(2) returns 0 both at the end of the stream and for an empty
// message; poll(2) distinguishes them.
func (s *socket) hungUp() bool {
	gone := true
	_ = s.raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(p, 0)
		gone = err != nil || n != 0
	})
	return gone
}

// trySend sends msg and tail as one message, with a descriptor unless fd is negative. tail may be empty. It never
// waits: it returns ErrSlowReader if the kernel's buffer is full. The caller holds wMu.
func (s *socket) trySend(msg, tail []byte, fd int) error {
	s.wMsg = unix.Msghdr{Iov: &s.wIov[0]}
	s.wIov[0] = unix.Iovec{Base: unsafe.SliceData(msg)}
	s.wIov[0].SetLen(len(msg))
	s.wMsg.SetIovlen(1)
	if len(tail) > 0 {
		s.wIov[1] = unix.Iovec{Base: unsafe.SliceData(tail)}
		s.wIov[1].SetLen(len(tail))
		s.wMsg.SetIovlen(2)
	}
	if fd >= 0 {
		s.wCtl = rights{h: unix.Cmsghdr{Level: unix.SOL_SOCKET, Type: unix.SCM_RIGHTS}, fd: int32(fd)}
		s.wCtl.h.SetLen(oneRight)
		s.wMsg.Control = (*byte)(unsafe.Pointer(&s.wCtl))
		s.wMsg.SetControllen(int(unsafe.Sizeof(s.wCtl)))
	}
	s.sentAt = Clock()
	err := s.raw.Control(s.sendF)
	s.wIov = [2]unix.Iovec{} // keep no reference to the caller's buffer
	if err != nil {
		return err
	}
	switch s.wErr {
	case 0:
		return nil
	case unix.EAGAIN:
		return ErrSlowReader
	case unix.ECONNRESET:
		s.reset.Store(true)
	}
	return os.NewSyscallError("sendmsg", s.wErr)
}

// unread returns about how many sent bytes the peer has not read.
func (s *socket) unread() (bytes int) {
	_ = s.raw.Control(func(fd uintptr) { bytes, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return bytes
}

// sendOnce makes one non-blocking sendmsg(2).
func (s *socket) sendOnce(fd uintptr) {
	for {
		_, _, s.wErr = unix.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&s.wMsg)),
			unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if s.wErr != unix.EINTR {
			return
		}
	}
}

// sendWait calls try each time that the socket has space, until try succeeds or the deadline passes. The deadline
// stays set for the connection's writes. The caller must not hold wMu.
func (s *socket) sendWait(deadline time.Time, try func() error) error {
	if err := s.conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	var sent error
	err := s.raw.Write(func(uintptr) bool {
		sent = try()
		return !errors.Is(sent, ErrSlowReader)
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ErrSlowReader
	}
	if err != nil {
		return err
	}
	return sent
}

func (s *socket) close() error { return s.conn.Close() }

// closeFD closes fd if it is not negative, and returns err. It is for a descriptor that came with a failed message or
// is not wanted.
func closeFD(fd int, err error) error {
	if fd >= 0 {
		unix.Close(fd)
	}
	return err
}

// Clock returns about how long this process has run. It takes half as long as time.Now.
func Clock() time.Duration { return time.Since(began) }

// began is the time of this package's initialization.
var began = time.Now()
