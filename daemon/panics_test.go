package daemon

import (
	"context"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/gpuarb/gpuarb/daemon/history"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
)

// This file checks which process a panic of the daemon is counted against. panics.go handles panics;
// tests/attack/broken_test.go breaks invariants of a running daemon.

// TestWhoBrokeIt checks that a panic counts against a client only in the goroutine that applies the client's request.
// It also checks that a panic after the stop of the log is handled.
func TestWhoBrokeIt(t *testing.T) {
	for _, c := range []struct {
		name   string
		locked bool
		want   uint32
	}{{"a goroutine without the lock, while another applies a request", false, 0}, {"the goroutine that applies the request", true, 12}} {
		failures, _, err := statefile.OpenFailures(filepath.Join(t.TempDir(), "state"))
		if err != nil {
			t.Fatal(err)
		}
		restarted := make(chan struct{})
		d := &Daemon{failures: failures, ctx: t.Context(), handler: slog.DiscardHandler, logs: history.NewQueue(slog.DiscardHandler)}
		d.parts = d.realParts()
		d.restart = func(*ipc.ListenerFDs) { close(restarted); runtime.Goexit() }
		d.logs.Stop()
		d.lock()
		d.applyLocked(procfacts.Started{PID: 12, StartTicks: 34})
		go func() {
			defer d.catchPanic(nil)
			if c.locked {
				defer d.unlock()
			}
			panic("a test")
		}()
		late, cancel := context.WithTimeout(t.Context(), brokenPatience*10)
		select {
		case <-restarted:
			if last := failures.Last(); len(last) != 1 || last[0].PID != c.want {
				t.Errorf("%s: the failures are %+v, want PID %d", c.name, last, c.want)
			}
		case <-late.Done():
			t.Errorf("%s: no new start", c.name)
		}
		cancel()
		_ = failures.Close()
	}
}
