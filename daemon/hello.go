package daemon

// This file answers Hello, Join and Bye: it opens and ends sessions. serve.go calls it. resume.go continues sessions
// of the last daemon.

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

// facts returns what the kernel reports about a peer, provided that the PID still belongs to the process that
// connected. The caller must afterwards get the pidfd from the connection: only then are the facts valid.
func (d *Daemon) facts(c *ipc.Conn) (rules.Process, error) {
	peer := c.Peer()
	if peer.PIDFD < 0 {
		return rules.Process{}, refused(ipc.StatusOrder, "this connection opened a job, or belongs to a session: another needs one of its own")
	}
	f, err := d.inv.FactsOf(startedOf(peer), c.PeerLives)
	if err != nil {
		return rules.Process{}, err // the error names the process
	}
	p := process(f, peer.PID)
	p.Visible = d.inv.Variables(peer.PID, rules.VisibleNames...)
	setUser(&p, peer)
	in := append([]string{p.Cgroup}, p.AlsoIn...)
	d.checkFolders(in...) // first drop the limits and jobs of removed cgroups: a new cgroup at the old path must not inherit them
	d.checkBindings(in...)
	return p, nil
}

// hello opens a session. A shim gets its lease page; a tool gets only a reply.
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
		// If the queue is full, a session with a reservation is refused like a connection over the limit. Libraries
		// of all versions then try again, and take no device memory meanwhile.
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

// helloTool answers the Hello of a tool, and checks that programs can be started in the job that it names.
func (cl *client) helloTool(h ipc.Header, req *ipc.HelloRequest) error {
	rep := ipc.HelloReply{Devices: uint32(len(cl.d.devices())), Flags: ipc.AbleEmptiest}
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

// openSession opens a session with its page and records. If memory.min has no room yet, the session waits: the reply
// is sent when the memory is reserved.
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
	place, forget := d.takeAbsentLocked(c.Peer(), head)
	defer forget()
	s, ticket, err := d.addSessionLocked(c, proc, h, page, func(r arbiter.SessionRequest) (arbiter.SessionInfo, error) {
		r.Place = place
		return d.arb.OpenSession(d.now(), r)
	})
	if err != nil {
		page.Close()
		return nil, false, err
	}
	s.conns = append(s.conns, c)
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

// addSessionLocked adds a session to the arbiter (by open), the reaper and the state file. The caller commits its
// record. If it returns a ticket, the reservation is still to be made.
func (d *Daemon) addSessionLocked(c *ipc.Conn, proc rules.Process, h ipc.HelloRequest, page *ipc.LeasePage,
	open func(arbiter.SessionRequest) (arbiter.SessionInfo, error)) (*session, arbiter.TicketID, error) {
	peer := c.Peer()
	if err := d.sessionCounts.full(peer.PID, peer.UID, peer.Privileged); err != nil {
		return nil, 0, err
	}
	job, err := d.jobOfProcessLocked(h.Job, peer, &proc)
	if err != nil {
		return nil, 0, err
	}
	d.narrowLocked(&h, peer, job)
	index, record, err := d.file.Sessions.New()
	if err != nil {
		return nil, 0, refused(ipc.StatusTooMany, "%d processes use gpuarb, the most of all users: end some of them (`gpuarb ps` lists those that hold something)", statefile.MaxSessions)
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

// sessionDecidedLocked applies the decision for a session that waited for its reservation. The record is committed
// only now: the client learns the session's token from this reply, so that it cannot resume the session before.
func (cl *client) sessionDecidedLocked(h ipc.Header, s *session, dec arbiter.Result) (receipt, func() error) {
	d := cl.d
	if !dec.Granted || s.dead {
		s.drop(cl.conn) // ending the session closes these connections, but this one must still send the reply
		d.endSessionLocked(s)
		err := refused(ipc.StatusNoSession, "the session has ended")
		if !dec.Granted {
			err = withCaller(s.caller, &dec)
		}
		return receipt{}, func() error { return cl.refuse(h, err) }
	}
	rep, fd, err := d.helloReplyLocked(s, true)
	if err != nil {
		s.drop(cl.conn)
		d.endSessionLocked(s)
		return receipt{}, func() error { return cl.refuse(h, err) }
	}
	d.file.Sessions.Commit(s.index)
	return receipt{s: s}, func() error {
		defer closeFD(fd)
		return ipc.Reply(cl.conn, h, ipc.StatusOK, &rep, fd)
	}
}

// replyHello sends a client the reply to Hello or Resume, with the page if withPage.
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

// helloReplyLocked returns the reply to Hello or Resume. The caller must close the descriptor: it is a copy, because
// the session can end at any moment and closes its own. −1: the page is not wanted.
func (d *Daemon) helloReplyLocked(s *session, withPage bool) (rep ipc.HelloReply, fd int, err error) {
	rep = ipc.HelloReply{Session: s.token, Devices: uint32(len(d.devices())), OnLoss: lossOf(d.config.Load()),
		Flags: ipc.AbleRoom | ipc.AbleObjects | ipc.AbleDriver | ipc.AbleCopies | ipc.AbleAside | ipc.AbleFirst | ipc.AbleDriverFull, HostMax: uint64(d.arb.HostMax(s.id))}
	if s.run {
		rep.InJob, rep.OnLoss = 1, ipc.LossClosed
	}
	if j := d.jobByID[s.job]; j != nil && j.bound != nil && j.bound.lossOpen {
		rep.OnLoss = ipc.LossOpen
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

// joinSessionLocked returns the live session with a token if it belongs to the peer's process, and adds the
// connection to it.
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
	s.conns = append(s.conns, c)
	return s, nil
}

// join adds this connection to a session.
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

// bye ends the session at the client's request.
func (cl *client) bye(*ipc.Empty) (rep ipc.Empty, err error) {
	cl.takeLock()
	defer cl.d.unlock()
	cl.s.drop(cl.conn) // ending the session closes these connections, but this one must still send the reply
	cl.d.endSessionLocked(cl.s)
	return rep, nil
}
