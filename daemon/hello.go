package daemon

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/ipc"
)

// hello opens a session. A shim gets its lease page; a tool gets nothing but an
// answer.
func (cl *client) hello(h ipc.Header, req ipc.HelloRequest) error {
	if cl.s != nil || cl.tool {
		return refused(ipc.StatusOrder, "Hello was said before on this connection")
	}
	if req.Kind != ipc.KindShim {
		return cl.helloTool(h, &req)
	}
	s, waits, err := cl.d.openSession(cl, h, req)
	var refusal *arbiter.Result
	switch {
	case errors.As(err, &refusal) && refusal.Reason == arbiter.ReasonCrowded:
		// A session whose reservation finds no place in the queue is turned away as a connection that is one too many: libraries of all
		// versions come again then, and take no device memory meanwhile.
		return cl.conn.ReplyError(ipc.Header{}, &ipc.ProtocolError{Status: ipc.StatusTooMany, Text: refusal.Explain})
	case err != nil:
		return err
	}
	cl.s = s
	if waits {
		return nil
	}
	return cl.replyHello(h, s, true)
}

// helloTool tells a tool that it is heard, and whether the job that it names is one that
// programs can be started in.
func (cl *client) helloTool(h ipc.Header, req *ipc.HelloRequest) error {
	rep := ipc.HelloReply{Devices: uint32(len(cl.d.devices()))}
	if !req.Job.IsZero() {
		cl.d.lock()
		cl.applyLocked()
		_, err := cl.d.jobOfLocked(req.Job, cl.conn.Peer())
		cl.d.unlock()
		if err != nil {
			return err
		}
		rep.InJob = 1
	}
	cl.tool = true
	return ipc.Reply(cl.conn, h, ipc.StatusOK, &rep, -1)
}

// replyHello tells a client what its session is, with the page when withPage says so.
func (cl *client) replyHello(h ipc.Header, s *session, withPage bool) error {
	cl.d.lock()
	cl.applyLocked()
	rep, fd, err := cl.d.greetingLocked(s, withPage)
	cl.d.unlock()
	if err != nil {
		return err
	}
	defer closeFD(fd)
	return ipc.Reply(cl.conn, h, ipc.StatusOK, &rep, fd)
}

// greetingLocked is the reply to Hello or Resume. The descriptor is the caller's to close, since the session can end at any moment, and its own
// with it; −1 where none is wanted.
func (d *Daemon) greetingLocked(s *session, withPage bool) (rep ipc.HelloReply, fd int, err error) {
	rep = ipc.HelloReply{Session: s.token, Devices: uint32(len(d.devices())), OnLoss: lossOf(d.config.Load()),
		Flags: ipc.AbleRoom | ipc.AbleObjects | ipc.AbleDriver | ipc.AbleCopies | ipc.AbleAside, HostMax: uint64(d.arb.HostMax(s.id))}
	if s.run {
		rep.InJob, rep.OnLoss = 1, ipc.LossClosed
	}
	switch {
	case !withPage:
		return rep, -1, nil
	case s.page == nil:
		return rep, -1, refused(ipc.StatusNoSession, "the session has ended")
	}
	fd, err = unix.FcntlInt(uintptr(s.page.FD()), unix.F_DUPFD_CLOEXEC, 3)
	return rep, fd, err
}

// joinSessionLocked returns the live session of a token that belongs to the peer's process, and
// makes the connection one of its.
func (d *Daemon) joinSessionLocked(token ipc.Token, c *ipc.Conn) (*session, error) {
	s := d.sessions[token]
	if s == nil || s.dead {
		return nil, refused(ipc.StatusNoSession, "no session has this token")
	}
	if p := c.Peer(); startedOf(p) != startedOf(s.peer) {
		return nil, refused(ipc.StatusPermission, "the session belongs to process %d, this is process %d", s.peer.PID, p.PID)
	}
	if len(s.conns) >= connsPerSession {
		return nil, refused(ipc.StatusTooMany, "the session has %d connections already", connsPerSession)
	}
	s.conns[c] = struct{}{}
	return s, nil
}

// join makes this connection one of a session's.
func (cl *client) join(r *ipc.JoinRequest) (rep ipc.JoinReply, err error) {
	if cl.s != nil {
		return rep, refused(ipc.StatusOrder, "this connection belongs to a session already")
	}
	cl.d.lock()
	defer cl.d.unlock()
	cl.applyLocked()
	s, err := cl.d.joinSessionLocked(r.Session, cl.conn)
	if err != nil {
		return rep, err
	}
	cl.s, cl.taken = s, s.taken
	cl.conn.Joined()
	return rep, nil
}

// bye ends the session in good order.
func (cl *client) bye(*ipc.Empty) (rep ipc.Empty, err error) {
	cl.d.lock()
	defer cl.d.unlock()
	cl.applyLocked()
	delete(cl.s.conns, cl.conn) // which the answer has yet to go out on
	cl.d.endSessionLocked(cl.s)
	return rep, nil
}
