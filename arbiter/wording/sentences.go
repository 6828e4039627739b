package wording

// This file has the sentences themselves. names.go makes the names in them. The arbiter, the daemon and the commands use them.

// Each constant is a format for package fmt. A device is filled in by its name ("GPU 0", "the processor").
const (
	// A waiting request: its job, what it asks for, and the device (OnDevice, or nothing).
	Waits          = "waits for %s%s, position %d"
	Queued         = "%s " + Waits + ": %s"
	DeviceFull     = "the device has no room"
	SharedFull     = "a budget shared with others has no room"
	NoSlotFree     = "there is no slot"
	Served         = "%s has %s after %s"
	Has            = "has %s%s after %s" // notice to a client that waited
	NotServed      = "%s did not get %s%s within %s: %s"
	Cancelled      = "its request was cancelled"
	TimedOut       = "it waited as long as it may"
	OthersFirst    = "others come first"
	RefusedFirst   = "refused so that caches of freed memory are dropped (wait_after), and the next request waits"
	FurtherContext = "its job's memory.min has room for one context, and this is a further one"

	// Things that a request can ask for.
	Stream           = "a stream"
	Context          = "a context"
	AnotherContext   = "a further context"
	Slot             = "a slot"
	Device           = "a GPU"
	WholeDevice      = "a GPU of its own"
	Reservation      = "its memory.min of %s"
	WithAReservation = "%s with a memory.min of %s"

	// Holders of what a request asks for.
	Holds       = "; holds: %s"
	Free        = "%s free"
	IdleFor     = ", idle for %s"
	MemoryHeld  = Free + Holds
	BudgetHeld  = "of %s, %s"
	NothingFree = "nothing is free"
	SlotsHeld   = "%d of %d (slots.max) taken: %s"
	DeviceHeld  = "there: %s"
	HeldAlone   = "alone there: %s"
	StillRuns   = "still runs: %s"
	GiveBack    = "; `gpuarb limit --job %d memory.min=0` gives back what is reserved for what job %d left behind"
	SetAside    = "%s are free, and set aside for %s has waited %s for %s"
	First       = "%s, which"
	FirstOf     = "%s and %d more, the first of which"
	OnEveryGPU  = "%s on every GPU"
	OnDevice    = "%s on %s"
	Nothing     = "nothing"
	Thread      = "thread %d of %s"
	Cgroup      = "cgroup %s"

	// Owners of a limit of memory.
	DeviceLimit   = "the device's %s"
	DevicesLimit  = "%s's %s"
	ProcessLimit  = "the process's %s budget"
	JobLimit      = "the job's %s budget"
	BudgetLimit   = "%s's %s budget"
	SharedLimit   = "the %s budget shared by %s"
	SetLimit      = "the %s that %s set for %s"
	Budget        = "%s's budget"
	RuleFor       = "the rule for %s"
	ByRoot        = "%s, for %s, which gives %s"
	ByFor         = "%s, for %s"
	InEnvironment = ", in the program's environment"
	AllPrograms   = "all programs of "
	AllIn         = "all programs in "
	SharedBudget  = "the budget shared by %s"

	// Refusals.
	Refused      = "%s is refused: %s"
	OutOfMemory  = "out of memory on %s: asked %s, %s left of %s"
	TooLarge     = "out of memory on %s: asked %s, more than %s could ever hold"
	OwnProcesses = "; its processes share this budget: with `gpuarb run --per-process` each has its own"
	WouldWait    = "%s: what %s asks for would have to wait: %s"
	NoStream     = "no stream on %s: asked %d, and %d of %d (streams.max) are in use; destroy some, or raise the limit"
	NoSlot       = "no slot on %s"
	NoGPU        = "no GPU is free"
	OthersWait   = "; others wait for it and come first"
	LeaseEnded   = "the lease has ended"
	Lost         = "%s (%s) fell off the bus: start the program again when the device is back"
	NotGiven     = "%s is not one of those that job %d was given (%s): let the program use what *_VISIBLE_DEVICES says"
	// A device that the rule of a program does not allow.
	DeviceNotOfRule = "%s is not among the devices of %s, which are: %s"
	NoDeviceOfRule  = "%s allows the devices %s, of which none is here and was asked for: `gpuarb devices` lists those that are here"
	NoneHere        = "none of this machine's"
	SetVariable     = "; set %s=%s, or start it with `gpuarb run`, which does"
	StartWithRun    = "; start it with `gpuarb run`, which sets %s"
	RoomElsewhere   = "%s has %s free: `gpuarb run --device %d`, or `--device emptiest`"
	HasClaim        = "the user has a claim on %s already"
	JobEnded        = "job %d: %w (it has ended)"
	LeaseThere      = "session %d, a lease on %s: %w"
	NoneToClaim     = "there is no GPU to claim: %w"
	NoneToReserve   = "there is no GPU to reserve memory of: %w"
	// A process uses a device that is not known.
	UnknownRefused = "%s uses a device that the daemon does not know (UUID %s): its memory is refused; `gpuarb devices` lists the known ones, and `gpuarb doctor` says what is wrong"
	UnknownFree    = "%s uses a device that the daemon does not know (UUID %s), without limits; `gpuarb devices` lists the known ones, and `gpuarb doctor` says what is wrong"
	Divided        = "%s is divided by MIG: name one of its instances: %w"
	NoGPUToClaim   = "%s is no GPU, and cannot be claimed: %w"
	MinRefused     = "memory.min of %s on %s cannot be reserved: %s could be%s, of %s; ask for less, or wait until others are done"
	BesideContext  = " beside a context (%s)"
	MinTooLarge    = "memory.min of %s on %s could never be used in full: %s is the most that can be reserved of its %s"
	MinAndContext  = ", as a program needs a context there too, which takes %s"

	// A request that may wait finds no place in the queue. Its client asks again, so that the text must not say that it is refused.
	Crowded          = "%d requests wait already, the most in all: there is no place in the queue now, and it asks again until there is"
	CrowdedByUser    = "user %d has %d requests waiting already, the most of one user (`gpuarb queue` lists them): it asks again until one of them is served"
	CrowdedByProcess = "the process has %d requests waiting already, the most of one process: it asks again until one of them is served"
	CrowdedAside     = "the process has no connection to the daemon left for one more thread to wait on: it asks again until one is free"
	ThreadsOfProcess = "%d threads of %s hold something on %s, the most of one process (slots.scope is \"thread\"): " +
		"thread %d is refused until one of them has freed what it holds"
	ThreadsInAll = "%d threads hold something, %d of them of user %d, and there is room for %d (a user may have half): " +
		"thread %d of %s is refused until some have freed what they hold"

	// Why the last request of a job was refused, behind "the last" in the account of the job.
	LastBudget = " for %s: its budget is %s (%s)"
	LastLeft   = " for %s: %s was left of %s"
	LastNever  = " for %s: that is more than %s"
	LastWhy    = ": %s"

	// Warnings about a job: for how long, what it holds, and the rule that says so.
	IsIdle = "has been idle for %s, and holds %s (idle.warn of %s)"
	IsOld  = "has run for %s, and holds %s (age.warn of %s)"
	EndIt  = ": end it if it is no longer needed"

	Deadlock       = "deadlock: %s; the request of %s came last and is refused"
	DeadlockParty  = "%s holds %s and wants %s%s"
	DeadlockWithin = "deadlock: %s holds %s, and all of its processes that hold memory wait for each other; the request of %s for %s%s " +
		"came last and is refused; `gpuarb run --per-process --min SIZE` reserves what a process needs before it takes anything"

	// Changes of limits, and limits in requests of jobs.
	BudgetBeyondRule  = "asked for a budget of %s on %s, but %s allows %s" + askForLess
	StreamsBeyondRule = "asked for %d streams, but %s allows %d" + askForLess
	askForLess        = ": ask for no more than that, or have root change the rule"
	PriorityDenied    = "asked for a priority of %d: only root may ask for one above 0"
	RuleMinIsFixed    = "%s: memory.max and streams.max can be changed live, memory.min in the configuration"
	NoSuchRule        = "a rule that is not there"
	RuleIsRoots       = "%s: only root may change what a rule gives"
	PatternEnds       = "pattern %q ends in a backslash"
	PatternOpen       = "pattern %q has a class without end at %q"
	CgroupHasMax      = "%s: a cgroup has memory.max and no other limit"
	CgroupIsRoots     = "%s: only root may change what its programs may hold"
	RaisedInside      = "memory.max of %s is above the %s on %s: a process may not raise the limit of a cgroup that it runs in; change it from outside, as by `systemd-run gpuarb limit --cgroup …`"
	notRoot           = " (root in a user or PID namespace other than the daemon's, as in a container, is not root here)"
	CgroupIsRoot      = "the root cgroup has no limit; slots and rules are for the whole machine"
	CgroupTooLong     = "the path of a cgroup with a limit has %d bytes at most"
	CgroupIsNone      = "%q is no path of a cgroup, which begins with a slash and has none at its end, nor two in a row"
	CgroupHasDots     = "%q is no path of a cgroup, which has neither . nor .. in it"
	DeviceHasSlots    = "%s: a device has slots.max and no other limit that can be changed live"
	DeviceIsRoots     = "slots.max of %s: only root may change it"
	NoSlotsOf         = "%s: a job or a process has memory.max, memory.min and streams.max, and no slots.max"
	NoSlots           = "slots.max of %d: it is a number from 1, or max"
	UserHasNoMin      = "%s: a user has memory.max and streams.max, and no memory.min"
	NotOwner          = "only %s may change %s; you are %s"
	LimitsOf          = "the limits of %s"
	LimitOfUser       = "%s's limit"
	StreamsTooFew     = "%d streams are too few: 1 is the least"
	StreamsMaxTooFew  = "streams.max of %d is too low: 1 is the least"
	StreamsMaxAbove   = "streams.max of %d is above %d" + onlyRoot
	MemoryAbove       = "%s of %s is above the %s that is allowed on %s" + onlyRoot
	onlyRoot          = ", and only root may raise it beyond that"
	MinAboveMax       = "memory.min of %s is more than the memory.max of %s on %s"
	Changed           = "%s changed %s of %s from %s to %s"

	// Other events.
	DeviceCame    = "%s is there: %s, %s"
	DeviceLost    = "%s fell off the bus; %d leases are lost"
	DeviceHangs   = "%s has not answered for %s: what it said last counts until it does"
	DeviceAnswers = "%s answers again"
	Confirmed     = "%s confirms what %s holds"
	Reclaimed     = "%s is gone; %s on %s are free again"
	Kept          = "%s is dead, and %s keeps its %s on %s: unmanaged from now on"
	Keeps         = "%s keeps the memory of %s"
	SomebodyKeeps = "somebody (a forked child?)"
	Unmanaged     = "%s uses %s on %s without gpuarb"
	UnmanagedOf   = "%s of %s runs %s and uses %s on %s outside the budget"
	LeaseOpened   = "%s has a lease on %s"
	JobBegun      = "%s has begun"
	JobOver       = "%s has ended: it %s"
	UsedBeside    = "; %s used %s on %s outside the budget"
	Granted       = "%s was granted %s on %s, and has %s there"
	Recalled      = "%s of idle credit on %s were called back (leases: %d)"
	RecalledFor   = Recalled + ", for %s"
	Died          = "%s has ended with %s, %d streams and %d contexts on %s"
	Excess        = "%s uses %s on %s that no allocation names (modules, stacks, heaps): charged to its own budget"
	TwoCopies     = "%s uses two copies of a driver's library: %q is held to limits, %q is not"
	Clamped       = "%s wrote rubbish into its lease page on %s: all that it was granted counts as used"
	Over          = "%s holds %s on %s, more than its limit of %s: it gets nothing new until it is under"
	Within        = "%s is within its limit of %s on %s again"
	Configured    = "a configuration with %d rules is in force"
)
