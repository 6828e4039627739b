package arbiter_test

import (
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// TestReservedIsWhatIsReserved: credit at hand and bytes in use are no reservation, and one
// that is used is still there.
func TestReservedIsWhatIsReserved(t *testing.T) {
	w := newWorld(t, rules.DefaultPolicy(), 8*gib)
	reserved := func() accounting.Bytes { return w.arb.Snapshot(w.now).Devices[0].Reserved }
	w.client(0, 0).must(mib) // and the surplus beyond it
	if d := w.arb.Snapshot(w.now).Devices[0]; d.Reserved != 0 || d.Committed <= mib {
		t.Errorf("%d is reserved, %d committed", d.Reserved, d.Committed)
	}
	job := w.job(t, arbiter.JobRequest{Max: ptr(size(4 * gib)), Min: ptr(size(2 * gib))})
	if reserved() != 2*gib {
		t.Errorf("%d is reserved", reserved())
	}
	w.client(job, 0).must(3 * gib)
	if reserved() != 2*gib {
		t.Errorf("%d is reserved once it is used", reserved())
	}
	for _, j := range w.arb.Snapshot(w.now).Jobs {
		if j.ID == uint64(job) && j.Devices[0].Reserved != 2*gib {
			t.Errorf("of the job %d", j.Devices[0].Reserved)
		}
	}
}

// TestWhoHasADevice: a snapshot names who has a device by claim, alone, or a slot of it, with
// his user and since when.
func TestWhoHasADevice(t *testing.T) {
	w := newWorld(t, capped(3, rules.ScopeJob), gib, gib)
	claim := arbiter.JobRequest{Process: rules.Process{PID: 900, UID: 1000, User: "ann"}, Command: "bash", Claim: true, Devices: []int{0}}
	if _, err := w.claim(claim); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(5 * time.Second)
	w.clientOf(rules.Process{PID: 7, UID: 1001, User: "bob", Command: "python3 x.py"}, 0, 0).must(mib)
	alone := arbiter.JobRequest{Process: rules.Process{PID: 901, UID: 1002, User: "eve"}, Command: "train", Exclusive: true, Devices: []int{1}}
	if _, err := w.claim(alone); err != nil {
		t.Fatal(err)
	}
	s := w.arb.Snapshot(w.now)
	got := append(s.Devices[0].Holders, s.Devices[1].Holders...)
	want := []accounting.HolderState{
		{Job: 1, PID: 900, UID: 1000, User: "ann", Command: "bash", Kind: accounting.HoldsClaim, Slots: 1, AgeMs: 5000},
		{Job: 2, PID: 7, UID: 1001, User: "bob", Command: "python3 x.py", Kind: accounting.HoldsSlot, Slots: 1},
		{Job: 3, PID: 901, UID: 1002, User: "eve", Command: "train", Kind: accounting.HoldsExclusive, Slots: 1},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got  %+v\nwant %+v", got[i], want[i])
		}
	}
}
