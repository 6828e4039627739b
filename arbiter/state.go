package arbiter

import (
	"cmp"
	"fmt"
	"iter"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/reading"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/threads"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/figures"
)

// device is one GPU and what is known of it.
type device struct {
	rules.Device
	rule  rules.DeviceRule
	found accounting.Bytes // Total as it was found; the configuration may say otherwise

	totalFrom accounting.TotalFrom
	direct    accounting.Lease // stands for what is charged to the device alone
	lost      bool
	hung      bool // it does not answer
	policy    *rules.Policy
	peak      peak

	unmanaged   accounting.Bytes
	unmanagedBy []figures.UnmanagedState
	figures     map[int]ProcessUsage // the last reading, by PID
	began       time.Time            // when that began; zero: never read

	permits  permit.Sets[*job, *session, *holder]
	live     *rules.Limits // its rows of the table of live limits; nil: none
	contexts reading.Costs
	unnamed  bool // its readings name no process

	waiting int                 // requests that wait and may be served there
	entry   [permit.Count]limit // of permits of each kind
	wish    limit               // of the slots that programs wish for
	bytes   limit               // of the device's bytes

	gauge    gauge               // of its pressure
	aparts   map[*lease]struct{} // leases of which some memory is away from the device
	byPID    map[int][]*lease    // leases by their process, draining ones too
	admitted uint64
	denied   uint64
	atMax    uint64
}

// grantable is the most that could ever be granted there, in bytes.
func (d *device) grantable() accounting.Bytes { return d.Total.Less(d.reserve()) }

// reserve is what is never granted to anybody.
func (d *device) reserve() accounting.Bytes { return min(d.rule.Reserve.Of(d.Total), d.Total) }

// shared is a budget that jobs share: of a rule whose scope is "user", "cgroup" or "rule"; or, whatever rules they
// are under, what one user may hold with all of his programs, or what runs in a cgroup.
type shared struct {
	key    sharedKey
	limit  *rules.Limits // what somebody set for a user, or a cgroup; nil: a rule's budget
	rule   rules.Terms
	who    string // "user bob", "cgroup /a.slice", "rule students"
	budget *accounting.Budget
	at     map[*device]*limit // at which requests wait for its bytes
}

// ofCgroup reports whether it is the budget of all programs in a cgroup, which counts its processes and not their jobs.
func (s *shared) ofCgroup() bool { return s.limit != nil && s.limit.Of.Kind == rules.OfCgroup }

// sharedKey says whose budget it is, and by which rule; so it survives a
// reload that only moves the rule.
type sharedKey struct {
	scope  rules.Scope // "": under a cap, and by no rule
	rule   rules.Key
	uid    uint32
	cgroup string
}

// named is the budget in a sentence, with its limit on a device: "user bob's 1 GiB budget".
func (s *shared) named(d *device, limit accounting.Bytes) string {
	if s.limit != nil {
		return fmt.Sprintf(wording.SetLimit, limit.Human(), cmp.Or(s.memory(d).MaxBy, "somebody"), s.who)
	}
	if s.key.scope == rules.ScopeRule {
		return fmt.Sprintf(wording.SharedLimit, limit.Human(), s.who)
	}
	return fmt.Sprintf(wording.BudgetLimit, s.who, limit.Human())
}

// called is the budget in a sentence: "user bob's budget".
func (s *shared) called() string {
	if s.key.scope == rules.ScopeRule {
		return fmt.Sprintf(wording.SharedBudget, s.who)
	}
	return fmt.Sprintf(wording.Budget, s.who)
}

// job is what one `gpuarb run` started, or one bare process.
type job struct {
	rules.Job
	id      JobID
	request JobRequest
	run     bool
	closed  bool // its runner is gone (always so for a bare process)
	ended   bool // and so are all its processes: nothing is reserved for it any more

	commandEnded bool   // the program that it was started for has ended, and others of the job go on
	livesBy      string // one of those others that has no session: "ssh-agent[4711]"; "": none is known

	shared    *shared // by its rule; nil: none
	cap       *shared // what its user may hold in all; nil: no limit
	budget    *accounting.Budget
	sessions  []*session // ended ones too, while they drain
	used      []*jobUse  // one for each device used
	opened    time.Time
	on        []*device // those that it may use; nil: all
	pending   bool      // its reservation is not made yet: it waits for its start, or its session was restored without
	released  bool      // by ReleaseJob: it holds nothing beyond its processes
	slots     int       // that it and its processes hold on all devices: asked of each that waits, each time that one is served
	tickets   []*ticket // that wait, its processes' too
	cancelled time.Time // when its requests were last cancelled together; zero: never
	tally     tally
	person    *person   // whose it is
	gauge     gauge     // of its pressure
	moved     time.Time // when something of it last asked or freed
	denial    string    // the last of its requests that was refused, and why; "": none was
	denied    time.Time // when
	gaveBack  bool      // it is of a copy, and holds nothing there any more
	still     bool      // it is of a copy, and stood still when that was made
}

// tally counts what became of a job's requests, those of processes that have ended included.
type tally struct {
	waits, refused uint64
	waited         time.Duration
	since          time.Time // when counting began, where that was after the job did
	unknown        []string  // UUIDs of devices that processes of the job use and the daemon does not know, up to mostUnknown
	besides        []Beside  // processes of the job that used a device past the library, up to mostBeside
	more           int       // such processes beyond those
}

// shares yields the budgets that all of a job shares with others, the narrower one first.
func (j *job) shares(yield func(*shared) bool) {
	if j.cap != nil && !yield(j.cap) || j.shared == nil {
		return
	}
	yield(j.shared)
}

// sharedOf is the budget that jobs share of which b is the part in the ledger; nil: it is not one of those, or none.
func sharedOf(b *accounting.Budget) *shared {
	if b == nil {
		return nil
	}
	s, _ := b.Owner.(*shared)
	return s
}

// budgetOf is the part in the ledger of a budget that jobs share; nil: of none.
func budgetOf(s *shared) *accounting.Budget {
	if s == nil {
		return nil
	}
	return s.budget
}

// session is one client process.
type session struct {
	rules.Client
	id      SessionID
	process rules.Process
	job     *job
	cgroups []*shared // the limits of the cgroups around it, the narrower ones first
	budget  *accounting.Budget
	leases  []*lease
	opened  time.Time
	ended   time.Time // zero: it lives
	refused bool      // its first refusal was reported

	onFull    rules.OnFull // its own wishes
	slots     int
	slotScope rules.Scope
	reserve   *accounting.Bytes // for each stream
	threads   int               // that ever made an intercepted call; 0: not known
	waits     map[uint32]int    // requests that wait, by the thread whose they are
	pending   bool              // its reservation is not made yet: it waits for its start, or was restored without
}

// shares yields the budgets that a process shares with others, the narrower ones first.
func (s *session) shares(yield func(*shared) bool) {
	for _, c := range s.cgroups {
		if !yield(c) {
			return
		}
	}
	s.job.shares(yield)
}

// among reports whether a budget is one of those that somebody shares.
func among(shares iter.Seq[*shared], of *shared) bool {
	for sh := range shares {
		if sh == of {
			return true
		}
	}
	return false
}

// alive reports that the session's process is not known to be dead.
func (s *session) alive() bool { return s.ended.IsZero() }

// lease is what a session holds on a device: in the ledger, and what else is known of it.
type lease struct {
	accounting.Lease
	id         LeaseID
	word       Word
	session    *session
	device     *device
	opened     time.Time
	closed     bool // the flags that its word shows
	apart      bool // its word shows that some of what it holds is away from the device
	lost       bool
	unverified bool
	spoiled    bool             // its word was clamped: not believed any more
	notify     bool             // a free reports itself, too
	scope      rules.Scope      // of its slots
	slot       *holder          // nil: none, or its threads'
	makers     threads.Set      // where slots are threads'
	bursts     map[uint32]burst // of refusals, by thread
	contexts   int
	holds      int              // on shared contexts
	lent       bool             // its client counts its streams: lend.go
	lentMost   int              // no more than it may have, whatever its word says
	waits      int              // tickets of it that wait
	peak       accounting.Bytes // most bytes used at once
	seen       accounting.Bytes // bytes used when last looked at
	beyond     reading.Beyond   // what it takes of its device beyond its bytes
	announced  bool             // the event about its excess was sent
	told       accounting.Bytes // what it had when that was last told
	touched    time.Time        // when it last asked for something, or ceased to be active
	admitted   uint64
	denied     uint64
	atMax      uint64
}

// peak is the most used at once of a job or a device. seen is the sum of what its
// leases used when each was last looked at.
type peak struct {
	seen, most accounting.Bytes
}

// update takes the place of what a lease was seen to use (was) by what it uses
// now; in between it used as much as high.
func (p *peak) update(was, now, high accounting.Bytes) {
	p.most = max(p.most, p.seen-was+high)
	p.seen += now - was
}

// jobUse is what a job has had of one device.
type jobUse struct {
	peak
	device *device
}

// useOf returns the job's use of a device.
func (j *job) useOf(d *device) *jobUse {
	for _, u := range j.used {
		if u.device == d {
			return u
		}
	}
	u := &jobUse{device: d}
	j.used = append(j.used, u)
	return u
}

// maxInForce is memory.max as its client is told it: never more than the
// device can grant.
func (l *lease) maxInForce() accounting.Bytes { return min(l.Max(), l.device.grantable()) }

// free is the part of a lease's cost that the capacity lacks: what is not
// charged to its budget.
func (l *lease) free() accounting.Bytes { return l.beyond.Cost().Less(l.Charged()) }

// idle returns the bytes of a lease's word that may be called back or counted
// as unused. What a spoiled word says is worth nothing.
func (a *Arbiter) idle(l *lease) accounting.Bytes {
	granted := l.Granted()
	if l.spoiled || l.lost || !l.session.alive() || granted == 0 {
		return 0
	}
	credit := min(l.word.Credit(granted), granted)
	if l.spoiled { // found out by this very look
		return 0
	}
	return credit
}

// take calls back up to most idle bytes of a lease into the ledger, with the peaks up to date before and after, and
// returns how many.
func (a *Arbiter) take(l *lease, most accounting.Bytes) accounting.Bytes {
	a.look(l)
	granted := l.Granted()
	if most == 0 || l.spoiled || l.lost || granted == 0 {
		return 0
	}
	away := l.Away()
	a.keepMark(l)
	got := l.Release(accounting.Memory, min(l.word.Take(granted, most), most, granted))
	if l.apart {
		// Release took bytes that are away first. As far as the client still says that it has managed memory, it has freed
		// other memory, and what was away is so still.
		l.SetAway(max(l.Away(), min(away, l.word.Told().Managed)))
		a.noteAway(l)
	}
	a.look(l)
	return got
}

// keepMark notes the most bytes that a lease has used at once since its word was last changed. A change of the word restarts its
// low-water mark; if the device is being read at that moment, its figure may still show bytes that were freed since.
func (a *Arbiter) keepMark(l *lease) {
	if granted := l.Granted(); granted > 0 && l.session.alive() && !l.lost && !l.spoiled {
		l.beyond.Used(min(l.word.Recent(granted), granted))
	}
}

// look brings the peaks up to date with what a lease uses, and returns that.
func (a *Arbiter) look(l *lease) accounting.Bytes {
	granted := l.Granted()
	used := granted - a.idle(l)
	high := used
	if l.session.alive() && !l.lost && !l.spoiled && granted > 0 {
		if p := l.word.Peak(granted); p > l.peak {
			high = max(high, p)
		}
	}
	l.peak = max(l.peak, high)
	l.device.peak.update(l.seen, used, high)
	l.session.job.useOf(l.device).update(l.seen, used, high)
	l.seen = used
	l.beyond.Used(used)
	return used
}
