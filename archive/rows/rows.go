package rows

// This file has the lines of the two pipes between the daemon and the history's process. Package daemon writes Settings and Batch, package
// archive writes Answer. Sums are totals since the daemon began to count the job, so that a later line replaces an earlier one.

// Command is the first argument of a gpuarbd that keeps the history. Users do not call it.
const Command = "keep-history"

// SocketName is the name of the readers' socket, in the folder of the daemon's socket.
const SocketName = "history.sock"

// FileName is the name of the store in its folder.
const FileName = "history.db"

// Settings is the first line that the daemon writes.
type Settings struct {
	Folder   string `json:"folder"`    // folder of the store
	MaxBytes int64  `json:"max_bytes"` // largest size of the store
	MaxAgeMs int64  `json:"max_age_ms"`
	Owner    uint32 `json:"owner"`  // user that sees all rows, like root: the daemon's own
	Daemon   string `json:"daemon"` // ID of this start of the daemon
}

// Batch is each later line of the daemon.
type Batch struct {
	Number  uint64   `json:"number"` // number of the batch, which its answer repeats
	AtMs    int64    `json:"at_ms"`  // Unix time
	Jobs    []Job    `json:"jobs,omitempty"`
	Minutes []Minute `json:"minutes,omitempty"`
	// Settled: each running job has had a row by this daemon. Jobs of earlier daemons that have no row by this one get the end Unknown.
	Settled bool `json:"settled,omitempty"`
}

// Answer is a line that the history's process writes to the daemon.
type Answer struct {
	Number uint64 `json:"number,omitempty"` // the batches up to this one are written; 0: the line answers no batch
	Note   string `json:"note,omitempty"`   // for the log; "": nothing
	Error  string `json:"error,omitempty"`  // why the last batch could not be written; "": no error
}

// How a job ended.
const (
	Runs    = ""
	Exited  = "exit"    // Job.Code is the exit code of its command
	Killed  = "signal"  // Job.Code is the signal that ended its command
	Died    = "died"    // its last process ended while it held something. No `gpuarb run` has reported an exit code.
	Closed  = "closed"  // its last process ended and held nothing, or a claim was given back
	Refused = "refused" // it never started
	Unknown = "unknown" // it was gone when the daemon was started again
	// Continued is the end of a row whose job goes on in a row of a later daemon. No reader sees it.
	Continued = "continued"
)

// Job is a job with its totals since the last start of the daemon.
type Job struct {
	ID       uint64            `json:"id"`
	Key      string            `json:"key"` // identifies the job over restarts of the daemon
	UID      uint32            `json:"uid"`
	User     string            `json:"user"`
	Group    string            `json:"group,omitempty"`
	Name     string            `json:"name,omitempty"`
	Command  string            `json:"command,omitempty"`
	Program  string            `json:"program,omitempty"` // what repeated runs of a command have in common (ProgramOf)
	Unit     string            `json:"unit,omitempty"`
	BeganMs  int64             `json:"began_ms"`
	EndedMs  int64             `json:"ended_ms,omitempty"` // 0: it goes on
	How      string            `json:"how,omitempty"`
	Code     int               `json:"code,omitempty"`
	Reasons  map[string]uint64 `json:"reasons,omitempty"` // refused requests by reason
	Refusal  string            `json:"refusal,omitempty"` // text of the last refusal
	LackedBy uint64            `json:"lacked,omitempty"`  // largest refused request of memory, in bytes
	Devices  []Use             `json:"devices,omitempty"`
}

// NoDevice is the index for counts that belong to no device, such as the wait of a job to start.
const NoDevice = -1000

// Use has the totals of a job on one device. Sums are in byte-seconds.
type Use struct {
	Device    int     `json:"device"` // index
	UUID      string  `json:"uuid,omitempty"`
	Held      float64 `json:"held,omitempty"`    // bytes that its programs had allocated
	Granted   float64 `json:"granted,omitempty"` // Held with idle credit
	Reserved  float64 `json:"reserved,omitempty"`
	Committed float64 `json:"committed,omitempty"` // the larger of Held and reserved bytes
	Suspended float64 `json:"suspended,omitempty"` // always 0: the daemon does not count it yet
	Now       uint64  `json:"now,omitempty"`       // bytes that its programs have allocated at present
	Peak      uint64  `json:"peak,omitempty"`      // most bytes at once
	IdleMs    int64   `json:"idle_ms,omitempty"`
	Waits     uint64  `json:"waits,omitempty"`
	WaitedMs  int64   `json:"waited_ms,omitempty"`
	Refused   uint64  `json:"refused,omitempty"`
}

// Minute has the figures of a device in one minute, in bytes: means, except that Total is the last value.
type Minute struct {
	Minute    int64  `json:"minute"` // Unix time in minutes
	Device    int    `json:"device"`
	UUID      string `json:"uuid,omitempty"`
	Used      uint64 `json:"used"`
	Reserved  uint64 `json:"reserved"`
	Grantable uint64 `json:"grantable"`
	Unmanaged uint64 `json:"unmanaged"`
	Total     uint64 `json:"total"`
}
