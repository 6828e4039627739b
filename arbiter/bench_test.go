package arbiter_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// crowd is an arbiter with n other leases, each of a bare process with some bytes.
func crowd(b *testing.B, n int) *world {
	w := newWorld(b, rules.DefaultPolicy(), 1<<50, 1<<50)
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
			w := newWorld(b, rules.DefaultPolicy(), gib, gib, gib, gib)
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
	p.Defaults.OnFull = rules.OnFullWait
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

// BenchmarkBesideWaiters is what requests cost a daemon at whose device so many others wait.
func BenchmarkBesideWaiters(b *testing.B) {
	for _, what := range waitedFor {
		for _, n := range []int{0, 1, 20, 200, 500} {
			w, c, _ := waitersFor(b, what, n, 10)
			for _, x := range []struct {
				name string
				do   func()
			}{
				{"stream", func() { w.now = w.now.Add(time.Microsecond); c.streams(1); c.streams(-1) }},
				{"context", func() { w.now = w.now.Add(time.Microsecond); c.contexts(1); c.contexts(-1) }},
				{"bytes", func() { w.now = w.now.Add(time.Microsecond); c.must(mib); c.free(mib) }},
				{"wait", func() { w.arb.Cancel(w.now, c.wait(400*mib), arbiter.ReasonCancelled) }},
				{"snapshot", func() { w.arb.Snapshot(w.now) }},
				{"tick", func() { w.now = w.now.Add(time.Second); w.arb.Tick(w.now) }},
			} {
				if what != "bytes" && x.name == "wait" && what != "mixed" || what != "bytes" && x.name == "snapshot" {
					continue // as where they wait for bytes, or granted
				}
				b.Run(fmt.Sprintf("for=%s/waiting=%d/%s", what, n, x.name), func(b *testing.B) {
					for b.Loop() {
						x.do()
						w.arb.Events()
						w.arb.Decisions()
					}
				})
			}
		}
	}
}

// ownPart is for how long this thread runs something.
func ownPart(b *testing.B, do func()) time.Duration {
	began := ownTime(b)
	do()
	return ownTime(b) - began
}

// ownTime is how long this thread has run: what others do on the machine is not in it.
func ownTime(b *testing.B) time.Duration {
	var ran unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ran); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ran.Nano())
}

// BenchmarkHoldAtTheBound is the longest that a call keeps the daemon's lock (hold-ns) with all at their bounds: 4,096 processes with
// leases on each of four devices, and 1,024 requests of them that wait for bytes of one device.
func BenchmarkHoldAtTheBound(b *testing.B) {
	const processes, devices, each = 4096, 4, 32
	p := exact(unlimited())
	p.Defaults.OnFull, p.Defaults.WaitTimeout = rules.OnFullWait, 1<<62
	w := newWorld(b, p, 1<<50, 1<<50, 1<<50, 1<<50)
	var all []*client
	usage := arbiter.Usage{Device: 0}
	for i := range processes {
		c := w.clientOf(w.process(uint32(i%2)*1000, "x"), 0, 0)
		c.must(mib)
		for d := 1; d < devices; d++ {
			c.on(d).must(mib)
		}
		all = append(all, c)
		usage.Processes = append(usage.Processes, arbiter.ProcessUsage{PID: c.process.PID, Bytes: mib})
	}
	last := w.client(0, 0)
	last.must(1<<50 - processes*mib)
	wait := func(i int) arbiter.TicketID {
		o := w.arb.Ask(w.now, arbiter.Request{Lease: all[i/each].lease, What: arbiter.WantsBytes, Bytes: gib, Thread: uint32(1 + i%each)})
		if o.Waiting == 0 {
			b.Fatalf("request %d does not wait: %+v", i, o)
		}
		return o.Waiting
	}
	for i := range arbiter.MaxTickets - 1 {
		wait(i)
	}
	for _, x := range []struct {
		name string
		do   func()
	}{
		{"free", func() { last.free(mib) }},
		{"wait", func() { w.arb.Cancel(w.now, wait(arbiter.MaxTickets-1), arbiter.ReasonCancelled) }},
		{"tick", func() { w.now = w.now.Add(time.Second); w.arb.Tick(w.now) }},
		{"reading", func() { w.arb.Note(0); w.arb.Observe(w.now, usage) }},
		{"limit", func() { _ = w.arb.SetUserLimits(w.now, 0, "", rules.Change{Device: 0, Max: ptr(size(1 << 49))}) }},
		{"policy", func() { w.arb.SetPolicy(w.now, p) }},
		{"query", func() { _, _ = w.arb.Query(w.now, last.session, 0) }},
		{"all-granted", func() { last.free(1 << 42) }},
	} {
		b.Run(x.name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var longest time.Duration
			for b.Loop() {
				longest = max(longest, ownPart(b, x.do))
				w.arb.Events()
				w.arb.Decisions()
			}
			b.ReportMetric(float64(longest.Nanoseconds()), "hold-ns")
		})
	}
}
