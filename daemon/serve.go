package daemon

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/daemon/fair"
	"github.com/gpuarb/gpuarb/faults"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/procfacts"
	"github.com/gpuarb/gpuarb/shim"
)

// openSocket listens: on the socket that systemd hands over, else on our own.
func (d *Daemon) openSocket() (*ipc.Listener, error) {
	files := activation.Files(true)
	for _, f := range files {
		defer f.Close()
	}
	if len(files) > 0 {
		l, err := ipc.ListenFile(files[0], ipc.ListenOptions{Limits: connLimits(), Patience: patience, Short: d.short,
			StartTicks: procfacts.Here.StartTicks, Lend: d.spare.lend})
		if err == nil {
			d.log.Info("listening on the socket that systemd opened", "socket", l.Path())
		}
		return l, err
	}
	if err := d.paths.ensureDir(); err != nil {
		return nil, err
	}
	o := ipc.ListenOptions{Mode: 0o600, Limits: connLimits(), Patience: patience, Short: d.short,
		StartTicks: procfacts.Here.StartTicks, Lend: d.spare.lend}
	if d.paths.system {
		o.Mode = 0o666 // whoever is kept out runs without a limit; the rules decide what he gets
	}
	return ipc.Listen(d.paths.socket, o)
}

// accept hands each client to a goroutine of its own.
func (d *Daemon) accept(ctx context.Context) {
	for {
		c, err := d.listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) && ctx.Err() == nil {
				d.failed <- err
			}
			return
		}
		d.lock()
		if d.stopping {
			d.unlock()
			_ = c.Close()
			return
		}
		cl := &client{d: d, conn: c, turn: d.turns.Enter(c.Peer().UID, c.Peer().PID)}
		d.conns[c] = cl
		d.wg.Go(cl.serve)
		d.unlock()
	}
}

// client is what one connection is to the daemon.
type client struct {
	d    *Daemon
	conn *ipc.Conn
	s    *session // of a shim, after Hello, Join or Resume
	tool bool     // said Hello as a tool
	// taken is s.taken when this connection became the session's.
	taken int
	// makers are what messages about makersOf have told that are followed by others.
	makers   []arbiter.Maker
	makersOf *shim.Lease
	// waits is the last request of this connection that was parked, unread what the last
	// reply gave; both are dropped by the connection's own goroutine.
	waits  *parked
	unread atomic.Pointer[receipt] // last, or nil
	last   receipt                 // the daemon's lock guards it
	turn   fair.Turn
}

// serve answers one connection's requests, one after the other.
func (cl *client) serve() {
	d, c, unread := cl.d, cl.conn, false
	defer func() {
		_ = c.Close()
		cl.abandon(unread)
		d.turns.Leave(c.Peer().UID, c.Peer().PID)
		d.lock()
		delete(d.conns, c)
		d.unlock()
		if cl.s != nil {
			d.connClosed(cl.s, c)
		}
	}()
	for {
		m, err := c.ReadMessage()
		if ipc.IsEnd(err) {
			unread = errors.Is(err, unix.ECONNRESET) // what the kernel says where something lay unread
			return
		}
		if errors.Is(err, ipc.ErrSilent) {
			c.Silence()
			return
		}
		if err == nil {
			err = cl.handle(m)
			faults.At("request.answered")
		}
		if !isProtocolError(err) {
			c.Accepted()
		}
		switch {
		case err == nil:
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET): // what it sent before it went is read all the same
			cl.unsent()
		case ipc.IsEnd(err), errors.Is(err, ipc.ErrSlowReader):
			cl.unsent()
			return
		case !cl.answerError(m.Header, err):
			return
		}
	}
}

// patience is how long a connection may be without a message that is one.
const patience = 10 * time.Second

// isProtocolError tells a message that was none.
func isProtocolError(err error) bool {
	var p *ipc.ProtocolError
	return errors.As(err, &p)
}

// refuse answers a request with an error.
func (cl *client) refuse(h ipc.Header, err error) error {
	status := statusOf(err)
	if !status.IsError() {
		status = ipc.StatusPermission // a refusal by policy where the reply has no room for the reason
	}
	return cl.conn.ReplyError(h, &ipc.ProtocolError{Status: status, Text: err.Error()})
}

// answerError answers a request that failed. False: the connection is to end.
func (cl *client) answerError(h ipc.Header, err error) bool {
	d := cl.d
	var p *ipc.ProtocolError
	if errors.As(err, &p) {
		d.lock()
		d.bad++
		d.unlock()
		d.log.Debug("not a proper request", "client_pid", cl.conn.Peer().PID, "err", err)
		return cl.conn.ReplyError(h, err) == nil && !p.Fatal()
	}
	status := statusOf(err)
	if status == ipc.StatusInternal {
		d.log.Warn("a request failed", "client_pid", cl.conn.Peer().PID, "request", h.Type, "err", err)
	}
	if h.Type == ipc.TypeFreed || h.Type == ipc.TypeGiveUp {
		return true // nothing answers them
	}
	return cl.refuse(h, err) == nil
}

// waiting says whether a request of this connection waits for its reply.
func (cl *client) waiting() bool { return cl.waits != nil && !cl.waits.isOver() }

// handle answers one request. An error that it returns is answered by the caller.
func (cl *client) handle(m ipc.Message) error {
	if aside := m.Header.Type == ipc.TypeGiveUp || m.Header.Type == ipc.TypeFreed; !aside {
		if cl.waiting() {
			return refused(ipc.StatusOrder, "%v while a request of this connection waits: only GiveUp and Freed may come", m.Header.Type)
		}
		cl.waits = nil // whoever asks the next thing has read the reply to the last
		cl.unread.Store(nil)
	}
	cl.turn.Take(turnFor(m.Header.Type))
	defer cl.turn.Give()
	leases := mostLeases(m.Header.Type)
	cl.d.file.Promise(leases) // what it writes down needs memory, which is not to be allocated under the lock
	defer cl.d.file.Kept(leases)
	switch m.Header.Type {
	case ipc.TypeGiveUp:
		cl.giveUp()
		return nil
	case ipc.TypeHello:
		return cl.hello(m)
	case ipc.TypeJoin:
		return cl.join(m)
	case ipc.TypeResume:
		return cl.resume(m)
	case ipc.TypeJobOpen:
		return cl.jobOpen(m)
	case ipc.TypeJobClose:
		return answer(cl, m, cl.jobClose)
	case ipc.TypeJobTally:
		return answer(cl, m, cl.jobTally)
	case ipc.TypeCancel:
		return answer(cl, m, cl.cancelRequest)
	case ipc.TypeSnapshot:
		return cl.snapshot(m)
	case ipc.TypeLimit:
		return answer(cl, m, cl.limit)
	}
	if cl.s == nil {
		return refused(ipc.StatusOrder, "%v before Hello, Join or Resume", m.Header.Type)
	}
	cl.s.mapped.Store(true)
	switch m.Header.Type {
	case ipc.TypeAttach:
		return answer(cl, m, func(r *ipc.AttachRequest) (ipc.AttachReply, error) { return cl.d.attach(cl.s, r.Device) })
	case ipc.TypeAlloc:
		return cl.alloc(m)
	case ipc.TypeFreed:
		return cl.freed(m)
	case ipc.TypeStream:
		return cl.stream(m)
	case ipc.TypeContext:
		return cl.context(m)
	case ipc.TypeObjects:
		return cl.objects(m)
	case ipc.TypeQuery:
		return answer(cl, m, cl.query)
	case ipc.TypeRoom:
		return answer(cl, m, cl.room)
	case ipc.TypeMeasure:
		return answer(cl, m, cl.measure)
	case ipc.TypeBye:
		return cl.bye(m)
	}
	return refused(ipc.StatusUnknownType, "no request has type %d", m.Header.Type)
}

// turnFor is what a request of a type has to have. What is answered without waiting for anything but the
// lock takes its user's turn. Hello and JobOpen ask the kernel about their own process, at length. It may
// never answer, about a process that means harm; so they take the turn of that process alone.
func turnFor(t ipc.Type) fair.Need {
	switch t {
	case ipc.TypeJoin, ipc.TypeAttach, ipc.TypeAlloc, ipc.TypeFreed, ipc.TypeStream, ipc.TypeContext, ipc.TypeObjects,
		ipc.TypeQuery, ipc.TypeRoom, ipc.TypeBye, ipc.TypeJobClose, ipc.TypeJobTally, ipc.TypeLimit:
		return fair.OfUser
	case ipc.TypeHello, ipc.TypeJobOpen:
		return fair.OfProcess
	}
	return fair.Nothing
}

// mostLeases is how many leases a request of a type opens at the most.
func mostLeases(t ipc.Type) int {
	if t == ipc.TypeResume {
		return ipc.PageSlots
	}
	return 1
}

// answer decodes a request, has f decide, and sends what it returns.
func answer[Req, Rep ipc.Body](cl *client, m ipc.Message, f func(*Req) (Rep, error)) error {
	var req Req
	if err := ipc.Unmarshal(m.Body, &req); err != nil {
		return err
	}
	rep, err := f(&req)
	if err != nil {
		return err
	}
	return ipc.Reply(cl.conn, m.Header, ipc.StatusOK, &rep, -1)
}
