package archive

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/archive/rows"
)

// This file checks what readers who do not read can do to the store, and to other readers.

// asks connects to a server as a user, and sends a question.
func asks(t *testing.T, v *server, who reader, q rows.Question) net.Conn {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	conn, err := l.AcceptUnix()
	if err != nil || v.enter(who.uid) != nil || json.NewEncoder(client).Encode(q) != nil {
		t.Fatal(err)
	}
	go func() {
		defer v.leave(who.uid)
		defer conn.Close()
		v.answer(t.Context(), conn, who)
	}()
	return client
}

// TestSlowReaders checks that a user who reads no answer keeps nobody else from the history, and does not let SQLite's log grow without a
// bound.
func TestSlowReaders(t *testing.T) {
	s := opened(t, t.TempDir())
	k := &keeper{store: s, settings: rows.Settings{MaxBytes: 1 << 30, Daemon: "d"}}
	var id uint64
	add := func() {
		b := rows.Batch{AtMs: 1000}
		for range 20 {
			id++
			j := job(id, "ann", 0, 1, gib)
			j.EndedMs, j.Command = 1000, fmt.Sprintf("%d %010000d", id, 0)
			b.Jobs = append(b.Jobs, j)
		}
		if err := k.write(&b); err != nil {
			t.Fatal(err)
		}
		if err := s.shortenLog(); err != nil {
			t.Fatal(err)
		}
	}
	for range 30 {
		add()
	}
	v := newServer(s, 0)
	for range 2 * readers {
		asks(t, v, reader{uid: 1000}, rows.Question{Want: rows.WantJobs})
	}
	first := make([]byte, 1)
	slow := asks(t, v, reader{uid: 1001, all: true}, rows.Question{Want: rows.WantJobs})
	if _, err := slow.Read(first); err != nil {
		t.Fatal(err)
	}
	other := asks(t, v, reader{uid: 0, all: true}, rows.Question{Want: rows.WantReport, By: "user"})
	_ = other.SetReadDeadline(time.Now().Add(answerTimeout / 2))
	var line rows.Line
	if err := json.NewDecoder(other).Decode(&line); err != nil || line.Sum == nil {
		t.Errorf("another user's report: %+v, %v", line, err)
	}
	for range 100 {
		add()
	}
	if info, err := os.Stat(s.path + "-wal"); err != nil || info.Size() > mostLog+4<<20 {
		t.Errorf("the log has %d bytes, %v", info.Size(), err)
	}
}
