package daemon

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/faults"
	"github.com/gpuarb/gpuarb/inventory"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/procfacts"
	"github.com/gpuarb/gpuarb/shim"
	"github.com/gpuarb/gpuarb/statefile"
)

// session is one client process, known to the kernel by (pid, start time) and to
// itself by a token. The daemon's lock guards all of it but what never changes.
type session struct {
	id     arbiter.SessionID
	token  ipc.Token
	peer   ipc.Peer // as it was when it came; it has no PIDFD
	life   watched  // its process
	job    arbiter.JobID
	run    bool   // below `gpuarb run`
	caller string // how what its program prints names it
	page   *ipc.LeasePage
	record *statefile.Session
	index  int           // of record
	leases []*shim.Lease // by slot of the page, up to the last slot that had one; nil: none
	conns  map[*ipc.Conn]struct{}
	dead   bool
	died   time.Time     // when it was known to be dead
	sought bool          // after its end, a process was looked for that keeps its memory
	taken  int           // how often it was taken up again: connections of before are not listened to
	over   chan struct{} // closed when it has ended
	// mapped: the client was heard of since it was sent its page, so that it has it.
	mapped atomic.Bool
}

// sizeWish is an amount that a job or client asks for; nil: none.
func sizeWish(bytes uint64, share uint32) *accounting.Size {
	if size := shim.SizeOf(bytes, share); !size.Max {
		return &size
	}
	return nil
}

// scopeOf is whose one slot is, as the arbiter spells it.
func scopeOf(v uint32) rules.Scope {
	return map[uint32]rules.Scope{ipc.ScopeJob: rules.ScopeJob, ipc.ScopeProcess: rules.ScopeProcess,
		ipc.ScopeThread: rules.ScopeThread}[v]
}

// wireScope is the reverse of scopeOf.
func wireScope(s rules.Scope) uint32 {
	return map[rules.Scope]uint32{rules.ScopeJob: ipc.ScopeJob, rules.ScopeProcess: ipc.ScopeProcess,
		rules.ScopeThread: ipc.ScopeThread}[s]
}

// process turns what the kernel says into what rules are matched on.
func process(f procfacts.Facts, pid int) rules.Process {
	return rules.Process{PID: pid, StartTicks: f.StartTicks, UID: f.UID, GID: f.GID, User: f.User,
		Groups: f.GroupNames, Exe: f.Exe, Command: f.Command, Cgroup: f.Cgroup, AlsoIn: f.AlsoIn, Unit: f.Unit, Container: f.Container, NSPID: f.NSPID}
}

// facts reads what the kernel says about a peer, as long as that is the process that connected. It is to be
// believed where the pidfd is to be had from the connection afterwards.
func (d *Daemon) facts(c *ipc.Conn) (rules.Process, error) {
	peer := c.Peer()
	if peer.PIDFD < 0 {
		return rules.Process{}, refused(ipc.StatusOrder, "this connection opened a job, or belongs to a session: another needs one of its own")
	}
	f, err := d.inv.FactsOf(startedOf(peer), c.Lives)
	if err != nil {
		return rules.Process{}, err // which names the process
	}
	p := process(f, peer.PID)
	asPeer(&p, peer)
	d.lookAtFolders(append([]string{p.Cgroup}, p.AlsoIn...)...) // the cgroup of the process may have been made again, without the limit of the one before
	return p, nil
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
	d.lock()
	defer d.unlock()
	cl.applyLocked()
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
	d.showLocked(s)
	if ticket == 0 {
		faults.At("session.known")
		d.file.Sessions.Commit(s.index)
		faults.At("session.committed")
		cl.gaveLocked(receipt{s: s})
		return s, false, nil
	}
	d.parkLocked(cl, s.caller, head, ticket, func(dec arbiter.Result) (receipt, func() error) { return cl.sessionDecidedLocked(head, s, dec) })
	return s, true, nil
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
			err = about(s.caller, &dec)
		}
		return receipt{}, func() error { return cl.refuse(h, err) }
	}
	rep, fd, err := d.greetingLocked(s, true)
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

// about is an error that tells whom a refusal in it is about.
func about(caller string, err error) error {
	var refusal *arbiter.Result
	if !errors.As(err, &refusal) {
		return err
	}
	told := *refusal
	told.Explain = caller + ": " + told.Explain
	return &told
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
		return nil, 0, about(s.caller, err)
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
	d.knownLocked(s)
	return s, info.Waiting, nil
}

// sessionOf is the session of a record. Nobody knows it yet.
func sessionOf(index int, r *statefile.Session) *session {
	return &session{token: r.Token, job: arbiter.JobID(r.Job), run: r.Job != 0, record: r, index: index,
		peer: ipc.Peer{PID: int(r.PID), StartTicks: r.StartTicks, UID: r.UID, GID: r.GID, PIDFD: -1}, life: watched{pidfd: -1},
		conns: map[*ipc.Conn]struct{}{}, over: make(chan struct{})}
}

// request is what a session asks for by its record, as the arbiter takes it.
func (s *session) request(proc rules.Process) arbiter.SessionRequest {
	r := s.record
	request := arbiter.SessionRequest{Process: proc, Job: s.job, Max: sizeWish(r.Max, r.MaxPerMille), Streams: int(r.Streams),
		OnFull: map[uint32]rules.OnFull{ipc.OnFullDeny: rules.OnFullDeny, ipc.OnFullWait: rules.OnFullWait}[r.OnFull],
		Slots:  int(r.Slots), SlotScope: scopeOf(r.SlotScope), Unreserved: r.Unreserved == 1}
	if r.StreamReserve != ipc.NoLimit {
		request.StreamReserve = new(accounting.Bytes(r.StreamReserve))
	}
	return request
}

// knownLocked enters a session wherever it is looked for.
func (d *Daemon) knownLocked(s *session) {
	if len(d.sessions)+len(d.jobs) == 0 {
		d.wakeReaders()
	}
	d.sessions[s.token] = s
	d.sessionsOf.add(s.peer.PID, s.peer.UID)
	d.ofProcess[s.peer.PID] = append(d.ofProcess[s.peer.PID], s)
	if j := d.jobByID[s.job]; j != nil {
		j.members[s] = struct{}{}
		j.live++
	}
}

// attach opens the session's lease on a device, or returns the one it has.
func (cl *client) attach(r *ipc.AttachRequest) (ipc.AttachReply, error) {
	d, s := cl.d, cl.s
	dev, ok := d.deviceByUUID(r.Device)
	if !ok {
		d.lookFor()
		dev, ok = d.deviceByUUID(r.Device)
	}
	d.lock()
	defer d.unlock()
	cl.applyLocked()
	if s.dead {
		return ipc.AttachReply{}, refused(ipc.StatusNoSession, "the session has ended")
	}
	if !ok {
		return ipc.AttachReply{}, refused(ipc.StatusNoDevice, "%s", d.arb.UnknownDevice(d.now(), s.id, r.Device.String()))
	}
	attach := func(l *shim.Lease) (arbiter.LeaseInfo, error) { return d.arb.Attach(d.now(), s.id, dev.Index, l) }
	var info arbiter.LeaseInfo
	var err error
	if l := s.leaseOn(dev.Index); l != nil {
		info, err = attach(l)
	} else {
		info, err = d.openLeaseLocked(s, dev, s.freeSlot(), attach)
	}
	if err != nil {
		return ipc.AttachReply{}, err
	}
	return ipc.AttachReply{Slot: s.leaseOn(dev.Index).Record.Slot, Index: uint32(dev.Index), Total: uint64(info.Total),
		Budget: uint64(info.Budget), StreamsMax: uint32(info.StreamsMax), SlotScope: wireScope(info.SlotScope)}, nil
}

// pageID is the page that was made for the session.
func (s *session) pageID() ipc.PageID {
	return ipc.PageID{Dev: s.record.PageDev, Ino: s.record.PageInode}
}

// open yields the session's leases.
func (s *session) open() iter.Seq[*shim.Lease] {
	return func(yield func(*shim.Lease) bool) {
		for _, l := range s.leases {
			if l != nil && !yield(l) {
				return
			}
		}
	}
}

// leaseAt returns the lease of a slot of the session's page, or nil.
func (s *session) leaseAt(slot uint32) *shim.Lease {
	if int(slot) >= len(s.leases) {
		return nil
	}
	return s.leases[slot]
}

// freeSlot returns the first slot of the session's page without a lease; ipc.PageSlots: there is none.
func (s *session) freeSlot() uint32 {
	if i := slices.Index(s.leases, nil); i >= 0 {
		return uint32(i)
	}
	return uint32(len(s.leases))
}

// leaseOn returns the session's lease on a device, or nil.
func (s *session) leaseOn(device int) *shim.Lease {
	for l := range s.open() {
		if l.Device == device {
			return l
		}
	}
	return nil
}

// openLeaseLocked opens a lease everywhere or nowhere: with the arbiter, by open, which writes down what it
// finds in it, in the state file, and in the client's page.
func (d *Daemon) openLeaseLocked(s *session, dev inventory.Device, slot uint32,
	open func(*shim.Lease) (arbiter.LeaseInfo, error)) (info arbiter.LeaseInfo, err error) {
	if err := d.leasesOf.full(s.peer.PID, s.peer.UID, s.peer.Privileged); err != nil {
		return info, err
	}
	if slot >= ipc.PageSlots { // there is no free one
		return info, refused(ipc.StatusTooMany, "a session can use %d devices", ipc.PageSlots)
	}
	index, record, err := d.file.Leases.New()
	if err != nil {
		return info, refused(ipc.StatusTooMany, "%d leases are open: no room for another", statefile.MaxLeases)
	}
	*record = statefile.Lease{Slot: slot, Session: uint32(s.index), Device: uint32(dev.Index), UUID: dev.UUIDBytes, OpenedAt: d.now().UnixNano()}
	l := d.words.Lease(record, index, dev.Index, s.page)
	if info, err = open(l); err != nil {
		d.file.Leases.Free(index)
		return info, err
	}
	faults.At("lease.opened")
	d.file.Leases.Commit(index)
	faults.At("lease.committed")
	d.knownLeaseLocked(s, l)
	return info, nil
}

// knownLeaseLocked enters a lease that the arbiter has opened in its session.
func (d *Daemon) knownLeaseLocked(s *session, l *shim.Lease) {
	for len(s.leases) <= int(l.Record.Slot) {
		s.leases = append(s.leases, nil)
	}
	s.leases[l.Record.Slot] = l
	d.leasesOf.add(s.peer.PID, s.peer.UID)
}

// freeLeaseLocked drops the record of a lease.
func (d *Daemon) freeLeaseLocked(index int) {
	d.forgetThreadsLocked(index)
	d.file.Leases.Free(index)
}

// leaseLocked returns the lease of a slot that a client asks something of. Of a connection from before the session
// was taken up again nothing is counted any more: the client has not told what that gave or took.
func (cl *client) leaseLocked(slot uint32) (*shim.Lease, error) {
	if cl.taken != cl.s.taken {
		return nil, refused(ipc.StatusNoSession, "the session was resumed on another connection: join it anew")
	}
	return cl.s.lease(slot)
}

// lease returns the lease of a slot that a client names.
func (s *session) lease(slot uint32) (*shim.Lease, error) {
	if s.dead {
		return nil, refused(ipc.StatusNoSession, "the session has ended")
	}
	l := s.leaseAt(slot)
	if l == nil {
		return nil, refused(ipc.StatusNoLease, "slot %d has no lease: Attach comes first", slot)
	}
	return l, nil
}

// wireError is an error with the status that the client shall see.
type wireError struct {
	status ipc.Status
	text   string
}

func (e *wireError) Error() string { return e.text }

func refused(status ipc.Status, format string, args ...any) error {
	return &wireError{status, fmt.Sprintf(format, args...)}
}

// statusOf finds the status for an error of any part.
func statusOf(err error) ipc.Status {
	var w *wireError
	var p *ipc.ProtocolError
	var r *arbiter.Result
	switch {
	case errors.As(err, &w):
		return w.status
	case errors.As(err, &p):
		return p.Status
	case errors.As(err, &r):
		return statusOfReason(r.Reason)
	case errors.Is(err, procfacts.ErrGone), errors.Is(err, arbiter.ErrNoSession):
		return ipc.StatusNoSession
	case errors.Is(err, arbiter.ErrNoDevice):
		return ipc.StatusNoDevice
	case errors.Is(err, rules.ErrPermission):
		return ipc.StatusPermission
	case errors.Is(err, rules.ErrRange):
		return ipc.StatusRange
	}
	return ipc.StatusInternal
}
