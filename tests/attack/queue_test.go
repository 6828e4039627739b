package attack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file tests the order of waiting requests over the protocol, and has party, a client with its own count. queue_hold_test.go,
// queue_start_test.go, queue_storm_test.go and queue_unread_test.go use it.

// waiting is the configuration of a machine on which requests wait for memory.
const waiting = "schema_version = 1\n[defaults]\non_full = \"wait\"\nwait_timeout = \"max\"\ndeadlock_grace = \"10m\"\n"

const mib = 1 << 20

// patience bounds every wait of these tests.
const patience = 60 * time.Second

// party is a session of this process with a lease. It keeps its own count of the bytes that it
// holds, which is the oracle of these tests.
type party struct {
	t    *testing.T
	m    *rig.Machine
	s    *ipc.ShimSession
	slot uint32
	held uint64
}

func partyOf(t *testing.T, m *rig.Machine, bytes uint64) *party {
	t.Helper()
	s, slot := shimOf(t, m, bytes)
	s.Page.Threads().Store(1)
	return &party{t: t, m: m, s: s, slot: slot, held: bytes}
}

// asked is a request in progress, which may wait in the queue.
type asked struct {
	p      *party
	bytes  uint64
	number uint64
	waits  chan ipc.WaitingReply // the first notice
	done   chan error
}

// ask sends a request for bytes on a connection of its own.
func (p *party) ask(ctx context.Context, bytes uint64) *asked {
	return p.send(ctx, bytes, ipc.NewRequest(), 0)
}

func (p *party) send(ctx context.Context, bytes, number uint64, flags uint32) *asked {
	r := &asked{p: p, bytes: bytes, number: number, waits: make(chan ipc.WaitingReply, 1), done: make(chan error, 1)}
	go func() {
		err := r.run(ctx, flags)
		close(r.waits)
		r.done <- err
	}()
	return r
}

func (r *asked) run(ctx context.Context, flags uint32) error {
	c, err := ipc.Dial(ctx, r.p.m.Socket)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := r.p.s.Join(ctx, c); err != nil {
		return err
	}
	_, err = c.AllocWaiting(ctx, ipc.AllocRequest{Slot: r.p.slot, Kind: ipc.MemoryPlain, Bytes: r.bytes, Flags: flags, Thread: 1},
		ipc.Wait{Request: r.number, OnNotice: r.told})
	return err
}

func (r *asked) told(n ipc.WaitingReply) {
	select {
	case r.waits <- n:
	default:
	}
}

// parked waits until the daemon has answered that the request waits.
func (r *asked) parked() ipc.WaitingReply {
	r.p.t.Helper()
	select {
	case n, ok := <-r.waits:
		if !ok {
			r.p.t.Fatalf("a request for %d bytes did not wait: %v", r.bytes, <-r.done)
		}
		return n
	case <-time.After(patience):
		r.p.t.Fatalf("a request for %d bytes was told nothing in %v", r.bytes, patience)
	}
	panic("unreachable")
}

// end waits for the reply.
func (r *asked) end() error {
	r.p.t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(patience):
		r.p.t.Fatalf("a request for %d bytes had no reply in %v", r.bytes, patience)
	}
	panic("unreachable")
}

// granted waits for the reply, which must be a grant.
func (r *asked) granted() {
	r.p.t.Helper()
	if err := r.end(); err != nil {
		r.p.t.Fatalf("a request for %d bytes: %v", r.bytes, err)
	}
	r.p.held += r.bytes
}

// free returns bytes to the daemon, and tells it at once if requests wait.
func (p *party) free(bytes uint64) {
	p.t.Helper()
	p.held -= bytes
	if p.s.Page.GiveCredit(p.slot, bytes).Notify() {
		if err := p.s.Main.Freed(p.slot); err != nil {
			p.t.Fatal(err)
		}
	}
}

// resume resumes the session with a restarted daemon.
func (p *party) resume() {
	p.t.Helper()
	c, err := ipc.Dial(p.t.Context(), p.m.Socket)
	check(p.t, err)
	check(p.t, p.s.Resume(p.t.Context(), c, []ipc.ResumeLease{{Device: uuid(p.m, 0), Used: p.held, Slot: p.slot}}))
}

// again repeats a request under its old number.
func (r *asked) again() *asked {
	return r.p.send(r.p.t.Context(), r.bytes, r.number, ipc.FlagRetry)
}

// agreed compares the daemon's figures of this process with the parties' own counts.
func agreed(t *testing.T, m *rig.Machine, parties ...*party) {
	t.Helper()
	var want, got uint64
	for _, p := range parties {
		want += p.held
	}
	for _, l := range m.Snapshot().Leases {
		got += uint64(l.Used)
	}
	if got != want {
		t.Errorf("the daemon says that %d bytes are used, the programs say %d", got, want)
	}
}

func queueLength(m *rig.Machine) int { return len(m.Snapshot().Queue) }

// TestParkedInOrder: a waiting client is told that it waits, and requests are served in order of arrival. Meanwhile the
// client's connection accepts only GiveUp and Freed.
func TestParkedInOrder(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Config: waiting})
	a, b, c := partyOf(t, m, 900*mib), partyOf(t, m, 0), partyOf(t, m, mib)
	first := b.ask(t.Context(), 300*mib)
	if n := first.parked(); n.Ticket == 0 || n.Position != 1 || n.Text.String() == "" {
		t.Errorf("the first is told %d, %d, %q", n.Ticket, n.Position, n.Text.String())
	}
	second := c.ask(t.Context(), 500*mib)
	if n := second.parked(); n.Position != 2 {
		t.Errorf("the second is told %d, %q", n.Position, n.Text.String())
	}
	a.free(300 * mib)
	first.granted()
	if n := queueLength(m); n != 1 {
		t.Errorf("%d wait, want the second", n)
	}
	a.free(600 * mib)
	second.granted()
	agreed(t, m, a, b, c)
}

// TestParkedConnection: a message that is not allowed while a request waits is refused, and the
// request keeps waiting.
func TestParkedConnection(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Config: waiting})
	a, b := partyOf(t, m, 900*mib), partyOf(t, m, 0)
	raw := rawClient(t, m.Socket)
	raw.send(ipc.TypeJoin, 1, ipc.JoinRequest{Session: b.s.Hello.Session})
	raw.want(1, ipc.StatusOK)
	sendBody(raw, ipc.TypeAlloc, 2, &ipc.AllocRequest{Slot: b.slot, Kind: ipc.MemoryPlain, Bytes: 300 * mib})
	raw.want(2, ipc.StatusWaiting)
	sendBody(raw, ipc.TypeQuery, 3, &ipc.QueryRequest{Device: uuid(m, 0)})
	raw.want(3, ipc.StatusOrder)
	sendBody(raw, ipc.TypeFreed, 4, &ipc.FreedNotice{Slot: b.slot})
	sendBody(raw, ipc.TypeAlloc, 5, &ipc.AllocRequest{Slot: b.slot, Kind: ipc.MemoryPlain, Bytes: 1})
	raw.want(5, ipc.StatusOrder)
	a.free(300 * mib)
	raw.want(2, ipc.StatusOK)
	sendBody(raw, ipc.TypeQuery, 6, &ipc.QueryRequest{Device: uuid(m, 0)})
	raw.want(6, ipc.StatusOK)
	b.held += 300 * mib
	agreed(t, m, a, b)
}

// TestGivingUp: a request leaves the queue when an authorised client cancels it,
// or when its connection closes. The places of other requests stay.
func TestGivingUp(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Config: waiting})
	a, b, c := partyOf(t, m, 900*mib), partyOf(t, m, 0), partyOf(t, m, 0)
	tool, err := ipc.Dial(t.Context(), m.Socket)
	check(t, err)
	defer tool.Close()
	for name, give := range map[string]func(r *asked, n ipc.WaitingReply, cancel func()){
		"its context ends": func(_ *asked, _ ipc.WaitingReply, cancel func()) { cancel() },
		"its ticket is cancelled": func(_ *asked, n ipc.WaitingReply, _ func()) {
			if got, err := tool.Cancel(t.Context(), ipc.CancelRequest{Ticket: n.Ticket}); got != 1 || err != nil {
				t.Errorf("cancelled %d, %v", got, err)
			}
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		before := b.ask(ctx, 600*mib)
		notice := before.parked()
		after := c.ask(t.Context(), 50*mib)
		give(before, notice, cancel)
		if err := before.end(); !errors.Is(err, ipc.StatusCancelled) {
			t.Errorf("%s: %v", name, err)
		}
		after.granted()
		c.free(50 * mib)
		cancel()
	}
	raw := rawClient(t, m.Socket)
	raw.send(ipc.TypeJoin, 1, ipc.JoinRequest{Session: b.s.Hello.Session})
	raw.want(1, ipc.StatusOK)
	sendBody(raw, ipc.TypeAlloc, 2, &ipc.AllocRequest{Slot: b.slot, Kind: ipc.MemoryPlain, Bytes: 600 * mib})
	raw.want(2, ipc.StatusWaiting)
	raw.close()
	c.ask(t.Context(), 50*mib).granted()
	rig.Eventually(t, "no request waits", func() bool { return queueLength(m) == 0 })
	if _, err := tool.Cancel(t.Context(), ipc.CancelRequest{Ticket: 1 << 40}); !errors.Is(err, ipc.StatusRange) {
		t.Errorf("cancelling a request that does not exist: %v", err)
	}
	agreed(t, m, a, b, c)
}

// TestOrderOutlivesTheDaemon: requests that waited when the daemon was killed or stopped are
// served by the next daemon in their old order. The order in which their clients reconnect is irrelevant, and
// newer requests come after them.
func TestOrderOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*rig.Machine){"killed": (*rig.Machine).Kill, "stopped": (*rig.Machine).Stop} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine(t, rig.Options{Devices: "1G", NoMount: true, Config: waiting})
			a := partyOf(t, m, 1000*mib)
			var parties []*party
			var requests []*asked
			for range 4 {
				p := partyOf(t, m, 0)
				r := p.ask(t.Context(), 400*mib)
				r.parked()
				parties, requests = append(parties, p), append(requests, r)
			}
			newcomer := partyOf(t, m, 0)
			end(m)
			for _, r := range requests {
				if err := r.end(); err == nil {
					t.Fatal("granted by a daemon that is gone")
				}
			}
			m.Start()
			all := append([]*party{a, newcomer}, parties...)
			for _, p := range all {
				p.resume()
			}
			last := newcomer.ask(t.Context(), 400*mib)
			for i := len(requests) - 1; i >= 0; i-- { // the last comes back first
				requests[i] = requests[i].again()
			}
			for _, r := range append(requests, last) {
				r.parked()
			}
			a.free(600 * mib)
			for i, r := range append(requests, last) {
				r.granted()
				agreed(t, m, all...)
				if n := queueLength(m); n != 4-i {
					t.Errorf("after number %d, %d wait, want %d", i, n, 4-i)
				}
				r.p.free(400 * mib)
			}
		})
	}
}

// TestRoomFromTheDead: memory of a process that died while no daemon ran goes to the
// request that has waited longest, even if another client reconnects earlier.
func TestRoomFromTheDead(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Config: waiting})
	holder := start(m, "holder")
	if got := holder.Ask(fmt.Sprintf("hold %x %d", [16]byte(uuid(m, 0)), 1000*mib)); got != "ok" {
		t.Fatal(got)
	}
	b, c := partyOf(t, m, 0), partyOf(t, m, 0)
	first, second := b.ask(t.Context(), 700*mib), (*asked)(nil)
	first.parked()
	second = c.ask(t.Context(), 700*mib)
	second.parked()
	m.Kill()
	holder.End()
	m.Start()
	_, _ = first.end(), second.end()
	b.resume()
	c.resume()
	second = second.again()
	first = first.again()
	first.granted()
	second.parked()
	b.free(700 * mib)
	second.granted()
	agreed(t, m, b, c)
}

func init() {
	roles["holder"] = func(a *attacker) error {
		words, ok := a.next()
		if !ok {
			return nil
		}
		s, slot, err := a.lease(parseUUID(words[1]))
		if err != nil {
			return err
		}
		var bytes uint64
		if _, err := fmt.Sscan(words[2], &bytes); err != nil {
			return err
		}
		if _, err = s.Main.Alloc(a.ctx, ipc.AllocRequest{Slot: slot, Kind: ipc.MemoryPlain, Bytes: bytes}); err != nil {
			return err
		}
		a.say("hold ok")
		a.next()
		return nil
	}
	roles["queue"] = queueUp
}

// queueUp opens eight sessions and waits with CONNECTIONS connections in all: "wait UUID CONNECTIONS BYTES". It says
// "wait ok" when the daemon has queued all requests, and "served N" when all have a reply.
func queueUp(a *attacker) error {
	words, ok := a.next()
	if !ok {
		return nil
	}
	var connections int
	var bytes uint64
	if _, err := fmt.Sscan(words[2]+" "+words[3], &connections, &bytes); err != nil {
		return err
	}
	const sessions = 8
	var told, done sync.WaitGroup
	errs := make(chan error, connections)
	for n := range sessions {
		s, slot, err := a.lease(parseUUID(words[1]))
		if err != nil {
			return err
		}
		s.Page.Threads().Store(uint32(connections + 1)) // more than can wait, as if one thread still worked: no deadlock
		for i := n; i < connections; i += sessions {
			told.Add(1)
			done.Go(func() { errs <- waitOnce(a, s, slot, bytes, told.Done) })
		}
	}
	told.Wait()
	a.say("wait ok")
	done.Wait()
	served := 0
	for range connections {
		if err := <-errs; err != nil {
			fmt.Fprintln(os.Stderr, err)
		} else {
			served++
		}
	}
	a.say("served %d", served)
	a.next()
	return nil
}

// waitOnce requests bytes on a connection of its own, waits for them, and frees them.
func waitOnce(a *attacker, s *ipc.ShimSession, slot uint32, bytes uint64, told func()) error {
	told = sync.OnceFunc(told)
	defer told()
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := s.Join(a.ctx, c); err != nil {
		return err
	}
	_, err = c.AllocWaiting(a.ctx, ipc.AllocRequest{Slot: slot, Kind: ipc.MemoryPlain, Bytes: bytes},
		ipc.Wait{OnNotice: func(ipc.WaitingReply) { told() }})
	if err == nil && s.Page.GiveCredit(slot, bytes).Notify() {
		err = c.Freed(slot)
	}
	return err
}

// TestThousandWait: a thousand connections wait while other clients are served. In the
// end each of the thousand is served.
func TestThousandWait(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G,1G", NoMount: true, Config: waiting})
	a := partyOf(t, m, 1010*mib)
	var crowds []*rig.Program
	const each, processes = 63, 16 // a process may have 64 waiting requests, and all processes 1,024
	for range processes {
		p := start(m, "queue")
		if got := p.Ask(fmt.Sprintf("wait %x %d %d", [16]byte(uuid(m, 0)), each, 20*mib)); got != "ok" {
			t.Fatal(got)
		}
		crowds = append(crowds, p)
	}
	if n := queueLength(m); n != each*processes {
		t.Errorf("%d wait, want %d", n, each*processes)
	}
	bystander := start(m, "holder")
	if got := bystander.Ask(fmt.Sprintf("hold %x %d", [16]byte(uuid(m, 1)), 1000*mib)); got != "ok" {
		t.Errorf("on the other device: %s", got)
	}
	a.free(1010 * mib)
	for _, p := range crowds {
		if got := p.Line(); got != fmt.Sprintf("served %d", each) {
			t.Errorf("%s: %s", got, p.Stderr())
		}
		p.Tell("end")
		p.End()
	}
	bystander.End()
	rig.Eventually(t, "no request waits", func() bool { return queueLength(m) == 0 })
}

// TestJobsAcrossRestarts: over a restart a claim stays with its holder, and a waiting claim
// keeps its place. A claim without waiting is told that the device is busy.
func TestJobsAcrossRestarts(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true})
	c, err := ipc.Dial(t.Context(), m.Socket)
	check(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	mine, err := c.Claim(ctx, ipc.ClaimRequest{Command: "mine"})
	check(t, err)
	if len(mine.Devices) != 1 || mine.Devices[0].Vendor != ipc.VendorNVIDIA || mine.Devices[0].UUID != uuid(m, 0) {
		t.Errorf("claimed %+v", mine.Devices)
	}
	order := make(chan int, 2)
	var claims [2]*ipc.Claim
	for i := range claims {
		waits := make(chan struct{}, 100)
		go func() {
			var err error
			if claims[i], err = c.Claim(ctx, ipc.ClaimRequest{OnNotice: func(ipc.WaitingReply) { waits <- struct{}{} }}); err != nil {
				t.Errorf("claim %d: %v", i, err)
			}
			order <- i
		}()
		select {
		case <-waits:
		case <-ctx.Done():
			t.Fatalf("claim %d was not told that it waits", i)
		}
	}
	m.Kill()
	m.Start()
	if _, err := c.TryClaim(ctx, ipc.ClaimRequest{}); !errors.Is(err, ipc.ErrBusy) {
		t.Errorf("a claim that does not wait: %v", err)
	}
	rig.Eventually(t, "both requests wait again", func() bool { return queueLength(m) == 2 })
	check(t, mine.Release(ctx))
	for want := range claims {
		select {
		case got := <-order:
			if got != want || claims[got] == nil {
				t.Fatalf("number %d is served, want number %d", got, want)
			}
			check(t, claims[got].Release(ctx))
		case <-ctx.Done():
			t.Fatalf("number %d is not served", want)
		}
	}
	rig.Eventually(t, "the jobs are gone", func() bool { return len(m.Snapshot().Jobs) == 0 })
}

// rawConn sends and receives single messages, well-formed or malformed.
type rawConn struct {
	t *testing.T
	c *net.UnixConn
}

func rawClient(t *testing.T, path string) *rawConn {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	check(t, err)
	t.Cleanup(func() { c.Close() })
	return &rawConn{t, c}
}

func (r *rawConn) close() { r.c.Close() }

func (r *rawConn) send(typ ipc.Type, request uint64, body ipc.JoinRequest) {
	r.t.Helper()
	sendBody(r, typ, request, &body)
}

func sendBody[T ipc.Body](r *rawConn, typ ipc.Type, request uint64, body *T) {
	r.t.Helper()
	_, err := r.c.Write(ipc.Marshal(nil, ipc.Header{Type: typ, Request: request}, body))
	check(r.t, err)
}

// want reads up to the reply to a request. It skips notices unless the wanted status is a notice's.
func (r *rawConn) want(request uint64, status ipc.Status) {
	r.t.Helper()
	buffer := make([]byte, ipc.MaxReply)
	for {
		check(r.t, r.c.SetReadDeadline(time.Now().Add(patience)))
		n, err := r.c.Read(buffer)
		if err != nil {
			r.t.Fatalf("waiting for the reply to %d: %v", request, err)
		}
		h, _, err := ipc.ParseReply(buffer[:n], n)
		check(r.t, err)
		switch {
		case h.Status == ipc.StatusWaiting && status != ipc.StatusWaiting:
		case h.Request != request || h.Status != status:
			r.t.Fatalf("request %d is answered with %v, want request %d and %v", h.Request, h.Status, request, status)
		default:
			return
		}
	}
}
