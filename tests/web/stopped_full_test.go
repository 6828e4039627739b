//go:build full

package web

import (
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the one way for the page's process to fail that takes long to notice: it is stopped and does
// not end. worker_test.go has the other ways.

// TestFullStopped: if a signal stops the process that serves the page, the daemon ends it and starts another one.
func TestFullStopped(t *testing.T) {
	t.Parallel()
	m := newMachine(t, rig.Options{NoMount: true})
	url := m.url()
	_, pid := m.page()
	number, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(number, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the stopped process is killed", func() bool { return !lives(pid) })
	get(t, url+"state") // at the same address
	if _, now := m.page(); now == pid {
		t.Errorf("the ended process %s is still said to serve", pid)
	}
}
