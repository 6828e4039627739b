package arbiter_test

import (
	"fmt"
	"testing"

	"github.com/gpuarb/gpuarb/arbiter"
)

// crowd is an arbiter with n other leases, each of a bare process with some bytes.
func crowd(b *testing.B, n int) *world {
	w := newWorld(b, arbiter.DefaultPolicy(), 1<<50, 1<<50)
	for i := range n {
		w.client(0, i%2).must(mib)
	}
	w.arb.Events()
	return w
}

func BenchmarkAlloc(b *testing.B) {
	for _, n := range []int{1, 1000, 10000} {
		b.Run(fmt.Sprintf("others=%d", n), func(b *testing.B) {
			w := crowd(b, n)
			c := w.client(0, 0)
			for b.Loop() {
				c.must(mib)
				c.word.free(mib)
			}
		})
	}
}

// BenchmarkRefusal is the dear path: the device is full, and everybody is asked.
func BenchmarkRefusal(b *testing.B) {
	for _, n := range []int{1, 1000, 10000} {
		b.Run(fmt.Sprintf("others=%d", n), func(b *testing.B) {
			w := crowd(b, n)
			c := w.client(0, 0)
			w.arb.Observe(start, arbiter.Usage{Device: 0, Processes: []arbiter.ProcessUsage{{PID: 1, Bytes: 1 << 50}}})
			for b.Loop() {
				if c.alloc(gib).Granted {
					b.Fatal("granted on a full device")
				}
				w.arb.Events()
			}
		})
	}
}

func BenchmarkSnapshot1000(b *testing.B) {
	w := crowd(b, 1000)
	for b.Loop() {
		w.arb.Snapshot(start)
	}
}
