package arbiter_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// Snapshots and messages say who holds a device or a budget: by use, reservation, claim, slot or exclusive use. alloc_test.go tests the
// users in messages, and wording/names_test.go the spelling.

// TestReservedExcludesIdleCredit: idle credit and used bytes do not count as a reservation. A reservation in use still does.
func TestReservedExcludesIdleCredit(t *testing.T) {
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

// TestSnapshotNamesHolders: a snapshot names the holders of a device by claim, sole use or slot, with their user and since when.
func TestSnapshotNamesHolders(t *testing.T) {
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
	want := []figures.HolderState{
		{Job: 1, PID: 900, UID: 1000, User: "ann", Command: "bash", Kind: figures.HoldsClaim, Slots: 1, AgeMs: 5000},
		{Job: 2, PID: 7, UID: 1001, User: "bob", Command: "python3 x.py", Kind: figures.HoldsSlot, Slots: 1},
		{Job: 3, PID: 901, UID: 1002, User: "eve", Command: "train", Kind: figures.HoldsExclusive, Slots: 1},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		got[i].Since = time.Time{}
		if got[i] != want[i] {
			t.Errorf("got  %+v\nwant %+v", got[i], want[i])
		}
	}
}

// holdersIn returns the holders that the message of a refusal names.
func holdersIn(o arbiter.Result) string {
	_, held, _ := strings.Cut(o.Explain, "; holds: ")
	held, _, _ = strings.Cut(held, ";") // the message may end with advice
	return held
}

// TestReservedOfABudget: if part of a shared budget is reserved for one job, messages to other jobs that wait or are refused name that job,
// and what is free.
func TestReservedOfABudget(t *testing.T) {
	p := exact(unlimited())
	p.Rules = []rules.Rule{{Match: rules.Match{User: "bob"}, Scope: ptr(rules.ScopeUser), Max: ptr(size(6 * gib)), OnFull: ptr(rules.OnFullWait)}}
	w := newWorld(t, p, 16*gib)
	bob := func(exe string) rules.Process { return w.process(bob, exe) }
	w.clientOf(w.process(eve, "other"), w.job(t, arbiter.JobRequest{Process: w.process(eve, "gpuarb"), Command: "other", Min: ptr(size(gib))}), 0).must(mib)
	keeps := w.job(t, arbiter.JobRequest{Process: bob("gpuarb"), Command: "sleep", Min: ptr(size(5 * gib))})
	if _, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: bob("gpuarb"), Command: "train", Min: ptr(size(2 * gib))}); err != nil {
		t.Fatal(err)
	}
	told := func(want string) {
		t.Helper()
		q := w.arb.Snapshot(w.now).Queue
		if len(q) != 1 || !strings.HasSuffix(q[0].Text, want) {
			t.Errorf("%+v, want %s", q, want)
		}
	}
	told(": of user bob's 6 GiB budget, 1 GiB free; holds: bob's job 2 (sleep) 5 GiB (reserved) for 0 ms")
	if b := w.arb.Snapshot(w.now).Budgets[0].Devices[0]; b.Free != gib || b.Used != 0 {
		t.Errorf("%+v", b)
	}
	w.client(keeps, 0).must(500 * mib)
	told(": of user bob's 6 GiB budget, 1 GiB free; holds: bob's job 2 (sleep) 4.5 GiB (reserved) for 0 ms, bob's ffmpeg[105] 500 MiB for 0 ms")
	w.arb.CancelJob(w.now, 3)

	_, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: bob("gpuarb"), NoWait: true, Min: ptr(size(2 * gib))})
	if err == nil || !strings.Contains(err.Error(), "; holds: bob's job 2 (sleep) 4.5 GiB (reserved), bob's ffmpeg[105] 500 MiB") {
		t.Errorf("%v", err)
	}
}

// TestReservedForProcesses: in a cgroup, and in a job with a budget, the reservations of the processes there count.
func TestReservedForProcesses(t *testing.T) {
	p := exact(size(6 * gib))
	w := newWorld(t, p, 16*gib)
	w.limitCgroup("/a", size(4*gib))
	per := w.job(t, arbiter.JobRequest{Process: w.process(bob, "gpuarb"), Command: "train", PerProcess: true, Min: ptr(size(3 * gib))})
	in := w.process(bob, "a")
	in.Cgroup = "/a/b"
	w.clientOf(in, per, 0).must(gib)
	if o := w.runsIn("/a", eve).alloc(2 * gib); o.Reason != arbiter.ReasonSharedFull || o.Remaining != gib || holdersIn(o) != "bob's job 1 (train) 2 GiB (reserved), bob's a[102] 1 GiB" {
		t.Errorf("%+v", o)
	}
	outside := w.process(bob, "b")
	s, err := w.arb.OpenSession(w.now, arbiter.SessionRequest{Process: outside, Job: per})
	if err != nil {
		t.Fatal(err)
	}
	other := (&client{w: w, process: outside, session: s.ID}).on(0)
	if o := other.alloc(4 * gib); o.Reason != arbiter.ReasonOverBudget || holdersIn(o) != "bob's job 1 (train) 5 GiB (reserved), bob's a[102] 1 GiB" {
		t.Errorf("%+v", o)
	}
}

// TestWaitingTextNamesIdleHolders: a request that waits says of a holder for how long it has done nothing, from a minute on.
func TestWaitingTextNamesIdleHolders(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	holder := w.clientOf(rules.Process{PID: 7, UID: 1001, User: "bob", Command: "python3 x.py"}, 0, 0)
	holder.must(900)
	w.client(0, 0).wait(200)
	text := func() string { return w.arb.Snapshot(w.now).Queue[0].Text }
	w.pass(59 * time.Second)
	if strings.Contains(text(), "idle") {
		t.Errorf("after 59 s: %s", text())
	}
	w.pass(3 * time.Minute)
	if !strings.Contains(text(), "bob's python3[7] 900 bytes for 3 min, idle for 3 min") {
		t.Errorf("after 4 min: %s", text())
	}
	holder.word.called = true
	if strings.Contains(text(), "idle") {
		t.Errorf("after a call: %s", text())
	}
}

// TestAWaitingRequestSaysWhoIsAhead: a request that would fit, and one that would not, say which earlier request blocks them, and for what.
// Their own program is not among the holders. A request that the reservations of others leave no room for says so at once.
func TestAWaitingRequestSaysWhoIsAhead(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	w.job(t, arbiter.JobRequest{Process: w.process(1000, "gpuarb"), Command: "kept", Min: ptr(size(100)), Max: ptr(size(100))})
	first, small, large := w.client(0, 0), w.client(0, 0), w.client(0, 0)
	first.must(400)
	large.must(10)
	small.must(0)
	ahead := first.wait(600)
	w.now = w.now.Add(8 * time.Minute)
	text := func(c *client, n accounting.Bytes) string { return w.arb.Notice(w.now, c.wait(n)).Text }
	name := func(c *client) string { return fmt.Sprintf("ffmpeg[%d]", c.process.PID) }
	if got, want := text(small, 64), "waits for 64 bytes on GPU 0: 490 bytes free, but kept for "+name(first)+", which has waited 8 min for 600 bytes"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	want := "waits for 900 bytes on GPU 0, position 3: 490 bytes free; holds: bob's " + name(first) + " 400 bytes for 8 min, bob's job 1 (kept) 100 bytes (reserved) for 8 min" +
		"; ahead of it: " + name(first) + " and 1 more, the first of which has waited 8 min for 600 bytes" +
		"; it never fits beside the 100 bytes that others reserve: 890 bytes is the most"
	if got := text(large, 900); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	q := w.arb.Snapshot(w.now).Queue
	if len(q) != 3 || q[0].Behind != 0 || q[1].Behind != uint64(ahead) || q[1].Kept != 490 || q[2].Behind != uint64(ahead) || q[2].Kept != 0 {
		t.Errorf("%+v", q)
	}
}
