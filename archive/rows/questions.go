package rows

// This file has the questions of readers and the lines of the answers.

// Question is the only line that a reader writes. Times are Unix times in milliseconds.
type Question struct {
	Want    string `json:"want"`
	By      string `json:"by,omitempty"`       // for WantReport: one of Groupings
	SinceMs int64  `json:"since_ms,omitempty"` // 0: from the oldest row
	UntilMs int64  `json:"until_ms,omitempty"` // 0: until now
	Job     uint64 `json:"job,omitempty"`      // for WantJobs: number of a job; 0: any
	Name    string `json:"name,omitempty"`     // for WantJobs and WantPeaks: name of a job; "": any
	Program string `json:"program,omitempty"`  // for WantPeaks, if Name is ""
	Running bool   `json:"running,omitempty"`  // for WantJobs: also jobs that have not ended
	Limit   int    `json:"limit,omitempty"`    // most rows of the answer, the latest; 0: no limit
}

// Values of Question.Want.
const (
	WantReport  = "report"  // answers are Sums
	WantJobs    = "jobs"    // answers are Pasts, the latest first
	WantPeaks   = "peaks"   // answers are Pasts of ended jobs of the reader's own user that held memory or were refused memory
	WantMinutes = "minutes" // answers are Minutes
)

// Groupings are the values of Question.By.
var Groupings = []string{"user", "group", "job", "name", "unit", "command", "device"}

// Sum is a row of a report.
type Sum struct {
	Key       string  `json:"key"`
	Jobs      int64   `json:"jobs"`
	Held      float64 `json:"held_gib_hours"`
	Granted   float64 `json:"granted_gib_hours"`
	Reserved  float64 `json:"reserved_gib_hours"`
	Committed float64 `json:"committed_gib_hours"` // of the larger of held and reserved bytes, at each moment
	AtPeak    float64 `json:"peak_gib_hours"`      // as if each job had held its peak all the time
	Peak      uint64  `json:"peak_bytes"`          // largest peak of a job on one device
	Hours     float64 `json:"hours"`               // time of all jobs together
	Waited    float64 `json:"waited_hours"`
	Idle      float64 `json:"idle_hours"`
	Waits     int64   `json:"waits"`
	Refused   int64   `json:"refused"`
}

// Past is a job of the history. Its sums are over all starts of the daemon.
type Past struct {
	ID       uint64            `json:"id"`
	UID      uint32            `json:"uid"`
	User     string            `json:"user"`
	Group    string            `json:"group"`
	Name     string            `json:"name"`
	Command  string            `json:"command"`
	Unit     string            `json:"unit"`
	BeganMs  int64             `json:"began_ms"`
	SeenMs   int64             `json:"seen_ms"`  // time of its last row
	EndedMs  int64             `json:"ended_ms"` // 0: it goes on
	How      string            `json:"how"`
	Code     int               `json:"code"`
	Held     float64           `json:"held_gib_hours"`
	Reserved float64           `json:"reserved_gib_hours"`
	Peak     uint64            `json:"peak_bytes"`
	Waits    int64             `json:"waits"`
	WaitedMs int64             `json:"waited_ms"`
	IdleMs   int64             `json:"idle_ms"`
	Refused  int64             `json:"refused"`
	Reasons  map[string]uint64 `json:"reasons"`
	Refusal  string            `json:"refusal"`
	LackedBy uint64            `json:"refused_bytes"` // bytes of the largest refused request
}

// Line is one line of an answer. Exactly one field is set. The last line has End or Error.
type Line struct {
	Sum    *Sum    `json:"sum,omitempty"`
	Past   *Past   `json:"job,omitempty"`
	Minute *Minute `json:"minute,omitempty"`
	Error  string  `json:"error,omitempty"`
	End    bool    `json:"end,omitempty"`
}
