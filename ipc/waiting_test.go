package ipc

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// This file checks requests that wait in the daemon's queue: notices, giving up, and claims that survive a restart of
// the daemon. The daemons here let a test decide when they answer; tests/arbitration has the queue of a real daemon.

// queueDaemon is a daemon in which requests wait until the test answers them. It sends each request to asked.
type queueDaemon struct {
	asked chan asking
	ended chan error
}

type asking struct {
	conn *Conn
	head Header
	body []byte
}

func startQueue(t *testing.T) (*queueDaemon, *Listener) {
	t.Helper()
	d := &queueDaemon{asked: make(chan asking, 16), ended: make(chan error, 16)}
	return d, serve(t, ListenOptions{}, func(c *Conn) {
		for {
			m, err := c.ReadMessage()
			if err != nil {
				d.ended <- err
				return
			}
			d.asked <- asking{c, m.Header, append([]byte(nil), m.Body...)}
		}
	})
}

// next returns the next request, and fails if it has another type.
func (d *queueDaemon) next(t *testing.T, typ Type) asking {
	t.Helper()
	select {
	case a := <-d.asked:
		if a.head.Type != typ {
			t.Fatalf("%v came, want %v", a.head.Type, typ)
		}
		return a
	case <-time.After(60 * time.Second):
		t.Fatalf("no %v came within 60 s", typ)
		return asking{}
	}
}

func sendReply[T Body](t *testing.T, a asking, status Status, body T) {
	t.Helper()
	if err := Reply(a.conn, a.head, status, &body, -1); err != nil {
		t.Fatal(err)
	}
}

// wait receives from a channel, and fails the test if no value comes.
func wait[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(60 * time.Second):
		t.Fatalf("not within 60 s: %s", what)
		panic("unreachable")
	}
}

// TestNotices: OnNotice gets each notice of a waiting request. Without OnNotice only the reply arrives.
func TestNotices(t *testing.T) {
	d, l := startQueue(t)
	c := dial(t, l.Path())
	for _, told := range []bool{true, false} {
		var positions []uint32
		done := make(chan error, 1)
		go func() {
			var err error
			if told {
				_, err = c.AllocWaiting(t.Context(), goodAlloc, Wait{Request: 77, OnNotice: func(n WaitingReply) { positions = append(positions, n.Position) }})
			} else {
				_, err = c.Alloc(t.Context(), goodAlloc)
			}
			done <- err
		}()
		a := d.next(t, TypeAlloc)
		if told && a.head.Request != 77 {
			t.Errorf("the request has number %d", a.head.Request)
		}
		for n := uint32(3); n > 0; n-- {
			if err := a.conn.Notice(a.head, &WaitingReply{Ticket: 9, Position: n}); err != nil {
				t.Fatal(err)
			}
		}
		sendReply(t, a, StatusOK, AllocReply{Granted: goodAlloc.Bytes})
		if err := wait(t, "the reply", done); err != nil {
			t.Error(err)
		}
		if told && (len(positions) != 3 || positions[0] != 3 || positions[2] != 1) {
			t.Errorf("told %v", positions)
		}
	}
}

// TestCancelledWait: the end of a context makes the daemon reply. That reply decides, and the connection stays
// usable.
func TestCancelledWait(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(*testing.T, asking)
		want   error // nil: the request is granted in spite of the cancellation
	}{
		"cancelled": {func(t *testing.T, asked asking) {
			sendReply(t, asked, StatusCancelled, AllocReply{})
		}, context.Canceled},
		"cancelled, after a notice": {func(t *testing.T, asked asking) {
			_ = asked.conn.Notice(asked.head, &WaitingReply{})
			sendReply(t, asked, StatusCancelled, AllocReply{})
		}, context.Canceled},
		"granted in that moment": {func(t *testing.T, asked asking) {
			sendReply(t, asked, StatusOK, AllocReply{Granted: goodAlloc.Bytes})
		}, nil},
		"refused in that moment": {func(t *testing.T, asked asking) {
			sendReply(t, asked, StatusDeadlock, AllocReply{Text: MakeText("a circle")})
		}, ErrDeadlock},
	} {
		t.Run(name, func(t *testing.T) {
			d, l := startQueue(t)
			client := dial(t, l.Path())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() {
				_, err := client.AllocWaiting(ctx, goodAlloc, Wait{OnNotice: func(WaitingReply) { cancel() }})
				done <- err
			}()
			asked := d.next(t, TypeAlloc)
			if err := asked.conn.Notice(asked.head, &WaitingReply{Ticket: 4, Position: 1}); err != nil {
				t.Fatal(err)
			}
			d.next(t, TypeGiveUp)
			c.answer(t, asked)
			if err := wait(t, "the end of the request", done); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			go func() { _, err := client.Query(t.Context(), UUID{1}); done <- err }()
			sendReply(t, d.next(t, TypeQuery), StatusOK, QueryReply{})
			if err := wait(t, "the next request", done); err != nil {
				t.Errorf("the connection afterwards: %v", err)
			}
		})
	}
}

// TestUnreadNoticesAreDropped: the daemon drops notices that the client does not read, and the buffer keeps space for
// the reply.
func TestUnreadNoticesAreDropped(t *testing.T) {
	d, l := startQueue(t)
	c := dialRaw(t, l.Path())
	c.send(Marshal(nil, Header{Type: TypeAlloc, Request: 5}, &goodAlloc))
	a := d.next(t, TypeAlloc)
	for i := range 10_000 {
		if err := a.conn.Notice(a.head, &WaitingReply{Ticket: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	sendReply(t, a, StatusOK, AllocReply{Granted: goodAlloc.Bytes})
	for n := 0; ; n++ {
		h, _, err := ParseReply(c.recvFull())
		if err != nil {
			t.Fatal(err)
		}
		if h.Status == StatusOK {
			if n == 0 || n > 1000 {
				t.Errorf("%d notices came", n)
			}
			return
		}
	}
}

func (c *rawConn) recvFull() ([]byte, int) { msg := c.recv(); return msg, len(msg) }

// claimDaemon grants one claim at a time, in order. The test can stop it and start it again on the same path. It
// implements only what a claim needs.
type claimDaemon struct {
	mu      sync.Mutex
	holder  Token
	parked  []asking
	last    byte
	crowded bool // the queue is full
	opened  []JobOpenRequest
	numbers []uint64
}

func (d *claimDaemon) handle(c *Conn) {
	for {
		m, err := c.ReadMessage()
		if err != nil {
			return
		}
		d.mu.Lock()
		d.answer(asking{c, m.Header, append([]byte(nil), m.Body...)})
		d.mu.Unlock()
	}
}

func (d *claimDaemon) answer(a asking) {
	switch a.head.Type {
	case TypeJobOpen:
		var req JobOpenRequest
		if err := Unmarshal(a.body, &req); err != nil {
			_ = a.conn.ReplyError(a.head, err)
			return
		}
		d.opened, d.numbers = append(d.opened, req), append(d.numbers, a.head.Request)
		switch {
		case d.holder.IsZero():
			d.grant(a)
		case req.Flags&JobNoWait != 0:
			_ = Reply(a.conn, a.head, StatusBusy, &JobOpenReply{}, -1)
		case d.crowded:
			_ = Reply(a.conn, a.head, StatusCrowded, &JobOpenReply{Budget: NoLimit, Text: MakeText("crowded")}, -1)
		default:
			d.parked = append(d.parked, a)
			_ = a.conn.Notice(a.head, &WaitingReply{Ticket: 1, Position: uint32(len(d.parked)), Text: MakeText("GPU 0")})
		}
	case TypeJobClose:
		d.holder = Token{}
		_ = Reply(a.conn, a.head, StatusOK, &Empty{}, -1)
		if len(d.parked) > 0 {
			next := d.parked[0]
			d.parked = d.parked[1:]
			d.grant(next)
		}
	case TypeGiveUp:
		for _, p := range d.parked {
			_ = Reply(p.conn, p.head, StatusCancelled, &JobOpenReply{}, -1)
		}
		d.parked = nil
	}
}

func (d *claimDaemon) grant(a asking) {
	d.last++
	d.holder = Token{d.last}
	_ = Reply(a.conn, a.head, StatusOK, &JobOpenReply{Job: d.holder, ID: uint64(d.last), Devices: 1,
		Device: [PageSlots]JobDevice{{Index: 0, Vendor: VendorNVIDIA}}}, -1)
}

func TestClaimRefused(t *testing.T) {
	l := serve(t, ListenOptions{}, (&claimDaemon{}).handle)
	c := dial(t, l.Path())
	for name, req := range map[string]ClaimRequest{
		"no such device": {Devices: []int{-1}},
		"too many":       {Devices: make([]int, PageSlots+1)},
		"twice":          {Devices: []int{3, 3}},
	} {
		if _, err := c.Claim(t.Context(), req); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// start serves a socket until the returned function is called.
func (d *claimDaemon) start(t *testing.T, path string) (stop func()) {
	t.Helper()
	l, err := Listen(path, ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(l, d.handle)
}

// TestClaimSurvivesRestart: if the daemon restarts while a claim waits, the client sends the claim again with the
// same number and JobRetry.
func TestClaimSurvivesRestart(t *testing.T) {
	path := t.TempDir() + "/s"
	first := &claimDaemon{holder: Token{99}}
	stop := first.start(t, path)
	c := dial(t, path)
	waits, done := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		_, err := c.Claim(t.Context(), ClaimRequest{OnNotice: func(WaitingReply) { waits <- struct{}{} }})
		done <- err
	}()
	wait(t, "the notice", waits)
	stop()
	second := &claimDaemon{}
	defer second.start(t, path)()
	if err := wait(t, "the claim", done); err != nil {
		t.Fatal(err)
	}
	second.mu.Lock()
	defer second.mu.Unlock()
	if first.numbers[0] != second.numbers[0] || first.opened[0].Flags&JobRetry != 0 || second.opened[0].Flags&JobRetry == 0 {
		t.Errorf("asked as %d with %#x, then as %d with %#x", first.numbers[0], first.opened[0].Flags, second.numbers[0], second.opened[0].Flags)
	}
}

// TestCrowdedClaimSurvivesRestart: a claim without a place in the queue also survives a restart of the daemon between
// two attempts.
func TestCrowdedClaimSurvivesRestart(t *testing.T) {
	path := t.TempDir() + "/s"
	stop := (&claimDaemon{holder: Token{99}, crowded: true}).start(t, path)
	c := dial(t, path)
	told, done := make(chan string, 2), make(chan error, 1)
	go func() {
		_, err := c.Claim(t.Context(), ClaimRequest{OnNotice: func(n WaitingReply) { told <- n.Text.String() }})
		done <- err
		close(told)
	}()
	if got := wait(t, "the notice", told); got != "crowded" {
		t.Errorf("told %q", got)
	}
	stop()
	if got := wait(t, "the second notice", told); got != "the daemon at "+path+" is gone; waits for it to come back" {
		t.Errorf("told %q", got)
	}
	defer (&claimDaemon{}).start(t, path)()
	if err := wait(t, "the claim", done); err != nil {
		t.Error(err)
	}
}

// TestClaimWithoutDaemon: a waiting client learns that the daemon is gone. It looks for the daemon until its longest
// wait has passed or its context ends.
func TestClaimWithoutDaemon(t *testing.T) {
	claim := func(ctx context.Context, patience time.Duration) (path string, told chan string, done chan error) {
		path, told, done = t.TempDir()+"/s", make(chan string, 10), make(chan error, 1)
		l, err := Listen(path, ListenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stop := serveOn(l, (&claimDaemon{holder: Token{99}}).handle)
		c := dial(t, path)
		go func() {
			_, err := c.Claim(ctx, ClaimRequest{Patience: patience, OnNotice: func(n WaitingReply) { told <- n.Text.String() }})
			done <- err
		}()
		wait(t, "the notice", told)
		stop()
		return path, told, done
	}
	_, _, done := claim(t.Context(), time.Millisecond)
	if err := wait(t, "the end of a short wait", done); !errors.Is(err, ErrTimeout) || !errors.Is(err, ErrNoDaemon) {
		t.Errorf("waited as long as it may: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	path, told, done := claim(ctx, 0)
	if got := wait(t, "the second notice", told); got != "the daemon at "+path+" is gone; waits for it to come back" {
		t.Errorf("told %q", got)
	}
	cancel()
	if err := wait(t, "the end of a wait given up", done); !errors.Is(err, context.Canceled) || len(told) != 0 {
		t.Errorf("given up: %v; told %d times more", err, len(told))
	}
}

// serveOn does the work of serve on the test's own listener. The returned function ends the listener and its
// connections.
func serveOn(l *Listener, handle func(*Conn)) (stop func()) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []*Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() { handle(c); c.Close() })
		}
	})
	return func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	}
}
