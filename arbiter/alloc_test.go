package arbiter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// A request for memory gets idle credit of other clients before it is refused, but no reserved memory. A refusal names the limit, what is
// left there, and the holders. limits_test.go changes limits, and queue_test.go lets requests wait.

func TestIdleCreditIsRecalledBeforeARefusal(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	rich, poor, asker := w.client(0, 0), w.client(0, 0), w.client(0, 0)
	rich.must(600)
	poor.must(300)
	asker.must(100)
	rich.free(200)
	poor.free(50)
	if o := asker.alloc(251); o.Granted || o.Reason != arbiter.ReasonDeviceFull || o.Remaining != 250 || o.Limit != 1000 {
		t.Errorf("%+v", o)
	}
	if rich.word.idle() != 200 || poor.word.idle() != 50 {
		t.Error("a refusal took somebody's idle credit")
	}
	asker.must(150)
	if rich.word.idle() != 50 || poor.word.idle() != 50 {
		t.Errorf("150 were needed, and the largest should give: %d and %d are left", rich.word.idle(), poor.word.idle())
	}
	asker.must(100)
	if o := asker.alloc(1); o.Granted || o.Remaining != 0 {
		t.Errorf("%+v", o)
	}
	if got := w.arb.Snapshot(w.now).Stats.RecalledBytes; got != 250 {
		t.Errorf("recalled %d", got)
	}
}

func TestRecallWithinAJob(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 8*gib)
	job := w.job(t, arbiter.JobRequest{Max: ptr(size(1000))})
	one, two, stranger := w.client(job, 0), w.client(job, 0), w.client(0, 0)
	stranger.must(500)
	stranger.free(500)
	one.must(900)
	one.free(400)
	two.must(500)
	if one.word.idle() != 0 || stranger.word.idle() != 500 {
		t.Errorf("idle: %d and %d", one.word.idle(), stranger.word.idle())
	}
	o := two.alloc(1)
	if o.Granted || o.Reason != arbiter.ReasonOverBudget || o.Limit != 1000 || !o.First {
		t.Errorf("%+v", o)
	}
	if o := two.alloc(1); o.First {
		t.Error("the first refusal came twice")
	}
}

// job opens a job of bob.
func (w *world) job(t *testing.T, r arbiter.JobRequest) arbiter.JobID {
	t.Helper()
	if r.Process.PID == 0 {
		r.Process = w.process(1000, "gpuarb")
	}
	info, err := w.arb.OpenJob(w.now, r)
	if err != nil {
		t.Fatal(err)
	}
	return info.ID
}

func TestReservationsAreKeptFree(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	job := w.job(t, arbiter.JobRequest{Min: ptr(size(600)), Max: ptr(size(600))})
	other := w.client(0, 0)
	other.must(400)
	if o := other.alloc(1); o.Granted || o.Reason != arbiter.ReasonDeviceFull || o.Remaining != 0 {
		t.Errorf("took what is reserved: %+v", o)
	}
	member := w.client(job, 0)
	w.arb.Observe(w.now, arbiter.Usage{Device: 0, Processes: []arbiter.ProcessUsage{{PID: 1, Bytes: 900}}})
	member.must(600)
	_, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(1000, "x"), Min: ptr(size(1)), NoWait: true})
	if r, ok := err.(*arbiter.Result); !ok || r.Reason != arbiter.ReasonBusy || r.Remaining != 0 {
		t.Errorf("reserved what is not there: %v", err)
	}
	w.arb.CloseJob(w.now, job)
	forget(w.arb, w.now, member.session)
	if got := w.arb.Snapshot(w.now).Devices[0].Committed; got != 400 {
		t.Errorf("committed %d after the job's end", got)
	}
}

func TestSurplus(t *testing.T) {
	p := rules.DefaultPolicy()
	w := newWorld(t, p, 8*gib)
	x := w.client(0, 0)
	x.must(mib)
	if row := x.row(); row.Credit != 4*mib || row.Used != mib || row.Peak != mib || x.word.idle() != 4*mib {
		t.Errorf("%+v", row)
	}
	x.must(8 * mib)
	if row := x.row(); row.Credit != 4*mib || row.Used != 9*mib {
		t.Errorf("the surplus piles up: %+v", row)
	}
	tight := newWorld(t, p, 2*mib)
	y := tight.client(0, 0)
	y.must(mib)
	if row := y.row(); row.Credit != mib/8 {
		t.Errorf("credit of %d with room for %d", row.Credit, mib)
	}
	y.must(mib - 100)
	y.must(100)
	if o := y.alloc(1); o.Granted || o.Remaining != 0 {
		t.Errorf("the surplus cost the program its last bytes: %+v", o)
	}
}

func TestExplain(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 8*gib)
	job := w.job(t, arbiter.JobRequest{Max: ptr(size(gib))})
	big := w.clientOf(rules.Process{PID: 1234, UID: 1000, Exe: "/usr/bin/ffmpeg"}, job, 0)
	small := w.clientOf(rules.Process{PID: 99, UID: 1000, Command: "/opt/bin/python3 \x1b[2Jx"}, job, 0)
	big.must(700 * mib)
	small.must(68 * mib)
	o := big.alloc(512 * mib)
	want := "out of memory on GPU 0: asked 512 MiB, 256 MiB left of the job's 1 GiB budget; " +
		"holds: python3[99] 68 MiB"
	if o.Explain != want {
		t.Errorf("got  %q\nwant %q", o.Explain, want)
	}
	if o := big.alloc(2 * gib); o.Explain != "out of memory on GPU 0: asked 2 GiB, more than the job's 1 GiB budget could ever hold" {
		t.Errorf("%q", o.Explain)
	}
	w.arb.Observe(w.now, arbiter.Usage{Device: 0, Processes: []arbiter.ProcessUsage{
		{PID: 7, Bytes: 7 * gib, UID: 1001, User: "ann", Command: "/usr/bin/blender -b scene.blend"}}})
	if o := w.client(0, 0).alloc(512 * mib); !strings.Contains(holdersIn(o), "ann's blender[7] 7 GiB (unmanaged)") {
		t.Errorf("%q", o.Explain)
	}
}

// TestHoldersHaveTheirUsers: a message names the user of each holder of memory and of slots, and the number of holders that it does not
// name.
func TestHoldersHaveTheirUsers(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	users := []string{"ann", "bob", "", "4711", "eve"}
	for i, user := range users {
		p := rules.Process{PID: 10 + i, UID: uint32(1000 + i), User: user, Exe: "/usr/bin/python3"}
		w.clientOf(p, 0, 0).must(accounting.Bytes(200 - i))
	}
	o := w.client(0, 0).alloc(512)
	want := "ann's python3[10] 200 bytes, bob's python3[11] 199 bytes, python3[12] 198 bytes and 2 more"
	if holdersIn(o) != want {
		t.Errorf("got  %q\nwant %q", holdersIn(o), want)
	}
	w.arb.Observe(w.now, arbiter.Usage{Device: 0, Processes: []arbiter.ProcessUsage{
		{PID: 7, Bytes: 900, UID: 1001, User: "4711", Command: "X"}}})
	if o := w.client(0, 0).alloc(512); !strings.HasPrefix(holdersIn(o), "user 4711's X[7] 900 bytes (unmanaged), ann's ") {
		t.Errorf("%q", holdersIn(o))
	}

	w = newWorld(t, capped(5, rules.ScopeJob), 1000)
	for i, user := range users {
		r := arbiter.JobRequest{Process: rules.Process{PID: 10 + i, UID: uint32(1000 + i), User: user}, Command: "sleep 9", Claim: true}
		if _, err := w.arb.OpenJob(w.now, r); err != nil {
			t.Fatal(err)
		}
	}
	want = "5 of 5 slots (slots.max) are held by ann's job 1 (sleep) for 0 ms, bob's job 2 (sleep) for 0 ms, job 3 (sleep) for 0 ms and 2 more"
	if n := w.arb.Notice(w.now, w.mustClaim(arbiter.JobRequest{}).Waiting); !strings.HasSuffix(n.Text, want) {
		t.Errorf("got %q, want … %q", n.Text, want)
	}
}

// TestUnmanagedIsKnownSince: the snapshot shows the user of an unmanaged process, and since when the device lists it. A later process with
// the same PID counts from its own first reading.
func TestUnmanagedIsKnownSince(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 8*gib)
	see := func(start uint64) figures.UnmanagedState {
		w.arb.Observe(w.now, arbiter.Usage{Device: 0, Processes: []arbiter.ProcessUsage{
			{PID: 7, StartTicks: start, Bytes: gib, UID: 1001, User: "ann", Command: "blender"}}})
		return w.arb.Snapshot(w.now).Devices[0].UnmanagedBy[0]
	}
	see(5)
	w.now = w.now.Add(90 * time.Second)
	if u := see(5); u.User != "ann" || u.UID != 1001 || u.AgeMs != 90000 {
		t.Errorf("%+v", u)
	}
	if u := see(6); u.AgeMs != 0 {
		t.Errorf("another process: %+v", u)
	}
}

func TestUnknownIDs(t *testing.T) {
	w := newWorld(t, rules.DefaultPolicy(), gib)
	a := w.arb
	if o := a.Ask(start, arbiter.Request{Lease: 9, What: arbiter.WantsBytes, Bytes: 1}); o.Granted || o.Reason != arbiter.ReasonNoLease {
		t.Errorf("%+v", o)
	}
	if o := a.Ask(start, arbiter.Request{Lease: 9, What: arbiter.WantsStreams, Count: 1}); o.Granted || o.Reason != arbiter.ReasonNoLease {
		t.Errorf("%+v", o)
	}
	if o := a.Ask(start, arbiter.Request{Lease: 9, What: arbiter.WantsContexts, Count: 1}); o.Granted || o.Current != 0 {
		t.Errorf("%+v", o)
	}
	a.Freed(start, 9)
	a.Clamped(start, 9)
	a.EndSession(start, 9)
	a.Gone(start, 9, 9)
	forget(a, start, 9)
	a.CloseJob(start, 9)
	a.LoseDevice(start, 9)
	a.Observe(start, arbiter.Usage{Device: 9})
	if a.Reading(9) != nil {
		t.Error("used of no device")
	}
}
