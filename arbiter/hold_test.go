package arbiter_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// populated is an arbiter of whose device 0 so many processes have 2 MiB each, half of it idle: all in
// one job, or each by itself.
type populated struct {
	*world
	b       *testing.B
	name    string
	policy  rules.Policy
	job     arbiter.JobID // of all of them, or of the first
	clients []*client
	other   *client // runs beside them
	usage   arbiter.Usage
	unheld  time.Duration // of a step, what needs no lock
}

func populate(b *testing.B, n int, oneJob bool) *populated {
	p := exact(unlimited())
	p.Defaults.OnFull, p.Defaults.WaitTimeout = rules.OnFullWait, 1<<62
	w := &populated{b: b, policy: p, world: newWorld(b, p, deviceOf(n)), job: 1, name: fmt.Sprintf("jobs=%d", n)}
	in := arbiter.JobID(0)
	if oneJob {
		info, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(bob, "run")})
		if err != nil {
			b.Fatal(err)
		}
		w.job, in, w.name = info.ID, info.ID, fmt.Sprintf("processes=%d", n)
	}
	for range n {
		c := w.clientOf(w.process(bob, "worker"), in, 0)
		c.must(2 * mib)
		c.word.free(mib)
		w.clients = append(w.clients, c)
		w.usage.Processes = append(w.usage.Processes, arbiter.ProcessUsage{PID: c.process.PID, Bytes: mib})
	}
	w.other = w.clientOf(w.process(ann, "other"), 0, 0)
	w.other.must(15 * gib)
	return w
}

// hold measures the longest of some steps, each a call that has the daemon's lock to its end: the median of some rounds.
func (w *populated) hold(what string, steps ...func()) { w.times(11, what, steps...) }

// once is hold for what cannot be done twice.
func (w *populated) once(what string, steps ...func()) { w.times(1, what, steps...) }

// times is hold with so many rounds, however long the benchmark is to take.
func (w *populated) times(n int, what string, steps ...func()) {
	var all []time.Duration
	for range n {
		all = append(all, w.longest(steps))
	}
	slices.Sort(all)
	w.b.Run(w.name+"/"+what, func(b *testing.B) {
		b.ReportMetric(float64(all[n/2].Nanoseconds()), "hold-ns")
		b.ReportMetric(0, "ns/op") // says nothing
	})
}

func (w *populated) longest(steps []func()) (longest time.Duration) {
	for _, do := range steps {
		w.unheld = 0
		longest = max(longest, ownPart(w.b, do)-w.unheld)
		w.arb.Events()
		w.arb.Decisions()
		for w.arb.Unfinished() {
			longest = max(longest, ownPart(w.b, func() { w.arb.Tick(w.now) }))
			w.arb.Events()
			w.arb.Decisions()
		}
	}
	return longest
}

func (w *populated) must(err error) {
	if err != nil {
		w.b.Fatal(err)
	}
}

// most sets memory.max of the job.
func (w *populated) most(n accounting.Bytes) func() {
	return func() { w.must(w.arb.SetJobLimits(w.now, w.job, rules.Change{Device: 0, Max: ptr(size(n))})) }
}

// mostOfUser sets what the user of all of them may have.
func (w *populated) mostOfUser(n accounting.Size) func() {
	return func() { w.must(w.arb.SetUserLimits(w.now, bob, "bob", rules.Change{Device: 0, Max: &n})) }
}

func (w *populated) slots(n int) func() {
	return func() { w.must(w.arb.SetSlots(w.now, 0, n, arbiter.Changer{})) }
}

// readings are the parts of one reading of the device, each as large as the daemon makes it.
func (w *populated) readings() (steps []func()) {
	var r *arbiter.Reading
	steps = append(steps, func() { w.now = w.now.Add(time.Second); r = w.arb.Reading(0) })
	for range len(w.clients)/128 + 1 {
		steps = append(steps, func() { r.Note(128) })
	}
	steps = append(steps, func() { w.unheld += ownPart(w.b, func() { r.Figures(w.usage) }) })
	for range 2*len(w.clients)/128 + 4 {
		steps = append(steps, func() { r.Book(w.now, 128) })
	}
	return steps
}

// changes are those of which each concerns all who are there.
func (w *populated) changes(with string) {
	w.hold(with+"limit", w.most(100*gib), w.most(90*gib))
	w.hold(with+"limit-of-user", w.mostOfUser(size(90*gib)), w.mostOfUser(unlimited()))
	w.hold(with+"slots", w.slots(5000), w.slots(1), w.slots(0))
	w.hold(with+"policy", func() { w.arb.SetPolicy(w.now, w.policy) })
	w.hold(with+"reading", w.readings()...)
	w.hold(with+"query", func() { _, _ = w.arb.Query(w.now, w.other.session, 0) })
	second := func() { w.now = w.now.Add(time.Second) }
	w.hold(with+"tick", append([]func(){second}, slices.Repeat([]func(){func() { w.arb.Tick(w.now) }}, 150)...)...)
	w.hold(with+"refused", func() {
		w.arb.Ask(w.now, arbiter.Request{Lease: w.other.lease, What: arbiter.WantsBytes, Bytes: 7000 * mib, NoWait: true})
	})
	w.hold(with+"tally", func() { w.arb.Tally(w.now, w.job) })
	w.hold(with+"picture", func() { w.arb.Picture(w.now) })
	w.hold(with+"device", func() {
		w.arb.AddDevice(w.now, rules.Device{Index: 0, Vendor: "nvidia", Name: "Test", Total: deviceOf(len(w.clients))})
	})
}

// comesAndGoes is a process that comes and goes, and one of those that are there that dies.
func (w *populated) comesAndGoes(with string) {
	var c *client
	w.hold(with+"comes-and-goes", func() { c = w.clientOf(w.process(ann, "new"), 0, 0) }, func() { c.streams(1) },
		func() { w.arb.EndSession(w.now, c.session) }, func() { w.arb.Gone(w.now, c.session, 0) })
	w.hold(with+"dies", func() { w.arb.EndSession(w.now, w.last().session) }, func() {
		w.arb.Gone(w.now, w.last().session, 0)
		w.clients = w.clients[:len(w.clients)-1]
	})
}

func (w *populated) last() *client { return w.clients[len(w.clients)-1] }

// BenchmarkHoldOfMany is the longest call of a kind (hold-ns) where thousands are concerned by it: processes of one job,
// jobs, and requests that wait.
func BenchmarkHoldOfMany(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, n := range []int{1000, 4000} {
		for _, oneJob := range []bool{true, false} {
			populate(b, n, oneJob).all()
		}
	}
}

func (w *populated) all() {
	w.changes("")
	w.hold("lower", w.most(mib), w.most(90*gib))
	w.comesAndGoes("")
	w.waits()
	w.changes("waiting=8000/")
	w.comesAndGoes("waiting=8000/")
	w.once("recall", func() { w.other.wait(w.more()) })
	w.once("lower-all-refused", w.most(mib))
	w.once("release", func() { w.arb.ReleaseJob(w.now, w.job) })
	w.once("close", func() { w.arb.CloseJob(w.now, w.job) })
	w.once("lost", func() { w.arb.LoseDevice(w.now, 0) })
}

// waits has the first request wait, and then thousands.
func (w *populated) waits() {
	var t arbiter.TicketID
	w.hold("first-waits", func() { t = w.other.wait(w.more()) }, func() { w.arb.Cancel(w.now, t, arbiter.ReasonCancelled) },
		func() {
			w.unheld = ownPart(w.b, func() {
				for _, c := range w.clients {
					c.must(mib)
					c.word.free(mib)
				}
			})
		})
	var arrive []func()
	for i := range 8000 {
		c := w.clients[i%len(w.clients)]
		arrive = append(arrive, func() { c.wait(6000 * mib) })
	}
	w.once("8000-wait", arrive...)
}

// more is a little more than the device has left where nothing lies idle.
func (w *populated) more() accounting.Bytes {
	return accounting.Bytes(len(w.clients)+1500) * mib
}

// deviceOf is a device that is nearly full with so many processes, and one that holds most of it.
func deviceOf(n int) accounting.Bytes { return accounting.Bytes(2*n)*mib + 16*gib }
