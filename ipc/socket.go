package ipc

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

// readSize is the room for one request: the longest, which is a
// Resume. What is longer is refused by its true length, which the kernel tells.
const readSize = HeaderSize + 1368 // TestReadSize holds it to the table of messages

// replySize is a client's room for one reply: the longest but for the parts of a
// snapshot, which is a JobOpenReply.
const replySize = HeaderSize + 1576

// rights is control data with exactly one descriptor, laid out as CMSG_SPACE(4) is.
type rights struct {
	h  unix.Cmsghdr
	fd int32
	_  int32
}

// oneRight is CMSG_LEN(4). With no more room than this the kernel installs one
// descriptor at most, however many were sent, and drops the others.
const oneRight = unix.SizeofCmsghdr + 4

// socket is one end of a SOCK_SEQPACKET connection. It moves whole messages, with
// at most one descriptor each, and allocates nothing in the steady state. The net
// package has the descriptor's life and its waiting; the calls are our own,
// because net's would allocate and would not tell a message's true length.
type socket struct {
	conn *net.UnixConn
	raw  syscall.RawConn

	// The reader's side. One goroutine reads at a time.
	buffers *sync.Pool // of *[readSize]byte
	in      []byte     // nil while there is nothing to read, where buffers are shared
	rIov    unix.Iovec
	rMsg    unix.Msghdr
	rCtl    rights
	rN      int
	rErr    syscall.Errno
	recvF   func(fd uintptr) bool

	// The writer's side. Any goroutine may send; each holds wMu for one
	// non-blocking system call and never while it waits.
	wMu    sync.Mutex
	out    []byte
	wIov   [2]unix.Iovec
	wMsg   unix.Msghdr
	wCtl   rights
	wErr   syscall.Errno
	sendF  func(fd uintptr)
	sentAt time.Duration // when the last message was handed to the kernel

	reset atomic.Bool // the kernel has said ECONNRESET
}

// newSocket takes over a connection. The many sockets of a listener share their buffers, as most have nothing to
// read at any moment; with shared nil it has a buffer of its own.
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

// received is one message as it came.
type received struct {
	msg  []byte // what fitted into the buffer; valid until the next receive
	full int    // the message's true length
	fd   int    // a descriptor that came along, the receiver's own now; −1 without one
	more bool   // more descriptors came than one; the kernel has dropped them
}

// receive waits for the next message, for as long as the connection's read
// deadline says. io.EOF is the orderly end, ECONNRESET the end where the peer left
// something unread; a message of no bytes is one with full == 0.
func (s *socket) receive() (received, error) {
	if err := s.raw.Read(s.recvF); err != nil {
		return received{fd: -1}, err
	}
	return s.result()
}

// receiveNow is receive for a message that is there already, whatever the deadline says.
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

// took is what recvOnce has received.
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

// ending is how the stream ended. Where the peer went without having read all that was sent
// to it the kernel says ECONNRESET, once, to the first that sends, receives or asks. A peer
// that has shut the connection down and not closed it yet still has what lies unread; so
// that is looked at first.
func (s *socket) endError() error {
	unread, why := s.unread(), 0
	_ = s.raw.Control(func(fd uintptr) { why, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR) })
	if unread > 0 || why == int(unix.ECONNRESET) || s.reset.Load() {
		return os.NewSyscallError("recvmsg", unix.ECONNRESET)
	}
	return io.EOF
}

// recvOnce is one non-blocking recvmsg; it returns false to be called again when
// there is something to read.
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
		case unix.ECONNRESET: // which comes before what was sent ahead of it
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

// acquireBuffer sees to it that there is a buffer to read into.
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

// releaseBuffer is for a reader that is about to wait: others may need the buffer.
func (s *socket) releaseBuffer() {
	if s.buffers != nil {
		s.buffers.Put((*[readSize]byte)(s.in))
		s.in, s.rIov.Base = nil, nil
	}
}

// receivedFD is the descriptor in the control data of the last message, or −1.
func (s *socket) receivedFD() int {
	c := &s.rCtl
	if s.rMsg.Controllen < oneRight || c.h.Level != unix.SOL_SOCKET || c.h.Type != unix.SCM_RIGHTS {
		return -1
	}
	return int(c.fd)
}

// hungUp tells the end of the stream from an empty message, which look the same
// to recvmsg: at the end the kernel says that the peer has gone.
func (s *socket) hungUp() bool {
	gone := true
	_ = s.raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(p, 0)
		gone = err != nil || n != 0
	})
	return gone
}

// trySend sends msg, then tail when it is not empty, as one message, with a
// descriptor unless fd is negative. It never waits: ErrSlowReader when the kernel
// has no room. The caller holds wMu.
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
	s.wIov = [2]unix.Iovec{} // hold on to nobody's buffer
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

// unread is about how many bytes of what was sent the peer has not read.
func (s *socket) unread() (bytes int) {
	_ = s.raw.Control(func(fd uintptr) { bytes, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return bytes
}

func (s *socket) sendOnce(fd uintptr) {
	for {
		_, _, s.wErr = unix.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&s.wMsg)),
			unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if s.wErr != unix.EINTR {
			return
		}
	}
}

// sendWait is trySend that waits for room until the deadline, which it leaves on
// the connection's write side. It must not hold wMu, and does not while it waits.
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

// closeFD closes a descriptor that came with something that failed, or is not wanted.
func closeFD(fd int, err error) error {
	if fd >= 0 {
		unix.Close(fd)
	}
	return err
}

// Clock is how long this process has run, about. To read it takes half as long as time.Now.
func Clock() time.Duration { return time.Since(began) }

var began = time.Now()
