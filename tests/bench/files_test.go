package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// BenchmarkLeases1000 is the table of a thousand leases as people look at it: by
// cat, and by a program that reads the file itself.
func BenchmarkLeases1000(b *testing.B) {
	m := rig.New(b, rig.Options{Devices: devices})
	crowd(b, m, 1000, 1)
	file := filepath.Join(m.Mount, "leases")
	b.Run("cat", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("cat", file).Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			text, err := os.ReadFile(file)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(text)))
		}
	})
}
