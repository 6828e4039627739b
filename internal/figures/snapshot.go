package figures

// This file has the types of a snapshot. The arbiter fills them, and package report formats them.

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// State is the state of a lease; the STATE column of /gpu/leases shows the word.
type State string

// The states of a lease or a job. If several are true, the first in this list is shown.
const (
	StateLost       State = "lost"       // the device fell off the bus
	StateDraining   State = "draining"   // the process has ended, but its memory has not been freed
	StateOver       State = "over"       // it holds more than its limit, because the limit was lowered
	StateUnverified State = "unverified" // restored with the sum that the client reported; the device has not confirmed it
	StateStuck      State = "stuck"      // see Residence
	StateSuspending State = "suspending" // see Residence
	StateSuspended  State = "suspended"  // see Residence
	StateResuming   State = "resuming"   // see Residence
	StateWaiting    State = "waiting"    // a thread of it waits for admission
	StateRunning    State = "running"
)

// Residence says whether the memory of a job is on its devices, or given back until it is needed again.
type Residence string

// The values of Residence; "": the job has its memory.
const (
	Suspending Residence = Residence(StateSuspending) // it is asked to give its memory back
	Suspended  Residence = Residence(StateSuspended)  // it gave memory back, and nothing is reserved for it
	Resuming   Residence = Residence(StateResuming)   // what it gave back is reserved for it, and it is asked to take that again
	Stuck      Residence = Residence(StateStuck)      // it did not take its memory again, which stays reserved until a user decides
)

// Snapshot is the whole state at one time, by value. The filesystem and the command line show it.
// Slices have a stable order: devices by index, leases by device and then by age, jobs by ID,
// processes by PID. The JSON names are those of the wire, between a daemon and commands of other
// versions: new names may be added, and existing ones never change. Package report has the types of
// --json.
type Snapshot struct {
	TimeUnixNano int64          `json:"time_unix_ns"`
	Version      string         `json:"version"`
	Config       ConfigState    `json:"config"`
	History      HistoryState   `json:"history"`
	Devices      []DeviceState  `json:"devices"`
	Leases       []LeaseState   `json:"leases"`
	Processes    []ProcessState `json:"processes"`
	Jobs         []JobState     `json:"jobs"`
	Budgets      []BudgetState  `json:"budgets"` // shared budgets, and limits of users and cgroups, by name
	Rules        []RuleState    `json:"rules"`   // rules of the configuration, in its order
	Users        []UserState    `json:"users"`   // users with jobs or a limit, and the last users that had some, by number
	Queue        []TicketState  `json:"queue"`   // waiting requests, in the order in which they are served
	Stats        Stats          `json:"stats"`
	Counts       RequestCounts  `json:"counts"` // requests of all users since the daemon started
}

// ConfigState is the configuration in force.
type ConfigState struct {
	Path string `json:"path"` // path of the main file; "": the default path
	Text string `json:"text"` // complete configuration as a file, defaults included

	// Mistakes lists the mistakes that the configuration files had when they were last read, one
	// per line; "": none. While there are mistakes, the last configuration without mistakes is in
	// force.
	Mistakes string `json:"mistakes,omitempty"`
}

// HistoryState says whether the history of jobs is kept.
type HistoryState struct {
	State   string `json:"state"`   // one of the words below; "": the daemon is of an older version
	Folder  string `json:"folder"`  // folder of the store
	Problem string `json:"problem"` // why nothing is written at present; "": it is
}

// Words for HistoryState.State.
const (
	HistoryKept    = "kept"
	HistoryNone    = "none"    // the configuration turns it off
	HistoryFailing = "failing" // nothing can be written at present
)

// DeviceState is a device. All memory is in bytes.
type DeviceState struct {
	Index        int                  `json:"index"`
	Vendor       string               `json:"vendor"` // nvidia, amd, intel or cpu
	Name         string               `json:"name"`
	UUID         string               `json:"uuid"`
	PCI          string               `json:"pci"` // domain:bus:device.function, lower case
	Lost         bool                 `json:"lost"`
	Unresponsive bool                 `json:"unresponsive"`     // it does not answer, so its figures are old
	Parent       *int                 `json:"parent,omitempty"` // index of the GPU of a MIG instance; nil: not an instance
	Total        accounting.Bytes     `json:"total_bytes"`
	TotalFrom    accounting.TotalFrom `json:"total_from"`
	Reserve      accounting.Bytes     `json:"reserve_bytes"`   // never granted
	Capacity     accounting.Bytes     `json:"capacity_bytes"`  // total − reserve − unmanaged − overhead
	Free         accounting.Bytes     `json:"free_bytes"`      // most that a new job without a reservation would be granted now, beside its program's context
	Granted      accounting.Bytes     `json:"granted_bytes"`   // given to leases, idle credit included
	Committed    accounting.Bytes     `json:"committed_bytes"` // sum over jobs of max(granted, memory.min), without managed memory that is away from the device
	Reserved     accounting.Bytes     `json:"reserved_bytes"`  // sum over jobs of memory.min, used or not
	Used         accounting.Bytes     `json:"used_bytes"`      // granted − idle credit: memory.current; includes managed memory that is away from the device
	Peak         accounting.Bytes     `json:"peak_bytes"`
	Suspended    accounting.Bytes     `json:"suspended_bytes,omitempty"` // given back by suspended jobs, which ask for them again
	Unmanaged    accounting.Bytes     `json:"unmanaged_bytes"`
	Overhead     accounting.Bytes     `json:"overhead_bytes"`
	Context      accounting.Bytes     `json:"context_bytes"` // memory that a reservation adds for its context: known or assumed
	Streams      int                  `json:"streams"`
	SlotsMax     int                  `json:"slots_max"` // 0: no limit
	SlotsBy      string               `json:"slots_by"`  // user or key that set SlotsMax; "": none
	SlotsCurrent int                  `json:"slots_current"`
	SlotsScope   string               `json:"slots_scope"`
	Leased       bool                 `json:"leased"`        // a job has it by claim or exclusively
	Claims       int                  `json:"claims"`        // number of jobs that have it by claim
	ExclusiveJob uint64               `json:"exclusive_job"` // job that has the device to itself; 0: none
	Queue        int                  `json:"queue_depth"`   // number of requests that wait for it
	Admitted     uint64               `json:"admitted"`      // number of granted requests
	Denied       uint64               `json:"denied"`
	AtMax        uint64               `json:"at_max"` // number of requests that met the capacity, refused or not

	Pressure PressureState `json:"pressure"`

	// Largest percentage of Total that was taken (used, overhead and unmanaged) in each of the last
	// spans, oldest first; the last is that of the snapshot's time. Package figures has the length
	// of a span. RecentUnknown: no reading. nil: the daemon is older.
	RecentPercent []int8 `json:"recent_percent,omitempty"`

	// DriverLimits says whether budgets of cgroups' jobs are also limits of the kernel or the driver on this device: off,
	// kernel, driver, or none. "": the daemon is older, or the device is the processor. DriverLimitsFail says what fails.
	DriverLimits     DriverLimits `json:"driver_limits,omitempty"`
	DriverLimitsFail string       `json:"driver_limits_fail,omitempty"`

	Unnamed     bool             `json:"names_no_process"` // its readings do not list single processes
	UnmanagedBy []UnmanagedState `json:"unmanaged_by,omitempty"`
	Holders     []HolderState    `json:"holders,omitempty"` // jobs with slots, by the time at which they got them
}

// DriverLimits is a value of DeviceState.DriverLimits.
type DriverLimits string

// The values of DriverLimits.
const (
	DriverLimitsOff    DriverLimits = "off"    // not configured
	DriverLimitsKernel DriverLimits = "kernel" // by the cgroup controller dmem
	DriverLimitsDriver DriverLimits = "driver" // by the vendor's driver
	DriverLimitsNone   DriverLimits = "none"   // configured, but neither has such limits
)

// HideProcessor removes the processor from a snapshot. The caller knows that nothing is held on it.
func (s *Snapshot) HideProcessor() {
	s.Devices = slices.DeleteFunc(s.Devices, func(d DeviceState) bool { return d.Index == accounting.ProcessorIndex })
	for i := range s.Jobs {
		s.Jobs[i].Devices = slices.DeleteFunc(s.Jobs[i].Devices, func(d JobDeviceState) bool { return d.Device == accounting.ProcessorIndex })
	}
	for i := range s.Budgets {
		s.Budgets[i].Devices = slices.DeleteFunc(s.Budgets[i].Devices, func(d BudgetDeviceState) bool { return d.Device == accounting.ProcessorIndex })
	}
	for i := range s.Rules {
		s.Rules[i].Devices = slices.DeleteFunc(s.Rules[i].Devices, func(d RuleDeviceState) bool { return d.Device == accounting.ProcessorIndex })
	}
}

// IsGPU reports whether the device is a GPU.
func (d *DeviceState) IsGPU() bool { return d.Vendor != accounting.VendorCPU }

// Called returns the name of the device for users.
func (d *DeviceState) Called() string { return accounting.DeviceName(d.Index, !d.IsGPU()) }

// HolderState is a job that has a device as a whole, or slots on it.
type HolderState struct {
	Job     uint64     `json:"job"`
	JobName string     `json:"job_name"` // name that the user gave the job; "": none
	PID     int        `json:"pid"`      // process that opened the job: gpuarb run, or the program itself
	UID     uint32     `json:"uid"`
	User    string     `json:"user"`
	Command string     `json:"command"`
	Kind    HolderKind `json:"kind"`
	Slots   int        `json:"slots"`
	AgeMs   int64      `json:"age_ms"`
	Since   time.Time  `json:"-"` // start of AgeMs
}

// HolderKind says how a job has a device.
type HolderKind string

// The kinds. If several are true, the first counts.
const (
	HoldsExclusive HolderKind = "exclusive" // no other job gets anything there
	HoldsClaim     HolderKind = "claim"
	HoldsSlot      HolderKind = "slot"
)

// UnmanagedState is a process that uses a device without gpuarb.
type UnmanagedState struct {
	Job        uint64           `json:"job,omitempty"`      // job of the process; 0: none
	JobName    string           `json:"job_name,omitempty"` // "": none
	Bypass     Bypass           `json:"bypass,omitempty"`   // how it runs without the library, if it belongs to a job
	Charged    bool             `json:"charged,omitempty"`  // its memory counts against the budget of the job
	PID        int              `json:"pid"`
	StartTicks uint64           `json:"start_ticks"` // as in ProcessState; 0: not known
	UID        uint32           `json:"uid"`
	User       string           `json:"user"` // "": not known, and then UID is not known either
	Command    string           `json:"command"`
	Bytes      accounting.Bytes `json:"bytes"`
	AgeMs      int64            `json:"age_ms"` // since a reading first listed it
	Since      time.Time        `json:"-"`
}

// LeaseState is the lease of one client on one device: a row of /gpu/leases.
type LeaseState struct {
	PID      int              `json:"pid"`
	User     string           `json:"user"`
	UID      uint32           `json:"uid"`
	Device   int              `json:"device"`
	State    State            `json:"state"`
	Used     accounting.Bytes `json:"used_bytes"`
	Granted  accounting.Bytes `json:"granted_bytes"`
	Credit   accounting.Bytes `json:"credit_bytes"`
	Away     accounting.Bytes `json:"away_bytes"`    // part of Used: managed memory that is not on the device
	Pending  accounting.Bytes `json:"pending_bytes"` // part of Used: bytes freed in stream order whose free has not executed; reported by the client, at most Used
	Budget   accounting.Bytes `json:"budget_bytes"`  // memory.max in force; Max: none
	Min      accounting.Bytes `json:"min_bytes"`
	Peak     accounting.Bytes `json:"peak_bytes"` // largest Used so far
	Overhead accounting.Bytes `json:"overhead_bytes"`
	Excess   accounting.Bytes `json:"excess_bytes"` // part of Overhead: memory that no allocation explains, charged to its own budget

	Streams    int      `json:"streams"`
	StreamsMax int      `json:"streams_max"`
	Contexts   int      `json:"contexts"`
	Slot       bool     `json:"slot"`
	Job        uint64   `json:"job"`
	JobName    string   `json:"job_name"`
	Shared     string   `json:"shared_budget"` // Name of the BudgetState that its job shares; "": none
	AgeSeconds int64    `json:"age_s"`
	Admitted   uint64   `json:"admitted"`
	Denied     uint64   `json:"denied"`
	AtMax      uint64   `json:"at_max"`    // number of requests that met a limit of a budget, refused or not
	BudgetBy   string   `json:"budget_by"` // user, rule or flag that set Budget, as in JobDeviceState
	MinBy      string   `json:"min_by"`
	StreamsBy  string   `json:"streams_by"`
	Command    string   `json:"command"`
	NSPID      int      `json:"nspid"`             // PID in its own PID namespace; 0: not known
	Cgroup     string   `json:"cgroup"`            // "": not known
	AlsoIn     []string `json:"also_in,omitempty"` // its paths in other hierarchies of cgroup v1
	Container  string   `json:"container"`         // "": none

	Active   bool  `json:"active"`                 // it waits, or holds a slot
	ActiveMs int64 `json:"active_ms"`              // time since it became active; 0: idle
	IdleMs   int64 `json:"idle_ms"`                // time since it was last active or asked for something; 0: active
	UnusedMs int64 `json:"unused_ms"`              // time since its last call that the library saw, or since its device was last busy with it; 0: a request waits
	Util     *int  `json:"util_percent,omitempty"` // share of the device's processors that its process used of late, in percent; nil: the device does not tell

	Opened time.Time `json:"-"`
	ID     uint64    `json:"-"` // number that only grows
}

// TicketState is a waiting request: a row of /gpu/queue.
type TicketState struct {
	Pos        int              `json:"pos"` // 1: next at the limit that blocks it
	Ticket     uint64           `json:"ticket"`
	PID        int              `json:"pid"`
	User       string           `json:"user"`
	UID        uint32           `json:"uid"`
	Device     int              `json:"device"` // -1: any of several
	Wants      string           `json:"wants"`  // "512 MiB", "slot", "device", …
	WantsBytes accounting.Bytes `json:"wants_bytes"`
	WaitedMs   int64            `json:"waited_ms"`
	Reason     string           `json:"reason"`            // device_full, shared_full, slots, …
	Text       string           `json:"text"`              // what it waits for, and who holds it
	RoomOn     *int             `json:"room_on,omitempty"` // device on which its program would have room now; nil: none
	Behind     uint64           `json:"behind,omitempty"`  // ticket of the first request that is ahead of it and blocks it; 0: none
	Kept       accounting.Bytes `json:"kept,omitempty"`    // bytes that are free where it waits, and kept for that request
	Asks       []uint64         `json:"asks,omitempty"`    // jobs that are asked to make room for it
	Returns    bool             `json:"returns,omitempty"` // a suspended job waits for all memory that it gave back
	Job        uint64           `json:"job"`
	JobName    string           `json:"job_name"`
	Command    string           `json:"command"`
}

// ProcessState is a client process with all its devices.
type ProcessState struct {
	PID        int      `json:"pid"`
	StartTicks uint64   `json:"start_ticks"` // field 22 of /proc/PID/stat: clock ticks since boot
	UID        uint32   `json:"uid"`
	User       string   `json:"user"`
	Command    string   `json:"command"`
	State      State    `json:"state"`
	Job        uint64   `json:"job"`
	JobName    string   `json:"job_name"`
	NSPID      int      `json:"nspid"`             // PID in its own PID namespace; 0: not known
	Cgroup     string   `json:"cgroup"`            // "": not known
	AlsoIn     []string `json:"also_in,omitempty"` // its paths in other hierarchies of cgroup v1
	Container  string   `json:"container"`         // "": none
	ID         uint64   `json:"-"`                 // number of its session, which only grows
}

// JobState is a job: the processes of one `gpuarb run`, or a single process with the library
// preloaded.
type JobState struct {
	ID          uint64           `json:"id"`
	Name        string           `json:"name"` // name that the user gave it; "": none
	UID         uint32           `json:"uid"`
	User        string           `json:"user"`
	Command     string           `json:"command"`
	State       State            `json:"state"`
	Run         bool             `json:"run"`         // opened by `gpuarb run`
	PerProcess  bool             `json:"per_process"` // each process has the limits for itself
	StreamsMax  int              `json:"streams_max"`
	Denial      string           `json:"denial"`    // why its last refused request was refused; "": none was
	DenialMs    int64            `json:"denial_ms"` // time since then
	Rule        string           `json:"rule"`      // rule that applies: "rule 2 (user student)", "the defaults"
	PID         int              `json:"pid"`       // process that opened the job: gpuarb run, or the program itself
	AgeMs       int64            `json:"age_ms"`
	StillRuns   string           `json:"still_runs"` // processes that still run after the job's command has ended: "ssh-agent[4711]"; "": the command runs, or none is known
	StreamsBy   string           `json:"streams_by"` // user, rule or flag that set StreamsMax
	Pressure    PressureState    `json:"pressure"`
	Processes   []int            `json:"processes"`
	Devices     []JobDeviceState `json:"devices"`
	Allows      []string         `json:"allows,omitempty"`            // with Bound: what programs inside may do, as `gpuarb job open --allow` names it
	Bound       string           `json:"bound,omitempty"`             // cgroup whose processes are the job (gpuarb job open); "": a program opened it
	BoundTerms  *BoundTerms      `json:"bound_terms,omitempty"`       // how the job was opened; null: it has no cgroup
	NoProcess   bool             `json:"no_process,omitempty"`        // no process was in the cgroup (Bound) in the ten minutes after the opening, and none has come since
	Inside      uint64           `json:"inside,omitempty"`            // job of a cgroup inside which the job is; its figures include those of this job; 0: none
	Residence   Residence        `json:"residence,omitempty"`         // where its memory is; "": on its devices
	ResidenceMs int64            `json:"residence_ms,omitempty"`      // time since then
	Failure     string           `json:"residence_failure,omitempty"` // how its hook or its unit failed last; "": it did not
}

// BoundTerms says how the job of a cgroup was opened. The values are those of the flags of gpuarb job open.
type BoundTerms struct {
	Until    string `json:"until"`    // when it closes by itself: gone, closed or idle=10m
	OnLoss   string `json:"on_loss"`  // what its programs get without a daemon: closed or open
	Contexts string `json:"contexts"` // where contexts count: inside or outside
}

// Values of BoundTerms. A duration follows UntilIdle.
const (
	UntilGone       = "gone"
	UntilClosed     = "closed"
	UntilIdle       = "idle="
	LossClosed      = "closed"
	LossOpen        = "open"
	ContextsInside  = "inside"
	ContextsOutside = "outside"
)

// JobDeviceState is the account of a job on one device. Its limits hold for each device separately.
type JobDeviceState struct {
	Device int              `json:"device"`
	Min    accounting.Bytes `json:"min_bytes"`
	Max    accounting.Bytes `json:"max_bytes"`

	Reserved  accounting.Bytes `json:"reserved_bytes"` // for the job and its processes, used or not
	Used      accounting.Bytes `json:"used_bytes"`     // with what the jobs inside it use
	Peak      accounting.Bytes `json:"peak_bytes"`
	Unmanaged accounting.Bytes `json:"unmanaged_bytes,omitempty"` // taken of Max by processes without the library, beside Used
	Suspended accounting.Bytes `json:"suspended_bytes,omitempty"` // given back while the job is suspended; it asks for them again when it returns

	MinBy string `json:"min_by"` // rule, flag or user that set Min; "": no Min
	MaxBy string `json:"max_by"` // rule, flag or user that set Max; "": no Max

	HeldBy     HeldBy           `json:"held_by,omitempty"`            // who holds the budget of a cgroup's job; "": another job
	DriverMax  accounting.Bytes `json:"driver_max_bytes,omitempty"`   // limit of the kernel or the driver; 0: none
	DriverFail string           `json:"driver_limit_fails,omitempty"` // why the kernel or the driver does not hold the limit that it should; "": it does, or it should not
}

// HeldBy says who holds the budget of a cgroup's job.
type HeldBy string

// The values of HeldBy. The kernel and the driver hold a limit above the budget, with room for contexts.
const (
	HeldByLibrary HeldBy = "library"
	HeldByKernel  HeldBy = "library,kernel"
	HeldByDriver  HeldBy = "library,driver"
)

// BudgetState is a budget that several jobs share by a rule, while such a job exists. Without a
// rule it is the limit of all programs of a user, or in a cgroup, while such a limit exists.
type BudgetState struct {
	Name      string              `json:"name"`       // for messages: "rule students", "user bob"
	Rule      string              `json:"rule"`       // name of the rule, or what it matches; "": the limit of a user or cgroup
	Scope     string              `json:"scope"`      // user, cgroup or rule
	UID       uint32              `json:"uid"`        // for scope user
	Cgroup    string              `json:"cgroup"`     // for scope cgroup
	Streams   int                 `json:"streams"`    // largest number of streams of each lease of a user; 0: no limit
	StreamsBy string              `json:"streams_by"` // user that set Streams
	Jobs      []uint64            `json:"jobs"`       // jobs that share it now
	Devices   []BudgetDeviceState `json:"devices"`
}

// BudgetDeviceState is the account of such a budget on one device.
type BudgetDeviceState struct {
	Device int              `json:"device"`
	Min    accounting.Bytes `json:"min_bytes"`
	Max    accounting.Bytes `json:"max_bytes"`
	MaxBy  string           `json:"max_by"` // rule or user that set Max; "": no Max
	Used   accounting.Bytes `json:"used_bytes"`
	Free   accounting.Bytes `json:"free_bytes"` // neither held nor reserved; Max: no limit
	Over   bool             `json:"over"`       // more is held than Max
}

// RuleState is a rule of the configuration, and the limits that it gives now.
type RuleState struct {
	ID        uint64            `json:"id"`    // number of the rule in messages of the protocol
	Name      string            `json:"name"`  // name; for a rule without a name: its number
	Title     string            `json:"title"` // as in JobState.Rule
	Scope     string            `json:"scope"`
	Streams   int               `json:"streams"` // largest number of streams of each lease
	StreamsBy string            `json:"streams_by"`
	Devices   []RuleDeviceState `json:"devices"`
}

// RuleDeviceState is the limit that a rule gives on one device.
type RuleDeviceState struct {
	Device int              `json:"device"`
	Max    accounting.Bytes `json:"max_bytes"`
	MaxBy  string           `json:"max_by"` // rule or user that set Max; "": no Max
}

// UserState is a user with all jobs of the user. BudgetState has the limits of the user.
type UserState struct {
	UID      uint32           `json:"uid"`
	Name     string           `json:"name"` // "": not known
	Used     accounting.Bytes `json:"used_bytes"`
	Max      accounting.Bytes `json:"max_bytes"` // limit of all programs of the user together on each device, the lowest if devices differ; Max: no limit
	Streams  int              `json:"streams"`
	Pressure PressureState    `json:"pressure"`
	Counts   RequestCounts    `json:"-"` // since the daemon knows the user; long, so only files show it
}

// PressureState says for how long a job waited for bytes (some), and for how long no job could
// continue meanwhile (full). The kernel's pressure stall information has the same form.
type PressureState struct {
	Some PressureLine `json:"some"`
	Full PressureLine `json:"full"`
}

// PressureLine has percentages of the last 10, 60 and 300 seconds, and the total in microseconds.
type PressureLine struct {
	Avg10   float64 `json:"avg10"`
	Avg60   float64 `json:"avg60"`
	Avg300  float64 `json:"avg300"`
	TotalUs uint64  `json:"total_us"`
}

// RequestCounts counts the outcomes of requests.
type RequestCounts struct {
	Waits   []WaitCount   `json:"waits"`   // one for each outcome, in a fixed order
	Refused []ReasonCount `json:"refused"` // one for each reason, in a fixed order
}

// WaitCount says how long requests with one outcome waited.
type WaitCount struct {
	Outcome string      `json:"outcome"` // granted, timeout, cancelled, deadlock or refused
	UpTo    []ClassWait `json:"up_to"`   // classes by time; each includes the classes before it
	Count   uint64      `json:"count"`   // number of all waits
	SumMs   uint64      `json:"sum_ms"`
}

// ClassWait is the number of requests that waited at most a time.
type ClassWait struct {
	Ms    uint64 `json:"ms"`
	Count uint64 `json:"count"`
}

// ReasonCount is the number of requests that were refused for a reason. Queue and log use the names
// of the reasons too.
type ReasonCount struct {
	Reason string `json:"reason"`
	Count  uint64 `json:"count"`
}

// Stats counts since the daemon started; *_bytes in bytes, *_ms in milliseconds.
type Stats struct {
	QueueDepth      uint64 `json:"queue_depth"`
	InFlight        uint64 `json:"in_flight"`
	TotalJobs       uint64 `json:"total_jobs"`
	LastWaitMs      uint64 `json:"last_wait_ms"`
	LastRunMs       uint64 `json:"last_run_ms"`
	OldestQueuedMs  uint64 `json:"oldest_queued_ms"`
	Admitted        uint64 `json:"admitted"`
	Denied          uint64 `json:"denied"`
	Waited          uint64 `json:"waited"` // requests that had to wait
	Timeouts        uint64 `json:"timeouts"`
	Cancelled       uint64 `json:"cancelled"`
	Deadlocks       uint64 `json:"deadlocks"`
	PendingClaimers uint64 `json:"pending_claimers"`
	RecalledBytes   uint64 `json:"recalled_bytes"` // idle credit called back
	ReclaimedLeases uint64 `json:"reclaimed_leases"`
	Suspended       uint64 `json:"suspended"`      // jobs that gave memory back when they were asked to
	NotSuspended    uint64 `json:"suspend_failed"` // jobs that were asked to give memory back, and gave none
	Resumed         uint64 `json:"resumed"`        // suspended jobs that have their memory again
	Stuck           uint64 `json:"stuck"`          // suspended jobs that were asked to take their memory again, and failed
	ClampedWords    uint64 `json:"clamped_words"`  // impossible values in lease pages
	Malformed       uint64 `json:"malformed"`      // invalid messages of clients
	Clients         uint64 `json:"clients"`
	Leases          uint64 `json:"leases"`
	Goroutines      uint64 `json:"goroutines"` // goroutines of the daemon
}
