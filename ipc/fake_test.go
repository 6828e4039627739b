package ipc

import (
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// This file has the daemon of client_test.go. It answers each request from a state that a test sets, and records what
// a client resumed.

// fakeDaemon answers requests from a state that a test can read and set.
type fakeDaemon struct {
	finished chan error // the error that ended each connection

	mu sync.Mutex
	fakeState
}

// fakeState sets the answers of fakeDaemon, and records the last Resume request.
type fakeState struct {
	page    *LeasePage
	json    []byte
	resumed ResumeRequest
	newPage bool // answer a Resume with a new page
}

// now returns a copy of the state.
func (d *fakeDaemon) now() fakeState {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fakeState
}

// set changes the state.
func (d *fakeDaemon) set(f func(*fakeState)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.fakeState)
}

var session = Token{0xaa, 15: 0xbb}

func startDaemon(t testing.TB) (*fakeDaemon, *Listener) {
	t.Helper()
	page, err := NewPage()
	if err != nil {
		t.Fatal(err)
	}
	d := &fakeDaemon{finished: make(chan error, 100), fakeState: fakeState{page: page}}
	t.Cleanup(func() { d.now().page.Close() })
	return d, serve(t, ListenOptions{}, d.handle)
}

func (d *fakeDaemon) handle(c *Conn) {
	for {
		m, err := c.ReadMessage()
		if err != nil {
			d.finished <- err
			return
		}
		if err := d.answer(c, m); err != nil {
			_ = c.ReplyError(m.Header, err)
		}
	}
}

// ask decodes a request's body, and answers with the result of f.
func ask[Req, Rep Body](c *Conn, m Message, fd int, f func(*Req) (Status, Rep, error)) error {
	var req Req
	if err := Unmarshal(m.Body, &req); err != nil {
		return err
	}
	status, rep, err := f(&req)
	if err != nil {
		return err
	}
	return Reply(c, m.Header, status, &rep, fd)
}

func (d *fakeDaemon) answer(c *Conn, m Message) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch m.Header.Type {
	case TypeHello:
		fd := -1
		if m.Body[0] == byte(KindShim) {
			fd = d.page.FD()
		}
		return ask(c, m, fd, func(r *HelloRequest) (Status, HelloReply, error) {
			return StatusOK, HelloReply{Session: session, Devices: 2, OnLoss: LossClosed}, nil
		})
	case TypeResume:
		return d.resume(c, m)
	case TypeAlloc:
		return ask(c, m, -1, func(r *AllocRequest) (Status, AllocReply, error) {
			if r.Bytes > 1000 {
				return StatusDeviceFull, AllocReply{Requested: r.Bytes, Remaining: 1000, Limit: 1000, Text: MakeText("full of others")}, nil
			}
			return StatusOK, AllocReply{Granted: r.Bytes}, nil
		})
	case TypeFreed: // a notice has no reply
		return nil
	case TypeSnapshot, TypeMetrics:
		return c.ReplySnapshot(m.Header, d.json, 5*time.Second)
	}
	return d.answerRest(c, m)
}

func (d *fakeDaemon) answerRest(c *Conn, m Message) error {
	switch m.Header.Type {
	case TypeQuery:
		return ask(c, m, -1, func(r *QueryRequest) (Status, QueryReply, error) {
			return StatusOK, QueryReply{Total: uint64(r.Device[0]), Used: 2, Room: 3}, nil
		})
	case TypeBye:
		return Reply(c, m.Header, StatusOK, &Empty{}, -1)
	}
	return refuse(StatusUnsupported, "%v", m.Header.Type)
}

func (d *fakeDaemon) resume(c *Conn, m Message) error {
	fd := -1
	if m.FD >= 0 {
		p, err := OpenPage(m.FD, d.page.ID())
		if err != nil {
			unix.Close(m.FD)
			return refuse(StatusPermission, "%v", err)
		}
		defer p.Close()
	}
	if d.newPage {
		page, err := NewPage()
		if err != nil {
			return err
		}
		_ = d.page.Close()
		d.page, fd = page, page.FD()
	}
	return ask(c, m, fd, func(r *ResumeRequest) (Status, HelloReply, error) {
		d.resumed = *r
		return StatusOK, HelloReply{Session: r.Session, Devices: 9}, nil
	})
}
