package arbiter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// These tests hold when a job is warned because it is idle or old. tests/events has the same with real programs.

// warning returns a policy that warns of idle jobs after an hour, and of old jobs after a day.
func warning() rules.Policy {
	p := exact(unlimited())
	p.Defaults.IdleWarn, p.Defaults.AgeWarn = time.Hour, 24*time.Hour
	return p
}

// after lets time pass, and returns the events of the warnings that it brings.
func (w *world) after(d time.Duration) (warnings []arbiter.Event) {
	w.now = w.now.Add(d)
	w.arb.Tick(w.now)
	for _, e := range w.arb.Events() {
		if e.Kind == arbiter.EventIdle || e.Kind == arbiter.EventAged {
			warnings = append(warnings, e)
		}
	}
	return warnings
}

// TestIdleWarning: a job that holds memory and asks for nothing is warned after exactly its time, once. A call ends the idle period, and the
// next one has a warning of its own.
func TestIdleWarning(t *testing.T) {
	w := newWorld(t, warning(), 8*gib)
	w.now = w.now.Add(time.Minute)
	c := w.client(0, 0)
	c.must(3 * gib)
	if got := w.after(time.Hour - time.Millisecond); got != nil {
		t.Errorf("too early: %+v", got)
	}
	got := w.after(time.Millisecond)
	if len(got) != 1 {
		t.Fatalf("%d warnings", len(got))
	}
	e := got[0]
	if e.Kind != arbiter.EventIdle || e.Bytes != 3*gib || e.Device != 0 || e.IdleMs != 3600_000 || e.PID != c.process.PID || e.Job == 0 ||
		!strings.HasSuffix(e.Text, "has been idle for 60 min, and holds 3 GiB on GPU 0 (idle.warn of the defaults)") {
		t.Errorf("%+v", e)
	}
	if got := w.after(10 * time.Hour); got != nil {
		t.Errorf("a second warning in one idle period: %+v", got)
	}
	c.must(gib)
	if got := w.after(59 * time.Minute); got != nil {
		t.Errorf("right after a call: %+v", got)
	}
	if got := w.after(time.Minute); len(got) != 1 || got[0].Bytes != 4*gib {
		t.Errorf("the second idle period: %+v", got)
	}
	if n := w.arb.Warnings(e.Job); n.Idle != 2 || n.Aged != 0 || !strings.HasPrefix(n.IdleText, "has been idle for 60 min, and holds 4 GiB") {
		t.Errorf("%+v", n)
	}
}

// TestIdleOnAllDevices: a call on one device ends the idle period of the whole job, and the warning has the bytes of all devices.
func TestIdleOnAllDevices(t *testing.T) {
	w := newWorld(t, warning(), 8*gib, 8*gib)
	c := w.client(0, 0)
	other := c.on(1)
	c.must(gib)
	other.must(2 * gib)
	w.after(50 * time.Minute)
	other.must(gib)
	if got := w.after(50 * time.Minute); got != nil {
		t.Errorf("GPU 1 was used: %+v", got)
	}
	if got := w.after(10 * time.Minute); len(got) != 1 || got[0].Bytes != 4*gib || got[0].Device != -1 ||
		!strings.Contains(got[0].Text, "1 GiB on GPU 0, 3 GiB on GPU 1") {
		t.Errorf("%+v", got)
	}
}

// TestNoWarning: a job that holds nothing, that waits, or whose rule says nothing is not warned.
func TestNoWarning(t *testing.T) {
	w := newWorld(t, warning(), 8*gib)
	c := w.client(0, 0)
	if got := w.after(100 * time.Hour); got != nil {
		t.Errorf("a job that holds nothing: %+v", got)
	}
	c.must(gib)
	w.arb.EndSession(w.now, c.session) // the device has the bytes still
	if got := w.after(100 * time.Hour); got != nil {
		t.Errorf("a job whose only process has ended: %+v", got)
	}
	off := newWorld(t, exact(unlimited()), 8*gib)
	off.client(0, 0).must(gib)
	if got := off.after(1000 * time.Hour); got != nil {
		t.Errorf("without the keys: %+v", got)
	}
	p := warning()
	p.Defaults.OnFull, p.Defaults.WaitTimeout, p.Defaults.AgeWarn = rules.OnFullWait, rules.NoTimeout, 0
	waits := newWorld(t, p, 8*gib)
	holder := waits.client(0, 0)
	holder.must(6 * gib)
	waiter := waits.client(0, 0)
	waiter.must(gib)
	if o := waiter.alloc(4 * gib); o.Waiting == 0 {
		t.Fatalf("%+v", o)
	}
	waits.arb.Snapshot(waits.now) // notes the calls so far
	if got := waits.after(2 * time.Hour); len(got) != 1 || got[0].PID != holder.process.PID {
		t.Errorf("of a job that waits and one that does not: %+v", got)
	}
}

// TestReservedAndClaimed: a reservation and a claim count as held, from the start of the job, also if no program has used the device.
func TestReservedAndClaimed(t *testing.T) {
	w := newWorld(t, warning(), 8*gib, 8*gib)
	info, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(bob, "sleep"), Min: ptr(size(2 * gib)), Devices: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	claim, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(eve, "bash"), Claim: true, Any: true, Devices: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	got := w.after(time.Hour)
	if len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	for _, e := range got {
		if e.Job == info.ID && (e.Bytes != 2*gib || e.Device != 0) || e.Job == claim.ID && (e.Bytes != 0 || e.Device != 1 || !strings.Contains(e.Text, "holds GPU 1 (")) {
			t.Errorf("%+v", e)
		}
	}
}

// TestAgeWarning: a job that holds memory is warned once at its age, whatever it does.
func TestAgeWarning(t *testing.T) {
	p := warning()
	p.Defaults.IdleWarn = rules.NoTimeout
	w := newWorld(t, p, 8*gib)
	c := w.client(0, 0)
	for range 23 {
		c.must(mib)
		if got := w.after(time.Hour); got != nil {
			t.Errorf("too early: %+v", got)
		}
	}
	got := w.after(time.Hour)
	if len(got) != 1 || got[0].Kind != arbiter.EventAged || got[0].AgeMs != 24*3600_000 || got[0].Bytes != 23*mib ||
		!strings.HasSuffix(got[0].Text, "has run for 24 h, and holds 23 MiB on GPU 0 (age.warn of the defaults)") {
		t.Fatalf("%+v", got)
	}
	c.must(mib)
	if got := w.after(1000 * time.Hour); got != nil {
		t.Errorf("a second warning: %+v", got)
	}
}

// TestWarningsSurviveAReload: a warning that was given is not given again after a reload. A time that a reload sets or shortens holds at once
// for jobs that run.
func TestWarningsSurviveAReload(t *testing.T) {
	w := newWorld(t, warning(), 8*gib)
	c := w.client(0, 0)
	c.must(gib)
	if got := w.after(90 * time.Minute); len(got) != 1 {
		t.Fatalf("%+v", got)
	}
	w.arb.SetPolicy(w.now, warning())
	if got := w.after(time.Second); got != nil {
		t.Errorf("again after the reload: %+v", got)
	}
	p := warning()
	p.Defaults.IdleWarn, p.Defaults.AgeWarn = time.Minute, time.Hour
	w.arb.SetPolicy(w.now, p)
	if got := w.after(time.Second); len(got) != 1 || got[0].Kind != arbiter.EventAged {
		t.Errorf("a shorter age, and an idle period that was warned of: %+v", got)
	}
}

// TestWarningsAfterARestart: an earlier daemon has warned of an age that was past before the restart. The idle time counts from the restart.
func TestWarningsAfterARestart(t *testing.T) {
	w := newWorld(t, warning(), 8*gib)
	for n, opened := range []time.Duration{30 * time.Hour, 23 * time.Hour} {
		id := arbiter.JobID(n + 1)
		p := w.process(bob, "train")
		if err := w.arb.RestoreJob(w.now, arbiter.RestoredJob{ID: id, Request: arbiter.JobRequest{Process: p}, Since: w.now.Add(-opened)}); err != nil {
			t.Fatal(err)
		}
		w.restored(arbiter.SessionRequest{Process: w.process(bob, "python3"), Job: id},
			arbiter.RestoredLease{Device: 0, Granted: accounting.Bytes(n+1) * gib, Opened: w.now.Add(-opened)})
	}
	if got := w.after(time.Second); got != nil {
		t.Errorf("right after the restart: %+v", got)
	}
	aged, idle := 0, 0
	for _, e := range w.after(2 * time.Hour) {
		switch {
		case e.Kind == arbiter.EventAged && e.Job == 2:
			aged++
		case e.Kind == arbiter.EventIdle:
			idle++
		default:
			t.Errorf("%+v", e)
		}
	}
	if aged != 1 || idle != 2 {
		t.Errorf("%d jobs are old, and %d idle", aged, idle)
	}
}

// TestWorkIsNotIdle: a call that only the lease page shows, and work on the device, end the idle period when the device is read.
func TestWorkIsNotIdle(t *testing.T) {
	w := newWorld(t, warning(), 8*gib)
	c := w.client(0, 0)
	c.must(gib)
	reading := arbiter.Usage{Device: 0, Processes: []arbiter.ProcessUsage{{PID: c.process.PID, Bytes: gib}}, Utilisation: map[int]int{}}
	w.arb.Observe(w.now, reading) // notes the calls so far
	for what, work := range map[string]func(){
		"a call":             func() { c.word.called = true },
		"work on the device": func() { reading.Utilisation[c.process.PID] = 3 },
	} {
		if got := w.after(50 * time.Minute); got != nil {
			t.Errorf("before %s: %+v", what, got)
		}
		work()
		w.arb.Observe(w.now, reading)
		reading.Utilisation[c.process.PID] = 0
	}
	if got := w.after(59 * time.Minute); got != nil {
		t.Errorf("right after it: %+v", got)
	}
	w.arb.Observe(w.now, reading)
	if got := w.after(time.Minute); len(got) != 1 {
		t.Errorf("an hour after it: %+v", got)
	}
}
