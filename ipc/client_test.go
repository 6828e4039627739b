package ipc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks a client's requests over a real socket: what it accepts as a reply, what ends its connection, and
// what several goroutines on one connection see. fake_test.go has the daemon; waiting_test.go has requests that wait
// in the queue.

func TestResume(t *testing.T) {
	checkFDs(t)
	d, l := startDaemon(t)
	ctx := t.Context()
	s, err := dial(t, l.Path()).HelloShim(ctx, HelloRequest{Memory: 77})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Close() }()
	first := s.Main
	leases := []ResumeLease{{Device: UUID{4}, Used: 9, Slot: 3}}
	if err := s.Resume(ctx, dial(t, l.Path()), leases); err != nil {
		t.Fatal(err)
	}
	want := ResumeRequest{Session: session, Hello: HelloRequest{Kind: KindShim, Memory: 77}, Count: 1, HasPage: 1}
	want.Leases[0] = leases[0]
	if d.now().resumed != want || s.Hello.Devices != 9 || !first.Closed() || s.Page.ID() != d.now().page.ID() {
		t.Errorf("resumed %+v", s.Hello)
	}
	old := s.Page.ID()
	d.set(func(s *fakeState) { s.newPage = true })
	if err := s.Resume(ctx, dial(t, l.Path()), nil); err != nil {
		t.Fatal(err)
	}
	if s.Page.ID() == old || s.Page.ID() != d.now().page.ID() {
		t.Error("the new page was not taken")
	}
	d.set(func(s *fakeState) { s.newPage = false })
	_ = s.Page.Close()
	if s.Page, err = NewPage(); err != nil { // a page that the daemon did not make
		t.Fatal(err)
	}
	if err := s.Resume(ctx, dial(t, l.Path()), nil); !errors.Is(err, StatusPermission) {
		t.Errorf("resumed with a page of its own: %v", err)
	}
	if err := s.Resume(ctx, s.Main, make([]ResumeLease, PageSlots+1)); !errors.Is(err, StatusRange) {
		t.Errorf("resumed with too many leases: %v", err)
	}
}

func TestSnapshot(t *testing.T) {
	checkFDs(t)
	d, l := startDaemon(t)
	c := dial(t, l.Path())
	for _, n := range []int{0, 1, snapshotPart - 1, snapshotPart, snapshotPart + 1, 2 * snapshotPart, 5 << 20} {
		want := bytes.Repeat([]byte("0123456789abcdef!"), n/17+1)[:n]
		d.set(func(s *fakeState) { s.json = want })
		if got, err := c.Metrics(t.Context()); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes of metrics: %d, %v", n, len(got), err)
		}
		got, err := c.Snapshot(t.Context())
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes: %d came, %v", n, len(got), err)
		}
		if _, err := c.Query(t.Context(), UUID{}); err != nil { // no part of the snapshot is left in the connection
			t.Fatal(err)
		}
		if len(c.sock.in) != replySize {
			t.Fatalf("the client holds on to %d bytes", len(c.sock.in))
		}
	}
}

// TestSnapshotNotRead: the daemon closes the connection of a client that asks for a snapshot and does not read it in
// time.
func TestSnapshotNotRead(t *testing.T) {
	checkFDs(t)
	_, c := pair(t)
	begin := time.Now()
	err := c.ReplySnapshot(Header{Type: TypeSnapshot}, make([]byte, 4<<20), 50*time.Millisecond)
	if took := time.Since(begin); !errors.Is(err, ErrSlowReader) || took < 50*time.Millisecond || took > 10*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
	if open := c.listener.limits.open(); open != 0 {
		t.Errorf("%d connections are open", open)
	}
}

// TestReplyDuringSnapshot: a snapshot that waits for its reader delays no other reply on the connection. If the
// buffer has no space for such a reply, both end at once.
func TestReplyDuringSnapshot(t *testing.T) {
	checkFDs(t)
	_, c := pair(t)
	ended := make(chan error)
	go func() { ended <- c.ReplySnapshot(Header{Type: TypeSnapshot}, make([]byte, 4<<20), time.Minute) }()
	eventually(t, "there is no room for another reply", func() bool {
		err := Reply(c, Header{Type: TypeBye}, StatusOK, &Empty{}, -1)
		return errors.Is(err, ErrSlowReader)
	})
	if err := bounded.Receive(t, "the reply ends", ended); !errors.Is(err, net.ErrClosed) && !errors.Is(err, ErrSlowReader) {
		t.Errorf("ReplySnapshot: %v", err)
	}
}

// scripted starts a daemon that answers the first request with the given messages.
func scripted(t *testing.T, replies ...func(Header) []byte) *Client {
	t.Helper()
	l := serve(t, ListenOptions{}, func(c *Conn) {
		m, err := c.ReadMessage()
		if err != nil {
			return
		}
		for _, r := range replies {
			c.sock.wMu.Lock()
			_ = c.sock.trySend(r(m.Header), nil, -1)
			c.sock.wMu.Unlock()
		}
		_, _ = c.ReadMessage()
	})
	return dial(t, l.Path())
}

// TestInvalidReplies: a reply that breaks the protocol gives an error with the reason, and closes the connection.
func TestInvalidReplies(t *testing.T) {
	checkFDs(t)
	query := func(change func(*Header)) func(Header) []byte {
		return func(h Header) []byte {
			h.Type |= ReplyBit
			change(&h)
			return Marshal(nil, h, &QueryReply{})
		}
	}
	for name, c := range map[string]struct {
		reply  func(Header) []byte
		status Status
	}{
		"another request's reply": {query(func(h *Header) { h.Request++ }), StatusOrder},
		"another type's reply": {func(h Header) []byte {
			return Marshal(nil, Header{Type: TypeBye | ReplyBit, Request: h.Request}, &Empty{})
		}, StatusOrder},
		"a late error": {func(h Header) []byte {
			return Marshal(nil, Header{Type: h.Type | ReplyBit, Request: 99, Status: StatusNoLease}, &ErrorReply{})
		}, StatusOrder},
		"garbage":   {func(Header) []byte { return []byte("garbage") }, StatusMalformed},
		"a request": {query(func(h *Header) { h.Type &^= ReplyBit }), StatusUnknownType},
	} {
		client := scripted(t, c.reply)
		_, err := client.Query(t.Context(), UUID{})
		wantRefusal(t, name, err, c.status)
		if _, err := client.Query(t.Context(), UUID{}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: the connection goes on: %v", name, err)
		}
	}
	alloc := func(granted uint64, status Status) func(Header) []byte {
		return func(h Header) []byte {
			return Marshal(nil, Header{Type: h.Type | ReplyBit, Request: h.Request, Status: status}, &AllocReply{Granted: granted})
		}
	}
	ask := AllocRequest{Kind: MemoryPlain, Bytes: 5}
	if _, err := scripted(t, alloc(6, StatusOK)).Alloc(t.Context(), ask); !errors.Is(err, StatusMalformed) {
		t.Errorf("more granted than asked for: %v", err)
	}
	if _, err := scripted(t, alloc(5, StatusDenied)).Alloc(t.Context(), ask); !errors.Is(err, StatusDenied) || !strings.Contains(err.Error(), "granted with a refusal") {
		t.Errorf("granted with a refusal: %v", err)
	}
}

func TestClientBeyondLimits(t *testing.T) {
	checkFDs(t)
	l := serve(t, ListenOptions{Limits: Limits{PerPID: 1}}, answerAll)
	first := dial(t, l.Path())
	if _, err := first.Query(t.Context(), UUID{}); err != nil {
		t.Fatal(err)
	}
	for range 50 { // the close may come before or after the request
		c := dial(t, l.Path())
		_, err := c.Query(t.Context(), UUID{})
		if !errors.Is(err, StatusTooMany) || !strings.Contains(err.Error(), "1 connections") {
			t.Fatalf("not told why: %v", err)
		}
	}
}

// TestErrorReplyBeforeClose: a client gets the error reply that the daemon sent before it closed the connection,
// although the kernel reports the close first.
func TestErrorReplyBeforeClose(t *testing.T) {
	checkFDs(t)
	l := listen(t, ListenOptions{})
	ask := Header{Type: TypeQuery, Request: 1}
	no := refuse(StatusTooMany, "no")
	for _, unread := range []bool{true, false} {
		client := dial(t, l.Path())
		c := accept(t, l)
		if unread { // the daemon closes while the request is unread: ECONNRESET
			if err := send(client, ask, &QueryRequest{}, -1, nil); err != nil {
				t.Fatal(err)
			}
		}
		refuseConnection(c.sock, no)
		var err error
		if unread {
			_, _, _, err = client.reply(ask)
		} else { // the daemon closes before the request: EPIPE
			_, err = client.Query(t.Context(), UUID{})
		}
		if !errors.Is(err, StatusTooMany) {
			t.Errorf("unread %t: %v", unread, err)
		}
	}
}

// TestUnexpectedDescriptor: a client closes a descriptor that the message must not have, and returns an error.
func TestUnexpectedDescriptor(t *testing.T) {
	checkFDs(t)
	page := newPage(t)
	l := serve(t, ListenOptions{}, func(c *Conn) {
		if m, err := c.ReadMessage(); err == nil {
			_ = Reply(c, m.Header, StatusOK, &QueryReply{}, page.FD())
			_, _ = c.ReadMessage()
		}
	})
	if _, err := dial(t, l.Path()).Query(t.Context(), UUID{}); !errors.Is(err, StatusMalformed) || !strings.Contains(err.Error(), "descriptor") {
		t.Errorf("taken: %v", err)
	}
}

// TestCancel: a context that ends during a request closes the connection, so that the daemon learns of it. Callers
// that wait for their turn return without an effect on the connection.
func TestCancel(t *testing.T) {
	checkFDs(t)
	seen := make(chan error, 1)
	asked := make(chan struct{}, 1)
	l := serve(t, ListenOptions{}, func(c *Conn) {
		_, _ = c.ReadMessage()
		asked <- struct{}{}
		_, err := c.ReadMessage()
		seen <- err
	})
	c := dial(t, l.Path())
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error), make(chan error)
	go func() { _, err := c.Alloc(ctx, AllocRequest{Kind: 1, Bytes: 1}); first <- err }()
	bounded.Receive(t, "the question", asked)
	short, done := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer done()
	if _, err := c.Query(short, UUID{}); !errors.Is(err, context.DeadlineExceeded) || c.Closed() {
		t.Errorf("waiting for a turn: %v", err)
	}
	go func() { _, err := c.Query(t.Context(), UUID{}); second <- err }()
	cancel()
	if err := bounded.Receive(t, "the first returns", first); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := bounded.Receive(t, "the second returns", second); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the next in turn: %v", err)
	}
	if err := bounded.Receive(t, "the daemon sees it", seen); err != io.EOF {
		t.Errorf("the daemon saw %v", err)
	}
}

// TestDaemonDies: the end of the daemon ends a waiting request.
func TestDaemonDies(t *testing.T) {
	l := serve(t, ListenOptions{}, func(c *Conn) { _, _ = c.ReadMessage() })
	c := dial(t, l.Path())
	if _, err := c.Query(t.Context(), UUID{}); err != io.EOF || !IsEnd(err) || !c.Closed() {
		t.Errorf("%v", err)
	}
}

// TestClientShared: many goroutines on one connection each get their own reply.
func TestClientShared(t *testing.T) {
	_, l := startDaemon(t)
	c := dial(t, l.Path())
	errs := make(chan error)
	for i := range 8 {
		go func() {
			var err error
			for range 50 {
				q, e := c.Query(t.Context(), UUID{byte(i)})
				if e == nil && q.Total != uint64(i) {
					e = fmt.Errorf("%d got the reply of %d", i, q.Total)
				}
				err = errors.Join(err, e, c.Freed(uint32(i)))
			}
			errs <- err
		}()
	}
	for range 8 {
		if err := bounded.Receive(t, "all are answered", errs); err != nil {
			t.Error(err)
		}
	}
}
