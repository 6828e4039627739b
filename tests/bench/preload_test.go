package bench

import (
	"fmt"
	"os"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file measures what the library adds to the start and end of a program that uses no GPU. The floor is an empty
// shared object in its place.

// BenchmarkPreload measures a program that does not use a GPU, from its start to its
// end: bare, under an empty shared object, and under the library, in turns.
// added-ns is the difference between the last two.
func BenchmarkPreload(b *testing.B) {
	cmd := bounded.Command(b, bounded.Lifetime, rig.Build(b, "bench/spawn"), fmt.Sprint(b.N), "/bin/true",
		rig.Build(b, "bench/empty.so"), rig.Build(b, "libgpuarb.so"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatal(err)
	}
	var bare, empty, shim float64
	if _, err := fmt.Sscan(string(out), &bare, &empty, &shim); err != nil {
		b.Fatalf("%q: %v", out, err)
	}
	b.ReportMetric(shim, "ns/op")
	b.ReportMetric(bare, "bare-ns")
	b.ReportMetric(empty, "empty-ns")
	b.ReportMetric(shim-empty, "added-ns")
}
