package arbiter

import (
	"cmp"
	"fmt"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// namedHolders is how many holders a message names; of the others it tells the number.
const namedHolders = 3

// maxCaller bounds the command at a sentence's beginning, in runes.
const maxCaller = 40

// name is how people know a process: "ffmpeg[1234]", or "train-a (ffmpeg[1234])" in a job with a
// name.
func (s *session) name() string {
	p := &s.process
	name := p.Exe
	if name == "" {
		name, _, _ = strings.Cut(p.Command, " ")
	}
	if name == "" {
		name = "process"
	}
	name = rules.Plain(path.Base(name)) + "[" + strconv.Itoa(p.PID) + "]"
	if job := s.job.request.Name; job != "" {
		return rules.Plain(job) + " (" + name + ")"
	}
	return name
}

// Caller is how a message that a program prints tells whom it is about, so that several in one
// log can be told apart: "train.py 3 (PID 1234)", or "train-a (train.py 3, PID 1234)".
func Caller(name, command string, pid int) string {
	first, rest, _ := strings.Cut(command, " ")
	command = rules.Cut(strings.TrimSpace(path.Base(first)+" "+rest), maxCaller)
	if name == "" {
		return fmt.Sprintf("%s (PID %d)", command, pid)
	}
	return fmt.Sprintf("%s (%s, PID %d)", rules.Plain(name), command, pid)
}

// CallerIn is that of a process in a job; 0: in none of `gpuarb run`.
func (a *Arbiter) CallerIn(id JobID, p rules.Process) string {
	name := ""
	if j := a.jobs[id]; j != nil {
		name = j.request.Name
	}
	return Caller(name, p.Command, p.PID)
}

// explain fills in who holds what at the limit that refused, and the line for people.
func (a *Arbiter) explain(l *lease, o *Outcome, r *accounting.Refusal, aside string) {
	gpu, asked := l.device.Index, o.Requested.Exact()
	switch o.Reason {
	case ReasonDeviceLost:
		o.Explain = lostRefusal(l.device).Explain
		return
	case ReasonStreams:
		o.Explain = fmt.Sprintf("no stream on GPU %d: asked %d, and %d of %d (streams.max) are in use; destroy some, or raise the limit",
			gpu, r.Requested, l.sum.Streams(), l.sum.StreamsMax())
		return
	case ReasonBusy, ReasonSlots:
		o.Explain = fmt.Sprintf("GPU %d: what %s asks for would have to wait: %s", gpu, l.session.name(),
			cmp.Or(aside, a.slotHolders(l.touched, l.device), "others come first"))
		return
	case ReasonTooLarge:
		whose := fmt.Sprintf("the device's %s", o.Limit.Human())
		if o.Limit < l.device.grantable() {
			whose = a.whose(l, l.limiter(), o.Limit)
		}
		o.Explain = fmt.Sprintf("out of memory on GPU %d: asked %s, more than %s could ever hold", gpu, asked, whose)
		return
	}
	o.Holders = a.holders(time.Time{}, l.device, a.below(r), r.Budget == nil)
	whose := fmt.Sprintf("the device's %s", o.Limit.Human())
	if r.Budget != nil {
		whose = a.whose(l, r.Budget, o.Limit)
	}
	o.Explain = fmt.Sprintf("out of memory on GPU %d: asked %s, %s left of %s", gpu, asked, o.Remaining.Exact(), whose)
	if aside != "" {
		o.Explain += ": " + aside
	}
	if o.Holders != "" {
		o.Explain += "; holds: " + o.Holders
	}
	if r.Budget == l.session.job.budget && l.crowdedOut(o) {
		o.Explain += "; its processes share this budget: with `gpuarb run --per-process` each has its own"
	}
}

// crowdedOut reports whether it is other processes of a lease's own job for which a request that
// the job's budget refuses has no room there.
func (l *lease) crowdedOut(o *Outcome) bool {
	j := l.session.job
	return j.run && l.sum.Granted().Plus(l.sum.Charged()).Plus(o.Requested) <= o.Limit &&
		slices.ContainsFunc(j.sessions, func(s *session) bool { return s != l.session && s.alive() && s.holds() })
}

// setAside says what is free at the limit that refuses a lease's bytes and is kept for those
// who wait in front, and for whom: "" where nothing is. What is left in the refusal is then what
// this one would have been granted.
func (a *Arbiter) setAside(now time.Time, t *ticket, why Reason, r *accounting.Refusal) string {
	if t.lease == nil || t.bytes == 0 || why != ReasonDeviceFull && why != ReasonSharedFull && why != ReasonBusy {
		return ""
	}
	d, sh := t.lease.device, t.job.shareAt(t.at())
	first, free := d.bytes.first, a.ledger.Left(nil, d.Index)
	switch {
	case sh != nil:
		first, free = sh.line(d).first, a.ledger.Left(sh.budget, d.Index)
	case t.fresh && !a.behind(now, &d.bytes, t):
		first = d.fresh.first
	}
	if t.at()&(atBytes|atBudgets) == 0 || free == 0 || first == nil || !a.behind(now, &line{first: first}, t) {
		return ""
	}
	r.Remaining = min(r.Remaining, a.beyond(now, t.lease, t.bytes))
	ahead := 0
	for _, other := range d.queue {
		if other != first && other != t && a.compare(now, other, t) < 0 {
			ahead++
		}
	}
	whom := first.name() + ", which"
	if ahead > 0 {
		whom = fmt.Sprintf("%s and %d more, the first of which", first.name(), ahead)
	}
	return fmt.Sprintf("%s are free, and set aside for %s has waited %s for %s", free.Human(), whom,
		brief(now.Sub(first.place.Since)), a.wants(first))
}

// limiter is the budget above the lease with the smallest memory.max.
func (l *lease) limiter() *accounting.Budget {
	least := l.sum.Budget()
	for b := range least.Chain() {
		if b.Limits(l.device.Index).Max < least.Limits(l.device.Index).Max {
			least = b
		}
	}
	return least
}

// whose names a budget above a lease: "the job's 1 GiB budget".
func (a *Arbiter) whose(l *lease, b *accounting.Budget, limit accounting.Bytes) string {
	j := l.session.job
	if sh := j.sharesBudget(b); sh != nil {
		return sh.named(l.device, limit)
	}
	switch {
	case b == l.session.budget || !j.run && b == j.budget:
		return fmt.Sprintf("the process's %s budget", limit.Human())
	}
	return fmt.Sprintf("the job's %s budget", limit.Human())
}

// memoryHolder is who holds memory of a device: a lease, a job for which it is reserved, or
// a program that is no client.
type memoryHolder struct {
	bytes     accounting.Bytes
	lease     *lease
	job       *job
	unmanaged *accounting.UnmanagedState
}

// text names a holder in a sentence, with what he holds; with a time, since when too. Only
// those few are asked for it that the sentence has room for.
func (h *memoryHolder) text(now time.Time) string {
	var user, name, what string
	var since time.Time
	switch {
	case h.lease != nil:
		user, name, since = h.lease.session.process.User, h.lease.session.name(), h.lease.opened
	case h.job != nil:
		user, name, what, since = h.job.request.Process.User, h.job.name(), " (reserved)", h.job.opened
	default:
		u := h.unmanaged
		user, name, what = u.User, unmanagedName(u), " (unmanaged)"
		since = u.Since
	}
	text := owned(user, name) + " " + h.bytes.Human() + what
	if !now.IsZero() && !since.IsZero() {
		text += " for " + brief(now.Sub(since))
	}
	return text
}

// holders names the processes that use most there, and where it is the device the jobs
// for which more is reserved than they use, and programs that are no clients. With a time
// it tells since when.
func (a *Arbiter) holders(now time.Time, d *device, leases iter.Seq[*lease], all bool) string {
	var top [namedHolders]memoryHolder
	count := 0
	insert := func(h memoryHolder) {
		if h.bytes > 0 {
			count++
		}
		for i := range top {
			if h.bytes > top[i].bytes {
				h, top[i] = top[i], h
			}
		}
	}
	for l := range leases {
		insert(memoryHolder{bytes: l.sum.Granted() - a.idle(l), lease: l})
	}
	if all {
		for j, left := range a.reserved(d) {
			insert(memoryHolder{bytes: left, job: j})
		}
		for i := range d.unmanagedBy {
			insert(memoryHolder{bytes: d.unmanagedBy[i].Bytes, unmanaged: &d.unmanagedBy[i]})
		}
	}
	var names []string
	for _, h := range top {
		if h.bytes == 0 {
			break
		}
		names = append(names, h.text(now))
	}
	return listed(names, count)
}

// listed joins the names of holders, and says how many more there are.
func listed(names []string, count int) string {
	text := strings.Join(names, ", ")
	if more := count - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// owned puts the user before the name of what is his: "ann's python3[42]". A user without a
// name is known by his number.
func owned(user, name string) string {
	if user == "" {
		return name
	}
	if _, err := strconv.ParseUint(user, 10, 32); err == nil {
		user = "user " + user
	}
	return rules.Plain(user) + "'s " + name
}

// reserved yields the jobs for which more of a device is reserved than they hold, and by
// how much, the oldest first.
func (a *Arbiter) reserved(d *device) iter.Seq2[*job, accounting.Bytes] {
	left := func(j *job) accounting.Bytes {
		sums := j.budget.Account(d.Index)
		return sums.Committed.Less(sums.Held)
	}
	var jobs []*job
	if sums := a.ledger.Device(d.Index); sums.Committed > sums.Held { // else nobody has anything reserved
		for _, j := range a.jobs {
			if left(j) > 0 {
				jobs = append(jobs, j)
			}
		}
	}
	slices.SortFunc(jobs, func(x, y *job) int { return cmp.Compare(x.id, y.id) })
	return func(yield func(*job, accounting.Bytes) bool) {
		for _, j := range jobs {
			if !yield(j, left(j)) {
				return
			}
		}
	}
}

// minRefused makes the error of a memory.min that has no room.
func (a *Arbiter) minRefused(r *accounting.Refusal, j *job, reason Reason) *Refusal {
	where := fmt.Sprintf("GPU %d's %s", r.Device, r.Limit.Human())
	if d := a.device(r.Device); d != nil && reason == ReasonTooLarge {
		return &Refusal{Reason: reason, Requested: r.Requested, Remaining: r.Remaining, Limit: r.Limit, Explain: d.tooMuch(r.Requested)}
	}
	switch {
	case r.Budget == nil:
	case j.sharesBudget(r.Budget) != nil:
		where = j.sharesBudget(r.Budget).named(a.device(r.Device), r.Limit)
	default:
		where = fmt.Sprintf("the job's %s budget", r.Limit.Human())
	}
	held := ""
	if d := a.device(r.Device); d != nil {
		held = a.holders(time.Time{}, d, a.below(r), r.Budget == nil)
	}
	if held != "" {
		where += "; holds: " + held
	}
	context := ""
	if d := a.device(r.Device); d != nil && r.Budget == nil && d.headroomCost() > 0 {
		context = fmt.Sprintf(" beside a context (%s)", d.headroomCost().Human())
	}
	return &Refusal{Reason: reason, Requested: r.Requested, Remaining: r.Remaining, Limit: r.Limit,
		Explain: fmt.Sprintf("memory.min of %s on GPU %d cannot be reserved: %s could be%s, of %s; ask for less, or wait until others are done",
			r.Requested.Human(), r.Device, r.Remaining.Human(), context, where)}
}

func noSession(id SessionID) error { return fmt.Errorf("session %d: %w", id, ErrNoSession) }
func noDevice(index int) error     { return fmt.Errorf("GPU %d: %w", index, ErrNoDevice) }
