package rig

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// This file stops processes for tests of a stopped daemon or client. stuck.go handles programs that hang by mistake.

// Halt stops a process with SIGSTOP, and returns when all of its threads have stopped: the kernel stops each thread
// a moment after the signal was sent. SIGCONT lets the process go on.
func (m *Machine) Halt(pid int) {
	m.T.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		m.T.Fatal(err)
	}
	Eventually(m.T, "all threads of "+strconv.Itoa(pid)+" have stopped", func() bool { return halted(m.T, pid) })
}

// halted reports whether all threads of a process are stopped (state T of /proc/PID/task/TID/stat, proc(5)).
func halted(t testing.TB, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		_, state, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
		if err == nil && !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}
