package daemon

import (
	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/ipc"
)

// hello opens a session. A shim gets its lease page; a tool gets nothing but an
// answer.
func (cl *client) hello(m ipc.Message) error {
	var req ipc.HelloRequest
	if err := ipc.Unmarshal(m.Body, &req); err != nil {
		return err
	}
	if cl.s != nil || cl.tool {
		return refused(ipc.StatusOrder, "Hello was said before on this connection")
	}
	rep := ipc.HelloReply{Devices: uint32(len(cl.d.inv.Devices())), HostMax: ipc.NoLimit}
	if req.Kind != ipc.KindShim {
		cl.tool = true
		return ipc.Reply(cl.conn, m.Header, ipc.StatusOK, &rep, -1)
	}
	s, err := cl.d.openSession(cl.conn, req)
	if err != nil {
		return err
	}
	cl.s = s
	rep.Session = s.token
	rep.OnLoss = cl.d.loss(s)
	if s.run {
		rep.InJob = 1
	}
	fd, err := cl.d.pageFD(s)
	if err != nil {
		return err
	}
	defer closeFD(fd)
	return ipc.Reply(cl.conn, m.Header, ipc.StatusOK, &rep, fd)
}

// pageFD returns a descriptor of a session's page, the caller's to close. The
// session can end at any moment, and its own descriptor with it.
func (d *Daemon) pageFD(s *session) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.page == nil {
		return -1, refused(ipc.StatusNoSession, "the session has ended")
	}
	return unix.FcntlInt(uintptr(s.page.FD()), unix.F_DUPFD_CLOEXEC, 3)
}

// loss is what a session is to do without a daemon: closed under `gpuarb run`,
// else as the configuration says.
func (d *Daemon) loss(s *session) uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.run {
		return ipc.LossClosed
	}
	return d.onLoss
}

// find returns the live session of a token that belongs to the peer's process, and
// makes the connection one of its. The lock is held.
func (d *Daemon) find(token ipc.Token, c *ipc.Conn) (*session, error) {
	s := d.sessions[token]
	if s == nil || s.dead {
		return nil, refused(ipc.StatusNoSession, "no session has this token")
	}
	if p := c.Peer(); p.PID != s.peer.PID || p.StartTicks != s.peer.StartTicks {
		return nil, refused(ipc.StatusPermission, "the session belongs to process %d, this is process %d", s.peer.PID, p.PID)
	}
	if len(s.conns) >= connsPerSession {
		return nil, refused(ipc.StatusTooMany, "the session has %d connections already", connsPerSession)
	}
	s.conns[c] = struct{}{}
	return s, nil
}

// join makes this connection one of a session's.
func (cl *client) join(m ipc.Message) error {
	return answer(cl, m, func(r *ipc.JoinRequest) (ipc.JoinReply, error) {
		if cl.s != nil {
			return ipc.JoinReply{}, refused(ipc.StatusOrder, "this connection belongs to a session already")
		}
		cl.d.mu.Lock()
		s, err := cl.d.find(r.Session, cl.conn)
		cl.d.mu.Unlock()
		if err != nil {
			return ipc.JoinReply{}, err
		}
		cl.s = s
		return ipc.JoinReply{}, nil
	})
}

// bye ends the session in good order.
func (cl *client) bye(m ipc.Message) error {
	return answer(cl, m, func(*ipc.Empty) (ipc.Empty, error) {
		cl.d.mu.Lock()
		defer cl.d.mu.Unlock()
		delete(cl.s.conns, cl.conn) // which the answer has yet to go out on
		cl.d.endSession(cl.s)
		cl.d.drainEvents()
		return ipc.Empty{}, nil
	})
}
