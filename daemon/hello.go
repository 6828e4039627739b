package daemon

// This file answers Hello, Join and Bye: it opens sessions. resume.go continues those of before.

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/gpuarb/gpuarb/internal/faults"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
)

// facts reads what the kernel says about a peer, as long as that is the process that connected. It is to be
// believed where the pidfd is to be had from the connection afterwards.
func (d *Daemon) facts(c *ipc.Conn) (rules.Process, error) {
	peer := c.Peer()
	if peer.PIDFD < 0 {
		return rules.Process{}, refused(ipc.StatusOrder, "this connection opened a job, or belongs to a session: another needs one of its own")
	}
	f, err := d.inv.FactsOf(startedOf(peer), c.PeerLives)
	if err != nil {
		return rules.Process{}, err // which names the process
	}
	p := process(f, peer.PID)
	setUser(&p, peer)
	d.checkFolders(append([]string{p.Cgroup}, p.AlsoIn...)...) // the cgroup of the process may have been made again, without the limit of the one before
	return p, nil
}

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
		cl.takeLock()
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

// openSession opens a session with its page and records. One whose memory.min has no
// room yet waits for it: the reply comes when it is reserved.
func (d *Daemon) openSession(cl *client, head ipc.Header, h ipc.HelloRequest) (s *session, waits bool, err error) {
	c := cl.conn
	proc, err := d.facts(c)
	if err != nil {
		return nil, false, err
	}
	page, err := ipc.NewPage()
	if err != nil {
		return nil, false, err
	}
	cl.takeLock()
	defer d.unlock()
	place, forget := d.returnsLocked(c.Peer(), head)
	defer forget()
	s, ticket, err := d.addSessionLocked(c, proc, h, page, func(r arbiter.SessionRequest) (arbiter.SessionInfo, error) {
		r.Place = place
		return d.arb.OpenSession(d.now(), r)
	})
	if err != nil {
		page.Close()
		return nil, false, err
	}
	s.conns[c] = struct{}{}
	d.publishLimitsLocked(s)
	if ticket == 0 {
		faults.At("session.known")
		d.file.Sessions.Commit(s.index)
		faults.At("session.committed")
		cl.noteReceiptLocked(receipt{s: s})
		return s, false, nil
	}
	d.parkLocked(cl, s.caller, head, ticket, func(dec arbiter.Result) (receipt, func() error) { return cl.sessionDecidedLocked(head, s, dec) })
	return s, true, nil
}

// addSessionLocked makes a session known everywhere: arbiter (by open), reaper, and the state file, where
// the caller commits it. With a ticket its reservation is yet to be made.
func (d *Daemon) addSessionLocked(c *ipc.Conn, proc rules.Process, h ipc.HelloRequest, page *ipc.LeasePage,
	open func(arbiter.SessionRequest) (arbiter.SessionInfo, error)) (*session, arbiter.TicketID, error) {
	peer := c.Peer()
	if err := d.sessionsOf.full(peer.PID, peer.UID, peer.Privileged); err != nil {
		return nil, 0, err
	}
	job, err := d.jobOfLocked(h.Job, peer)
	if err != nil {
		return nil, 0, err
	}
	index, record, err := d.file.Sessions.New()
	if err != nil {
		return nil, 0, refused(ipc.StatusTooMany, "%d sessions are open: no room for another", statefile.MaxSessions)
	}
	*record = statefile.Session{PID: uint32(peer.PID), StartTicks: proc.StartTicks, Token: ipc.NewToken(),
		UID: peer.UID, GID: peer.GID, Job: uint64(job), PageDev: page.ID().Dev, PageInode: page.ID().Ino, Max: h.Memory,
		MaxPerMille: h.Share, Streams: h.Streams, OnFull: h.OnFull, Slots: h.Slots, SlotScope: h.SlotScope,
		StreamReserve: h.StreamReserve}
	s := sessionOf(index, record)
	s.page, s.caller = page, d.arb.CallerIn(job, proc)
	info, err := open(s.request(proc))
	if err != nil {
		d.file.Sessions.Free(index)
		return nil, 0, withCaller(s.caller, err)
	}
	s.id = info.ID
	faults.At("session.opened")
	pidfd := c.TakePIDFD()
	if pidfd < 0 {
		err = refused(ipc.StatusOrder, "this connection opened a job: a session needs one of its own")
	} else {
		err = d.watchSession(s, pidfd)
	}
	if err != nil {
		d.arb.EndSession(d.now(), s.id)
		d.file.Sessions.Free(index)
		return nil, 0, err
	}
	d.enterSessionLocked(s)
	return s, info.Waiting, nil
}

// sessionDecidedLocked carries out what became of a session that waited for its reservation.
// Only now would the next daemon take it up: before that its client knows no token of it.
func (cl *client) sessionDecidedLocked(h ipc.Header, s *session, dec arbiter.Result) (receipt, func() error) {
	d := cl.d
	if !dec.Granted || s.dead {
		delete(s.conns, cl.conn) // which the answer has yet to go out on
		d.endSessionLocked(s)
		err := refused(ipc.StatusNoSession, "the session has ended")
		if !dec.Granted {
			err = withCaller(s.caller, &dec)
		}
		return receipt{}, func() error { return cl.refuse(h, err) }
	}
	rep, fd, err := d.helloReplyLocked(s, true)
	if err != nil {
		delete(s.conns, cl.conn)
		d.endSessionLocked(s)
		return receipt{}, func() error { return cl.refuse(h, err) }
	}
	d.file.Sessions.Commit(s.index)
	return receipt{s: s}, func() error {
		defer closeFD(fd)
		return ipc.Reply(cl.conn, h, ipc.StatusOK, &rep, fd)
	}
}

// replyHello tells a client what its session is, with the page when withPage says so.
func (cl *client) replyHello(h ipc.Header, s *session, withPage bool) error {
	cl.takeLock()
	rep, fd, err := cl.d.helloReplyLocked(s, withPage)
	cl.d.unlock()
	if err != nil {
		return err
	}
	defer closeFD(fd)
	return ipc.Reply(cl.conn, h, ipc.StatusOK, &rep, fd)
}

// helloReplyLocked is the reply to Hello or Resume. The descriptor is the caller's to close, since the session can end at any moment, and its own
// with it; −1 where none is wanted.
func (d *Daemon) helloReplyLocked(s *session, withPage bool) (rep ipc.HelloReply, fd int, err error) {
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

func lossOf(c *config.Config) uint32 {
	if c.OnLoss == config.LossClosed {
		return ipc.LossClosed
	}
	return ipc.LossOpen
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
	cl.takeLock()
	defer cl.d.unlock()
	s, err := cl.d.joinSessionLocked(r.Session, cl.conn)
	if err != nil {
		return rep, err
	}
	cl.s, cl.resumes = s, s.resumes
	cl.conn.MarkJoined()
	return rep, nil
}

// bye ends the session in good order.
func (cl *client) bye(*ipc.Empty) (rep ipc.Empty, err error) {
	cl.takeLock()
	defer cl.d.unlock()
	delete(cl.s.conns, cl.conn) // which the answer has yet to go out on
	cl.d.endSessionLocked(cl.s)
	return rep, nil
}
