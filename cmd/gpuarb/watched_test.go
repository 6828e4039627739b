package main

import (
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/top"
)

// TestWatched: looks share a session, which is replaced when the daemon has ended it; changes have their own; and all go to the
// one daemon, or nowhere.
func TestWatched(t *testing.T) {
	d := startDaemon(t, nil)
	w := &watched{path: d.socket}
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
	_ = w.kept.Close()
	bounded.Receive(t, "the session ends", d.ends)
	look()
	_ = d.ear.Close()
	_ = w.kept.Close()
	_, err := w.Snapshot(t.Context())
	for what, err := range map[string]error{"a look": err, "a change": w.Do(t.Context(), action)} {
		if err == nil || !strings.Contains(err.Error(), d.socket) {
			t.Errorf("%s without a daemon: %v", what, err)
		}
	}
}
