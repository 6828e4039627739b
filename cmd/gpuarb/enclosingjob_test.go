package main

import (
	"strings"
	"testing"
)

// This file checks `gpuarb run` and `gpuarb claim` inside a job while the daemon restarts.
// tests/arbitration/inside_test.go runs jobs inside jobs of a real daemon.

// TestInsideWhileTheDaemonRestarts checks that gpuarb asks again if the daemon ends while gpuarb
// asks it about the job in GPUARB_JOB. Without that, gpuarb would open a job of its own, which
// waits for what the job in GPUARB_JOB holds.
func TestInsideWhileTheDaemonRestarts(t *testing.T) {
	for name, args := range map[string][]string{
		"run":   {"run", "--", "sh", "-c", "exit 7"},
		"claim": {"claim", "--device", "any"},
	} {
		d := startDaemon(t, nil)
		d.leaving.Store(4)
		got := finish(t, gpuarb(t, d.environment(t, "GPUARB_JOB="+testJobHex), args...))
		d.mu.Lock()
		opened := d.jobs
		d.mu.Unlock()
		switch {
		case len(opened) != 0:
			t.Errorf("%s opened a job of its own: %v", name, opened)
		case name == "run" && got.code != 7:
			t.Errorf("run: %v", got)
		case name == "claim" && (got.code != exitFailed || !strings.Contains(got.stderr, "env -u GPUARB_JOB")):
			t.Errorf("claim: %v", got)
		}
	}
}
