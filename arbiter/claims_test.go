package arbiter_test

import (
	"slices"
	"testing"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// A job that may run on any device gets one without holders if there is one. A job uses no device but its own, and keeps its claims over a
// restart. holders_test.go tests how claims are shown, and slots_test.go slots without claims.

// claim asks to claim a device.
func (w *world) claim(r arbiter.JobRequest) (arbiter.JobInfo, error) {
	if r.Process.PID == 0 {
		r.Process = w.process(1000, "gpuarb")
	}
	r.Any = true
	return w.arb.OpenJob(w.now, r)
}

func (w *world) mustClaim(r arbiter.JobRequest) arbiter.JobInfo {
	w.t.Helper()
	info, err := w.claim(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return info
}

// given returns the devices that the jobs of tickets were given since the last call.
func (w *world) given() map[arbiter.TicketID][]int {
	got := map[arbiter.TicketID][]int{}
	for _, d := range w.arb.Decisions() {
		if d.Job != nil {
			got[d.Ticket] = d.Job.Devices
		}
	}
	return got
}

// TestClaimPrefersFreeDevice: a claim prefers a device without holders, in the job's order of preference, to a device that only
// has room.
func TestClaimPrefersFreeDevice(t *testing.T) {
	for name, policy := range map[string]rules.Policy{"no cap": rules.DefaultPolicy(), "two slots": capped(2, "")} {
		w := newWorld(t, policy, gib, gib, gib)
		there := w.client(0, 0)
		there.must(100)
		a, b := w.mustClaim(arbiter.JobRequest{}), w.mustClaim(arbiter.JobRequest{Devices: []int{0, 2}})
		if !slices.Equal(a.Devices, []int{1}) || !slices.Equal(b.Devices, []int{2}) {
			t.Errorf("%s: %+v, %+v", name, a, b)
		}
		if c := w.mustClaim(arbiter.JobRequest{}); !slices.Equal(c.Devices, []int{0}) {
			t.Errorf("%s: where somebody is on each: %+v", name, c)
		}
	}
	w := newWorld(t, rules.DefaultPolicy(), gib, gib)
	gone := w.client(0, 0)
	gone.must(100)
	gone.free(100) // the client sends no report
	if a := w.mustClaim(arbiter.JobRequest{}); !slices.Equal(a.Devices, []int{0}) {
		t.Errorf("after the last object: %+v", a)
	}
}

// TestExclusiveWaitsForAJobThatHasBegun: a job that names its device, or has memory reserved there, counts there from its start. Its later
// allocations do not wait for a job that came after it.
func TestExclusiveWaitsForAJobThatHasBegun(t *testing.T) {
	for _, r := range []arbiter.JobRequest{{Devices: []int{0}}, {Min: ptr(size(400)), Max: ptr(size(400))}} {
		w := newWorld(t, exact(unlimited()), 1000)
		job := w.job(t, r)
		alone, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(1000, "gpuarb"), Exclusive: true})
		if err != nil || alone.Waiting == 0 {
			t.Fatalf("%+v, %v", alone, err)
		}
		program := w.client(job, 0)
		program.must(400)
		w.arb.CloseJob(w.now, job)
		w.arb.EndSession(w.now, program.session)
		w.served(alone.Waiting)
	}
}

func TestAJobsDevices(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000, 1000)
	job := w.job(t, arbiter.JobRequest{Devices: []int{1}, Min: ptr(size(300))})
	s := w.arb.Snapshot(w.now)
	if s.Devices[0].Committed != 0 || s.Devices[1].Committed != 300 {
		t.Errorf("reserved on a device that is not the job's: %+v", s.Devices)
	}
	c := w.client(job, 1)
	if _, err := w.arb.Attach(w.now, c.session, 0, nil); reasonOf(err) != arbiter.ReasonDenied {
		t.Error(err)
	}
	w.arb.ReleaseJob(w.now, job)
	if got := w.arb.Snapshot(w.now).Devices[1].Committed; got != 0 {
		t.Errorf("%d reserved after the release", got)
	}
}

func TestPriorityAboveZeroIsRoots(t *testing.T) {
	w := newWorld(t, rules.DefaultPolicy(), gib)
	_, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(1000, "x"), Priority: 1})
	if reasonOf(err) != arbiter.ReasonDenied {
		t.Error(err)
	}
	for uid, priority := range map[uint32]int{0: 5, 1000: -5} {
		if _, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(uid, "x"), Priority: priority}); err != nil {
			t.Error(err)
		}
	}
}

func TestClaimsComeBackAfterARestart(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000, 1000)
	restore := func(id arbiter.JobID, r arbiter.RestoredJob) {
		r.ID, r.Request.Process = id, w.process(1000, "gpuarb")
		if err := w.arb.RestoreJob(w.now, r); err != nil {
			t.Fatal(err)
		}
	}
	restore(7, arbiter.RestoredJob{Request: arbiter.JobRequest{Any: true, Min: ptr(size(200))}, Devices: []int{1}})
	restore(8, arbiter.RestoredJob{Request: arbiter.JobRequest{Exclusive: true, Devices: []int{0}}, Devices: []int{0}})
	restore(9, arbiter.RestoredJob{Request: arbiter.JobRequest{Any: true}, Devices: []int{1}, Released: true})
	s := w.arb.Snapshot(w.now)
	if s.Devices[1].Claims != 1 || s.Devices[1].Committed != 200 || s.Devices[0].ExclusiveJob != 8 {
		t.Errorf("%+v", s.Devices)
	}
	a, b := w.mustClaim(arbiter.JobRequest{}), w.mustClaim(arbiter.JobRequest{})
	if a.Waiting == 0 || b.Waiting == 0 {
		t.Errorf("%+v, %+v", a, b)
	}
	w.arb.CloseJob(w.now, 7)
	if got := w.given(); len(got) != 1 || !slices.Equal(got[a.Waiting], []int{1}) {
		t.Errorf("%v", got)
	}
	w.arb.CloseJob(w.now, 8)
	if got := w.given(); len(got) != 1 || !slices.Equal(got[b.Waiting], []int{0}) {
		t.Errorf("%v", got)
	}
}
