package arbiter_test

import (
	"fmt"
	"testing"
	"time"

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

// BenchmarkHandOver gives a device from one claimer to the next while others wait.
func BenchmarkHandOver(b *testing.B) {
	for _, n := range []int{1, 200} {
		b.Run(fmt.Sprintf("waiting=%d", n), func(b *testing.B) {
			w := newWorld(b, arbiter.DefaultPolicy(), gib, gib, gib, gib)
			claim := func() arbiter.JobInfo {
				info, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(1000, "x"), Any: true})
				if err != nil {
					b.Fatal(err)
				}
				return info
			}
			var holders, waiting []arbiter.JobID
			for range 4 {
				holders = append(holders, claim().ID)
			}
			for range n {
				waiting = append(waiting, claim().ID)
			}
			for b.Loop() {
				w.arb.CloseJob(w.now, holders[0])
				if d := w.arb.Decisions(); len(d) != 1 || d[0].Job == nil || d[0].Job.ID != waiting[0] {
					b.Fatalf("%+v", d)
				}
				holders = append(holders[1:], waiting[0])
				waiting = append(waiting[1:], claim().ID)
				w.arb.Events()
			}
		})
	}
}

// BenchmarkAllocWhileOthersWait allocates on a device where many wait for bytes.
func BenchmarkAllocWhileOthersWait(b *testing.B) {
	p := exact(unlimited())
	p.Defaults.OnFull = arbiter.OnFullWait
	w := newWorld(b, p, gib)
	c := w.client(0, 0)
	c.must(gib - 100*mib)
	for range 200 {
		w.client(0, 0).alloc(500 * mib)
	}
	w.arb.Events()
	for b.Loop() {
		c.must(mib)
		c.free(mib)
	}
}

// BenchmarkBesideWaiters is what requests cost a daemon at whose device so many others wait:
// 512 of one process, 8000 of one user.
func BenchmarkBesideWaiters(b *testing.B) {
	for _, n := range []int{1, 512, 8000} {
		p := exact(unlimited())
		p.Defaults.OnFull, p.Defaults.WaitTimeout = arbiter.OnFullWait, 1<<62
		w := newWorld(b, p, gib)
		holder, c := w.client(0, 0), w.client(0, 0)
		holder.must(gib - 100*mib)
		c.must(mib)
		var waiter *client
		for i := range n {
			if i%512 == 0 {
				waiter = w.client(0, 0)
			}
			waiter.wait(500 * mib)
		}
		for _, x := range []struct {
			name string
			do   func()
		}{
			{"stream", func() { c.streams(1); c.streams(-1) }},
			{"bytes", func() { c.must(mib); c.free(mib) }},
			{"wait", func() { w.arb.Cancel(w.now, c.wait(400*mib), arbiter.ReasonCancelled) }},
			{"snapshot", func() { w.arb.Snapshot(w.now) }},
			{"tick", func() { w.now = w.now.Add(time.Second); w.arb.Tick(w.now) }},
		} {
			b.Run(fmt.Sprintf("waiting=%d/%s", n, x.name), func(b *testing.B) {
				for b.Loop() {
					x.do()
					w.arb.Events()
					w.arb.Decisions()
				}
			})
		}
	}
}
