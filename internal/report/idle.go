package report

// This file finds the processes that hold memory of a device and do nothing with it. why.go names
// them to a job that waits for such memory: their users can end them, or drop their caches.

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// IdleHolder is a process that holds memory of a device and does nothing with it.
type IdleHolder struct {
	Job     uint64           `json:"job"`
	JobName *string          `json:"job_name"`
	PID     int              `json:"pid"`
	UID     uint32           `json:"uid"`
	User    string           `json:"user"`
	Command string           `json:"command"`
	Used    accounting.Bytes `json:"used_bytes"`
	IdleMs  int64            `json:"idle_ms"`
	Util    *int             `json:"util_percent"` // null: the device does not tell
}

const (
	idleFromMs = 10_000 // for how long a process has done nothing when it is called idle
	idleNamed  = 5      // how many idle processes of a device `gpuarb why` names
)

// idleHolders returns the idle processes of a device that hold memory, the largest first.
func idleHolders(s figures.Snapshot, device int) []IdleHolder {
	idle := []IdleHolder{}
	for i := range s.Leases {
		l := &s.Leases[i]
		if l.Device != device || l.Used == 0 || l.UnusedMs < idleFromMs || l.State == figures.StateDraining || l.State == figures.StateLost {
			continue
		}
		idle = append(idle, IdleHolder{Job: l.Job, JobName: Unless(l.JobName, ""), PID: l.PID, UID: l.UID, User: l.User, Command: l.Command,
			Used: l.Used, IdleMs: l.UnusedMs, Util: l.Util})
	}
	slices.SortStableFunc(idle, func(x, y IdleHolder) int { return cmp.Compare(y.Used, x.Used) })
	return idle
}

// writeIdle writes the lines of `gpuarb why` about the idle processes of a device.
func writeIdle(out io.Writer, idle []IdleHolder) {
	for _, h := range idle[:min(len(idle), idleNamed)] {
		does := "has done nothing"
		if h.Util == nil { // it may keep the device busy
			does = "has made no call"
		}
		fmt.Fprintf(out, "         %s's %s[%d] holds %s and %s for %s\n", Escape(h.User), Escape(cmp.Or(orZero(h.JobName), program(h.Command))), h.PID,
			h.Used.Human(), does, Style{Human: true}.span(h.IdleMs))
	}
	if more := len(idle) - idleNamed; more > 0 {
		fmt.Fprintf(out, "         and %d more of that kind: `gpuarb ps --idle 10s` lists them\n", more)
	}
}
