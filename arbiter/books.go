package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/reading"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/threads"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file has the books of the arbiter as data: devices, the budgets that jobs share, jobs, sessions, leases, the holders of permits, the limits
// of devices, and the requests that wait there. These types know each other in a circle, so that they lie in one file. Every other file of the
// package uses only files that come before it in the list of doc.go.

// Arbiter is the state of one machine. Make one with New. Not safe for
// concurrent use.
type Arbiter struct {
	policy   rules.Policy
	ledger   *accounting.Ledger
	devices  []*device // by index
	shareds  map[sharedKey]*shared
	limits   rules.Table // limits that were changed live, of whatever has any
	users    users
	jobs     map[JobID]*job
	sessions map[SessionID]*session
	leases   map[LeaseID]*lease

	tickets       map[TicketID]*ticket // requests that wait
	queue         []*ticket            // these, in the order in which they are served
	sorted        time.Time            // when queue was last brought into order
	decisions     []Result             // since Decisions was called last
	asking        *ticket              // the request that the running call decides
	cycling       bool                 // cycle runs
	cycleNeeded   bool                 // since the last cycle something has changed by which a waiting request may be decided
	cycleAt       time.Time            // when a cycle is to be run for frees that were reported; zero: not by itself
	looseSearchAt time.Time            // when the next loose search for a deadlock is due (deadlock.go); zero: never
	searchNeeded  bool                 // something has changed since the last search without the lock began
	suspected     bool                 // a strict search without the lock is due
	searching     bool                 // a search without the lock is being made
	undo          []func()             // of a copy of the books: what a try takes back at its end

	searchAgain    time.Time // when the next search without the lock may begin
	searchedStrict bool      // the last search without the lock was strict
	noticesDue     bool      // something has changed for requests that wait
	noticedAt      time.Time
	arrival        uint64 // number of the last request that arrived; it counts on over restarts of the daemon
	lastTicket     TicketID

	ticketsOf    map[uint32]int // by user
	ticketsOfPID map[int]int    // by process

	threads   int            // of leases whose slots are threads', all together
	threadsOf map[uint32]int // and by user

	underPressure []*gauge // where requests waited for bytes when pressures were measured last

	overs    map[account]bool // budgets that hold more than their limit; true: announced
	draining []*session       // ended, their memory not yet back
	waits    waitCounts
	refusals reasonCounts
	events   []Event // since Events was called last
	stats    figures.Stats

	lastJob     JobID
	lastSession SessionID
	lastLease   LeaseID
}

// account is a budget on a device.
type account struct {
	budget *accounting.Budget
	device int
}

// New returns an arbiter without devices.
func New(policy rules.Policy) *Arbiter {
	a := &Arbiter{
		limits: make(rules.Table), ledger: accounting.NewLedger(),
		shareds:  make(map[sharedKey]*shared),
		users:    users{byUID: make(map[uint32]*user)},
		jobs:     make(map[JobID]*job),
		sessions: make(map[SessionID]*session),
		leases:   make(map[LeaseID]*lease),
		tickets:  make(map[TicketID]*ticket),
		overs:    make(map[account]bool), threadsOf: make(map[uint32]int),
		ticketsOf: make(map[uint32]int), ticketsOfPID: make(map[int]int),
	}
	a.ledger.Freed = a.changed
	a.policy = policy.InForce(a.limits)
	return a
}

// changed notes that a waiting request can perhaps be decided now, or that a deadlock may have formed. The next cycle then judges all
// waiting requests.
func (a *Arbiter) changed() { a.cycleNeeded, a.searchNeeded = true, true }

// device is one GPU and what is known of it.
type device struct {
	rules.Device
	rule     rules.DeviceRule
	detected accounting.Bytes // Total as it was found; the configuration may say otherwise

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

	waiting      int                 // requests that wait and may be served there
	permitLimits [permit.Count]limit // of permits of each kind
	ownSlotLimit limit               // of the slots that programs wish for
	bytes        limit               // of the device's bytes

	gauge      gauge               // of its pressure
	leasesAway map[*lease]struct{} // leases of which some memory is away from the device
	byPID      map[int][]*lease    // leases by their process, draining ones too
	admitted   uint64
	denied     uint64
	atMax      uint64
}

// shared is a budget that jobs share: of a rule whose scope is "user", "cgroup" or "rule"; or, whatever rules they
// are under, what one user may hold with all of his programs, or what runs in a cgroup.
type shared struct {
	key    sharedKey
	limit  *rules.Limits // what somebody set for a user, or a cgroup; nil: a rule's budget
	rule   *rules.Terms  // nil: the budget is the cap of a user or a cgroup
	who    string        // "user bob", "cgroup /a.slice", "rule students"
	budget *accounting.Budget
	at     map[*device]*limit // at which requests wait for its bytes
}

// sharedKey says whose budget it is, and by which rule; so it survives a
// reload that only moves the rule.
type sharedKey struct {
	scope  rules.Scope // "": under a cap, and by no rule
	rule   rules.Key
	uid    uint32
	cgroup string
}

// job is what one `gpuarb run` started, or one bare process.
type job struct {
	rules.Job
	id      JobID
	request JobRequest

	run          bool
	closed       bool   // its runner is gone (always so for a bare process)
	ended        bool   // and so are all its processes: nothing is reserved for it any more
	commandEnded bool   // the program that it was started for has ended, and others of the job go on
	pending      bool   // its reservation is not made yet: it waits for its start, or its session was restored without
	released     bool   // by ReleaseJob: it holds nothing beyond its processes
	releasedAll  bool   // it is of a copy, and holds nothing there any more
	allWait      bool   // it is of a copy, and stood still when that was made
	survivor     string // process that goes on after the command and has no session: "ssh-agent[4711]"; "": none is known

	shared     *shared // by its rule; nil: none
	cap        *shared // what its user may hold in all; nil: no limit
	budget     *accounting.Budget
	sessions   []*session // ended ones too, while they drain
	used       []*jobUse  // one for each device used
	opened     time.Time
	devices    []*device // those that it may use; nil: all
	slots      int       // that it and its processes hold on all devices: asked of each that waits, each time that one is served
	tickets    []*ticket // that wait, its processes' too
	cancelled  time.Time // when its requests were last cancelled together; zero: never
	tally      tally
	user       *user     // whose it is
	gauge      *gauge    // of its pressure; nil: none of its requests has waited for bytes
	lastActive time.Time // when something of it last asked or freed
	denial     *denial   // the last refusal of a request; nil: none was refused
}

// denial is the refusal of a request of a job.
type denial struct {
	text string // which program was refused, and why
	at   time.Time
}

// peak is the most used at once of a job or a device. seen is the sum of what its
// leases used when each was last looked at.
type peak struct {
	used, max accounting.Bytes
}

// jobUse is what a job has had of one device.
type jobUse struct {
	peak
	device *device
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

// lease is what a session holds on a device: in the ledger, and what else is known of it.
type lease struct {
	accounting.Lease
	id           LeaseID
	word         CreditWord
	session      *session
	device       *device
	opened       time.Time
	closed       bool // the flags that its word shows
	awayShown    bool // its word shows that some of what it holds is away from the device
	lost         bool
	unverified   bool
	spoiled      bool             // its word was clamped: not believed any more
	notify       bool             // a free reports itself, too
	scope        rules.Scope      // of its slots
	slot         *holder          // nil: none, or its threads'
	makers       threads.Set      // where slots are threads'
	bursts       map[uint32]burst // of refusals, by thread
	contexts     int
	holds        int              // on shared contexts
	delegated    bool             // its client counts its streams: streams.go
	delegatedMax int              // no more than it may have, whatever its word says
	waits        int              // tickets of it that wait
	peak         accounting.Bytes // most bytes used at once
	lastUsed     accounting.Bytes // bytes used when last looked at
	extra        reading.Extra    // what it takes of its device beyond its bytes
	announced    bool             // the event about its excess was sent
	reported     accounting.Bytes // what it had when that was last told
	touched      time.Time        // when it last asked for something, or ceased to be active
	admitted     uint64
	denied       uint64
	atMax        uint64
}

// burst counts a thread's refusals that follow each other closely. The first wait_after of them come at once, so that the program's allocator
// can release what it caches; requests after these wait.
type burst struct {
	count int
	last  time.Time
}

// limit is a limit on one device at which requests wait.
type limit struct {
	device   *device
	kind     limitKind
	shared   *shared   // the shared budget whose bytes it limits; nil: it limits the device itself
	blockers []blocker // waiting requests that block later ones there, in the order of the last cycle
	waits    bool      // the last cycle found a request that waits there
	watched  bool      // the clients of the leases below it were told to report each free
}

// limitKind says what a limit limits.
type limitKind int

const (
	limitsBytes    limitKind = iota // the bytes of a device, or of a budget there that jobs share
	limitsPermits                   // the permits of a device: slots.max, a claim, or a job that has the device alone
	limitsOwnSlots                  // a program's own slot limit, which blocks no other request
)

// refusingLimit is a limit that refuses a ticket.
type refusingLimit struct {
	*limit
	noRoom bool // the limit has no room; false: it has room, but earlier requests block the ticket there
}

// blocker is a waiting request that blocks later ones at a limit.
type blocker struct {
	ticket *ticket
	since  time.Time // requests of jobs that have held memory there since an earlier time are not blocked; the zero time: all are
}

// ticket is a request that is being decided or waits.
type ticket struct {
	id          TicketID
	place       Place
	kind        What
	job         *job
	session     *session // nil: a job asks
	lease       *lease   // nil: a job or a session asks
	thread      uint32
	bytes       accounting.Bytes // bytes that it adds to the sums of its device or its budgets
	managed     bool             // bytes are managed memory
	recalled    accounting.Bytes // idle credit of its lease that was taken back to judge it, and goes back to the lease if it is refused at once
	count       int              // number of streams, contexts or holds
	noWait      bool
	aside       bool // Request.Aside
	askedBefore bool // Request.Again
	priority    int
	deadline    time.Time // zero: none
	absentUntil time.Time // its client is absent, and loses its place then; zero: the client is there
	resumed     bool      // its client is absent since a resume, and it blocks no other request

	candidates   []candidate
	any          bool                // one of the spots is enough; false: the ticket needs all
	resubmitted  bool                // the request was made before, and has kept its place
	evaluation   evaluation          // the last verdict
	short        *accounting.Refusal // the limit at which even all idle credit did not make room; nil: none was found
	waitingSince time.Time           // when it began to wait; zero: it does not wait

	live        *ticket // in a copy of the books: the request of which this is a copy; nil in the books themselves
	onlyBlocked bool    // in a copy: only earlier requests block live

	done       bool
	answer     Result
	lastNotice noticeState
}

// candidate is a device on which a ticket may be served, and what refuses it there.
type candidate struct {
	device    *device
	refusedBy []refusingLimit // the limits that refuse the ticket there, the narrower ones first: shared budgets, permits, the bytes of the device
	asks      permit.Kinds    // the permits that the ticket would take there
	heldSince time.Time       // since when the job had held memory there when the ticket was last judged; neverHeld: it held none
}

// evaluation is the result of judging a ticket: the ticket is refused for good (final), it fits (spot), or, if neither is set, it has to wait.
type evaluation struct {
	final   bool                // refused even if all other jobs released what they hold
	fits    *candidate          // the device on which it fits; if it needs several devices and fits on all, any non-nil spot
	reason  Reason              // why it is refused or waits
	refusal *accounting.Refusal // the figures at the limit that refuses
}

// noticeState is the state of a ticket that was last sent to the waiting client.
type noticeState struct {
	position int
	state    string // stateOf
}

// holder has a slot of a device; a job's may have a claim or the sole use of it as well. It takes the slot with
// its first object there (context, stream, memory) and gives it back with the last; one that is kept was taken
// when its job began, and stays until that ends. A spare one stays until the first of the job's
// processes, or threads, takes it.
type holder struct {
	owner
	device *device
	since  time.Time
	kept   bool
	spare  bool
	lease  *lease // whose thread it is, where the slot is a thread's; else nil
}

// owner is whose a permit is.
type owner = permit.Key[*job, *session]
