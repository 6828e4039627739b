package arbiter_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// A changed limit is in force when the call returns, also if more is held than it allows, and only users with the right may change it.
// policy_test.go changes limits of many jobs, and rules/job_test.go tests which of several limits counts.

func TestLoweredBelowWhatIsHeld(t *testing.T) {
	w := newWorld(t, exact(size(1000)), 8*gib)
	x := w.client(0, 0)
	x.must(900)
	x.free(100)
	job := arbiter.JobID(x.row().Job)
	lower := rules.Change{Device: rules.AllDevices, Max: ptr(size(500)), UID: 1000}
	if err := w.arb.SetJobLimits(w.now, job, lower); err != nil {
		t.Fatal(err)
	}
	if row := x.row(); row.State != figures.StateOver || row.Granted != 800 || row.Credit != 0 || !x.word.closed() {
		t.Errorf("after lowering: closed %v, %+v", x.word.closed(), row)
	}
	if x.word.limit != 500 {
		t.Errorf("the client was told %d", x.word.limit)
	}
	if o := x.alloc(1); o.Granted || o.Reason != arbiter.ReasonOverBudget || o.Remaining != 0 || o.Limit != 500 {
		t.Errorf("%+v", o)
	}
	x.free(200) // the client reports this free
	if row := x.row(); row.Granted != 600 || x.word.idle() != 0 {
		t.Errorf("what was freed did not go back: %+v", row)
	}
	x.word.free(50) // a report that got lost: the tick finds it
	w.arb.Tick(w.now)
	if row := x.row(); row.Granted != 550 {
		t.Errorf("the tick left %+v", row)
	}
	x.free(60)
	if row := x.row(); row.State != figures.StateRunning || row.Used != 490 || row.Granted != 500 || x.word.closed() {
		t.Errorf("within again: closed %v, %+v", x.word.closed(), row)
	}
	x.must(10)
	if kinds := kindsOf(w.arb.Events()); !strings.Contains(kinds, "limits") || !strings.Contains(kinds, "over") || !strings.Contains(kinds, "within") {
		t.Errorf("events: %s", kinds)
	}
}

func kindsOf(events []arbiter.Event) string {
	var kinds []string
	for _, e := range events {
		kinds = append(kinds, string(e.Kind))
	}
	return strings.Join(kinds, " ")
}

func TestLoweredBelowWhatIsGrantedButNotUsed(t *testing.T) {
	w := newWorld(t, exact(size(1000)), 8*gib)
	x := w.client(0, 0)
	x.must(900)
	x.free(600)
	if err := w.arb.SetProcessLimits(w.now, rules.Change{Device: 0, Max: ptr(size(500))}, x.session); err != nil {
		t.Fatal(err)
	}
	if row := x.row(); row.Granted != 500 || row.Used != 300 || row.State != figures.StateRunning || x.word.closed() {
		t.Errorf("closed %v, %+v", x.word.closed(), row)
	}
}

func TestOneProcessOfAJobIsLowered(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 8*gib)
	job := w.job(t, arbiter.JobRequest{Max: ptr(size(1000))})
	one, two := w.client(job, 0), w.client(job, 0)
	one.must(400)
	two.must(400)
	if err := w.arb.SetProcessLimits(w.now, rules.Change{Device: 0, Max: ptr(size(300))}, one.session); err != nil {
		t.Fatal(err)
	}
	if one.row().State != figures.StateOver || two.row().State != figures.StateRunning || two.word.closed() {
		t.Errorf("%v and %v", one.row().State, two.row().State)
	}
	two.must(200)
	three := w.client(job, 0)
	if o := three.alloc(1); o.Granted {
		t.Error("beyond the job's budget")
	}
}

func TestClosedWhileAnyBudgetAboveIsOver(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 8*gib)
	job := w.job(t, arbiter.JobRequest{Max: ptr(size(1000))})
	one, two := w.client(job, 0), w.client(job, 0)
	one.must(400)
	two.must(400)
	if err := w.arb.SetProcessLimits(w.now, rules.Change{Device: 0, Max: ptr(size(300))}, one.session); err != nil {
		t.Fatal(err)
	}
	if err := w.arb.SetJobLimits(w.now, job, rules.Change{Device: 0, Max: ptr(size(500))}); err != nil {
		t.Fatal(err)
	}
	one.free(150) // within its own limit, and the job is over by 150 still
	if !one.word.closed() || !two.word.closed() || one.row().State != figures.StateOver {
		t.Errorf("opened while the job is over: %+v", one.row())
	}
	two.free(150)
	if one.word.closed() || two.word.closed() {
		t.Error("within, and closed")
	}
}

func TestPermissionsAndNonsense(t *testing.T) {
	w := newWorld(t, exact(size(1000)), 8*gib)
	x := w.client(0, 0)
	x.must(10)
	max := func(n accounting.Bytes) *accounting.Size { return ptr(size(n)) }
	for _, c := range []struct {
		name string
		c    rules.Change
		want error
	}{
		{"a stranger lowers", rules.Change{UID: 1001, Max: max(1)}, rules.ErrPermission},
		{"the owner raises", rules.Change{UID: 1000, Max: max(2000)}, rules.ErrPermission},
		{"the owner reserves", rules.Change{UID: 1000, Min: max(1)}, rules.ErrPermission},
		{"the owner raises streams", rules.Change{UID: 1000, Streams: ptr(257)}, rules.ErrPermission},
		{"no streams", rules.Change{Streams: ptr(0)}, rules.ErrRange},
		{"min above max", rules.Change{Min: max(2000)}, rules.ErrRange},
		{"no such device", rules.Change{Device: 5, Max: max(1)}, arbiter.ErrNoDevice},
		{"root raises", rules.Change{Max: max(4000)}, nil},
		{"the privileged raise", rules.Change{UID: 5, Privileged: true, Max: max(5000)}, nil},
		{"the owner lowers", rules.Change{UID: 1000, Max: max(3000), Streams: ptr(4)}, nil},
		{"the owner lowers further", rules.Change{UID: 1000, Max: max(2000), Streams: ptr(3)}, nil},
		{"the owner raises beyond what root gave", rules.Change{UID: 1000, Max: max(5001)}, rules.ErrPermission},
		{"the owner raises his streams beyond the rule's", rules.Change{UID: 1000, Streams: ptr(257)}, rules.ErrPermission},
		{"the owner raises again", rules.Change{UID: 1000, Max: max(3000), Streams: ptr(4)}, nil},
	} {
		before := x.row()
		err := w.arb.SetProcessLimits(w.now, c.c, x.session)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if after := x.row(); err != nil && !reflect.DeepEqual(after, before) {
			t.Errorf("%s failed, and changed %+v into %+v", c.name, before, after)
		}
	}
	if row := x.row(); row.Budget != 3000 || row.StreamsMax != 4 {
		t.Errorf("%+v", row)
	}
	if err := w.arb.SetJobLimits(w.now, 77, rules.Change{}); !errors.Is(err, arbiter.ErrNoJob) {
		t.Error(err)
	}
	if err := w.arb.SetProcessLimits(w.now, rules.Change{}, 77); !errors.Is(err, arbiter.ErrNoSession) {
		t.Error(err)
	}
	var full *arbiter.Result
	err := w.arb.SetProcessLimits(w.now, rules.Change{Max: &accounting.Size{Max: true}, Min: max(8 * gib)}, x.session)
	if err != nil {
		t.Error(err)
	}
	if err = w.arb.SetJobLimits(w.now, w.job(t, arbiter.JobRequest{}), rules.Change{Min: max(1)}); !errors.As(err, &full) || full.Remaining != 0 {
		t.Errorf("reserved on a full device: %v", err)
	}
}

func TestRules(t *testing.T) {
	p := exact(size(4 * gib))
	p.Rules = []rules.Rule{
		{Match: rules.Match{User: "bob", Exe: "ff*"}, Max: ptr(size(2 * gib)), StreamsMax: ptr(8)},
		{Name: "eve's rule", Match: rules.Match{User: "1001"}, Scope: ptr(rules.ScopeUser), Max: ptr(accounting.Size{PerMille: 125})},
		{Match: rules.Match{Command: "worker *"}, Scope: ptr(rules.ScopeProcess), Max: ptr(size(gib))},
	}
	w := newWorld(t, p, 8*gib)
	if row := w.client(0, 0).row(); row.Budget != 2*gib || row.StreamsMax != 8 {
		t.Errorf("the first rule: %+v", row)
	}
	if row := w.clientOf(w.process(1000, "python3"), 0, 0).row(); row.Budget != 4*gib || row.StreamsMax != 256 {
		t.Errorf("no rule: %+v", row)
	}
	one := w.clientOf(w.process(1001, "a"), 0, 0)
	two := w.clientOf(w.process(1001, "b"), 0, 0)
	one.must(700 * mib)
	o := two.alloc(500 * mib)
	if o.Granted || o.Reason != arbiter.ReasonSharedFull || o.Remaining != 324*mib || o.Limit != gib ||
		!strings.Contains(o.Explain, "user eve's 1 GiB budget") {
		t.Errorf("%+v", o)
	}
	_, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(1001, "x"), Max: ptr(size(2 * gib))})
	var denied *arbiter.Result
	if !errors.As(err, &denied) || denied.Reason != arbiter.ReasonDenied || !strings.Contains(denied.Explain, "eve's rule (user 1001) allows 1 GiB") {
		t.Errorf("%v", err)
	}
	rooted := w.clientOf(w.process(1001, "x"), w.job(t, arbiter.JobRequest{Process: w.process(0, "x"), Max: ptr(size(6 * gib))}), 0)
	if row := rooted.row(); row.Budget != 6*gib {
		t.Errorf("root asked for more: %+v", row)
	}
	for range 2 {
		w.clientOf(w.process(1002, "worker"), 0, 0).must(gib)
	}
}

func TestPerProcess(t *testing.T) {
	p := exact(unlimited())
	p.Rules = []rules.Rule{{Scope: ptr(rules.ScopeUser), Max: ptr(size(1500))}}
	w := newWorld(t, p, 8*gib)
	job := w.job(t, arbiter.JobRequest{Max: ptr(size(1000)), PerProcess: true})
	one, two := w.client(job, 0), w.client(job, 0)
	one.must(1000)
	two.must(500)
	if o := one.alloc(1); o.Reason != arbiter.ReasonOverBudget || o.Limit != 1000 || !strings.Contains(o.Explain, "the process's") {
		t.Errorf("%+v", o)
	}
	if o := two.alloc(1); o.Reason != arbiter.ReasonSharedFull || o.Limit != 1500 {
		t.Errorf("%+v", o)
	}
	if err := w.arb.SetJobLimits(w.now, job, rules.Change{Device: 0, Max: ptr(size(600))}); err != nil {
		t.Fatal(err)
	}
	if one.row().State != figures.StateOver || two.row().State != figures.StateRunning {
		t.Errorf("%v, %v", one.row().State, two.row().State)
	}
}

func TestReload(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 8*gib)
	one, two := w.clientOf(w.process(1001, "a"), 0, 0), w.clientOf(w.process(1001, "b"), 0, 0)
	one.must(600)
	two.must(500)
	p := exact(unlimited())
	p.Rules = []rules.Rule{{Match: rules.Match{User: "eve"}, Scope: ptr(rules.ScopeUser), Max: ptr(size(1000))}}
	p.Devices = []rules.DeviceRule{{Match: rules.DeviceMatch{Index: ptr(0)}, Reserve: size(gib), SlotsMax: 3}}
	w.arb.SetPolicy(w.now, p)
	if one.row().State != figures.StateOver || !two.word.closed() {
		t.Errorf("a budget that is shared now, and over: %v", one.row().State)
	}
	if d := w.arb.Snapshot(w.now).Devices[0]; d.Reserve != gib || d.Capacity != 7*gib || d.SlotsMax != 3 {
		t.Errorf("%+v", d)
	}
	w.arb.SetPolicy(w.now, exact(unlimited()))
	if one.row().State != figures.StateRunning || two.word.closed() {
		t.Errorf("no budget any more: %v", one.row().State)
	}
	one.must(5 * gib)
}

// TestSetProcessLimitsOfSeveralSessions: a change for all sessions of a process changes none if one of them refuses it.
func TestSetProcessLimitsOfSeveralSessions(t *testing.T) {
	for name, inJob := range map[string]bool{"in a job": true, "bare": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, exact(unlimited()), 1000)
			var job arbiter.JobID
			if inJob {
				job = w.job(t, arbiter.JobRequest{})
			}
			p := w.process(1000, "twice")
			one, two := w.clientOf(p, job, 0), w.clientOf(p, job, 0)
			w.client(0, 0).must(300)
			before := w.arb.Snapshot(w.now)
			err := w.arb.SetProcessLimits(w.now, rules.Change{Device: 0, Min: ptr(size(400)), Privileged: true}, one.session, two.session)
			var refusal *arbiter.Result
			if !errors.As(err, &refusal) { // there is room for one of them
				t.Fatal(err)
			}
			after := w.arb.Snapshot(w.now)
			for i := range before.Leases {
				if after.Leases[i].Min != before.Leases[i].Min {
					t.Errorf("%+v, and was %+v", after.Leases[i], before.Leases[i])
				}
			}
			if after.Devices[0].Committed != 300 {
				t.Errorf("%d bytes are promised", after.Devices[0].Committed)
			}
			if err := w.arb.SetProcessLimits(w.now, rules.Change{Device: 0, Min: ptr(size(350)), Privileged: true}, one.session, two.session); err != nil {
				t.Error(err)
			}
			if got := w.arb.Snapshot(w.now).Devices[0].Committed; got != 1000 {
				t.Errorf("%d bytes are promised", got)
			}
			if err := w.arb.SetProcessLimits(w.now, rules.Change{Device: 0, Max: ptr(size(10))}, one.session, 99); !errors.Is(err, arbiter.ErrNoSession) {
				t.Error(err)
			}
			if got := one.word.limit; got == 10 {
				t.Error("one of two was changed, and the other is not there")
			}
		})
	}
}

// TestLimitsOfAProcessHoldLater: a live limit of a process applies to sessions that the process opens later, and to all of them after a
// restart. It ends with the process.
func TestLimitsOfAProcessHoldLater(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	job := w.job(t, arbiter.JobRequest{})
	p := w.process(1000, "twice")
	first := w.clientOf(p, job, 0)
	if err := w.arb.SetProcessLimits(w.now, rules.Change{Device: rules.AllDevices, Max: ptr(size(300))}, first.session); err != nil {
		t.Fatal(err)
	}
	second := w.clientOf(p, job, 0)
	second.must(300)
	if o := second.alloc(1); o.Granted {
		t.Errorf("a byte more than the limit of the process: %+v", o)
	}
	of := rules.Owner{Kind: rules.OfProcess, ID: uint64(p.PID), Start: p.StartTicks}
	next := newWorld(t, exact(unlimited()), 1000)
	next.arb.RestoreLimits(of, "", w.arb.Limits(of))
	again := next.clientOf(p, 0, 0)
	again.must(300)
	if o := again.alloc(1); o.Granted {
		t.Errorf("after a restart, a byte more than the limit of the process: %+v", o)
	}
	next.arb.DropLimits(next.now, of)
	if rows := next.arb.Limits(of); len(rows) != 0 {
		t.Errorf("the process has ended, and has limits: %+v", rows)
	}
}

// TestWhoMayPassTheRules: the user who runs the daemon may exceed the rules, as root may.
func TestWhoMayPassTheRules(t *testing.T) {
	w := newWorld(t, exact(size(gib)), 8*gib)
	for name, c := range map[string]struct {
		uid        uint32
		privileged bool
		may        bool
	}{"root": {0, false, true}, "the daemon's owner": {1000, true, true}, "another user": {1000, false, false}} {
		for what, r := range map[string]arbiter.JobRequest{"priority": {Priority: 5}, "budget": {Max: ptr(size(2 * gib))},
			"streams": {Streams: 300}} {
			r.Process = w.process(c.uid, "a")
			r.Process.Privileged = c.privileged
			info, err := w.arb.OpenJob(w.now, r)
			if (err == nil) != c.may {
				t.Errorf("%s asks for %s beyond the rule: %v", name, what, err)
			}
			if err == nil && what == "budget" && info.Budget != 2*gib {
				t.Errorf("%s gets %s", name, info.Budget.Human())
			}
		}
	}
}

// TestMinIsMax: a memory.min of "max" reserves all that may be held. This holds for the limit in force, for the value shown, and for its
// source. Setting the value that is in force already changes nothing.
func TestMinIsMax(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 8*gib)
	job := w.job(t, arbiter.JobRequest{Command: "train", Max: ptr(size(64 * mib))})
	x := w.client(job, 0)
	all := rules.Change{Min: &accounting.Size{Max: true}}
	for range 2 {
		if err := w.arb.SetJobLimits(w.now, job, all); err != nil {
			t.Fatal(err)
		}
	}
	s := w.arb.Snapshot(w.now)
	if on, row := s.Jobs[0].Devices[0], x.row(); on.Min != 64*mib || on.Reserved != 64*mib || row.Min != 64*mib || row.MinBy != "root" {
		t.Errorf("%+v, and the process %+v", on, row)
	}
	if err := w.arb.SetJobLimits(w.now, job, rules.Change{Max: ptr(size(32 * mib)), Streams: ptr(256)}); err != nil {
		t.Fatal(err)
	}
	if row := x.row(); row.Min != 32*mib || row.MinBy != "root" {
		t.Errorf("%+v", row)
	}
	var got []string
	for _, e := range w.arb.Events() {
		if e.Kind == arbiter.EventLimits {
			got = append(got, e.Text)
		}
	}
	want := []string{"root changed memory.min of bob's job 1 (train) on GPU 0 from 0 bytes to 64 MiB",
		"root changed memory.max of bob's job 1 (train) on GPU 0 from 64 MiB to 32 MiB"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestMinOfAProcessIsMaxOfItsJob: a process that reserves all of its job's memory.max reserves less when that is lowered, and no more than
// there is room for when it is raised.
func TestMinOfAProcessIsMaxOfItsJob(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 8*gib)
	job := w.job(t, arbiter.JobRequest{Max: ptr(size(64 * mib))})
	x := w.client(job, 0)
	if err := w.arb.SetProcessLimits(w.now, rules.Change{Min: &accounting.Size{Max: true}}, x.session); err != nil {
		t.Fatal(err)
	}
	other := w.client(0, 0)
	other.must(8*gib - 64*mib)
	if err := w.arb.SetJobLimits(w.now, job, rules.Change{Max: ptr(size(96 * mib))}); err == nil || x.row().Min != 64*mib {
		t.Errorf("raised: %v, %+v", err, x.row())
	}
	if err := w.arb.SetJobLimits(w.now, job, rules.Change{Max: ptr(size(32 * mib))}); err != nil || x.row().Min != 32*mib {
		t.Errorf("lowered: %v, %+v", err, x.row())
	}
	other.must(32 * mib)
}

// TestEventShowsSmallChange: an event shows two values in bytes if they look equal when rounded.
func TestEventShowsSmallChange(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 8*gib)
	job := w.job(t, arbiter.JobRequest{Command: "train", Max: ptr(size(gib + 1))})
	if err := w.arb.SetJobLimits(w.now, job, rules.Change{Max: ptr(size(gib))}); err != nil {
		t.Fatal(err)
	}
	if e := w.arb.Events(); e[len(e)-1].From != "1073741825 bytes (1 GiB)" || e[len(e)-1].To != "1 GiB" {
		t.Errorf("%+v", e)
	}
}

// TestTheJobOfAProcessThatHasEndedHasNoLimits: while the leases of an ended process without a runner drain, its job exists, but has no
// process whose limits could be changed.
func TestTheJobOfAProcessThatHasEndedHasNoLimits(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	x := w.client(0, 0)
	x.must(800)
	job := arbiter.JobID(x.row().Job)
	w.arb.EndSession(w.now, x.session)
	if n := len(w.arb.Snapshot(w.now).Jobs); n != 1 {
		t.Fatalf("%d jobs, want the one that drains", n)
	}
	if err := w.arb.SetJobLimits(w.now, job, rules.Change{Device: 0, Max: ptr(size(10))}); !errors.Is(err, arbiter.ErrNoJob) {
		t.Errorf("job %d: %v, want %v", job, err, arbiter.ErrNoJob)
	}
}
