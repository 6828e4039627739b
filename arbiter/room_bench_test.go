package arbiter_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file measures the choice of idle jobs that make room, at the bound of processes.

// BenchmarkRoomAtTheBound measures how long a Tick holds the daemon's lock (hold-ns) when a request waits and 4,096 idle jobs with leases on four
// devices might make room for it. With "never", evict.after is max. With "in vain", all together do not suffice. With "many", as many suffice as
// can be suspended. Each of these is then tried again for whether it is needed, and the first 64 are asked.
func BenchmarkRoomAtTheBound(b *testing.B) {
	const processes, devices = 4096, 4
	for _, x := range []struct {
		name  string
		after time.Duration
		wants int
	}{{"never", rules.NoTimeout, processes + 1}, {"in vain", 5 * time.Second, processes + 1}, {"many", 5 * time.Second, arbiter.MaxSuspensions}} {
		b.Run(x.name, func(b *testing.B) {
			runtime.LockOSThread() // ownPart reads the clock of one thread
			defer runtime.UnlockOSThread()
			var worst time.Duration
			for b.Loop() {
				p := evicting()
				p.EvictAfter = x.after
				total := mib * (processes + 2)
				w := newWorld(b, p, total, total, total, total)
				for range processes {
					c := w.client(0, 0)
					c.must(mib)
					for d := 1; d < devices; d++ {
						c.on(d).must(mib)
					}
				}
				busy := w.client(0, 0)
				busy.must(2 * mib)
				w.now = w.now.Add(time.Minute)
				w.arb.Snapshot(w.now)
				busy.word.called = true
				if o := w.client(0, 0).alloc(mib * accounting.Bytes(x.wants)); o.Waiting == 0 {
					b.Fatalf("%+v", o)
				}
				w.now = w.now.Add(6 * time.Second)
				busy.word.called = true
				runtime.GC() // else it runs in the part that is measured
				worst = max(worst, ownPart(b, func() { w.arb.Tick(w.now) }))
				if n := len(w.arb.Errands()); x.name == "many" && n != 64 || x.name != "many" && n != 0 {
					b.Fatalf("%d jobs are asked", n)
				}
			}
			b.ReportMetric(float64(worst.Nanoseconds()), "hold-ns")
		})
	}
}
