package daemon

// This file answers Resume requests: a client that lost its connection, or whose daemon was restarted, reports what
// it holds. recover.go reads the state file before that.

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/faults"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// resume continues the recorded session of a client (continueSession). If no record has its token, it opens a new
// session from the client's report (adopt).
func (cl *client) resume(m ipc.Message) error {
	defer closeFD(m.FD)
	var req ipc.ResumeRequest
	if err := ipc.Unmarshal(m.Body, &req); err != nil {
		return err
	}
	if cl.s != nil || cl.tool {
		return refused(ipc.StatusOrder, "this connection belongs to a session already")
	}
	cl.d.awaitFigures(&req, cl.conn.Peer())
	offer, err := cl.d.pageFor(&req, m.FD)
	if err != nil {
		return err
	}
	s, fresh, err := cl.continueSession(&req, &offer)
	if offer.page != nil {
		_ = offer.page.Close()
	}
	if statusOf(err) == ipc.StatusNoSession {
		s, err = cl.adopt(&req, m.FD)
		fresh = true
	}
	if err != nil {
		return err
	}
	return cl.replyHello(m.Header, s, fresh)
}

// pageOffer is a lease page for a session that has none. pageFor opens it without the lock. resume closes it if
// continueSession does not use it.
type pageOffer struct {
	page  *ipc.LeasePage // nil: none is needed, or the session has taken it
	fresh bool           // the page is new, and the client must map it
}

// pageFor opens a page for a session that has none: the page that the client sends, if it was made for the session,
// or else a new page.
func (d *Daemon) pageFor(req *ipc.ResumeRequest, fd int) (offer pageOffer, err error) {
	var id ipc.PageID
	d.lock()
	s := d.sessions[req.Session]
	needed := s != nil && !s.dead && s.page == nil
	if needed {
		id = s.pageID()
	}
	d.unlock()
	if !needed {
		return offer, nil
	}
	if own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3); err == nil {
		if page := openPage(own, id); page != nil {
			return pageOffer{page: page}, nil
		}
	}
	offer.page, err = ipc.NewPage()
	offer.fresh = true
	return offer, err
}

// awaitFigures waits for a reading of each device on which the client reports more use than is recorded and than the
// last reading shows. The client may have taken memory while no daemon ran. It waits for the reply to Resume
// meanwhile, and neither takes nor frees memory.
func (d *Daemon) awaitFigures(req *ipc.ResumeRequest, peer ipc.Peer) {
	for _, rl := range req.Leases[:req.Count] {
		if dev, ok := d.deviceByUUID(rl.Device); ok && rl.Used > d.knownUse(req.Session, dev.Index, peer) {
			d.awaitReading(dev.Index, 2*readEvery)
		}
	}
}

// knownUse returns how many bytes a client uses on a device: the larger of the recorded bytes and the bytes that the
// device shows.
func (d *Daemon) knownUse(session ipc.Token, device int, peer ipc.Peer) uint64 {
	d.lock()
	defer d.unlock()
	known := uint64(d.arb.UsageShown(device, peer.PID, peer.StartTicks))
	if s := d.sessions[session]; s != nil {
		if l := s.leaseOn(device); l != nil && l.Record != nil {
			known = max(known, l.Record.Granted)
		}
	}
	return known
}

// continueSession continues a recorded session with its page, or with a new page (fresh). The client's sums replace
// the daemon's. Bytes of a reply that the client never read are returned. Bytes whose Freed message the daemon never
// read are free.
func (cl *client) continueSession(req *ipc.ResumeRequest, offer *pageOffer) (s *session, fresh bool, err error) {
	d, c := cl.d, cl.conn
	cl.takeLock()
	defer d.unlock()
	if s, err = d.joinSessionLocked(req.Session, c); err != nil {
		return nil, false, err
	}
	if s.page == nil {
		if offer.page == nil { // the session was recovered after pageFor had looked for it
			s.drop(c)
			return nil, false, refused(ipc.StatusShuttingDown, "the session is just being taken up: resume again")
		}
		fresh = offer.fresh
		d.takePageLocked(s, req, offer)
	}
	faults.At("resume.found")
	s.resumes++
	cl.s, cl.resumes = s, s.resumes
	d.askAgainLocked(s)
	for _, rl := range req.Leases[:req.Count] {
		if err = d.reconcileLocked(s, rl); err != nil {
			d.log.Warn("discarding the saved session: it does not match what its process reports", "client_pid", s.peer.PID, "err", err)
			s.drop(c)
			cl.s = nil
			d.endSessionLocked(s)
			return nil, false, refused(ipc.StatusNoSession, "the session is known otherwise")
		}
	}
	d.refreshLocked(s)
	for l := range s.open() { // reports of frees were lost while the client had no connection
		d.arb.Freed(d.now(), l.ID)
	}
	return s, fresh, nil
}

// askAgainLocked makes the client send the requests again that wait on other connections of a session. They keep
// their places. The client has just reported its sums, and would not count grants in replies on the old connections.
func (d *Daemon) askAgainLocked(s *session) {
	var left []arbiter.TicketID
	for ticket, p := range d.queue.parked {
		if p.s != s {
			continue
		}
		delete(d.queue.parked, ticket)
		d.makeAbsentLocked(p)
		left = append(left, ticket)
		p.over.Store(true)
		p.cl.putLocked(func() {
			_ = p.cl.conn.ReplyError(p.head, &ipc.ProtocolError{Status: ipc.StatusNoSession, Text: "the session was resumed: ask again"})
		})
	}
	d.arb.MarkAbsent(d.now(), left)
}

// reconcileLocked sets the bytes of a lease, and of its record, to the sum that the client reports. Bytes above the
// recorded sum count only as far as they would be granted now or the device shows them. If the lease is not recorded,
// it opens the lease.
func (d *Daemon) reconcileLocked(s *session, rl ipc.ResumeLease) error {
	dev, ok := d.deviceByUUID(rl.Device)
	if !ok {
		return nil // the daemon does not know the device
	}
	switch l := s.leaseAt(rl.Slot); {
	case l != nil && l.Device == dev.Index:
	case l != nil, s.leaseOn(dev.Index) != nil:
		return fmt.Errorf("slot %d, device %x: not a lease that can be", rl.Slot, rl.Device)
	default:
		if _, err := d.openLeaseLocked(s, dev, rl.Slot, func(l *shim.Lease) (arbiter.LeaseInfo, error) {
			l.Record.Contexts = min(rl.Contexts, maxClaimed)
			info, err := d.arb.RestoreLease(d.now(), s.id, arbiter.RestoredLease{Device: dev.Index,
				Streams: int(min(rl.Streams, maxClaimed)), Contexts: int(l.Record.Contexts), Unverified: true}, l)
			l.Record.Streams = uint32(info.Streams)
			return info, err
		}); err != nil {
			return err
		}
	}
	l := s.leaseAt(rl.Slot)
	granted := d.arb.Recount(d.now(), l.ID, accounting.Bytes(rl.Used))
	faults.At("resume.counted")
	l.Resize(granted)
	faults.At("resume.resized")
	if rest := accounting.Bytes(rl.Used).Less(granted); rest > 0 {
		d.log.Warn("a program says that it uses more than it would be granted, and more than the device shows: the rest does not count",
			"client_pid", s.peer.PID, "device", dev.Index, "bytes", uint64(rest))
	}
	return nil
}

// takePageLocked gives the offered page to a session whose own page could not be opened. In a new page it sets the
// credit of each lease to the granted bytes less the used bytes that the client reports.
func (d *Daemon) takePageLocked(s *session, req *ipc.ResumeRequest, offer *pageOffer) {
	s.page = offer.page
	offer.page = nil
	if offer.fresh {
		s.record.PageDev, s.record.PageInode = s.page.ID().Dev, s.page.ID().Ino
	}
	for l := range s.open() {
		if offer.fresh {
			s.writeCredit(l, req)
		}
		l.SetPage(s.page)
	}
}

// writeCredit writes the credit of a lease to a new page.
func (s *session) writeCredit(l *shim.Lease, req *ipc.ResumeRequest) {
	for _, rl := range req.Leases[:req.Count] {
		if rl.Slot != l.Record.Slot || rl.Device != l.Record.UUID {
			continue
		}
		idle := uint64(ipc.MakeCreditWord(l.Record.Granted-min(rl.Used, l.Record.Granted), 0, 0))
		_ = s.page.Guard(func() {
			s.page.CreditWord(rl.Slot).Store(idle)
			s.page.Low(rl.Slot).Store(idle)
		})
	}
}

// adopt opens a session from a client's report, because no record has its token. Its leases count as unverified until
// the figures of the devices agree with them.
func (cl *client) adopt(req *ipc.ResumeRequest, fd int) (*session, error) {
	d, c := cl.d, cl.conn
	proc, err := d.facts(c)
	if err != nil {
		return nil, err
	}
	page, err := ipc.NewPage()
	if err != nil {
		return nil, err
	}
	seen := pageOf(proc.PID, fd)
	sent, _ := ipc.PageIDOf(fd)
	cl.takeLock()
	defer d.unlock()
	d.endDamagedLocked(proc, sent)
	hello := req.Hello
	if _, known := d.jobs[hello.Job]; !known && seen != nil && hello.Job != (ipc.Token{}) {
		if err := d.remakeJobLocked(d.arb.NextJob(), hello.Job, proc, seen); err != nil {
			d.log.Warn("a program's job cannot be made again", "client_pid", proc.PID, "err", err)
		}
	}
	s, _, err := d.addSessionLocked(c, proc, hello, page, d.openUnreservedLocked)
	if statusOf(err) == ipc.StatusNoSession && hello.Job != (ipc.Token{}) {
		// The job is not recorded. The program holds memory nevertheless, which must be counted.
		d.log.Warn("a program's job is unknown: it goes on as one of its own", "client_pid", proc.PID)
		hello.Job = ipc.Token{}
		s, _, err = d.addSessionLocked(c, proc, hello, page, d.openUnreservedLocked)
	}
	if err != nil {
		_ = page.Close()
		if j := d.jobs[hello.Job]; j != nil {
			d.queueSearchLocked(j)
		}
		return nil, err
	}
	cl.s, s.conns = s, append(s.conns, c)
	if s.record.Unreserved = 1; !d.reserveLocked(s) {
		d.log.Warn("a program was taken up again, and there is no room for the memory.min that it had: it goes on without "+
			"until there is", "client_pid", proc.PID)
	}
	d.file.Sessions.Commit(s.index)
	for _, rl := range req.Leases[:req.Count] {
		if err := d.reconcileLocked(s, rl); err != nil {
			d.log.Debug("a lease could not be taken up again", "client_pid", s.peer.PID, "err", err)
		}
	}
	if seen != nil {
		d.lowerToLocked(s, seen)
	}
	d.refreshLocked(s)
	return s, nil
}

// openUnreservedLocked opens the session of a program that reports unrecorded memory, without a reservation. The
// session must get its leases at once, and so cannot wait for room. A client's report alone must not reserve memory
// for which there is no room. The caller then tries reserveLocked.
func (d *Daemon) openUnreservedLocked(r arbiter.SessionRequest) (info arbiter.SessionInfo, err error) {
	r.Unreserved = true
	info.ID, err = d.arb.RestoreSession(d.now(), r)
	return info, err
}

// reserveLocked makes the reservation of a session that openUnreservedLocked opened. False: there is no room for it.
func (d *Daemon) reserveLocked(s *session) bool {
	if !d.arb.Reserve(d.now(), s.id) {
		return false
	}
	s.record.Unreserved = 0
	return true
}

// reservesPerTick is the number of missing reservations that are tried again at each tick, once a second.
const reservesPerTick = 16

// reserveAgainLocked tries to make missing reservations of up to reservesPerTick sessions. The random order of a map
// gives each session its turn.
func (d *Daemon) reserveAgainLocked() {
	tried := 0
	for _, s := range d.sessions {
		if s.dead || s.record.Unreserved == 0 {
			continue
		}
		if tried++; tried > reservesPerTick {
			return
		}
		if d.reserveLocked(s) {
			d.log.Info("there is room again for the memory.min of a program that was taken up without it", "client_pid", s.peer.PID)
		}
	}
}

// endDamagedLocked ends sessions of a process that a damaged state file still has, because the process now reports its
// memory under another token. It ends each session of the process that has no connection, if the session's page could
// not be opened or is the page that the process has sent. Otherwise the memory would be counted twice until the
// process ends.
func (d *Daemon) endDamagedLocked(proc rules.Process, sent ipc.PageID) {
	for _, s := range slices.Clone(d.sessionsByPID[proc.PID]) {
		theirs := s.peer.StartTicks == proc.StartTicks
		if !theirs || s.dead || len(s.conns) > 0 {
			continue
		}
		if s.page == nil || s.page.ID() == sent {
			d.log.Warn("discarding the saved session: it does not match what its process reports", "client_pid", proc.PID)
			d.forgetLocked(s)
		}
	}
}
