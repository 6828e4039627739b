package arbiter_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/accounting"
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
				for w.arb.Unfinished() {
					w.arb.Tick(w.now)
				}
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
		for _, n := range []int{0, 1, 500, 8000} {
			w, c, _ := waitersFor(b, what, n, 500)
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

// BenchmarkDeadlockSearch is what the search for circles costs where so many that hold
// something wait: "nobody" where somebody who goes on will free enough for each of them, "one"
// where all of them wait for each other and nothing has moved for deadlock_grace. It is the processor time of
// the whole, and (hold-ns) of the longest part that keeps everybody else from the arbiter.
func BenchmarkDeadlockSearch(b *testing.B) {
	for _, n := range []int{64, 100, 1000, 8000} {
		p := exact(unlimited())
		p.Defaults.OnFull, p.Defaults.WaitTimeout = rules.OnFullWait, 1<<62
		holders := func(w *world, threads int, wants accounting.Bytes) (last *client) {
			all := make([]*client, n)
			for i := range all {
				all[i] = w.client(0, 0).threaded(threads)
				all[i].must(mib)
			}
			for _, c := range all {
				c.wait(wants)
			}
			return all[n-1]
		}
		w := newWorld(b, p, 1<<40)
		w.client(0, 0).must(1<<39 + gib)
		last := holders(w, 1, 1<<39)
		benchSearch(b, fmt.Sprintf("holders=%d/circles=nobody", n), false, func() *world {
			last.threaded(2)
			w.now = w.now.Add(time.Second)
			return w
		}, func(w *world) { last.threaded(1) })
		benchSearch(b, fmt.Sprintf("holders=%d/circles=one", n), true, func() *world {
			w := newWorld(b, p, accounting.Bytes(n)*mib)
			holders(w, 0, 2*mib)
			w.now = w.now.Add(rules.DefaultDeadlockGrace)
			return w
		}, func(w *world) {
			if n <= 64 {
				w.arb.Tick(w.now)
			}
		})
	}
}

// benchSearch has those searches made that are due once a world has begun.
func benchSearch(b *testing.B, name string, finds bool, next func() *world, begin func(*world)) {
	b.Run(name, func(b *testing.B) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var holds, all []time.Duration
		for b.Loop() {
			b.StopTimer()
			w := next()
			b.StartTimer()
			began, longest := ownTime(b), ownPart(b, func() { begin(w) })
			hold := func(do func()) { longest = max(longest, ownPart(b, do)) }
			var s *arbiter.Search
			for hold(func() { s = w.arb.Search(w.now) }); s != nil; hold(func() { s = w.arb.Search(w.now) }) {
				for more := true; more; {
					hold(func() { more = s.Copy(w.now) })
				}
				s.Run()
				hold(func() { w.arb.Settle(w.now, s) })
			}
			holds, all = append(holds, longest), append(all, ownTime(b)-began)
			if len(w.knots()) > 0 != finds {
				b.Fatal("a circle was to be found where there is one")
			}
		}
		slices.Sort(holds)
		slices.Sort(all)
		b.ReportMetric(float64(holds[len(holds)/2].Nanoseconds()), "hold-ns")
		b.ReportMetric(float64(all[len(all)/2].Nanoseconds()), "cpu-ns")
	})
}

// BenchmarkHold is the longest that a part of a snapshot, or of the notices of a second, keeps
// everybody else from the arbiter: 10,000 leases on four devices, and 8,000 requests that wait
// on one of them, each part as large as the daemon makes it.
func BenchmarkHold(b *testing.B) {
	for _, x := range []struct{ leases, waiting int }{{10000, 0}, {1000, 8000}, {10000, 8000}} {
		p := exact(unlimited())
		p.Defaults.OnFull, p.Defaults.WaitTimeout = rules.OnFullWait, 1<<62
		p.AgeAfter = 1 << 62 // however long this goes on, who holds something is served before those who wait
		w := newWorld(b, p, 1<<50, 1<<50, 1<<50, 1<<50)
		for i := range x.leases {
			w.client(0, i%4).must(mib)
		}
		runs := w.client(0, 0)
		runs.must(1<<50 - 1<<40)
		var waiter *client
		for i := range x.waiting {
			if i%500 == 0 {
				waiter = w.client(0, 0)
			}
			waiter.wait(1 << 41)
		}
		part := func(longest *time.Duration, do func()) {
			*longest = max(*longest, ownPart(b, do))
			w.arb.Events()
			w.arb.Decisions()
		}
		hold := func(name string, round func() time.Duration) {
			b.Run(fmt.Sprintf("leases=%d/waiting=%d/%s", x.leases, x.waiting, name), func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				var all []time.Duration
				for b.Loop() {
					all = append(all, round())
				}
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2].Nanoseconds()), "hold-ns")
			})
		}
		hold("snapshot", func() (longest time.Duration) {
			var p *arbiter.Picture
			part(&longest, func() { p = w.arb.Picture(w.now) })
			p.Sort()
			for more := true; more; {
				part(&longest, func() { more = p.Add(8) })
			}
			return longest
		})
		hold("tick", func() (longest time.Duration) {
			w.now = w.now.Add(time.Second)
			runs.must(mib)
			runs.free(mib)
			for range 2 * x.waiting / 128 { // as many as there may be parts
				part(&longest, func() { w.arb.Tick(w.now) })
			}
			return longest
		})
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
