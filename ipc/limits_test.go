package ipc

import (
	"bufio"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

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
	l.leave(root, whole)
	l.leave(a, whole) // a place for each of what was refused
	if err := l.enter(b); err != nil {
		t.Error(err)
	}
	for _, p := range []Peer{a, b, b, c} {
		l.leave(p, whole)
	}
	if len(l.byPID)+len(l.byUID)+l.open() != 0 {
		t.Errorf("all have left, and there remain %v, %v, %d", l.byPID, l.byUID, l.open())
	}
	if d := newConnLimits(Limits{}); d.PerPID != 1024 || d.PerUID != 49152 || d.Total != 65536 || d.Reserved != 8192 {
		t.Errorf("defaults %+v", d.Limits)
	}
}

// TestLimitsOfJoined: connections of sessions that others opened count a half, but for their process.
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
	enter(5) // 6 descriptors, of which the last connection needs two at first
	peer.UID = 11
	enter(2) // 8 descriptors in all; the last connection needs two at first
	peer.UID, peer.Privileged = 0, true
	enter(2)
	peer.UID, peer.Privileged = 11, false
	l.leave(peer, joined)
	peer.UID = 10
	for range 5 {
		l.leave(peer, joined)
	}
	if l.byUID[10] != 0 || l.byUID[11] != joined {
		t.Errorf("there remain %v", l.byUID)
	}
}

// TestSilence: a connection on which nothing comes is closed, and says why; one that has said
// something waits for as long as it likes.
func TestSilence(t *testing.T) {
	ends := make(chan error, 2)
	l := serve(t, ListenOptions{Patience: time.Second}, func(c *Conn) {
		_, err := c.ReadMessage()
		if err == nil {
			c.Accepted()
			_, err = c.ReadMessage()
		}
		if errors.Is(err, ErrSilent) {
			c.Silence()
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

// TestHeldUp: what a client has said is heard by a daemon that comes to it when the client's time is
// over, for once.
func TestHeldUp(t *testing.T) {
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

// TestFlood: one process opens 10,000 connections and holds on to all of them. It
// is told no; another client goes on as if nothing were.
func TestFlood(t *testing.T) {
	checkFDs(t)
	const limit = 100
	l := serve(t, ListenOptions{Limits: Limits{PerPID: limit}}, answerAll)
	friend := dial(t, l.Path())
	calm := roundTrips(t, friend, 500, func() bool { return false })
	flood := startHelper(t, "flood", l.Path(), nil)
	flood.line(t)
	ended := make(chan string, 1)
	go func() {
		s, _ := bufio.NewReader(flood.lines).ReadString('\n')
		ended <- s
	}()
	report, over := "", false
	storm := roundTrips(t, friend, 500, func() bool {
		select {
		case report = <-ended:
			over = true
		default:
		}
		return !over
	})
	if want := fmt.Sprintf("%d open, %d refused\n", limit, floodSize-limit); report != want {
		t.Errorf("the flood reports %q, want %q", report, want)
	}
	if open := l.limits.open(); open != limit+1 {
		t.Errorf("%d connections are open, want %d", open, limit+1)
	}
	t.Logf("round trip p50 %v, under the flood %v (%d)", calm[len(calm)/2], storm[len(storm)/2], len(storm))
	flood.stop()
	eventually(t, "the flood's connections are given back", func() bool { return l.limits.open() == 1 })
}

// roundTrips asks at least n times, and on while more says so; it returns the
// sorted durations.
func roundTrips(t *testing.T, c *Client, n int, more func() bool) []time.Duration {
	t.Helper()
	var took []time.Duration
	for len(took) < n || more() {
		begin := time.Now()
		if _, err := c.Query(t.Context(), UUID{}); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return took
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

const floodSize = 10000

// helperFlood opens floodSize connections, holds them, and says how it went.
func helperFlood(path string) error {
	fmt.Println("begins")
	var open, refused int
	var fds []int
	query := Marshal(nil, Header{Type: TypeQuery}, &QueryRequest{})
	buf := make([]byte, 1024)
	for range floodSize {
		fd, err := rawConnect(path)
		if err != nil {
			return fmt.Errorf("connection %d: %w", len(fds), err)
		}
		fds = append(fds, fd)
		_ = unix.Sendmsg(fd, query, nil, nil, unix.MSG_NOSIGNAL) // a refused one is closed already, maybe
		n, err := read(fd, buf)
		if errors.Is(err, unix.ECONNRESET) {
			n, err = read(fd, buf)
		}
		if err != nil {
			return err
		}
		switch h, _, err := ParseReply(buf[:n], n); {
		case err != nil:
			return err
		case h.Status == StatusOK:
			open++
		case h.Type == ReplyBit && h.Status == StatusTooMany:
			refused++
		default:
			return fmt.Errorf("connection %d: %+v", len(fds), h)
		}
	}
	fmt.Printf("%d open, %d refused\n", open, refused)
	waitForEOF()
	for _, fd := range fds {
		unix.Close(fd)
	}
	return nil
}

// open is how many connections are open.
func (l *connLimits) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return (l.total + whole - 1) / whole // a part of one is one
}
