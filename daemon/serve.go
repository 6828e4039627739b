package daemon

// This file listens, and serves connections. It reads requests, acquires turns, and calls the function that the table
// of handlers names. start.go calls it.

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/daemon/fair"
	"github.com/gpuarb/gpuarb/daemon/metrics"
	"github.com/gpuarb/gpuarb/internal/faults"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/ipc"
)

// openSocket listens on the socket of the last daemon in this process, on the socket that systemd passed, or on a new
// one.
func (d *Daemon) openSocket() (*ipc.Listener, error) {
	files := d.sortPassed(activation.Files(true))
	for _, f := range files {
		defer f.Close()
	}
	o := ipc.ListenOptions{Mode: d.paths.socketMode(), Limits: connLimits(d.files), Patience: patience,
		StartTicks: procfacts.Here.StartTicks, Standing: standingOf}
	const what = "the socket has no second path for containers"
	o.SecondPath, o.SecondPathFailed = otherSocket, func(err error) { d.log.Warn(what, "err", err) }
	if d.handed != nil && d.handed.Socket >= 0 {
		return ipc.Inherit(*d.handed, o)
	}
	if len(files) > 0 {
		l, err := ipc.ListenFile(files[0], o)
		if err == nil {
			d.log.Info("listening on the socket that systemd opened", "socket", l.Path())
		}
		return l, err
	}
	if err := d.paths.ensureDir(); err != nil {
		return nil, err
	}
	return ipc.Listen(d.paths.socket, o)
}

// otherSocket returns the second path for a socket. It is empty if other users may write to the socket's folder,
// because they could put another file at that path.
func otherSocket(path string) string {
	var st unix.Stat_t
	if unix.Stat(filepath.Dir(path), &st) != nil || st.Uid != uint32(os.Geteuid()) || st.Mode&0o022 != 0 {
		return ""
	}
	return ipc.SecondPath(path)
}

// patience is how long a connection may stay without a well-formed message.
const patience = 10 * time.Second

// isProtocolError reports whether an error is that of a malformed message.
func isProtocolError(err error) bool {
	var p *ipc.ProtocolError
	return errors.As(err, &p)
}

// answerError answers a request that failed. False: the connection must end.
func (cl *client) answerError(h ipc.Header, err error) bool {
	d := cl.d
	var p *ipc.ProtocolError
	if errors.As(err, &p) {
		d.malformed.Add(1)
		d.log.Debug("not a proper request", "client_pid", cl.conn.Peer().PID, "err", err)
		return cl.conn.ReplyError(h, err) == nil && !p.Fatal()
	}
	status := statusOf(err)
	if status == ipc.StatusInternal {
		d.log.Warn("a request failed", "client_pid", cl.conn.Peer().PID, "request", h.Type, "err", err)
	}
	if h.Type == ipc.TypeFreed || h.Type == ipc.TypeGiveUp {
		return true // these messages have no reply
	}
	return cl.refuse(h, err) == nil
}

// handler answers a type of request.
type handler struct {
	run func(*client, ipc.Message) error
	// need is the turn that the request requires. Requests that wait for nothing but the lock need their user's turn.
	// Hello and JobOpen read facts of their own process from the kernel, which a malicious process can delay forever.
	// They need only the turn of that process.
	need      fair.Need
	inSession bool // only allowed after Hello, Join or Resume
	kind      metrics.Kind
}

var handlers = [...]handler{
	ipc.TypeGiveUp:   {(*client).giveUp, fair.Nothing, false, metrics.Memory},
	ipc.TypeHello:    {decoded((*client).hello), fair.OfProcess, false, metrics.Session},
	ipc.TypeJoin:     {answered((*client).join), fair.OfUser, false, metrics.Session},
	ipc.TypeResume:   {(*client).resume, fair.Nothing, false, metrics.Session},
	ipc.TypeJobOpen:  {decoded((*client).jobOpen), fair.OfProcess, false, metrics.Session},
	ipc.TypeJobClose: {answered((*client).jobClose), fair.OfUser, false, metrics.Session},
	ipc.TypeBind:     {decoded((*client).bind), fair.OfProcess, false, metrics.Session},
	ipc.TypeUnbind:   {answered((*client).unbind), fair.OfUser, false, metrics.Session},
	ipc.TypeSuspend:  {answered((*client).suspend), fair.OfUser, false, metrics.Limits},
	ipc.TypeJobTally: {answered((*client).jobTally), fair.OfUser, false, metrics.Session},
	ipc.TypeBeside:   {answered((*client).beside), fair.OfUser, false, metrics.Session},
	ipc.TypeExited:   {answered((*client).exited), fair.OfUser, false, metrics.Session},
	ipc.TypeWarnings: {answered((*client).warnings), fair.OfUser, false, metrics.Session},
	ipc.TypeAccount:  {answered((*client).account), fair.OfUser, false, metrics.Session},
	ipc.TypeCancel:   {answered((*client).cancelRequest), fair.Nothing, false, metrics.Limits},
	ipc.TypeSnapshot: {(*client).snapshot, fair.Nothing, false, metrics.State},
	ipc.TypeEvents:   {decoded((*client).events), fair.Nothing, false, metrics.State},
	ipc.TypeMetrics:  {(*client).metrics, fair.Nothing, false, metrics.State},
	ipc.TypeLimit:    {answered((*client).limit), fair.OfUser, false, metrics.Limits},
	ipc.TypeCgroup:   {answered((*client).limitCgroup), fair.OfUser, false, metrics.Limits},
	ipc.TypeAttach:   {answered((*client).attach), fair.OfUser, true, metrics.Session},
	ipc.TypeAlloc:    {decoded((*client).alloc), fair.OfUser, true, metrics.Memory},
	ipc.TypeFreed:    {decoded((*client).freed), fair.OfUser, true, metrics.Memory},
	ipc.TypeStream:   {decoded((*client).stream), fair.OfUser, true, metrics.Objects},
	ipc.TypeContext:  {decoded((*client).context), fair.OfUser, true, metrics.Objects},
	ipc.TypeObjects:  {answered((*client).objects), fair.OfUser, true, metrics.Objects},
	ipc.TypeQuery:    {answered((*client).query), fair.OfUser, true, metrics.Memory},
	ipc.TypeRoom:     {answered((*client).room), fair.OfUser, true, metrics.Memory},
	ipc.TypeDriver:   {answered((*client).driver), fair.OfUser, true, metrics.Session},
	ipc.TypeCopies:   {answered((*client).copies), fair.OfUser, true, metrics.Session},
	ipc.TypeBye:      {answered((*client).bye), fair.OfUser, true, metrics.Session},
}

// decoded makes a handler from a function that sends its reply itself.
func decoded[Req ipc.Body](f func(*client, ipc.Header, Req) error) func(*client, ipc.Message) error {
	return func(cl *client, m ipc.Message) error {
		var req Req
		if err := ipc.Unmarshal(m.Body, &req); err != nil {
			return err
		}
		return f(cl, m.Header, req)
	}
}

// answered makes a handler from a function that returns its reply.
func answered[Req, Rep ipc.Body](f func(*client, *Req) (Rep, error)) func(*client, ipc.Message) error {
	return decoded(func(cl *client, h ipc.Header, req Req) error {
		rep, err := f(cl, &req)
		if err != nil {
			return err
		}
		return ipc.Reply(cl.conn, h, ipc.StatusOK, &rep, -1)
	})
}

// inOwnGoroutine runs a function in a separate goroutine, and waits for it. It is for requests that a program makes
// once, such as Hello and Attach, and that need a deep stack. The stack is freed with the goroutine, and the
// connection's stack stays small.
func (cl *client) inOwnGoroutine(run func() error) error {
	done := make(chan error)
	go func() {
		defer cl.d.catchPanic(cl)
		done <- run()
	}()
	return <-done
}

// handle answers one request. The caller answers an error that it returns.
func (cl *client) handle(m ipc.Message) error {
	if aside := m.Header.Type == ipc.TypeGiveUp || m.Header.Type == ipc.TypeFreed; !aside {
		if cl.waiting() {
			return refused(ipc.StatusOrder, "%v while a request of this connection waits: only GiveUp and Freed may come", m.Header.Type)
		}
		if cl.feed != nil {
			if cl.streaming() {
				return refused(ipc.StatusOrder, "%v while this connection has events sent: only GiveUp may come", m.Header.Type)
			}
			cl.endStream()
		}
		cl.waits = nil // a client sends its next request after it has read the reply to the last one
		cl.unread.Store(false)
	}
	cl.request = m.Header.Type
	if peer := cl.conn.Peer(); len(cl.d.barred) > 0 && cl.d.barred[startedOf(peer)] {
		return barredError(peer.PID)
	}
	h := handlers[m.Header.Type] // the type exists: ReadMessage refuses unknown types
	cl.turn.Acquire(h.need)
	defer cl.turn.Release()
	if h.inSession {
		if cl.s == nil {
			return refused(ipc.StatusOrder, "%v before Hello, Join or Resume", m.Header.Type)
		}
		cl.s.mapped.Store(true)
	}
	if h.kind == metrics.Session {
		return cl.inOwnGoroutine(func() error { return h.run(cl, m) })
	}
	return h.run(cl, m)
}

// serve answers the requests of one connection in order.
func (cl *client) serve() {
	d, c, unread := cl.d, cl.conn, false
	defer func() {
		_ = c.Close()
		cl.endStream()
		cl.abandon(unread)
		d.turns.Leave(c.Peer().UID, c.Peer().PID)
		d.lock()
		delete(d.conns, c)
		d.unlock()
		if cl.s != nil {
			d.checkClosed(cl.s, c)
		}
	}()
	defer d.catchPanic(cl)
	for {
		m, err := c.ReadMessage()
		began := ipc.Clock()
		if ipc.IsEnd(err) {
			unread = unread || errors.Is(err, unix.ECONNRESET) // the kernel reports this if data lay unread
			return
		}
		if errors.Is(err, ipc.ErrSilent) {
			c.ReplySilent()
			return
		}
		whole := err == nil
		if whole {
			err = cl.handle(m)
			faults.At("request.answered")
		}
		if err == nil || !isProtocolError(err) {
			c.MarkAccepted()
		}
		switch {
		case err == nil:
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET): // read what the client sent before it closed the connection
			unread = true
		case ipc.IsEnd(err), errors.Is(err, ipc.ErrSlowReader):
			unread = true
			return
		case !cl.answerError(m.Header, err):
			return
		}
		if whole {
			done := c.LastReply()
			if done < began { // the request waits, or has no reply
				done = ipc.Clock()
			}
			d.exporter.Requests.Took(handlers[m.Header.Type].kind, done-began)
		}
	}
}

// accept starts a goroutine for each client.
func (d *Daemon) accept(ctx context.Context) {
	defer d.catchPanic(nil)
	for {
		c, err := d.listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) && ctx.Err() == nil {
				d.failed <- err
			}
			return
		}
		d.lock()
		if d.stopping() {
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
