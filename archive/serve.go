package archive

// This file serves readers: it asks the kernel which user has connected, reads one question, and sends the answer. run.go calls it.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpuarb/gpuarb/archive/rows"
	"golang.org/x/sys/unix"
)

const (
	maxConns        = 128 // open connections; more are closed at once
	maxConnsPerUser = 16
	maxQuestion     = 16 << 10 // bytes of the line of a question
	questionTimeout = 5 * time.Second
	answerTimeout   = 60 * time.Second
)

// server answers the readers of a store.
type server struct {
	store *store
	owner uint32 // user that sees all rows, like root
	mu    sync.Mutex
	conns map[uint32]int           // open connections by user
	turns map[uint32]chan struct{} // of users with connections; full while an answer to the user is being made
	total int                      // open connections of all users
}

// newServer returns a server of a store. owner sees all rows, like root.
func newServer(s *store, owner uint32) *server {
	return &server{store: s, owner: owner, conns: map[uint32]int{}, turns: map[uint32]chan struct{}{}}
}

// serve accepts connections and answers each in a goroutine, until the listener is closed or ctx ends.
func (v *server) serve(ctx context.Context, l *net.UnixListener) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(100 * time.Millisecond) // probably too many open files
			continue
		}
		who, err := v.readerOf(conn)
		if err == nil {
			err = v.enter(who.uid)
		}
		if err != nil {
			refuse(conn, err)
			continue
		}
		go func() {
			defer v.leave(who.uid)
			defer conn.Close()
			v.answer(ctx, conn, who)
		}()
	}
}

// refuse tells a reader why its question is not read, and closes the connection. A new connection has room for the line, so that the write does not
// wait.
func refuse(conn *net.UnixConn, why error) {
	_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	_ = json.NewEncoder(conn).Encode(rows.Line{Error: why.Error()})
	conn.Close()
}

// enter counts a connection of a user. It returns an error, and counts nothing, if the user or all users
// together have too many.
func (v *server) enter(uid uint32) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.conns[uid] >= maxConnsPerUser {
		return fmt.Errorf("%d questions of yours are open, and a user may have no more at once: let those commands end, or end them, and ask again", maxConnsPerUser)
	}
	if v.total >= maxConns {
		return fmt.Errorf("%d questions of all users are open, and there may be no more at once: ask again in a minute", maxConns)
	}
	v.total++
	if v.conns[uid]++; v.conns[uid] == 1 {
		v.turns[uid] = make(chan struct{}, 1)
	}
	return nil
}

func (v *server) leave(uid uint32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.total--
	if v.conns[uid]--; v.conns[uid] == 0 {
		delete(v.conns, uid)
		delete(v.turns, uid)
	}
}

// turn waits until no other answer to the user is being made, and returns the function that ends the turn. So a user who does not read
// answers occupies at most one connection to the store.
func (v *server) turn(ctx context.Context, uid uint32) (end func(), err error) {
	v.mu.Lock()
	turn := v.turns[uid]
	v.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, errors.New("another question of yours is not answered yet: read its answer first")
	}
}

// readerOf returns the user at the other end of a connection, as the kernel recorded it. Root of another PID namespace, as in a container,
// sees root's own rows only.
func (v *server) readerOf(conn *net.UnixConn) (reader, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return reader{}, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil || failed != nil {
		return reader{}, errors.Join(err, failed)
	}
	who := reader{uid: cred.Uid}
	who.all = (who.uid == 0 || who.uid == v.owner) && cred.Pid > 0 && inOwnNamespace(int(cred.Pid))
	return who, nil
}

// inOwnNamespace reports whether a process runs in the PID namespace of this process. It then has as many PIDs in NSpid as this process. In a
// namespace below, it has one more for each level.
func inOwnNamespace(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	_, rest, found := strings.Cut(string(text), "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	own, err := os.ReadFile("/proc/self/status")
	if err != nil || !found {
		return false
	}
	_, mine, _ := strings.Cut(string(own), "\nNSpid:")
	mine, _, _ = strings.Cut(mine, "\n")
	return len(strings.Fields(line)) == len(strings.Fields(mine))
}

// answer reads a question and sends its answer.
func (v *server) answer(ctx context.Context, conn *net.UnixConn, who reader) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_ = conn.SetDeadline(time.Now().Add(questionTimeout))
	out := bufio.NewWriterSize(conn, 64<<10)
	lines := json.NewEncoder(out)
	line, err := bufio.NewReaderSize(conn, maxQuestion).ReadSlice('\n')
	var q rows.Question
	if err == nil {
		err = json.Unmarshal(line, &q)
	}
	if err == nil {
		err = v.answerInTurn(ctx, conn, who, q, lines)
	}
	last := rows.Line{End: true}
	if err != nil {
		last = rows.Line{Error: err.Error()}
	}
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // the answer's own time may be over
	_ = lines.Encode(last)
	_ = out.Flush()
}

// answerInTurn answers a question when no other answer to the user is being made.
func (v *server) answerInTurn(ctx context.Context, conn *net.UnixConn, who reader, q rows.Question, lines *json.Encoder) error {
	_ = conn.SetDeadline(time.Now().Add(answerTimeout + time.Second))
	end, err := v.turn(ctx, who.uid)
	if err != nil {
		return err
	}
	defer end()
	of, done := v.store.answering(ctx)
	defer done()
	defer context.AfterFunc(of, func() { _ = conn.SetDeadline(time.Now()) })() // it ends a write that waits for the reader
	err = v.store.answer(of, who, q, time.Now().UnixMilli(), func(l rows.Line) error { return lines.Encode(l) })
	switch {
	case err == nil || of.Err() == nil:
		return err
	case ctx.Err() == nil:
		return errors.New("the answer was ended, because it kept new rows from being written: ask again, or for a shorter time (--since)")
	}
	return fmt.Errorf("the answer was not complete after %v: ask for a shorter time (--since)", answerTimeout)
}

// answering waits while shortenLog runs, and returns the context of an answer, which a later shortenLog may cancel. The caller must call
// done after the answer.
func (s *store) answering(ctx context.Context) (of context.Context, done func()) {
	of, end := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.closed {
		s.changed.Wait()
	}
	s.answers[&end] = true
	return of, func() {
		end()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.answers, &end)
		s.changed.Broadcast()
	}
}

// answer sends the lines that answer a question.
func (s *store) answer(ctx context.Context, who reader, q rows.Question, nowMs int64, send func(rows.Line) error) error {
	switch q.Want {
	case rows.WantReport:
		return s.report(ctx, who, q, nowMs, send)
	case rows.WantJobs, rows.WantPeaks:
		return s.jobs(ctx, who, q, nowMs, send)
	case rows.WantMinutes:
		return s.minutes(ctx, q, nowMs, send)
	}
	return fmt.Errorf("the question %q is not known: gpuarb and gpuarbd are of different versions; restart the daemon after an upgrade", q.Want)
}
