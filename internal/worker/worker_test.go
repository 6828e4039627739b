package worker

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// This file checks the unprivileged process of the daemon: the user and groups that it gets, the
// socket that is opened for it, and its end when its heartbeats are missing. tests/web/worker_test.go
// starts it from a daemon.

// page is a job whose user does not exist on the machine of the tests.
var page = Job{User: "gpuarb-test", Connects: true}

// TestCredential checks that the worker of root does not run as root and has no groups. The worker
// of another user runs as that user.
func TestCredential(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	if c, err := page.credentialFor(1000, socket); c != nil || err != nil {
		t.Errorf("a user's worker: %v, %v", c, err)
	}
	c, err := page.credentialFor(0, socket)
	if err != nil || c == nil || c.Uid == 0 || c.Gid == 0 || len(c.Groups) != 0 || c.NoSetGroups {
		t.Errorf("root's worker: %+v, %v", c, err)
	}
}

// TestCredentialOfANarrowSocket checks that root's worker gets the group of the daemon's socket if
// the socket is open to that group and not to all users. It gets no other group.
func TestCredentialOfANarrowSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var stat syscall.Stat_t
	if err := syscall.Stat(socket, &stat); err != nil {
		t.Fatal(err)
	}
	group := stat.Gid
	if os.Geteuid() == 0 {
		group = 61234
		if err := os.Chown(socket, 0, int(group)); err != nil {
			t.Fatal(err)
		}
	}
	for mode, want := range map[os.FileMode]bool{0o660: true, 0o666: false, 0o600: false} {
		if err := os.Chmod(socket, mode); err != nil {
			t.Fatal(err)
		}
		c, err := page.credentialFor(0, socket)
		if err != nil || (c.Gid == group) != want || len(c.Groups) != 0 {
			t.Errorf("of a socket of group %d with %o: %+v, %v", group, mode, c, err)
		}
	}
}

// TestListenUnix checks that a socket without a listener is replaced, and that any other file
// stays.
func TestListenUnix(t *testing.T) {
	dir, err := os.MkdirTemp("", "gpuarb-test-") // names of t.TempDir are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := Wanted{Network: "unix", Address: filepath.Join(dir, "http")}
	first, err := listen(w, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(w.Address); err != nil || info.Mode() != os.ModeSocket|0o666 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := listen(w, 0o666); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("beside another: %v", err)
	}
	first.Close() // without removing its file, as a killed process does
	second, err := listen(w, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", w.Address)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	closeListener(second, w)
	if _, err := os.Lstat(w.Address); err == nil {
		t.Error("the socket file is still there")
	}
	if err := os.WriteFile(w.Address, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(w, 0o666); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("in place of a file: %v", err)
	}
	if text, err := os.ReadFile(w.Address); err != nil || string(text) != "mine" {
		t.Errorf("the file is %q, %v", text, err)
	}
}

// TestSilentWorker checks that a worker without heartbeats is ended. The worker here stops itself
// with SIGSTOP.
func TestSilentWorker(t *testing.T) {
	dir, err := os.MkdirTemp("", "gpuarb-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program := filepath.Join(dir, "program")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(program, []byte("#!/bin/sh\nread settings\necho\nkill -STOP $$\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	k := New(slog.New(slog.DiscardHandler), "", 0, page)
	k.program, k.heartbeatPeriod = program, 50*time.Millisecond
	w := Wanted{Network: "unix", Address: filepath.Join(dir, "http")}
	listener, err := listen(w, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer closeListener(listener, w)
	if _, err := k.runOne(t.Context(), w, listener); !errors.Is(err, errSilent) {
		t.Errorf("it ended with %v", err)
	}
	if pid := k.pid.Load(); pid != 0 || k.Is(0) {
		t.Errorf("the Keeper still has the PID %d", pid)
	}
}

// TestLastSet checks that the last of several calls of Set counts, and that Set does not wait.
func TestLastSet(t *testing.T) {
	k := New(nil, "", 0, page)
	for _, address := range []string{"a", "b", "c"} {
		k.Set(Wanted{Address: address})
	}
	if w := k.await(t.Context(), Wanted{}, nil); w.Address != "c" {
		t.Errorf("wanted is %q", w.Address)
	}
}
