package arbiter_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file opens and closes nested bindings at random, with programs in them, and compares each answer and each sum with the naive model
// of nested_model_test.go. It makes the calls that the daemon makes.

// nestedPaths are the cgroups that can have a binding: five levels, and two beside them.
var nestedPaths = []string{"/a", "/a/b", "/a/b/c", "/a/b/c/d", "/a/b/c/d/e", "/a/f", "/g"}

// nestedRun is one random run: the arbiter and the model.
type nestedRun struct {
	*world
	treeModel
	t *rapid.T
}

// TestNestedBindings opens and closes bindings in any order of levels, with contexts inside and outside their budgets and with
// reservations. Programs start in and beside them, take and give memory, make contexts and end. Limits change, a device is lost and comes
// back, and the daemon restarts. Each request is granted if and only if the model grants it. After each step the sums of each job, with all
// jobs inside it, and of the devices are those of the model. At the end no byte and no job is left.
func TestNestedBindings(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := &nestedRun{t: rt, treeModel: treeModel{totals: totals, unmanaged: make([]accounting.Bytes, 2), stray: make([]strayUse, 2), lost: make([]bool, 2)}}
		n.world = newWorld(t, nestedPolicy(), totals...)
		actions := map[string]func(*rapid.T){
			"bind": n.bind, "bind again": n.bind, "close": n.close, "run": n.run,
			"start": n.start, "start another": n.start,
			"take": n.take, "take more": n.take, "give": n.give, "make a context": n.makeContext, "end a context": n.endContext,
			"limit": n.limit, "use beside": n.beside, "use beside in a cgroup": n.besideIn, "end": n.end, "lose": n.lose, "restart": n.restart,
			"": n.check,
		}
		for range 3 { // longer runs than rapid's default
			rt.Repeat(actions)
		}
		n.finish()
	})
}

// nestedPolicy returns a policy with exact sums. It names the cost of a context, so that the arbiter assumes that cost until it has
// measured one.
func nestedPolicy() rules.Policy {
	p := exact(unlimited())
	p.ContextReserve, p.ChargeUnmanaged = size(nestedContext), true
	return p
}

func (n *nestedRun) anyLost() bool { return slices.Contains(n.lost, true) }

// bind opens the binding of a cgroup that has none.
func (n *nestedRun) bind(t *rapid.T) {
	path := rapid.SampledFrom(nestedPaths).Draw(t, "cgroup")
	if n.anyLost() || slices.ContainsFunc(n.jobs, func(j *nestedJob) bool { return j.path == path && !j.closed }) {
		return
	}
	j := &nestedJob{path: path, in: []string{path}, run: true, max: amount(t, 500), inside: rapid.Bool().Draw(t, "contexts inside")}
	if rapid.Bool().Draw(t, "reserves") {
		j.min = min(j.max, amount(t, 150))
	}
	j.around = n.bindingAround(j.in, true)
	fits := n.opens(j)
	info, err := n.arb.OpenJob(n.now, n.requestOf(j))
	if fits != (err == nil) {
		t.Fatalf("open %s with min %d: %v; the model says %v", path, j.min, err, fits)
	}
	if err != nil {
		return
	}
	j.id = info.ID
	n.jobs = append(n.jobs, j)
	n.enclose(j)
}

// requestOf returns the request that opens a job.
func (n *nestedRun) requestOf(j *nestedJob) arbiter.JobRequest {
	p := n.process(0, "gpuarb")
	p.Privileged, p.Cgroup, p.AlsoIn = true, j.in[0], j.in[1:]
	r := arbiter.JobRequest{Process: p, Cgroup: j.path, ContextsInside: j.inside, OpenNow: true, Around: idOf(j.around)}
	if j.path == "" {
		r.Process.UID, r.Process.User, r.Process.Privileged = bob, "bob", false
	}
	if j.max != accounting.Max {
		r.Max = ptr(size(j.max))
	}
	if j.min > 0 {
		r.Min = ptr(size(j.min))
	}
	return r
}

func idOf(j *nestedJob) arbiter.JobID {
	if j == nil {
		return 0
	}
	return j.id
}

// enclose puts jobs inside a new binding, as the daemon does.
func (n *nestedRun) enclose(b *nestedJob) {
	around := b.around
	for _, j := range n.jobs {
		if j != b && j.around == around && j.path != "" && !j.closed && in(j.path, b.path) {
			n.arb.Enclose(n.now, j.id, b.id)
		}
	}
	for _, id := range n.arb.JobsIn(b.path, idOf(around)) {
		if id != b.id {
			n.arb.Enclose(n.now, id, b.id)
		}
	}
	n.enter(b)
}

// pickJob returns a job for which want returns true; nil: there is none.
func (n *nestedRun) pickJob(t *rapid.T, want func(*nestedJob) bool) *nestedJob {
	all := slices.DeleteFunc(slices.Clone(n.jobs), func(j *nestedJob) bool { return !want(j) })
	if len(all) == 0 {
		return nil
	}
	return rapid.SampledFrom(all).Draw(t, "job")
}

// close closes an open binding, or ends a living runner.
func (n *nestedRun) close(t *rapid.T) {
	if j := n.pickJob(t, func(j *nestedJob) bool { return j.run && !j.closed }); j != nil {
		n.closeJob(j)
	}
}

func (n *nestedRun) closeJob(j *nestedJob) {
	if j.path != "" {
		n.arb.ReleaseJob(n.now, j.id)
	}
	n.arb.CloseJob(n.now, j.id)
	j.closed = true
	n.drop()
}

// run opens the job of a runner in some cgroup.
func (n *nestedRun) run(t *rapid.T) {
	if n.anyLost() {
		return
	}
	j := &nestedJob{in: n.drawCgroups(t), run: true, max: amount(t, 400)}
	if rapid.Bool().Draw(t, "unlimited") {
		j.max = accounting.Max
	}
	j.around = n.bindingAround(j.in, false)
	info, err := n.arb.OpenJob(n.now, n.requestOf(j))
	if err != nil {
		t.Fatal(err)
	}
	j.id = info.ID
	n.jobs = append(n.jobs, j)
}

// drawCgroups returns the cgroups of a process, one in each hierarchy. The machine has one hierarchy or two.
func (n *nestedRun) drawCgroups(t *rapid.T) []string {
	paths := rapid.SampledFrom(append([]string{"/", "/a/b/c/d/e/deeper", "/h"}, nestedPaths...))
	return rapid.SliceOfN(paths, 1, 2).Draw(t, "cgroups")
}

// start starts a program on both devices. The program belongs to the deepest binding around it. Sometimes it also has the token of a
// runner's job. If that job is inside the binding, the program belongs to the job; otherwise the job's limit only lowers the program's own
// limit.
func (n *nestedRun) start(t *rapid.T) {
	if n.anyLost() || len(n.leases) > 16 {
		return
	}
	p := n.process(bob, "program")
	at := n.drawCgroups(t)
	p.Cgroup, p.AlsoIn = at[0], at[1:]
	most := accounting.Max
	if rapid.Bool().Draw(t, "GPUARB_MEMORY") {
		most = amount(t, 300)
	}
	j := n.bindingAround(at, false)
	if token := n.pickJob(t, func(x *nestedJob) bool { return x.path == "" && x.run && !x.closed }); token != nil && rapid.Bool().Draw(t, "token") {
		if j == nil || token.isInside(j) {
			j = token
		} else {
			most = min(most, token.max)
		}
	}
	r := arbiter.SessionRequest{Process: p, Job: idOf(j)}
	if most != accounting.Max {
		r.Max = ptr(size(most))
	}
	s, err := n.arb.OpenSession(n.now, r)
	if err != nil || s.Waiting != 0 {
		t.Fatal(err)
	}
	if j == nil {
		j = &nestedJob{id: n.jobOf(p.PID), in: at, max: accounting.Max, closed: true}
		n.jobs = append(n.jobs, j)
	}
	first := &client{w: n.world, process: p, session: s.ID}
	for device := range n.totals {
		n.leases = append(n.leases, &nestedLease{client: first.on(device), job: j, max: most, device: device})
	}
}

// jobOf returns the job of a process, as the arbiter's snapshot names it.
func (n *nestedRun) jobOf(pid int) arbiter.JobID {
	for _, p := range n.arb.Snapshot(n.now).Processes {
		if p.PID == pid {
			return arbiter.JobID(p.Job)
		}
	}
	n.t.Fatalf("process %d is unknown", pid)
	return 0
}

// pickLease returns a lease of a living program; nil: there is none.
func (n *nestedRun) pickLease(t *rapid.T) *nestedLease {
	all := slices.DeleteFunc(slices.Clone(n.leases), func(l *nestedLease) bool { return l.dead })
	if len(all) == 0 {
		return nil
	}
	return rapid.SampledFrom(all).Draw(t, "lease")
}

// take allocates as a client does: from its credit word, or, if the word has too little, by asking the arbiter.
func (n *nestedRun) take(t *rapid.T) {
	l := n.pickLease(t)
	if l == nil {
		return
	}
	bytes := 1 + amount(t, 250)
	if room := n.room(l); room > 0 && rapid.Bool().Draw(t, "the last byte") {
		bytes = room + accounting.Bytes(rapid.IntRange(0, 1).Draw(t, "and one more"))
	}
	if l.word.fast(bytes) {
		l.used += bytes
		return
	}
	fits := n.grants(l, bytes)
	got := l.alloc(bytes)
	if got.Granted != fits {
		t.Fatalf("%d bytes for process %d in %v on %d: %+v; the model says %v", bytes, l.process.PID, l.cgroupsOf(), l.device, got, fits)
	}
	if got.Granted {
		l.used += bytes
	}
}

// room returns the most bytes that the model grants a lease.
func (n *nestedRun) room(l *nestedLease) accounting.Bytes {
	low, high := accounting.Bytes(0), n.totals[l.device]
	for low < high {
		if half := (low + high + 1) / 2; n.grants(l, half) {
			low = half
		} else {
			high = half - 1
		}
	}
	return low
}

// give frees some bytes that a program uses.
func (n *nestedRun) give(t *rapid.T) {
	if l := n.pickLease(t); l != nil && l.used > 0 {
		bytes := 1 + amount(t, int(l.used)-1)
		l.used -= bytes
		l.free(bytes)
	}
}

// makeContext asks for a context. It reads the device afterwards, so that the arbiter measures the cost of the context.
func (n *nestedRun) makeContext(t *rapid.T) {
	l := n.pickLease(t)
	if l == nil || l.contexts > 3 {
		return
	}
	fits := n.grantsContext(l)
	got := n.arb.Ask(n.now, arbiter.Request{Lease: l.lease, What: arbiter.WantsContexts, Count: 1})
	if got.Granted != fits {
		t.Fatalf("a context for process %d in %v on %d: %+v; the model says %v", l.process.PID, l.cgroupsOf(), l.device, got, fits)
	}
	if got.Granted {
		l.contexts++
		n.read(l.device)
	}
}

// endContext ends a context.
func (n *nestedRun) endContext(t *rapid.T) {
	if l := n.pickLease(t); l != nil && l.contexts > 0 {
		l.contexts--
		n.arb.Ask(n.now, arbiter.Request{Lease: l.lease, What: arbiter.WantsContexts, Count: -1})
		n.read(l.device)
	}
}

// read gives the arbiter three readings of a device, a second apart, because it believes a figure only if two readings show it. Programs
// that have ended and used no memory there are then gone.
func (n *nestedRun) read(device int) {
	charged := n.chargeStray(device)
	for range 3 {
		n.now = n.now.Add(time.Second)
		usage := arbiter.Usage{Device: device}
		for _, l := range n.leases {
			if bytes := l.used + nestedContext.Times(uint64(l.contexts)); l.device == device && !l.lost && bytes > 0 {
				usage.Processes = append(usage.Processes, arbiter.ProcessUsage{PID: l.process.PID, StartTicks: l.process.StartTicks, Bytes: bytes})
			}
		}
		if n.unmanaged[device] > 0 {
			usage.Processes = append(usage.Processes, arbiter.ProcessUsage{PID: 1, Bytes: n.unmanaged[device]})
		}
		if x := n.stray[device]; x.bytes > 0 {
			usage.Processes = append(usage.Processes, arbiter.ProcessUsage{PID: 2, Bytes: x.bytes, Job: charged})
		}
		n.arb.Note(device)
		n.arb.Observe(n.now, usage)
	}
	n.leases = slices.DeleteFunc(n.leases, func(l *nestedLease) bool { return l.device == device && l.dead && l.used == 0 })
	n.drop()
}

// beside lets a program without the library use a device.
func (n *nestedRun) beside(t *rapid.T) {
	device := rapid.IntRange(0, 1).Draw(t, "device")
	if n.lost[device] {
		return
	}
	n.unmanaged[device] = amount(t, 60)
	n.read(device)
}

// besideIn lets a program in a cgroup use a device without the library.
func (n *nestedRun) besideIn(t *rapid.T) {
	device := rapid.IntRange(0, 1).Draw(t, "device")
	if n.lost[device] {
		return
	}
	n.stray[device] = strayUse{path: rapid.SampledFrom(nestedPaths).Draw(t, "cgroup"), bytes: amount(t, 60)}
	n.read(device)
}

// limit sets the limit of a job on a device, as root does by memory.max.
func (n *nestedRun) limit(t *rapid.T) {
	j := n.pickJob(t, func(j *nestedJob) bool { return j.run })
	if j == nil || n.anyLost() {
		return
	}
	device, most := rapid.IntRange(0, 1).Draw(t, "device"), amount(t, 500)
	was, set := j.live[device]
	change := func() {
		if j.live == nil {
			j.live = map[int]accounting.Bytes{}
		}
		j.live[device] = most
	}
	undo := func() {
		if delete(j.live, device); set {
			j.live[device] = was
		}
	}
	fits := n.fits(j.around, device, granted, change, undo)
	err := n.arb.SetJobLimits(n.now, j.id, rules.Change{Device: device, Max: ptr(size(most))})
	var refused *arbiter.Result
	switch {
	case errors.As(err, &refused) && !fits: // it would reserve more, and there is no room for that
	case err != nil || !fits:
		t.Fatalf("limit %d of job %d: %v; the model says %v", most, j.id, err, fits)
	default:
		change()
	}
}

// end ends a program. On a device where it has a context, its memory is free at once. Elsewhere its memory stays for a while, at most
// until the next call of end.
func (n *nestedRun) end(t *rapid.T) {
	l := n.pickLease(t)
	if l == nil {
		return
	}
	for _, x := range n.leases {
		if x.dead { // its memory is back now
			n.arb.Gone(n.now, x.session, x.device)
		}
	}
	n.leases = slices.DeleteFunc(n.leases, func(x *nestedLease) bool { return x.dead })
	n.arb.EndSession(n.now, l.session)
	for _, x := range n.leases {
		if x.session == l.session {
			x.dead = true
			if x.contexts > 0 || x.lost {
				n.arb.Gone(n.now, x.session, x.device)
			}
		}
	}
	n.leases = slices.DeleteFunc(n.leases, func(x *nestedLease) bool { return x.dead && (x.contexts > 0 || x.lost) })
	n.drop()
}

// lose loses a device, or brings back a lost device.
func (n *nestedRun) lose(t *rapid.T) {
	for device, lost := range n.lost {
		if lost {
			n.lost[device] = false
			n.arb.AddDevice(n.now, rules.Device{Index: device, Vendor: "nvidia", Name: "Test", Total: n.totals[device]})
			n.read(device)
			return
		}
	}
	device := rapid.IntRange(0, 1).Draw(t, "device")
	n.arb.LoseDevice(n.now, device)
	n.lost[device], n.unmanaged[device], n.stray[device] = true, 0, strayUse{}
	for _, l := range n.leases {
		if l.device == device {
			l.lost, l.used, l.contexts = true, 0, 0
		}
	}
	for _, l := range slices.Clone(n.leases) {
		if l.device == device && l.dead {
			n.arb.Gone(n.now, l.session, device)
			n.leases = slices.DeleteFunc(n.leases, func(x *nestedLease) bool { return x == l })
		}
	}
	n.drop()
}

// check compares all sums with the model.
func (n *nestedRun) check(t *rapid.T) {
	for _, j := range n.jobs {
		for device := range n.totals {
			if n.lost[device] {
				continue
			}
			want, got := n.sums(j, device, granted), n.arb.Sums(j.id, device)
			if got.Held != want.held || got.Committed != want.committed || got.Overhead != want.beside {
				t.Fatalf("job %d of %q on %d: %+v, the model says %+v", j.id, j.path, device, got, want)
			}
			if most := n.most(j, device); got.Limit != most {
				t.Fatalf("job %d of %q on %d has limit %d, the model says %d", j.id, j.path, device, got.Limit, most)
			}
		}
	}
	s := n.arb.Snapshot(n.now)
	if len(s.Jobs) != len(n.jobs) {
		t.Fatalf("%d jobs, the model has %d", len(s.Jobs), len(n.jobs))
	}
	for device, d := range s.Devices {
		want, charged := n.device(device, granted), accounting.Bytes(0)
		if x := n.stray[device]; x.charged != nil {
			charged = x.bytes
		}
		if !n.lost[device] && (d.Committed != want.committed-charged || d.Overhead != want.beside || d.Capacity != n.capacity(device).Less(want.beside).Less(charged)) {
			t.Fatalf("device %d: %+v, the model says %+v", device, d, want)
		}
	}
	for _, l := range n.leases {
		if !l.lost && l.word.granted != l.used+l.word.idle() {
			t.Fatalf("process %d uses %d of %d granted, %d idle", l.process.PID, l.used, l.word.granted, l.word.idle())
		}
	}
}

// restart starts a new arbiter with the records of the last one, as the daemon does. The credit words are as
// the clients left them.
func (n *nestedRun) restart(t *rapid.T) {
	if n.anyLost() {
		return
	}
	last := n.words.all
	n.world = &world{t: n.world.t, words: n.words, now: n.now, pid: n.pid}
	n.words.all = map[arbiter.LeaseID]*word{}
	n.arb = arbiter.New(nestedPolicy())
	n.words.arb = n.arb
	for i, total := range n.totals {
		n.arb.AddDevice(n.now, rules.Device{Index: i, Vendor: "nvidia", Name: "Test", Total: total})
	}
	n.restoreJobs(t)
	n.restoreLeases(t, last)
	for _, j := range n.jobs {
		if j.run && j.closed {
			n.arb.CloseJob(n.now, j.id)
		}
	}
	for _, b := range n.openBindings() {
		n.enclose(b)
	}
	n.drop()
	for device := range n.totals {
		n.read(device)
	}
}

// openBindings returns the open bindings, each outer binding before those inside it.
func (n *nestedRun) openBindings() []*nestedJob {
	all := slices.DeleteFunc(slices.Clone(n.jobs), func(j *nestedJob) bool { return j.path == "" || j.closed })
	slices.SortStableFunc(all, func(x, y *nestedJob) int { return strings.Count(x.path, "/") - strings.Count(y.path, "/") })
	return all
}

// restoreJobs restores the open bindings, then the closed ones and the jobs of runners. A job that is closed is inside the deepest open
// binding around its programs. A job that was inside a closed binding stays inside that binding, which is restored first.
func (n *nestedRun) restoreJobs(t *rapid.T) {
	restore := func(j *nestedJob) {
		if err := n.arb.RestoreJob(n.now, arbiter.RestoredJob{ID: j.id, Request: n.requestOf(j), Released: j.closed && j.path != ""}); err != nil {
			t.Fatal(err)
		}
		for device, most := range j.live {
			_ = n.arb.SetJobLimits(n.now, j.id, rules.Change{Device: device, Max: ptr(size(most))})
		}
	}
	bindings := n.openBindings()
	for _, j := range bindings {
		j.around = n.bindingAround(j.in, true)
		restore(j)
	}
	done := map[*nestedJob]bool{}
	var restoreAfterAround func(*nestedJob) // restores a job, after the closed binding around it
	restoreAfterAround = func(j *nestedJob) {
		was := j.around
		if done[j] || !j.run || slices.Contains(bindings, j) {
			return
		}
		if done[j] = true; was != nil && was.closed {
			restoreAfterAround(was)
		}
		at := j.in
		if j.closed {
			at = nil
		}
		for _, l := range slices.Backward(n.leases) {
			if j.closed && l.job == j && !l.dead {
				at = l.cgroupsOf()
			}
		}
		if j.around = n.bindingAround(at, false); was != nil && was.closed { // the record of the job names the closed binding
			j.around = was
		}
		restore(j)
	}
	for _, j := range n.jobs {
		if restoreAfterAround(j); !j.run {
			j.around = nil
		}
	}
}

// restoreLeases restores the programs with what they hold, and their credit words as they are.
func (n *nestedRun) restoreLeases(t *rapid.T, last map[arbiter.LeaseID]*word) {
	ids := map[arbiter.SessionID]arbiter.SessionID{}
	for _, l := range n.leases {
		was := l.session
		if ids[was] == 0 {
			r := arbiter.SessionRequest{Process: l.process}
			if l.job.run {
				r.Job = l.job.id
			}
			if l.max != accounting.Max {
				r.Max = ptr(size(l.max))
			}
			id, err := n.arb.RestoreSession(n.now, r)
			if err != nil {
				t.Fatal(err)
			}
			if ids[was] = id; !l.job.run {
				l.job.id = n.jobOf(l.process.PID)
			}
		}
		x := n.words.add(l.word.granted, l.word.idle())
		if _, err := n.arb.RestoreLease(n.now, ids[was], arbiter.RestoredLease{Device: l.device, Granted: l.word.granted, Contexts: l.contexts, Lost: l.lost}, x); err != nil {
			t.Fatal(err)
		}
		l.client = &client{w: n.world, process: l.process, session: ids[was], lease: x.id, word: x}
	}
	for _, l := range n.leases {
		if l.dead {
			n.arb.EndSession(n.now, l.session)
		}
	}
}

// finish ends all programs and closes all jobs, and checks that nothing is left.
func (n *nestedRun) finish() {
	for device, lost := range n.lost {
		if lost {
			n.arb.AddDevice(n.now, rules.Device{Index: device, Vendor: "nvidia", Name: "Test", Total: n.totals[device]})
		}
	}
	for _, l := range n.leases {
		n.arb.EndSession(n.now, l.session)
		n.arb.Gone(n.now, l.session, l.device)
	}
	n.leases = nil
	for _, j := range slices.Clone(n.jobs) {
		if j.run && !j.closed {
			n.closeJob(j)
		}
	}
	n.lost, n.unmanaged, n.stray = make([]bool, 2), make([]accounting.Bytes, 2), make([]strayUse, 2)
	for device := range n.totals {
		n.read(device)
	}
	s := n.arb.Snapshot(n.now)
	if len(s.Jobs)+len(s.Leases)+len(s.Processes) != 0 {
		n.t.Fatalf("left: %+v", s)
	}
	for _, d := range s.Devices {
		if d.Committed+d.Overhead+d.Granted != 0 || d.Capacity != d.Total {
			n.t.Fatalf("left: %+v", d)
		}
	}
}

// TestReservationRecallsBelowTheCapacity: a program has idle credit for the whole device, and then a program without the library takes a
// part of the device. A new reservation still gets its bytes: the arbiter recalls credit until the rest and the reservation fit together.
func TestReservationRecallsBelowTheCapacity(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 400)
	c := w.client(0, 0)
	c.must(400)
	for range 2 {
		w.now = w.now.Add(time.Second)
		w.arb.Observe(w.now, arbiter.Usage{Processes: []arbiter.ProcessUsage{{PID: c.process.PID, Bytes: 400}, {PID: 1, Bytes: 90}}})
	}
	c.free(400)
	if _, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(bob, "gpuarb"), Min: ptr(size(3)), OpenNow: true}); err != nil {
		t.Error(err)
	}
}

// bound opens the binding of the cgroup path inside the job around; 0: inside none.
func (w *world) bound(path string, around arbiter.JobID, max, min accounting.Bytes) arbiter.JobID {
	w.t.Helper()
	p := w.process(0, "gpuarb")
	p.Privileged, p.Cgroup = true, path
	info, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: p, Cgroup: path, Around: around, Max: ptr(size(max)), Min: ptr(size(min)), OpenNow: true})
	if err != nil {
		w.t.Fatal(err)
	}
	return info.ID
}

// TestInnerReservationKeepsItsContext: an outer and an inner reservation include one context together, which is for programs of the inner
// binding. A program of the outer binding gets a context only if there is more room.
func TestInnerReservationKeepsItsContext(t *testing.T) {
	w := newWorld(t, nestedPolicy(), 100+nestedContext+5)
	outer := w.bound("/a", 0, 100, 50)
	inner := w.bound("/a/b", outer, 100, 20)
	w.client(0, 0).must(55)
	if got := w.client(outer, 0).contexts(1); got.Granted {
		t.Error("a program got the context that the inner reservation includes")
	}
	if got := w.client(inner, 0).contexts(1); !got.Granted {
		t.Errorf("the inner reservation has no context: %+v", got)
	}
}

// TestInnerReservationRecalls: idle credit of a program in the outer binding makes room for an inner reservation.
func TestInnerReservationRecalls(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	outer := w.bound("/a", 0, 100, 0)
	c := w.client(outer, 0)
	c.must(80)
	c.free(60)
	w.bound("/a/b", outer, 100, 80)
}
