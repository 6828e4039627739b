package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// BenchmarkLeases1000 is the table of a thousand leases as people look at it: by
// cat, and by a program that reads the file itself, ten times a second. Who looks again at once waits five times as long as the
// look took, since those who look have no more than a sixth of the daemon's time.
func BenchmarkLeases1000(b *testing.B) {
	m := rig.New(b, rig.Options{Devices: devices})
	crowd(b, m, 1000, 1)
	file := filepath.Join(m.Mount, "leases")
	b.Run("cat", func(b *testing.B) {
		look(b, func() error { return exec.Command("cat", file).Run() })
	})
	b.Run("read", func(b *testing.B) {
		look(b, func() error {
			_, err := os.ReadFile(file)
			return err
		})
	})
}

func look(b *testing.B, f func() error) {
	var took []time.Duration
	for b.Loop() {
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		if err := f(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	report(b, took)
}
