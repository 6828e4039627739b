package ipc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks which socket a command connects to, what the error says if no daemon answers, and that Dial waits
// for a busy daemon. cshim/core has the rule for the socket's path a second time, in C.

func TestDialFails(t *testing.T) {
	checkFDs(t)
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: stale}); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	none := filepath.Join(dir, "none")
	_, err = DialAny(t.Context(), []string{none, stale})
	var tried *NoDaemonError
	if !errors.Is(err, ErrNoDaemon) || !errors.As(err, &tried) || len(tried.Tried) != 2 {
		t.Fatalf("%v", err)
	}
	for _, word := range []string{none + ": no such file", stale + ": connection refused", "GPUARB_SOCKET"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%v does not say %q", err, word)
		}
	}
	if !errors.Is(err, os.ErrNotExist) || !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("%v hides the reasons", err)
	}
	l := serve(t, ListenOptions{}, answerAll)
	c, err := DialAny(t.Context(), []string{none, stale, l.Path()})
	if err != nil || c.Path() != l.Path() {
		t.Fatalf("the third path: %v", err)
	}
	c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := DialAny(ctx, []string{l.Path()}); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}

// TestDialBusy: Dial waits while the daemon's backlog of new connections is full.
func TestDialBusy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	dialRaw(t, path) // the only place in the backlog
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with no room: %v", err)
	}
	got := make(chan error)
	go func() {
		c, err := Dial(t.Context(), path)
		if err == nil {
			err = c.Close()
		}
		got <- err
	}()
	nfd, _, err := unix.Accept(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(nfd)
	if err := bounded.Receive(t, "Dial returns", got); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

func TestFindSocket(t *testing.T) {
	for _, c := range []struct {
		env  string
		uid  int
		want string
	}{
		{"GPUARB_SOCKET=/x/y XDG_RUNTIME_DIR=/run/user/5", 5, "/x/y"},
		{"XDG_RUNTIME_DIR=/run/user/5", 5, "/run/user/5/gpuarb/gpuarb.sock /run/gpuarb/gpuarb.sock"},
		{"XDG_RUNTIME_DIR=/elsewhere", 0, "/elsewhere/gpuarb/gpuarb.sock /run/gpuarb/gpuarb.sock"},
		{"XDG_RUNTIME_DIR=relative", 5, "/run/user/5/gpuarb/gpuarb.sock /run/gpuarb/gpuarb.sock"},
		{"", 5, "/run/user/5/gpuarb/gpuarb.sock /run/gpuarb/gpuarb.sock"},
		{"", 0, "/run/gpuarb/gpuarb.sock"},
	} {
		env := func(name string) string {
			for kv := range strings.FieldsSeq(c.env) {
				if k, v, _ := strings.Cut(kv, "="); k == name {
					return v
				}
			}
			return ""
		}
		if got := strings.Join(FindSocket(env, c.uid), " "); got != c.want {
			t.Errorf("%s, uid %d: %s", c.env, c.uid, got)
		}
	}
}
