package arbiter_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file compares the suspension of jobs with a naive model in random sequences. Servers allocate, free, end, and are suspended and
// resumed. Their hooks move all the memory, a part of it or none, and report success or failure independently of that. The model counts
// what each server has of the card, as a driver would, and has the state of each server. From these it finds the jobs that must be asked
// for room. It has no ledger. It takes the order of the waiting requests from the arbiter's snapshot.

// Sizes of the model. The servers are few and large, so that most requests do not fit.
const (
	suspendSequences = 1000
	suspendSteps     = 50
	suspendServers   = 6
	card             = 8 * gib
)

// server is a program with one job, and the part of the card that it has.
type server struct {
	*client
	job      arbiter.JobID
	priority int
	used     accounting.Bytes // by the driver's count
	limit    accounting.Bytes // its own memory.max
	last     time.Time        // when it last used the card
	dead     bool             // it has ended, and the driver has not freed its memory

	waits  arbiter.TicketID // its waiting request; 0: none
	wants  accounting.Bytes // bytes of that request
	since  time.Time        // when the request was made
	asks   bool             // its return waits in the queue
	asked  time.Time        // when it asked to return
	state  arbiter.Residence
	had    accounting.Bytes // bytes that it had when it was last asked to give them back; 0: it has returned
	errand arbiter.Errand   // the errand that its hook carries out; ID 0: none
	failed bool             // its last hook failed
	ended  time.Time        // when its last hook ended; zero: the hook runs
	back   time.Time        // when it last returned
	misses int              // number of times in a row that it gave nothing back
	until  time.Time        // it is not asked for room before this time
}

// suspendWorld is a card with servers.
type suspendWorld struct {
	*world
	*rand.Rand
	sequence int
	servers  []*server
	toRoom   bool // evict.return is "room": suspended servers return when there is room; false: it is "never"
	seen     *suspendCounts
}

// TestSuspendModel: in a thousand random sequences, the arbiter asks the same jobs for room as the naive model. A job that returns never
// finds the card full. After each step the arbiter has the same figures as the driver.
func TestSuspendModel(t *testing.T) {
	var seen suspendCounts
	for sequence := range suspendSequences {
		p := evicting()
		p.Defaults.Evict.Return = rules.ReturnNever
		p.Rules = []rules.Rule{{Match: rules.Match{User: "eve"}, Priority: ptr(1)}, {Match: rules.Match{User: "ann"}, Priority: ptr(-1)}}
		r := rand.New(rand.NewPCG(uint64(sequence), 38))
		toRoom := r.IntN(2) == 0
		if toRoom {
			p.Defaults.Evict.Return = rules.ReturnOnRoom
		}
		w := &suspendWorld{world: newWorld(t, p, card), Rand: r, sequence: sequence, toRoom: toRoom, seen: &seen}
		for range suspendSteps {
			w.step()
			w.check()
		}
		if t.Failed() {
			return
		}
	}
	if seen.asked < 250 || seen.returns < 150 || seen.sets < 10 || seen.stuck < 8 || seen.lies < 150 {
		t.Errorf("the sequences are too tame: %+v", seen)
	}
}

// suspendCounts counts events in all sequences. The test fails if there are too few.
type suspendCounts struct {
	asked, sets, returns, stuck, lies int // sets: several jobs were asked at once; lies: hooks that freed nothing
}

// step does something at random.
func (w *suspendWorld) step() {
	switch n := w.IntN(100); {
	case len(w.servers) == 0 || n < 8 && len(w.servers) < suspendServers:
		w.begin()
	case n < 25:
		w.allocate(w.any())
	case n < 31:
		w.free(w.any(), 1+accounting.Bytes(w.Uint64N(uint64(card))))
	case n < 56:
		w.hook()
	case n < 60:
		w.suspend(w.any())
	case n < 66:
		w.resume(w.any())
	case n < 68:
		w.limit(w.any())
	case n < 70:
		w.kill(w.any())
	case n < 71 && w.IntN(4) == 0:
		w.lose()
	default:
		for range 1 + w.IntN(14) {
			w.second()
		}
	}
	w.drain()
}

func (w *suspendWorld) any() *server { return w.servers[w.IntN(len(w.servers))] }

// fail ends the test with the number of the sequence.
func (w *suspendWorld) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("sequence %d, after %v: "+format, append([]any{w.sequence, w.now.Sub(start)}, args...)...)
}

// begin starts a server.
func (w *suspendWorld) begin() {
	uid := []uint32{bob, bob, eve, ann}[w.IntN(4)]
	s := &server{client: w.clientOf(w.process(uid, "server"), 0, 0), limit: card, last: w.now, priority: map[uint32]int{eve: 1, ann: -1}[uid]}
	s.job = s.jobOf()
	w.servers = append(w.servers, s)
}

// grant counts memory that a server was granted. The test fails if the card does not have that much.
func (w *suspendWorld) grant(s *server, n accounting.Bytes) {
	s.used, s.last = s.used+n, w.now
	if used := w.used(); used > card {
		w.fail("job %d was granted %d bytes, and the driver has no room: %d", s.job, n, used-card)
	}
}

// used returns the bytes that all servers have of the card.
func (w *suspendWorld) used() (all accounting.Bytes) {
	for _, s := range w.servers {
		all += s.used
	}
	return all
}

// kept returns the bytes that are reserved for a server that returns, and that it has not taken yet.
func (s *server) kept() accounting.Bytes {
	if s.dead || s.state != arbiter.Resuming && s.state != arbiter.Stuck {
		return 0
	}
	return min(s.had, s.limit).Less(s.used)
}

// room returns how much of the card is neither in use nor promised.
func (w *suspendWorld) room() accounting.Bytes {
	left := accounting.Bytes(card)
	for _, s := range w.servers {
		left = left.Less(s.used).Less(s.kept())
	}
	return left
}

// allocate lets a server ask for memory. A server that returns gets what is reserved for it at once.
func (w *suspendWorld) allocate(s *server) {
	if s.dead || s.waits != 0 {
		return
	}
	n := 1 + accounting.Bytes(w.Uint64N(uint64(card)>>w.IntN(4)))
	if k := s.kept(); k > 0 {
		n = 1 + accounting.Bytes(w.Uint64N(uint64(k)))
	}
	inside := n <= s.kept()
	s.word.called = true
	o := s.alloc(n)
	switch s.last = w.now; {
	case o.Granted:
		w.grant(s, n)
	case inside:
		w.fail("job %d returns, and meets a full card: %d bytes of %d, %+v", s.job, n, s.kept(), o)
	case o.Waiting != 0:
		s.waits, s.wants, s.since = o.Waiting, n, w.now
	}
}

// free lets a server free at most n bytes.
func (w *suspendWorld) free(s *server, n accounting.Bytes) {
	if n = min(n, s.used); s.dead || n == 0 {
		return
	}
	s.used, s.last, s.word.called = s.used-n, w.now, true
	s.client.free(n)
}

// hook lets a running hook move memory of its server, and end. If no hook runs, six seconds pass.
func (w *suspendWorld) hook() {
	i := slices.IndexFunc(w.servers, func(s *server) bool { return s.errand.ID != 0 })
	if i < 0 { // no hook runs
		for range 6 {
			w.second()
		}
		return
	}
	s := w.servers[i]
	failure, e := []string{"", "", "", "exit status 1"}[w.IntN(4)], s.errand
	switch how := w.IntN(6); {
	case s.dead: // the server ended while its hook ran
	case e.Resume && how > 1: // the server takes everything, in several allocations
		for s.kept() > 0 && s.waits == 0 {
			w.allocate(s)
		}
	case e.Resume && how == 1 && s.kept() > 0 && s.waits == 0:
		w.allocate(s)
	case !e.Resume && how > 2:
		w.free(s, card)
	case !e.Resume && how > 1:
		w.free(s, s.used/2)
	case !e.Resume:
		w.seen.lies++
	}
	w.drain() // what the server freed may have served its own waiting request
	s.errand, s.failed, s.ended = arbiter.Errand{}, failure != "", w.now
	if !s.dead {
		w.settle(s, false)
	}
	if s.state == arbiter.Stuck {
		w.seen.stuck++
	}
	w.arb.ErrandDone(w.now, e.ID, failure)
}

// settle changes the state of a server in the model, by what it has and how its hook ended. Waiting times count only with later: the clock
// has moved.
func (w *suspendWorld) settle(s *server, later bool) {
	waited := func(d time.Duration) bool { return later && !w.now.Before(s.ended.Add(d)) }
	back := func(at time.Time) { s.state, s.had, s.back, s.asks = arbiter.Resident, 0, at, false }
	switch ended := !s.ended.IsZero(); s.state {
	case arbiter.Suspending:
		switch {
		case !ended:
		case s.used == 0, s.used < s.had && waited(2*time.Second):
			s.state, s.misses = arbiter.Suspended, 0
		case waited(2 * time.Second):
			wait := min(30*time.Second<<s.misses, time.Hour)
			s.state, s.misses, s.until = arbiter.Resident, s.misses+1, w.now.Add(wait)
		}
	case arbiter.Suspended:
		if s.used >= s.had {
			back(w.now)
		}
	case arbiter.Resuming, arbiter.Stuck:
		switch {
		case !ended:
		case s.used >= min(s.had, s.limit):
			back(w.now)
		case s.failed:
			s.state = arbiter.Stuck
		case waited(time.Minute):
			back(s.ended)
		}
	}
}

// suspend lets a user suspend a server. The call must succeed exactly if the model allows it.
func (w *suspendWorld) suspend(s *server) {
	can := !s.dead && (s.state == arbiter.Resident && s.used > 0 || s.state == arbiter.Stuck)
	if err := w.arb.Suspend(w.now, s.job, nil); (err == nil) != can {
		w.fail("suspending job %d, which is %q and has %d: %v", s.job, s.state, s.used, err)
	}
	if can {
		w.leaves(s)
	}
	w.errands()
}

// leaves notes that a server is asked to give its memory back.
func (w *suspendWorld) leaves(s *server) {
	if s.state == arbiter.Resident {
		s.had = s.used
	}
	s.state, s.ended, s.failed = arbiter.Suspending, time.Time{}, false
}

// resume lets a user resume a server. The call must succeed exactly if the model allows it.
func (w *suspendWorld) resume(s *server) {
	can := !s.dead && (s.state == arbiter.Suspended || s.state == arbiter.Stuck)
	if err := w.arb.Resume(w.now, s.job, nil); (err == nil) != can {
		w.fail("resuming job %d, which is %q: %v", s.job, s.state, err)
	}
	if can && s.state == arbiter.Suspended && !s.asks {
		s.asks, s.asked = true, w.now
	}
	w.errands()
}

// errands takes all new errands. It gives them to the hooks of the servers, and returns the jobs that are asked to give memory back. No
// server may have two hooks at once.
func (w *suspendWorld) errands() (asked []arbiter.JobID) {
	for _, e := range w.arb.Errands() {
		i := slices.IndexFunc(w.servers, func(s *server) bool { return s.job == e.Job && !s.dead })
		if i < 0 {
			w.fail("job %d is asked for something, and has ended", e.Job)
		}
		s := w.servers[i]
		if s.errand.ID != 0 {
			w.fail("two hooks at once for job %d", e.Job)
		}
		if s.errand = e; !e.Resume {
			asked = append(asked, e.Job)
			continue
		}
		w.seen.returns++
		s.state, s.ended, s.failed, s.asks = arbiter.Resuming, time.Time{}, false, false
	}
	return asked
}

// limit sets or removes a server's own limit.
func (w *suspendWorld) limit(s *server) {
	if s.dead || s.kept() > 0 {
		return
	}
	s.limit = card
	if w.IntN(3) > 0 {
		s.limit = gib + accounting.Bytes(w.Uint64N(uint64(card-gib)))
	}
	if err := w.arb.SetProcessLimits(w.now, rules.Change{Device: 0, Max: ptr(size(s.limit))}, s.session); err != nil {
		w.fail("%v", err)
	}
	w.errands()
}

// kill ends a server. The first call leaves its memory with the driver, and the second one lets the driver free it.
func (w *suspendWorld) kill(s *server) {
	if s.dead {
		w.gone(s)
		return
	}
	s.dead, s.waits, s.asks, s.state = true, 0, false, arbiter.Resident
	w.arb.EndSession(w.now, s.session)
	w.errands()
}

// gone notes that the driver has freed what an ended server had.
func (w *suspendWorld) gone(s *server) {
	s.used = 0
	w.arb.Gone(w.now, s.session, 0)
	if s.errand.ID != 0 {
		w.arb.ErrandDone(w.now, s.errand.ID, "")
	}
	w.servers = slices.DeleteFunc(w.servers, func(x *server) bool { return x == s })
	w.errands()
}

// lose takes the card away with all that was on it, and puts it back empty. The servers end.
func (w *suspendWorld) lose() {
	for _, s := range w.servers {
		s.used, s.had = 0, 0
	}
	w.arb.LoseDevice(w.now, 0)
	w.drain()
	for _, s := range slices.Clone(w.servers) {
		w.kill(s)
		w.gone(s)
	}
	w.arb.AddDevice(w.now, rules.Device{Index: 0, Vendor: "nvidia", Name: "Test", Total: card})
}

// drain takes the decisions on waiting requests, and the errands.
func (w *suspendWorld) drain() {
	w.decisions()
	w.errands()
}

// decisions takes the decisions on waiting requests.
func (w *suspendWorld) decisions() {
	for _, d := range w.arb.Decisions() {
		for _, s := range w.servers {
			if d.Notice == nil && d.Ticket == s.waits && s.waits != 0 {
				if s.waits = 0; d.Granted {
					w.grant(s, s.wants)
				}
			}
		}
	}
}

// second lets a second pass, and compares the jobs that are asked for room with the result of victims.
func (w *suspendWorld) second() {
	w.now = w.now.Add(time.Second)
	w.arb.SnapshotOfLeases(w.now) // the arbiter notes the clients' calls
	for _, s := range w.servers {
		if !s.dead {
			w.settle(s, true)
		}
	}
	w.arb.Tick(w.now)
	asked := w.errands()
	w.decisions()
	want := w.victims()
	if slices.Sort(asked); !slices.Equal(asked, want) {
		w.fail("asked are jobs %v, and the model says %v", asked, want)
	}
	w.seen.asked += len(asked)
	if len(asked) > 1 {
		w.seen.sets++
	}
	for _, s := range w.servers {
		if slices.Contains(asked, s.job) {
			w.leaves(s)
		}
	}
	w.checkRoom()
	w.check()
}

// victims returns the jobs that must be asked for room now, for the first request in the queue. It adds idle servers, the least recently
// used first, until what they have suffices. Then it removes each server without which the others suffice as well.
func (w *suspendWorld) victims() (jobs []arbiter.JobID) {
	queue := w.queue()
	if len(queue) == 0 || slices.ContainsFunc(w.servers, func(s *server) bool { return !s.dead && s.state == arbiter.Suspending }) {
		return nil
	}
	head, lacks := w.head(queue[0])
	if head == nil {
		return nil
	}
	var idle []*server
	for _, s := range w.servers {
		if !s.dead && s != head && s.state == arbiter.Resident && s.waits == 0 && s.used > 0 && s.priority <= head.priority &&
			w.now.Sub(s.last) >= 10*time.Second && !w.now.Before(s.until) && (s.back.IsZero() || w.now.Sub(s.back) >= time.Minute) {
			idle = append(idle, s)
		}
	}
	slices.SortStableFunc(idle, func(x, y *server) int { return x.last.Compare(y.last) })
	var chosen []*server
	sum := func() (all accounting.Bytes) {
		for _, s := range chosen {
			all += s.used
		}
		return all
	}
	for _, s := range idle {
		if sum() < lacks {
			chosen = append(chosen, s)
		}
	}
	if sum() < lacks {
		return nil
	}
	for i := len(chosen) - 1; i >= 0; i-- {
		if sum()-chosen[i].used >= lacks {
			chosen = slices.Delete(chosen, i, i+1)
		}
	}
	for _, s := range chosen {
		jobs = append(jobs, s.job)
	}
	slices.Sort(jobs)
	return jobs
}

// waiting reports whether a request or a return waits.
func (w *suspendWorld) waiting() bool {
	return slices.ContainsFunc(w.servers, func(s *server) bool { return s.waits != 0 || s.asks })
}

// queue returns the waiting requests, in the order of the arbiter's queue.
func (w *suspendWorld) queue() []figures.TicketState {
	if !w.waiting() {
		return nil
	}
	return w.arb.Snapshot(w.now).Queue
}

// head returns the server whose request is the first in the queue, and what it lacks; nil: it has not waited for long enough.
func (w *suspendWorld) head(first figures.TicketState) (*server, accounting.Bytes) {
	for _, s := range w.servers {
		if s.dead || uint64(s.job) != first.Job {
			continue
		}
		since, wants := s.since, s.wants
		if first.Returns {
			since, wants = s.asked, min(s.had, s.limit).Less(s.used)
		}
		if w.now.Sub(since) < 5*time.Second {
			return nil, 0
		}
		return s, wants.Less(w.room() + s.kept())
	}
	w.fail("no server has made the first request %+v", first)
	return nil, 0
}

// checkRoom checks, if servers return when there is room, that no server stays suspended although what it had fits and no request waits.
func (w *suspendWorld) checkRoom() {
	if !w.toRoom || w.waiting() {
		return
	}
	for _, s := range w.servers {
		if want := min(s.had, s.limit).Less(s.used); !s.dead && s.state == arbiter.Suspended && want <= w.room() {
			w.fail("job %d stays suspended: it needs %d of %d", s.job, want, w.room())
		}
	}
}

// check compares the arbiter with the driver's counts and with the model's states.
func (w *suspendWorld) check() {
	rows := w.arb.SnapshotOfLeases(w.now).Leases
	promised := w.used()
	for _, s := range w.servers {
		i := slices.IndexFunc(rows, func(r figures.LeaseState) bool { return r.PID == s.process.PID })
		if i < 0 || rows[i].Used != s.used {
			w.fail("the driver counts %d bytes for job %d, and the arbiter has %+v", s.used, s.job, rows)
		}
		if r := w.residence(s.job); !s.dead && r != s.state {
			w.fail("job %d is %q, and the model says %q", s.job, r, s.state)
		}
		promised += s.kept()
	}
	if len(rows) != len(w.servers) || promised > card {
		w.fail("%d leases of %d servers, and %d bytes are promised", len(rows), len(w.servers), promised)
	}
}
