package ipc

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// This file checks how many connections a process, a user and all users together may have, and that the daemon closes
// a new connection that sends nothing. conn_test.go has clients that send but do not read.

func TestLimits(t *testing.T) {
	l := newConnLimits(Limits{PerPID: 2, PerUID: 3, Total: 5, Reserved: 1})
	a, b, c := Peer{PID: 1, UID: 10}, Peer{PID: 2, UID: 10}, Peer{PID: 3, UID: 11}
	root := Peer{PID: 4, Privileged: true}
	for i, s := range []struct {
		peer Peer
		word string
	}{{a, ""}, {a, ""}, {a, "process 1 has 2"}, {b, ""}, {b, "one user may have (3)"}, {c, ""},
		{c, "there may be (4), but for 1"}, {root, ""}, {root, "there may be (5)"}} {
		err := l.enter(s.peer)
		if s.word == "" && err != nil || s.word != "" && (err == nil || err.Status != StatusTooMany || !strings.Contains(err.Text, s.word)) {
			t.Errorf("step %d: %v", i, err)
		}
	}
	l.leave(root, soloWeight)
	l.leave(a, soloWeight) // now the process, the user and the total each have a free place
	if err := l.enter(b); err != nil {
		t.Error(err)
	}
	for _, p := range []Peer{a, b, b, c} {
		l.leave(p, soloWeight)
	}
	if len(l.byPID)+len(l.byUID)+l.open() != 0 {
		t.Errorf("all have left, and there remain %v, %v, %d", l.byPID, l.byUID, l.open())
	}
	if d := newConnLimits(Limits{}); d.PerPID != 1024 || d.PerUID != 49152 || d.Total != 65536 || d.Reserved != 8192 {
		t.Errorf("defaults %+v", d.Limits)
	}
}

// TestLimitsOfJoined: a connection that joined a session counts as a half, except in the limit of its process.
func TestLimitsOfJoined(t *testing.T) {
	l := newConnLimits(Limits{PerPID: 100, PerUID: 3, Total: 5, Reserved: 1})
	peer := Peer{PID: 1, UID: 10}
	enter := func(want int) {
		t.Helper()
		got := 0
		for ; l.enter(peer) == nil; got++ {
			l.join(peer)
		}
		if got != want {
			t.Errorf("%d more that join come in, want %d", got, want)
		}
	}
	enter(5) // 6 descriptors; the last connection counts two until it joins
	peer.UID = 11
	enter(2) // 8 descriptors in all; the last connection counts two until it joins
	peer.UID, peer.Privileged = 0, true
	enter(2)
	peer.UID, peer.Privileged = 11, false
	l.leave(peer, joinedWeight)
	peer.UID = 10
	for range 5 {
		l.leave(peer, joinedWeight)
	}
	if l.byUID[10] != 0 || l.byUID[11] != joinedWeight {
		t.Errorf("there remain %v", l.byUID)
	}
}

// TestSilence: the daemon closes a silent new connection with the reason. A connection that has sent a valid message
// may be silent without a limit.
func TestSilence(t *testing.T) {
	ends := make(chan error, 2)
	l := serve(t, ListenOptions{Patience: time.Second}, func(c *Conn) {
		_, err := c.ReadMessage()
		if err == nil {
			c.MarkAccepted()
			_, err = c.ReadMessage()
		}
		if errors.Is(err, ErrSilent) {
			c.ReplySilent()
		}
		ends <- err
	})
	heard, silent := dial(t, l.Path()), dial(t, l.Path())
	if err := send(heard, Header{Type: TypeBye, Request: 1}, &Empty{}, -1, nil); err != nil {
		t.Fatal(err)
	}
	if err := <-ends; !errors.Is(err, ErrSilent) {
		t.Errorf("the silent one ends with %v", err)
	}
	r, err := silent.sock.receive()
	if err != nil {
		t.Fatal(err)
	}
	h, body, err := ParseReply(r.msg, r.full)
	if err != nil || h.Type != ReplyBit || h.Status != StatusOrder || !strings.Contains(string(body), "nothing that is a message came for 1s") {
		t.Errorf("it is told %v %q, %v", h, body, err)
	}
	select {
	case err := <-ends:
		t.Errorf("the other one ends with %v", err)
	default:
	}
	_ = heard.Close()
	if err := <-ends; !IsEnd(err) {
		t.Errorf("the other one ends with %v", err)
	}
}

// TestMessageReadLate: if the daemon begins to read only after the deadline, it still gets one message that is already in its socket. The
// next read fails.
func TestMessageReadLate(t *testing.T) {
	sent, ends := make(chan struct{}), make(chan error, 2)
	l := serve(t, ListenOptions{Patience: time.Nanosecond}, func(c *Conn) {
		<-sent
		for range 2 {
			_, err := c.ReadMessage()
			ends <- err
		}
	})
	client := dial(t, l.Path())
	for range 2 {
		if err := send(client, Header{Type: TypeBye, Request: 1}, &Empty{}, -1, nil); err != nil {
			t.Fatal(err)
		}
	}
	close(sent)
	if err := <-ends; err != nil {
		t.Errorf("what came in time: %v", err)
	}
	if err := <-ends; !errors.Is(err, ErrSilent) {
		t.Errorf("after the time is over: %v", err)
	}
}

// answerAll answers every Query until the connection ends.
func answerAll(c *Conn) {
	for {
		m, err := c.ReadMessage()
		if err != nil {
			return
		}
		if err := Reply(c, m.Header, StatusOK, &QueryReply{Total: 1}, -1); err != nil {
			return
		}
	}
}

// open returns the number of open connections.
func (l *connLimits) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return (l.total + soloWeight - 1) / soloWeight // rounded up
}
