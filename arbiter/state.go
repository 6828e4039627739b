package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/reading"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/threads"
	"github.com/gpuarb/gpuarb/arbiter/usage"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file has the state of the arbiter as data: devices, shared budgets, jobs, sessions, leases, holders of permits, limits, and waiting
// requests. The types refer to each other, so that they are all in this file. doc.go lists the files with the functions, each after the
// files that it uses.

// Arbiter is the state of one machine. New makes one. It is not safe for concurrent use.
type Arbiter struct {
	policy   rules.Policy
	ledger   *accounting.Ledger
	devices  []*device // by index
	shareds  map[sharedKey]*shared
	limits   rules.Table // live limits of rules, users, cgroups, jobs, processes and devices
	users    users
	jobs     map[JobID]*job
	sessions map[SessionID]*session
	leases   map[LeaseID]*lease

	tickets map[TicketID]*ticket // waiting requests, by ID
	queue   []*ticket            // waiting requests, in the order in which they are served
	sorted  time.Time            // time at which queue was last sorted
	errands []Errand             // errands since the last call of Errands

	suspensions        int                // number of jobs with a suspension (job.suspension)
	suspensionsChanged map[JobID]struct{} // jobs whose suspension has changed since the last call of Suspensions

	decisions     []Result  // decisions and notices since the last call of Decisions
	asking        *ticket   // request that the running call decides; nil: none
	cycling       bool      // cycle is running, or must not run (Restore)
	cycleNeeded   bool      // since the last cycle something has changed that may decide a waiting request
	cycleAt       time.Time // when Tick must run a cycle for reported frees; zero: at no set time
	looseSearchAt time.Time // when the next loose search for a deadlock is due (deadlock.go); zero: never
	searchNeeded  bool      // something has changed since the last search without the lock began
	suspected     bool      // a strict search without the lock is due
	searching     bool      // a search without the lock is running
	undo          []func()  // on a copy: functions that undo the changes of the running try, oldest first

	searchAgain    time.Time // earliest time of the next search without the lock
	searchedStrict bool      // the last search without the lock was strict
	noticesDue     bool      // something has changed since the last notices to waiting clients
	noticedAt      time.Time // time of the last notices
	arrival        uint64    // number of the last request that arrived; a restart of the daemon does not reset it
	lastTicket     TicketID

	ticketsOf    map[uint32]int // number of tickets, by user ID
	ticketsOfPID map[int]int    // number of tickets, by PID

	threads   int            // number of tracked threads, in all leases whose slots belong to threads
	threadsOf map[uint32]int // number of tracked threads, by user ID

	underPressure []*gauge // gauges where requests waited for bytes at the last MeasurePressure

	lookedAt    time.Time    // time of the last look at the credit of all leases; zero: never
	usesChanged []*jobUse    // usages whose amounts have changed since the last MeasureUsage
	pastJobs    []JobAccount // accounts of jobs that have ended since the last call of PastJobs

	contextChanges uint64 // as ContextChanges returns it

	exceeded map[account]bool // budgets that hold more than their limit; true: EventOver was recorded
	draining []*session       // ended sessions whose memory the device has not freed yet
	waits    waitCounts
	refusals reasonCounts
	events   []Event // events since the last call of Events
	stats    figures.Stats

	lastJob     JobID
	lastSession SessionID
	lastLease   LeaseID
	lastErrand  uint64

	lookedForRoom int // number of requests for which makeRoomForWaiting looked for idle jobs; requests take turns by it
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
		exceeded: make(map[account]bool), threadsOf: make(map[uint32]int),
		ticketsOf: make(map[uint32]int), ticketsOfPID: make(map[int]int),
	}
	a.ledger.Freed = a.changed
	a.policy = policy.InForce(a.limits)
	return a
}

// changed notes that a waiting request may be decidable now, or that a deadlock may have formed. The next cycle evaluates all waiting
// requests.
func (a *Arbiter) changed() { a.cycleNeeded, a.searchNeeded = true, true }

// device is one GPU, or the processor, with its limits and its last reading.
type device struct {
	rules.Device
	rule     rules.DeviceRule
	detected accounting.Bytes // Total as the driver reports it; the configuration may set another Total

	totalFrom accounting.TotalFrom
	direct    accounting.Lease // ledger node for bytes that are charged to the device but to no budget
	lost      bool
	hung      bool // the device does not answer
	policy    *rules.Policy
	peak      peak
	recent    figures.Recent // how much was taken of late

	unmanaged   accounting.Bytes
	unmanagedBy []figures.UnmanagedState
	unmanagedOf map[*job]accounting.Bytes // part of unmanaged that counts against the budget of a cgroup's job, by job
	figures     map[int]ProcessUsage      // usage of each process by the last reading, by PID
	began       time.Time                 // when the last reading began; zero: the device was never read
	early       bool                      // the last reading was an early one
	toldUse     time.Time                 // when the last reading began, if it told how busy processes keep the device; zero: it did not tell
	shown       accounting.Bytes          // bytes of all processes by the last reading

	permits  permit.Sets[*job, *session, *holder]
	live     *rules.Limits // live limits of the device; nil: none
	contexts reading.Costs
	unnamed  bool // readings of the device do not name processes

	waiting      int                 // number of waiting requests with this device among their candidates
	permitLimits [permit.Count]limit // limits of the permits of each kind
	ownSlotLimit limit               // stands for the slot limits that programs set for themselves
	bytes        limit               // limit of the device's bytes

	gauge      gauge               // pressure of the device
	leasesAway map[*lease]struct{} // leases that have managed memory away from the device
	byPID      map[int][]*lease    // leases by PID, those of ended processes too
	admitted   uint64
	denied     uint64
	atMax      uint64
}

// shared is a budget that several jobs share: the budget of a rule whose scope is "user", "cgroup" or "rule", or a cap, which is the live
// limit of a user or a cgroup and applies in addition to the rules.
type shared struct {
	key       sharedKey
	limit     *rules.Limits // live limits of a user or a cgroup; nil: the budget is that of a rule
	rule      *rules.Terms  // rule of the budget; nil: the budget is a cap
	ownerName string        // "user bob", "cgroup /a.slice", "rule students"
	budget    *accounting.Budget
	hidden    []*device          // devices that the environments of all its jobs hide: nothing is reserved there
	at        map[*device]*limit // limits at which requests wait for bytes of the budget
}

// sharedKey identifies a shared budget by its rule and by its user or cgroup. The key stays when a reload moves the rule to another place.
type sharedKey struct {
	scope  rules.Scope // "": the key of a cap
	rule   rules.Key
	uid    uint32
	cgroup string
}

// job is the processes that one `gpuarb run` started, or one process that was started without it.
type job struct {
	rules.Job
	id      JobID
	request JobRequest

	run          bool
	closed       bool   // the runner has exited; always true for a process without a runner
	ended        bool   // closed, and all processes have ended: nothing is reserved for the job any more
	commandEnded bool   // the command of `gpuarb run` has ended, and other processes of the job go on
	pending      bool   // the reservation is not made yet: the job waits to start, or its session was restored without reservation
	released     bool   // ReleaseJob was called: the job holds only what its processes hold
	releasedAll  bool   // on a copy: the job holds nothing any more
	allWait      bool   // on a copy: holdersWait was true when the copy was made
	survivor     string // process without a session that goes on after the command, as "ssh-agent[4711]"; "": none is known

	shared     *shared            // shared budget of its rule; nil: none
	cap        *shared            // cap of its user; nil: the user has no limit
	around     *job               // job of a cgroup inside which the job is; nil: none
	inside     []*job             // jobs that are inside this one
	at         map[*device]*limit // limits at which the opens of cgroups' jobs inside this one wait for bytes of its budget
	budget     *accounting.Budget
	sessions   []*session // sessions of living processes, and of ended ones until their memory is freed
	used       []*jobUse  // usage of each device that the job has used
	opened     time.Time
	devices    []*device   // devices that the job may use; nil: all GPUs
	hidden     []*device   // devices that the environment hides at its start: nothing is reserved there; nil: none, or it asked for devices
	slots      int         // number of slots that the job and its processes hold on all devices
	tickets    []*ticket   // waiting requests of the job and its processes
	cancelled  time.Time   // when CancelJob or CancelAll last cancelled its requests; zero: never
	tally      *tally      // nil: nothing was counted
	user       *user       // user that the job belongs to
	gauge      *gauge      // pressure of the job; nil: none of its requests has waited for bytes
	lastActive time.Time   // when a client of the job last asked for or freed something
	denial     *denial     // last refused request; nil: none
	untold     bool        // its account has changed since the last call of Accounts
	recorded   bool        // the account of its end is or was in Arbiter.pastJobs
	exit       *Exit       // how its command ended; nil: not known
	died       bool        // the process that ended last held something then
	suspension *suspension // what is known of its suspension; nil: it was never asked to give its memory back
}

// denial is the refusal of a request of a job.
type denial struct {
	text string // refused program and reason
	at   time.Time
}

// peak is how many bytes of a device are used, and the most that were used at once. used is the sum of lastUsed of the leases that count.
type peak struct {
	used, max accounting.Bytes
}

// jobUse is the usage of one device by a job.
type jobUse struct {
	peak
	device   *device
	meter    usage.Meter
	changed  bool // the usage is in Arbiter.usesChanged
	waits    uint64
	waited   time.Duration
	refused  uint64
	overhead peak          // bytes beyond allocations that the device showed
	assumed  peak          // the same, with the expected cost of contexts that it has not shown yet
	whole    wholeUse      // usage by the job and by the jobs inside it
	idle     time.Duration // time in which memory was held and nothing was done
	looked   time.Time     // time up to which idle counts
}

// wholeUse sums the usage of a device by a job and by the jobs inside it. A total over jobs adds the usage of each job alone instead,
// so that it counts no byte twice.
type wholeUse struct {
	used, overhead, assumed peak
}

// session is one client process.
type session struct {
	rules.Client
	id      SessionID
	process *rules.Process // never changed; that of the job, if it has no runner
	job     *job
	cgroups []*shared // caps of the cgroups around the process, the narrower ones first
	budget  *accounting.Budget
	leases  []*lease
	opened  time.Time
	ended   time.Time // when the process ended; zero: it lives
	refused bool      // the first refusal was reported to the client

	onFull    rules.OnFull      // on_full that the program set for itself; "": as the rule says
	slots     int               // own slot limit; 0: none
	slotScope rules.Scope       // slot scope that the program set for itself; "": as the rule says
	reserve   *accounting.Bytes // bytes charged for each stream, set by the program; nil: as the rule says
	threads   int               // number of threads that ever made an intercepted call; 0: not known
	waits     map[uint32]int    // number of waiting requests, by thread; 0: an unknown thread
	hidden    []*device         // devices that the environment of the process hides: nothing is reserved there
	pending   bool              // the reservation is not made yet: the session waits to start, or was restored without reservation
}

// lease has the holdings of a session on a device. The embedded ledger lease has its bytes and streams.
type lease struct {
	accounting.Lease
	id           LeaseID
	word         CreditWord
	session      *session
	device       *device
	opened       time.Time
	closed       bool // the credit word is closed: the client must ask for each allocation
	awayShown    bool // the credit word is closed because managed memory is away from the device
	lost         bool
	outside      bool // the job was not allowed to use the device when the lease was opened: requests are refused until it is
	unverified   bool
	spoiled      bool           // the credit word was clamped: its value is not used any more
	notify       bool           // NOTIFY is set in the credit word: the client reports each free
	scope        rules.Scope    // owner of the slots that the lease uses: job, process or thread
	slot         *holder        // slot of the lease; nil: it has none, or its threads have slots
	makers       threads.Set    // objects by thread, if slots belong to threads
	bursts       map[uint32]int // refusals in the current burst (lease.refusesFirst), by thread
	contexts     int
	undecided    int              // contexts that requests with the answer ReasonReading ask for, until they are made again
	holds        int              // number of holds on shared contexts
	delegated    bool             // the client counts its streams itself (streams.go)
	delegatedMax int              // most streams that are accepted from the client's count
	waits        int              // number of waiting requests
	peak         accounting.Bytes // most bytes used at once
	lastUsed     accounting.Bytes // bytes used at the last readUsage
	metered      usage.Amounts    // what this lease adds to the job's meter; zero once the process has ended
	lastOverhead accounting.Bytes // bytes beyond allocations at the last noteOverhead, as the device showed them
	lastAssumed  accounting.Bytes // the same, with what was assumed for contexts
	extra        reading.Extra    // usage of the device in addition to granted bytes
	announced    bool             // EventExcess was recorded
	reported     accounting.Bytes // bytes granted at the last EventGranted
	touched      time.Time        // when the process was last seen to use the device, or the lease lost its slot
	noted        accounting.Bytes // bytes used at the last noteCalls; notNoted: a request came after it
	util         *int             // share of the device's processors that the process used of late, in percent; nil: the device does not tell
	admitted     uint64
	denied       uint64
	atMax        uint64
}

// notNoted is the value of lease.noted after a request, which may change the used bytes.
const notNoted = accounting.Max

// limit is a limit on one device at which requests wait.
type limit struct {
	device   *device
	kind     limitKind
	shared   *shared   // shared budget that the limit belongs to; nil: none
	within   *job      // job of a cgroup whose budget the limit belongs to; nil: none. With neither, the limit is that of the device
	blockers []blocker // waiting requests that block later ones here, in the order of the queue
	waits    bool      // the last cycle left a request waiting here
	watched  bool      // the clients of the leases below the limit report each free
}

// limitKind is the kind of thing that a limit bounds.
type limitKind int

const (
	limitsBytes    limitKind = iota // bytes of a device, or on a device of a shared budget or of the job of a cgroup
	limitsPermits                   // permits of a device: slots.max, a claim, or the sole use of the device
	limitsOwnSlots                  // the slot limit of a program itself, which blocks no other request
)

// refusingLimit is a limit that refuses a ticket on a candidate device.
type refusingLimit struct {
	*limit
	noRoom bool // the limit has no room; false: it has room, but earlier requests block the ticket
}

// blocker is a waiting request that blocks later ones at a limit.
type blocker struct {
	ticket *ticket
	since  time.Time // jobs that held memory here before this time are not blocked; zero: all jobs are blocked
}

// ticket is a request that is being decided or is waiting.
type ticket struct {
	id          TicketID
	place       Place
	kind        RequestKind
	job         *job
	session     *session // nil: the request of a job
	lease       *lease   // nil: the request of a job or a session
	thread      uint32
	bytes       accounting.Bytes // bytes added to the sums of the device or the budgets
	managed     bool             // bytes are managed memory
	recalled    accounting.Bytes // idle credit of its own lease that evaluate recalled; returned if the ticket is refused at once
	count       int              // number of streams, contexts or holds
	noWait      bool
	aside       bool // Request.Aside
	askedBefore bool // Request.Again
	looked      bool // Request.Looked, unless it was a choice
	waitAfter   int  // number of requests in a burst that are refused instead of waiting
	first       bool // the request was refused because of waitAfter
	read        bool // Request.Read
	driverFull  bool // Request.DriverFull
	priority    int
	deadline    time.Time // when the ticket is refused as timed out; zero: never
	absentUntil time.Time // when the place of an absent client is dropped; zero: the client is present
	resumed     bool      // the client resumed its session and has not asked again: the ticket blocks no other request

	candidates   []candidate
	any          bool                // one of the candidates is enough; false: the ticket needs all
	resubmitted  bool                // the request was made before, and keeps its place
	evaluation   evaluation          // result of the last evaluate
	short        *accounting.Refusal // limit at which recalling all idle credit did not make enough room; nil: none
	waitingSince time.Time           // when the ticket entered the queue; zero: it is not in the queue

	live        *ticket // on a copy: the ticket that this is a copy of; nil: this is not a copy
	onlyBlocked bool    // on a copy: live fits, and only earlier requests block it

	done       bool
	answer     Result
	lastNotice noticeState
}

// candidate is a device on which a ticket may be served.
type candidate struct {
	device    *device
	refusedBy []refusingLimit // limits that refuse the ticket, the narrower ones first: shared budgets, permits, bytes of the device
	asks      permit.Kinds    // permits that the ticket would take
	heldSince time.Time       // since when the ticket's job has held memory there; neverHeld: it holds none
}

// evaluation is the result of evaluating a ticket. The ticket is refused (final is set), is granted (fits is set), or has to wait (neither
// is set).
type evaluation struct {
	final   bool                // refuse: the ticket would not fit even if all other jobs released everything
	fits    *candidate          // device on which the ticket fits; if it fits on all of several devices, any non-nil pointer
	reason  Reason              // reason for the refusal or the wait
	refusal *accounting.Refusal // figures of the limit that refuses
}

// noticeState is the queue state of a ticket in the last notice to its client.
type noticeState struct {
	position int
	state    string  // result of holdersState
	room     *device // result of elsewhere
	ahead    *ticket // result of aheadOf
	asked    string  // result of askedText
}

// holder is the owner of a slot of a device. If the owner is a job, it may also have a claim or the sole use of the device. An owner takes
// the slot with its first object on the device (context, stream or memory) and returns it with the last. A kept slot is taken when its job
// begins, and stays until the job ends. A spare slot stays until the first process or thread of the job takes it.
type holder struct {
	owner
	device *device
	since  time.Time
	kept   bool
	spare  bool
	lease  *lease // lease of the thread, if the owner is a thread; else nil
}

// owner is the job, process or thread that a permit belongs to.
type owner = permit.Key[*job, *session]

// suspension says where the memory of a job is that was asked to give it back, what the job held then, and how its last errands went.
type suspension struct {
	state    Residence
	asked    time.Time                    // when the present state began
	answered time.Time                    // when the hook ended, or the unit stopped or started; zero: it has not
	failure  string                       // how the last errand failed; "": it succeeded, or has not ended
	unit     string                       // unit of the job's processes; "": none
	evict    rules.Evict                  // settings of the job's rule when it was asked to give its memory back
	had      map[*device]memory           // what the job held when it was asked to give it back; nil: the job is resident
	rest     map[*device]accounting.Bytes // bytes that the suspended job held at the last call of isUsedAgain; nil: none was made
	errand   uint64                       // number of the last errand
	waiter   TicketID                     // request that needs the room; 0: a user asked
	by       *Person                      // user who asked last; nil: the arbiter did
	resumed  time.Time                    // when the job last returned; zero: never
	failures int                          // number of times in a row that the job gave nothing
	notUntil time.Time                    // the job is not chosen before this time
	place    Place                        // place of its request to return under the earlier daemon, until ContinueSuspensions; the zero Place: none
	lost     bool                         // the daemon was started again while the hook ran, so that its result is not known
}

// memory has the amounts that a job holds on a device.
type memory struct {
	bytes    accounting.Bytes // bytes that count in its budgets, without idle credit
	overhead accounting.Bytes // bytes that its processes take beside that, by the device's figures
	contexts int
}
