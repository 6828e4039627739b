package bench

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file measures how long a user waits for the table of a thousand leases below /gpu.

// BenchmarkLeases1000 measures `cat` of the table of a thousand leases, ten times a second. A reader without a pause would wait
// five times as long as the read takes, because readers get at most a sixth of the daemon's time.
func BenchmarkLeases1000(b *testing.B) {
	m := rig.New(b, rig.Options{Devices: devices})
	crowd(b, m, 1000, 1)
	var took []time.Duration
	for b.Loop() {
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		if err := exec.Command("cat", filepath.Join(m.Mount, "leases")).Run(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	report(b, took)
}
