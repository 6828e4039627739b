package main

import (
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/cmd/gpuarb/top"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks the connection of `gpuarb top` to the daemon: one session for all snapshots, and
// a session of its own for each change. Package top has the tests of the screen.

// TestWatched checks that snapshots share a session, which is replaced when the daemon has ended
// it. Changes have sessions of their own. All go to the same daemon, never to another one.
func TestWatched(t *testing.T) {
	d := startDaemon(t, nil)
	w := newTopDaemon(d.socket)
	look := func() {
		t.Helper()
		if s, err := w.Snapshot(t.Context()); err != nil || s.Version != "9.9" {
			t.Fatalf("the state: %q, %v", s.Version, err)
		}
	}
	for range 3 {
		look()
	}
	if n := len(d.ends); n != 0 {
		t.Errorf("%d sessions have ended after three looks", n)
	}
	action := top.Action{Kind: top.SetLimit, PID: 42, Device: 0, Limit: "memory.max", Value: "1G"}
	if err := w.Do(t.Context(), action); err != nil {
		t.Errorf("a change: %v", err)
	}
	bounded.Receive(t, "its session ends", d.ends)
	end := func() {
		_ = w.kept.Ask(t.Context(), func(c *ipc.Client) error { return c.Close() }) // Ask calls this twice, because the first call ends the session
	}
	end()
	bounded.Receive(t, "the session ends", d.ends)
	bounded.Receive(t, "its successor ends", d.ends)
	look()
	_ = d.ear.Close()
	end()
	_, err := w.Snapshot(t.Context())
	for what, err := range map[string]error{"a look": err, "a change": w.Do(t.Context(), action)} {
		if err == nil || !strings.Contains(err.Error(), d.socket) {
			t.Errorf("%s without a daemon: %v", what, err)
		}
	}
}
