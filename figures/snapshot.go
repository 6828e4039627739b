package figures

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// State says how a lease is doing; the word is what STATE shows in /gpu/leases.
type State string

// The states of a lease, by falling precedence when several are true.
const (
	StateLost       State = "lost"       // its device fell off the bus
	StateDraining   State = "draining"   // its process is gone, its memory not yet
	StateOver       State = "over"       // it holds more than its limit, which was lowered
	StateUnverified State = "unverified" // resumed with the client's own sum; the device has not confirmed it
	StateWaiting    State = "waiting"    // a thread of it waits for admission
	StateRunning    State = "running"
)

// Snapshot is the whole state at one moment, by value: what the filesystem and
// the command line show. Slices are in a stable order: devices by index, leases
// by device, then by age, jobs by ID, processes by PID. The JSON names are those of
// the wire, between a daemon and commands of other versions: they are added to, and not changed.
// What --json prints are types of package report.
type Snapshot struct {
	TimeUnixNano int64          `json:"time_unix_ns"`
	Version      string         `json:"version"`
	Config       ConfigState    `json:"config"`
	Devices      []DeviceState  `json:"devices"`
	Leases       []LeaseState   `json:"leases"`
	Processes    []ProcessState `json:"processes"`
	Jobs         []JobState     `json:"jobs"`
	Budgets      []BudgetState  `json:"budgets"` // those that jobs share, and limits of users and cgroups, by name
	Rules        []RuleState    `json:"rules"`   // of the configuration, in its order
	Users        []UserState    `json:"users"`   // those who have jobs or a limit, and the last who had, by number
	Queue        []TicketState  `json:"queue"`   // in the order that they are served in
	Stats        Stats          `json:"stats"`
	Counts       RequestCounts  `json:"counts"` // of all users' requests since the daemon started
}

// ConfigState is the configuration in force.
type ConfigState struct {
	Path string `json:"path"` // of the main file; "": the system's
	Text string `json:"text"` // all of it, defaults included, as a file

	// Mistakes lists the mistakes in the configuration files when they were read last, one on a line; "": none. While
	// there are mistakes, the last configuration without any is in force.
	Mistakes string `json:"mistakes,omitempty"`
}

// DeviceState is one GPU. All memory in bytes.
type DeviceState struct {
	Index        int                  `json:"index"`
	Vendor       string               `json:"vendor"` // nvidia, amd, intel or cpu
	Name         string               `json:"name"`
	UUID         string               `json:"uuid"`
	PCI          string               `json:"pci"` // domain:bus:device.function, lower case
	Lost         bool                 `json:"lost"`
	Unresponsive bool                 `json:"unresponsive"`     // it does not answer: its figures are old
	Parent       *int                 `json:"parent,omitempty"` // of a MIG instance: index of its GPU
	Total        accounting.Bytes     `json:"total_bytes"`
	TotalFrom    accounting.TotalFrom `json:"total_from"`
	Reserve      accounting.Bytes     `json:"reserve_bytes"`   // never granted
	Capacity     accounting.Bytes     `json:"capacity_bytes"`  // total − reserve − unmanaged − overhead
	Granted      accounting.Bytes     `json:"granted_bytes"`   // handed to leases, idle credit included
	Committed    accounting.Bytes     `json:"committed_bytes"` // Σ over jobs of max(granted, memory.min), without managed memory that is away from the device
	Reserved     accounting.Bytes     `json:"reserved_bytes"`  // Σ over jobs of memory.min, used or not
	Used         accounting.Bytes     `json:"used_bytes"`      // granted − idle credit: memory.current; with managed memory that is away from the device
	Peak         accounting.Bytes     `json:"peak_bytes"`
	Unmanaged    accounting.Bytes     `json:"unmanaged_bytes"`
	Overhead     accounting.Bytes     `json:"overhead_bytes"`
	Context      accounting.Bytes     `json:"context_bytes"` // what a reservation keeps for its context: known or assumed
	Streams      int                  `json:"streams"`
	SlotsMax     int                  `json:"slots_max"` // 0: no limit
	SlotsBy      string               `json:"slots_by"`  // user or key that set SlotsMax; "": none did
	SlotsCurrent int                  `json:"slots_current"`
	SlotsScope   string               `json:"slots_scope"`
	Leased       bool                 `json:"leased"`        // a job has it by claim or as its only user
	Claims       int                  `json:"claims"`        // jobs that have it by claim
	ExclusiveJob uint64               `json:"exclusive_job"` // job that has the device to itself; 0: none
	Queue        int                  `json:"queue_depth"`   // requests that wait there
	Admitted     uint64               `json:"admitted"`      // requests granted
	Denied       uint64               `json:"denied"`
	AtMax        uint64               `json:"at_max"` // requests that met the capacity, refused or not

	Pressure PressureState `json:"pressure"`

	Unnamed     bool             `json:"names_no_process"` // its readings say nothing of single processes
	UnmanagedBy []UnmanagedState `json:"unmanaged_by,omitempty"`
	Holders     []HolderState    `json:"holders,omitempty"` // jobs with slots, by the time that they have them
}

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

// IsGPU reports whether the device is one.
func (d *DeviceState) IsGPU() bool { return d.Vendor != accounting.VendorCPU }

// Called is how people know the device.
func (d *DeviceState) Called() string { return accounting.DeviceName(d.Index, !d.IsGPU()) }

// HolderState is a job that has a device as a whole, or slots of it.
type HolderState struct {
	Job     uint64     `json:"job"`
	JobName string     `json:"job_name"` // that its user gave it; "": none
	PID     int        `json:"pid"`      // who asked for it: gpuarb run, or the process itself
	UID     uint32     `json:"uid"`
	User    string     `json:"user"`
	Command string     `json:"command"`
	Kind    HolderKind `json:"kind"`
	Slots   int        `json:"slots"`
	AgeMs   int64      `json:"age_ms"`
	Since   time.Time  `json:"-"` // when AgeMs began
}

// HolderKind says how a job has a device.
type HolderKind string

// The kinds. Where several are true, the first counts.
const (
	HoldsExclusive HolderKind = "exclusive" // nobody else gets anything there
	HoldsClaim     HolderKind = "claim"
	HoldsSlot      HolderKind = "slot"
)

// UnmanagedState is a process that uses a device and is no client.
type UnmanagedState struct {
	Job        uint64           `json:"job,omitempty"`      // the job that it belongs to, whose budget its memory does not count against; 0: none
	JobName    string           `json:"job_name,omitempty"` // "": none
	Bypass     Bypass           `json:"bypass,omitempty"`   // how it runs past the library, if it belongs to a job
	PID        int              `json:"pid"`
	StartTicks uint64           `json:"start_ticks"` // as in ProcessState; 0: not known
	UID        uint32           `json:"uid"`
	User       string           `json:"user"` // "": not known, and UID neither
	Command    string           `json:"command"`
	Bytes      accounting.Bytes `json:"bytes"`
	AgeMs      int64            `json:"age_ms"` // since a reading first listed it
	Since      time.Time        `json:"-"`
}

// LeaseState is what one client holds on one device: a row of /gpu/leases.
type LeaseState struct {
	PID      int              `json:"pid"`
	User     string           `json:"user"`
	UID      uint32           `json:"uid"`
	Device   int              `json:"device"`
	State    State            `json:"state"`
	Used     accounting.Bytes `json:"used_bytes"`
	Granted  accounting.Bytes `json:"granted_bytes"`
	Credit   accounting.Bytes `json:"credit_bytes"`
	Away     accounting.Bytes `json:"away_bytes"`    // inside Used: managed memory that the device does not hold
	Pending  accounting.Bytes `json:"pending_bytes"` // inside Used; as the client says, clamped
	Budget   accounting.Bytes `json:"budget_bytes"`  // memory.max in force; Max for none
	Min      accounting.Bytes `json:"min_bytes"`
	Peak     accounting.Bytes `json:"peak_bytes"` // most bytes used at once
	Overhead accounting.Bytes `json:"overhead_bytes"`
	Excess   accounting.Bytes `json:"excess_bytes"` // of Overhead: what no allocation names, charged to its own budget

	Streams    int      `json:"streams"`
	StreamsMax int      `json:"streams_max"`
	Contexts   int      `json:"contexts"`
	Slot       bool     `json:"slot"`
	Job        uint64   `json:"job"`
	JobName    string   `json:"job_name"`
	Shared     string   `json:"shared_budget"` // that of BudgetState with this name; "": its job shares none
	AgeSeconds int64    `json:"age_s"`
	Admitted   uint64   `json:"admitted"`
	Denied     uint64   `json:"denied"`
	AtMax      uint64   `json:"at_max"`    // requests that met a budget's limit, refused or not
	BudgetBy   string   `json:"budget_by"` // user, rule or flag that set Budget, as in JobDeviceState
	MinBy      string   `json:"min_by"`
	StreamsBy  string   `json:"streams_by"`
	Command    string   `json:"command"`
	NSPID      int      `json:"nspid"`             // in its own PID namespace; 0: not known
	Cgroup     string   `json:"cgroup"`            // "": not known
	AlsoIn     []string `json:"also_in,omitempty"` // its paths in other hierarchies of cgroup v1
	Container  string   `json:"container"`         // "": none

	Active   bool  `json:"active"`    // it waits, or holds a slot
	ActiveMs int64 `json:"active_ms"` // for how long; 0 when it is idle
	IdleMs   int64 `json:"idle_ms"`   // since it was last active or asked for something; 0 when it is active

	Opened time.Time `json:"-"`
	ID     uint64    `json:"-"` // a number that only grows
}

// TicketState is one waiting request: a row of /gpu/queue.
type TicketState struct {
	Pos        int              `json:"pos"` // 1: next at the limit that refuses it
	Ticket     uint64           `json:"ticket"`
	PID        int              `json:"pid"`
	User       string           `json:"user"`
	UID        uint32           `json:"uid"`
	Device     int              `json:"device"` // -1: any of several
	Wants      string           `json:"wants"`  // "512 MiB", "slot", "device", …
	WantsBytes accounting.Bytes `json:"wants_bytes"`
	WaitedMs   int64            `json:"waited_ms"`
	Reason     string           `json:"reason"` // device_full, shared_full, slots, …
	Text       string           `json:"text"`   // what is waited for, and who holds it
	Job        uint64           `json:"job"`
	JobName    string           `json:"job_name"`
	Command    string           `json:"command"`
}

// ProcessState is one client process, whatever devices it uses.
type ProcessState struct {
	PID        int      `json:"pid"`
	StartTicks uint64   `json:"start_ticks"` // field 22 of /proc/PID/stat: clock ticks since boot
	UID        uint32   `json:"uid"`
	User       string   `json:"user"`
	Command    string   `json:"command"`
	State      State    `json:"state"`
	Job        uint64   `json:"job"`
	JobName    string   `json:"job_name"`
	NSPID      int      `json:"nspid"`             // in its own PID namespace; 0: not known
	Cgroup     string   `json:"cgroup"`            // "": not known
	AlsoIn     []string `json:"also_in,omitempty"` // its paths in other hierarchies of cgroup v1
	Container  string   `json:"container"`         // "": none
	ID         uint64   `json:"-"`                 // of its session: a number that only grows
}

// JobState is a job: what one `gpuarb run` started, or one bare preloaded process.
type JobState struct {
	ID         uint64           `json:"id"`
	Name       string           `json:"name"` // that its user gave it; "": none
	UID        uint32           `json:"uid"`
	User       string           `json:"user"`
	Command    string           `json:"command"`
	State      State            `json:"state"`
	Run        bool             `json:"run"`         // opened by `gpuarb run`
	PerProcess bool             `json:"per_process"` // the limits are each process's own
	StreamsMax int              `json:"streams_max"`
	Denial     string           `json:"denial"`    // why the last of its requests was refused; "": none was
	DenialMs   int64            `json:"denial_ms"` // since then
	Rule       string           `json:"rule"`      // that it is under: "rule 2 (user student)", "the defaults"
	PID        int              `json:"pid"`       // who asked for it: gpuarb run, or the process itself
	AgeMs      int64            `json:"age_ms"`
	StillRuns  string           `json:"still_runs"` // processes that go on after the job's command has ended: "ssh-agent[4711]"; "": the command goes on, or none is known
	StreamsBy  string           `json:"streams_by"` // who or what set StreamsMax
	Pressure   PressureState    `json:"pressure"`
	Processes  []int            `json:"processes"`
	Devices    []JobDeviceState `json:"devices"`
}

// JobDeviceState is a job's account on one device. Its limits hold for each device by itself.
type JobDeviceState struct {
	Device int              `json:"device"`
	Min    accounting.Bytes `json:"min_bytes"`
	Max    accounting.Bytes `json:"max_bytes"`

	Reserved accounting.Bytes `json:"reserved_bytes"` // for the job and its processes, used or not
	Used     accounting.Bytes `json:"used_bytes"`
	Peak     accounting.Bytes `json:"peak_bytes"`

	MinBy string `json:"min_by"` // who or what set it: a rule, the flags that it was started with, a user; "": there is none
	MaxBy string `json:"max_by"` // likewise
}

// BudgetState is a budget that several jobs share by a rule, as long as there is one of them; or
// what all programs of a user, or in a cgroup, may hold (without a rule), as long as it is limited.
type BudgetState struct {
	Name      string              `json:"name"`       // for people: "rule students", "user bob"
	Rule      string              `json:"rule"`       // by which rule: its name, or what it matches; "": the limit of a user or cgroup
	Scope     string              `json:"scope"`      // user, cgroup or rule
	UID       uint32              `json:"uid"`        // of scope user
	Cgroup    string              `json:"cgroup"`     // of scope cgroup
	Streams   int                 `json:"streams"`    // the most of each lease of a user; 0: not limited
	StreamsBy string              `json:"streams_by"` // by whom
	Jobs      []uint64            `json:"jobs"`       // those that share it now
	Devices   []BudgetDeviceState `json:"devices"`
}

// BudgetDeviceState is such a budget's account on one device.
type BudgetDeviceState struct {
	Device int              `json:"device"`
	Min    accounting.Bytes `json:"min_bytes"`
	Max    accounting.Bytes `json:"max_bytes"`
	MaxBy  string           `json:"max_by"` // a rule, or who set it; "": there is none
	Used   accounting.Bytes `json:"used_bytes"`
	Free   accounting.Bytes `json:"free_bytes"` // neither held nor reserved; Max: no limit
	Over   bool             `json:"over"`       // more is held than may be
}

// RuleState is a rule of the configuration, and what it gives now.
type RuleState struct {
	ID        uint64            `json:"id"`    // by which messages name it
	Name      string            `json:"name"`  // or its number, where it has none
	Title     string            `json:"title"` // as JobState.Rule has it
	Scope     string            `json:"scope"`
	Streams   int               `json:"streams"` // the most of each lease
	StreamsBy string            `json:"streams_by"`
	Devices   []RuleDeviceState `json:"devices"`
}

// RuleDeviceState is what a rule gives on one device.
type RuleDeviceState struct {
	Device int              `json:"device"`
	Max    accounting.Bytes `json:"max_bytes"`
	MaxBy  string           `json:"max_by"` // "": there is none
}

// UserState is a user with all of his jobs. What limits him is in BudgetState.
type UserState struct {
	UID      uint32           `json:"uid"`
	Name     string           `json:"name"` // "": not known
	Used     accounting.Bytes `json:"used_bytes"`
	Max      accounting.Bytes `json:"max_bytes"` // limit of all the user's programs together on each device, the lowest if devices differ; Max: no limit
	Streams  int              `json:"streams"`
	Pressure PressureState    `json:"pressure"`
	Counts   RequestCounts    `json:"-"` // since the daemon remembers the user; long, and for files alone
}

// PressureState tells for how long somebody waited for bytes (some), and for how long nobody went on meanwhile (full), as
// the kernel's pressure stall information does.
type PressureState struct {
	Some PressureLine `json:"some"`
	Full PressureLine `json:"full"`
}

// PressureLine is one of the two: percents of the last 10, 60 and 300 seconds, and microseconds in all.
type PressureLine struct {
	Avg10   float64 `json:"avg10"`
	Avg60   float64 `json:"avg60"`
	Avg300  float64 `json:"avg300"`
	TotalUs uint64  `json:"total_us"`
}

// RequestCounts is what became of requests.
type RequestCounts struct {
	Waits   []WaitCount   `json:"waits"`   // one for each outcome, in an order that stays
	Refused []ReasonCount `json:"refused"` // one for each reason, likewise
}

// WaitCount is how long requests waited that had one outcome.
type WaitCount struct {
	Outcome string      `json:"outcome"` // granted, timeout, cancelled, deadlock or refused
	UpTo    []ClassWait `json:"up_to"`   // each counts those before it too
	Count   uint64      `json:"count"`   // of all
	SumMs   uint64      `json:"sum_ms"`
}

// ClassWait is how many requests waited at most so long.
type ClassWait struct {
	Ms    uint64 `json:"ms"`
	Count uint64 `json:"count"`
}

// ReasonCount is how many requests were refused for a reason, as the queue and the log name it.
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
	ClampedWords    uint64 `json:"clamped_words"` // rubbish found in a lease page
	Malformed       uint64 `json:"malformed"`     // messages that were none
	Clients         uint64 `json:"clients"`
	Leases          uint64 `json:"leases"`
	Goroutines      uint64 `json:"goroutines"` // of the daemon
}
