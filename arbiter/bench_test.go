package arbiter_test

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// These benchmarks measure two times when all numbers are at their bounds: how long a call holds the daemon's lock, and how long the search
// for a deadlock runs without it. docs/decisions/admission.md has measured figures.

// ownPart measures how long this thread runs do.
func ownPart(b *testing.B, do func()) time.Duration {
	began := ownTime(b)
	do()
	return ownTime(b) - began
}

// ownTime returns how long this thread has run, without the time of other threads.
func ownTime(b *testing.B) time.Duration {
	var ran unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ran); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ran.Nano())
}

// BenchmarkHoldAtTheBound measures how long a call holds the daemon's lock: the longest (hold-ns) and the mean (mean-hold-ns). All numbers
// are at their bounds: 4,096 processes have leases on each of four devices, and 1,024 of their requests wait for bytes of one device.
// Pressure is measured after each call, as in the daemon.
func BenchmarkHoldAtTheBound(b *testing.B) {
	const processes, devices, each = 4096, 4, 32
	p := exact(unlimited())
	p.Defaults.OnFull, p.Defaults.WaitTimeout = rules.OnFullWait, 1<<62
	w := newWorld(b, p, 1<<47, 1<<47, 1<<47, 1<<47)
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
	last.must(1<<47 - processes*mib)
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
	var search *arbiter.Search
	for _, x := range []struct {
		name string
		do   func()
	}{
		{"free", func() { last.free(mib) }},
		{"cycle", func() { w.arb.JudgeAll(w.now) }},
		{"wait", func() { w.arb.Cancel(w.now, wait(arbiter.MaxTickets-1), arbiter.ReasonCancelled) }},
		{"tick", func() { w.now = w.now.Add(time.Second); w.arb.Tick(w.now) }},
		{"reading", func() { w.arb.Note(0); w.arb.Observe(w.now, usage) }},
		{"limit", func() { _ = w.arb.SetUserLimits(w.now, 0, "", rules.Change{Device: 0, Max: ptr(size(1 << 46))}) }},
		{"policy", func() { w.arb.SetPolicy(w.now, p) }},
		{"other-policy", func() {
			p.Defaults.Max.PerMille = 900 - p.Defaults.Max.PerMille
			p.Defaults.Max.Max = false
			w.arb.SetPolicy(w.now, p)
		}},
		{"search", func() {
			if search != nil {
				w.arb.Settle(w.now, search)
			}
			w.now = w.now.Add(time.Minute)
			search = w.arb.Search(w.now)
		}},
		{"snapshot", func() { w.arb.Copy(w.now) }},
		{"leases", func() { w.arb.CopyOfLeases(w.now) }},
		{"query", func() { _, _ = w.arb.Query(w.now, last.session, 0) }},
		{"all-granted", func() { last.free(1 << 42); w.arb.JudgeAll(w.now) }},
	} {
		b.Run(x.name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var longest, all time.Duration
			for b.Loop() {
				hold := ownPart(b, func() {
					x.do()
					w.arb.MeasurePressure(w.now)
				})
				longest, all = max(longest, hold), all+hold
				w.arb.Events()
				w.arb.Decisions()
			}
			b.ReportMetric(float64(longest.Nanoseconds()), "hold-ns")
			b.ReportMetric(float64(all.Nanoseconds())/float64(b.N), "mean-hold-ns")
		})
	}
}

// BenchmarkSearch searches for a deadlock among 1,000 jobs. Each holds one part of a full device and waits for two. No job could let
// another one run by releasing its part, so that the search tries all of them. The daemon runs it without its lock.
func BenchmarkSearch(b *testing.B) {
	const n = 1000
	p := waiting()
	p.DeadlockGrace = time.Hour // the loose search is not due: deadlock.go explains both kinds
	w := newWorld(b, p, n)
	var all []*client
	for i := range n {
		all = append(all, w.clientOf(w.process(1000+uint32(i%2), "ffmpeg"), 0, 0).threaded(1))
		all[i].must(1)
	}
	for _, c := range all {
		c.wait(2)
	}
	for b.Loop() {
		w.now = w.now.Add(time.Microsecond)
		s := w.arb.Search(w.now)
		s.Run()
		b.StopTimer()
		for _, c := range all {
			c.threaded(2)
		}
		w.arb.Settle(w.now, s) // each job has a running thread now, so that the deadlock does not exist and no request is refused
		for _, c := range all {
			c.threaded(1)
		}
		b.StartTimer()
	}
}
