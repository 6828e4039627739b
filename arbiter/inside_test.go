package arbiter_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file checks single cases of jobs inside jobs of cgroups (bindings). It checks which reservations are allowed inside a
// binding. It checks how many bytes others reserve according to messages. It also checks charges for the memory of unmanaged processes.
// nested_test.go has the test with random sequences.

// reserveIn opens a job of user bob with a reservation inside the job around.
func (w *world) reserveIn(around arbiter.JobID, min accounting.Bytes) error {
	_, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(bob, "gpuarb"), Around: around, Min: ptr(size(min))})
	return err
}

// TestReservesCreditInside: a program inside a binding may reserve what is left of the binding's reservation. Bytes that another program
// has freed, and keeps as credit, count as left. Bytes in use do not.
func TestReservesCreditInside(t *testing.T) {
	for name, used := range map[string]accounting.Bytes{"idle": 50, "in use": 51} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, exact(unlimited()), 1000)
			outer := w.bound("/a", 0, 400, 100)
			c := w.client(outer, 0)
			c.must(80)
			c.free(80 - used)
			var refused *arbiter.Result
			err := w.reserveIn(outer, 50)
			if want := used == 50; want != (err == nil) || err != nil && !errors.As(err, &refused) {
				t.Errorf("with %d bytes in use: %v", used, err)
			}
		})
	}
}

// TestNestedReservationsCountOnce: an inner reservation is part of the outer one, and room is kept for one context of both jobs together.
// Messages to other programs count each byte once: 50 bytes of the outer reservation and 7 of the context.
func TestNestedReservationsCountOnce(t *testing.T) {
	p := nestedPolicy()
	p.Defaults.OnFull = rules.OnFullWait
	w := newWorld(t, p, 1000)
	outer := w.bound("/a", 0, 100, 50)
	w.bound("/a/b", outer, 100, 20)
	c := w.client(0, 0)
	w.client(0, 0).must(500)
	const want = "it never fits beside the 57 bytes that others reserve"
	if text := w.arb.Notice(w.now, c.wait(940)).Text; !strings.Contains(text, want) {
		t.Errorf("the notice does not say %q: %s", want, text)
	}
	for _, q := range w.arb.Snapshot(w.now).Queue {
		for _, part := range []string{want, "job 1 (gpuarb) 30 bytes (reserved)", "job 2 (gpuarb) 20 bytes (reserved)"} {
			if !strings.Contains(q.Text, part) {
				t.Errorf("the queue does not say %q: %s", part, q.Text)
			}
		}
	}
}

// TestReloadChargesNoClient: a process uses a device without the library, and then gets a lease there. Its job is then charged for the
// lease alone. That stays so if new configurations turn the charging off and on before the next reading.
func TestReloadChargesNoClient(t *testing.T) {
	w := newWorld(t, nestedPolicy(), 1000)
	job := w.bound("/a", 0, 400, 0)
	p := w.process(bob, "train")
	p.Cgroup = "/a"
	w.now = w.now.Add(time.Second)
	w.arb.Observe(w.now, arbiter.Usage{Processes: []arbiter.ProcessUsage{{PID: p.PID, StartTicks: p.StartTicks, Bytes: 30, Job: job}}})
	charged := func(want accounting.Bytes) {
		t.Helper()
		for _, j := range w.arb.Snapshot(w.now).Jobs {
			if got := j.Devices[0].Unmanaged; got != want {
				t.Errorf("%d bytes are charged, want %d", got, want)
			}
		}
	}
	charged(30)
	w.clientOf(p, job, 0)
	charged(0)
	for _, on := range []bool{false, true} {
		policy := nestedPolicy()
		policy.ChargeUnmanaged = on
		w.arb.SetPolicy(w.now, policy)
	}
	charged(0)
}
