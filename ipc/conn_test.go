package ipc

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks the daemon's end of a connection against clients that send malformed messages, do not read, close
// early or write from many goroutines. main_test.go has the client that sends any bytes; peer_test.go checks who the
// client is, limits_test.go how many there may be.

// accept returns the daemon's end of a connection from this process.
func accept(t *testing.T, l *Listener) *Conn {
	t.Helper()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func pair(t *testing.T) (*rawConn, *Conn) {
	t.Helper()
	l := listen(t, ListenOptions{})
	raw := dialRaw(t, l.Path())
	return raw, accept(t, l)
}

func TestReadMessage(t *testing.T) {
	checkFDs(t)
	raw, c := pair(t)
	var alloc AllocRequest
	for i := range 3 {
		raw.send(Marshal(nil, Header{Type: TypeAlloc, Request: uint64(i)}, &goodAlloc))
		m, err := c.ReadMessage()
		if err != nil || m.Header.Request != uint64(i) || m.FD != -1 {
			t.Fatalf("%+v, %v", m, err)
		}
		if err := Unmarshal(m.Body, &alloc); err != nil || alloc != goodAlloc {
			t.Fatalf("%+v, %v", alloc, err)
		}
		if err := Reply(c, m.Header, StatusDeviceFull, &AllocReply{Requested: 7}, -1); err != nil {
			t.Fatal(err)
		}
		h, body, err := ParseReply(raw.recv(), HeaderSize+size[AllocReply]())
		if err != nil || h.Type != TypeAlloc|ReplyBit || h.Request != uint64(i) || h.Status != StatusDeviceFull || body[8] != 7 {
			t.Fatalf("%+v, %v", h, err)
		}
	}
	raw.close()
	if _, err := c.ReadMessage(); err != io.EOF || !IsEnd(err) {
		t.Errorf("after the client's end: %v", err)
	}
}

// TestMalformed sends each kind of malformed message over a real socket. The daemon answers each with the reason,
// leaks nothing, and reads the next valid message.
func TestMalformed(t *testing.T) {
	checkFDs(t)
	raw, c := pair(t)
	alloc := Marshal(nil, Header{Type: TypeAlloc, Request: 77}, &goodAlloc)
	resume := Marshal(nil, Header{Type: TypeResume, Request: 77}, &goodResume)
	noPage := goodResume
	noPage.HasPage = 0
	resumeWithout := Marshal(nil, Header{Type: TypeResume, Request: 77}, &noPage)
	badResume := goodResume
	badResume.Count = 99
	fd := newPage(t).FD()
	for _, s := range []struct {
		name   string
		msg    []byte
		fds    []int
		status Status
		typ    Type
		word   string
	}{
		{"no bytes", nil, nil, StatusMalformed, ReplyBit, "0 bytes"},
		{"no bytes, with a descriptor", nil, []int{fd}, StatusMalformed, ReplyBit, "0 bytes"},
		{"one byte", []byte{1}, nil, StatusMalformed, ReplyBit, "1 bytes"},
		{"short", alloc[:30], nil, StatusMalformed, TypeAlloc | ReplyBit, "30"},
		{"long", append(alloc[:48:48], 1), nil, StatusMalformed, TypeAlloc | ReplyBit, "49"},
		{"longer than any request", append(alloc[:48:48], make([]byte, MaxRequest)...), nil, StatusMalformed, TypeAlloc | ReplyBit, "4144"},
		{"huge and honest", append(edit(alloc, 8, uint32(60048)), make([]byte, 60000)...), nil, StatusMalformed, TypeAlloc | ReplyBit, "60048"},
		{"magic", edit(alloc, 0, uint32(1)), nil, StatusMalformed, ReplyBit, "magic"},
		{"version", edit(alloc, 4, uint16(2)), nil, StatusVersion, TypeAlloc | ReplyBit, "version 1"},
		{"type", edit(alloc, 6, uint16(16)), nil, StatusUnknownType, 16 | ReplyBit, "16"},
		{"a descriptor", alloc, []int{fd}, StatusMalformed, TypeAlloc | ReplyBit, "none belongs"},
		{"many descriptors", alloc, []int{fd, fd, fd, fd, fd, fd, fd, fd}, StatusMalformed, TypeAlloc | ReplyBit, "more than one"},
		{"a descriptor with garbage", []byte("garbage"), []int{fd}, StatusMalformed, ReplyBit, "7 bytes"},
		{"two pages", resume, []int{fd, fd}, StatusMalformed, TypeResume | ReplyBit, "more than one"},
		{"a page that did not come", resume, nil, StatusMalformed, TypeResume | ReplyBit, "HasPage is 1"},
		{"a page that was not named", resumeWithout, []int{fd}, StatusMalformed, TypeResume | ReplyBit, "HasPage is 0"},
		{"a resume with bad values", Marshal(nil, Header{Type: TypeResume}, &badResume), []int{fd}, StatusRange, TypeResume | ReplyBit, "99"},
	} {
		before := len(openFDs(t))
		raw.send(s.msg, s.fds...)
		m, err := c.ReadMessage()
		wantRefusal(t, s.name, err, s.status, s.word)
		if m.FD != -1 || m.Body != nil || len(openFDs(t)) != before {
			t.Errorf("%s: %+v, %d descriptors before, %d now", s.name, m, before, len(openFDs(t)))
		}
		if err := c.ReplyError(m.Header, err); err != nil {
			t.Fatal(err)
		}
		answer := raw.recv()
		h, body, err := ParseReply(answer, len(answer))
		var e ErrorReply
		if err != nil || Unmarshal(body, &e) != nil || h.Type != s.typ || h.Status != s.status || !strings.Contains(e.Text.String(), s.word) {
			t.Errorf("%s: answered %+v %q, %v", s.name, h, e.Text.String(), err)
		}
	}
	raw.send(alloc)
	if m, err := c.ReadMessage(); err != nil || m.Header.Request != 77 {
		t.Errorf("the good message after them: %+v, %v", m, err)
	}
}

func TestDescriptorOfResume(t *testing.T) {
	checkFDs(t)
	raw, c := pair(t)
	page := newPage(t)
	raw.send(Marshal(nil, Header{Type: TypeResume}, &goodResume), page.FD())
	m, err := c.ReadMessage()
	if err != nil {
		t.Fatal(err)
	}
	if flags, err := unix.FcntlInt(uintptr(m.FD), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("the descriptor outlives exec: %#x, %v", flags, err)
	}
	p, err := OpenPage(m.FD, page.ID())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	without := goodResume
	without.HasPage = 0
	raw.send(Marshal(nil, Header{Type: TypeResume}, &without))
	if m, err := c.ReadMessage(); err != nil || m.FD != -1 {
		t.Errorf("without a page: %+v, %v", m, err)
	}
}

func TestReplyErrorStatus(t *testing.T) {
	raw, c := pair(t)
	for _, s := range []struct {
		err    error
		status Status
		text   string
	}{
		{refuse(StatusNoLease, "slot 3 is not attached"), StatusNoLease, "slot 3 is not attached"},
		{&os.PathError{Op: "open", Path: "x", Err: malformed("inside")}, StatusMalformed, "inside"},
		{errors.New("disk on fire"), StatusInternal, "disk on fire"},
	} {
		if err := c.ReplyError(Header{Type: TypeAttach, Request: 5}, s.err); err != nil {
			t.Fatal(err)
		}
		msg := raw.recv()
		h, body, err := ParseReply(msg, len(msg))
		var e ErrorReply
		if err != nil || Unmarshal(body, &e) != nil || h.Status != s.status || e.Text.String() != s.text || h.Request != 5 {
			t.Errorf("%v: %+v %q %v", s.err, h, e.Text.String(), err)
		}
	}
}

// TestJoinedConnection: a connection that joined a session gives up its pidfd and keeps working.
func TestJoinedConnection(t *testing.T) {
	checkFDs(t)
	raw, c := pair(t)
	c.MarkJoined()
	if fd := c.Peer().PIDFD; fd != -1 { // if a pidfd stayed open, checkFDs reports it
		t.Errorf("it has still the pidfd %d", fd)
	}
	limits := c.listener.limits
	if limits.total != joinedWeight {
		t.Errorf("it counts %d", limits.total)
	}
	if err := Reply(c, Header{Type: TypeAlloc}, StatusOK, &AllocReply{}, -1); err != nil || len(raw.recv()) == 0 {
		t.Errorf("it says no more: %v", err)
	}
	_ = c.Close()
	c.MarkJoined() // without effect, because the connection is closed
	if limits.total != 0 || len(limits.byPID) != 0 {
		t.Errorf("afterwards there remain %d, %v", limits.total, limits.byPID)
	}
}

// TestSlowReader: the daemon closes the connection of a client that does not read as soon as the kernel's buffer is
// full, without a wait.
func TestSlowReader(t *testing.T) {
	checkFDs(t)
	raw, c := pair(t)
	var err error
	longest := time.Duration(0)
	sent := 0
	for ; err == nil && sent < 100000; sent++ {
		begin := time.Now()
		err = Reply(c, Header{Type: TypeAlloc}, StatusOK, &AllocReply{}, -1)
		longest = max(longest, time.Since(begin))
	}
	if !errors.Is(err, ErrSlowReader) || sent < 10 {
		t.Fatalf("after %d replies: %v", sent, err)
	}
	if longest > time.Second {
		t.Errorf("a reply waited %v", longest)
	}
	if open := c.listener.limits.open(); open != 0 {
		t.Errorf("%d connections are open", open)
	}
	if _, err := c.ReadMessage(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection goes on: %v", err)
	}
	for range sent - 1 { // the messages sent before can still be read; then the connection ends
		if len(raw.recv()) == 0 {
			t.Fatal("a reply was lost")
		}
	}
	if got := raw.recv(); len(got) != 0 {
		t.Errorf("%d bytes more", len(got))
	}
}

func TestCloseWakesReader(t *testing.T) {
	_, c := pair(t)
	ended := make(chan error)
	go func() { _, err := c.ReadMessage(); ended <- err }()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := bounded.Receive(t, "the reader wakes", ended); !errors.Is(err, net.ErrClosed) || !IsEnd(err) {
		t.Errorf("ReadMessage: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if err := Reply(c, Header{Type: TypeBye}, StatusOK, &Empty{}, -1); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Reply: %v", err)
	}
	if c.Peer().PIDFD != -1 || c.TakePIDFD() != -1 {
		t.Error("the pidfd outlived the connection")
	}
}

func TestReplyToDeadClient(t *testing.T) {
	raw, c := pair(t)
	raw.close()
	err := Reply(c, Header{Type: TypeBye}, StatusOK, &Empty{}, -1)
	if !errors.Is(err, unix.EPIPE) || !IsEnd(err) {
		t.Errorf("Reply: %v", err)
	}
}

// TestManyWriters: replies from many goroutines arrive whole.
func TestManyWriters(t *testing.T) {
	raw, c := pair(t)
	const writers, each = 8, 20
	done := make(chan error, writers)
	for w := range writers {
		go func() {
			var err error
			for range each {
				r := QueryReply{Total: uint64(w), Used: uint64(w), Room: uint64(w)}
				err = errors.Join(err, Reply(c, Header{Type: TypeQuery, Request: uint64(w)}, StatusOK, &r, -1))
			}
			done <- err
		}()
	}
	for range writers {
		if err := bounded.Receive(t, "all are written", done); err != nil {
			t.Fatal(err)
		}
	}
	seen := make(map[uint64]int)
	for range writers * each {
		msg := raw.recv()
		h, body, err := ParseReply(msg, len(msg))
		var r QueryReply
		if err != nil || Unmarshal(body, &r) != nil || r != (QueryReply{h.Request, h.Request, h.Request}) {
			t.Fatalf("%+v %+v %v", h, r, err)
		}
		seen[h.Request]++
	}
	for w, n := range seen {
		if n != each {
			t.Errorf("writer %d: %d replies", w, n)
		}
	}
}

// TestMessageKeepsItsBuffer: connections share read buffers, but no other connection reads into the buffer of a
// message in use.
func TestMessageKeepsItsBuffer(t *testing.T) {
	l := listen(t, ListenOptions{})
	var held []Message
	for bytes := range uint64(16) {
		raw := dialRaw(t, l.Path())
		c := accept(t, l)
		read := make(chan Message)
		go func() {
			m, err := c.ReadMessage() // may wait, and takes a buffer only if there is something to read
			if err != nil {
				t.Error(err)
			}
			read <- m
		}()
		raw.send(Marshal(nil, Header{Type: TypeAlloc}, &AllocRequest{Kind: MemoryPlain, Bytes: bytes + 1}))
		held = append(held, bounded.Receive(t, "a message", read))
	}
	for i, m := range held {
		var req AllocRequest
		if err := Unmarshal(m.Body, &req); err != nil || req.Bytes != uint64(i)+1 {
			t.Errorf("message %d has become %+v, %v", i, req, err)
		}
	}
}

// TestConnAllocatesNothing: the daemon allocates nothing for a request and its reply.
func TestConnAllocatesNothing(t *testing.T) {
	raw, c := pair(t)
	msg := Marshal(nil, Header{Type: TypeAlloc}, &goodAlloc)
	buf := make([]byte, 2048)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := unix.Write(raw.fd, msg); err != nil {
			t.Fatal(err)
		}
		m, err := c.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		var req AllocRequest
		if err := Unmarshal(m.Body, &req); err != nil {
			t.Fatal(err)
		}
		if err := Reply(c, m.Header, StatusOK, &AllocReply{Granted: req.Bytes}, -1); err != nil {
			t.Fatal(err)
		}
		if _, err := read(raw.fd, buf); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a round trip", n)
	}
}
