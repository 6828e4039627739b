package report

// This file says whether the library alone holds the budget of a cgroup's job, or the kernel or a driver too. bindings.go, holders.go and
// why.go show it.

import (
	"fmt"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// Wall says who holds the budget of a cgroup's job on a device.
type Wall struct {
	HeldBy     *figures.HeldBy   `json:"held_by"`            // null: another kind of job, or the daemon is older
	DriverMax  *accounting.Bytes `json:"driver_max_bytes"`   // null: neither the kernel nor a driver has a limit
	DriverFail *string           `json:"driver_limit_fails"` // null: nothing fails
}

func wallOf(d *figures.JobDeviceState) Wall {
	return Wall{Unless(d.HeldBy, ""), Unless(d.DriverMax, 0), Unless(d.DriverFail, "")}
}

// anyWall returns who holds the budget of a cgroup's job on its first device, or on the first one on which something fails.
func anyWall(j *figures.JobState) (w Wall) {
	for i := range j.Devices {
		if on := wallOf(&j.Devices[i]); w.HeldBy == nil || w.DriverFail == nil && on.DriverFail != nil {
			w = on
		}
	}
	return w
}

// other returns "kernel" or "driver" if that holds the budget beside the library; "": neither does.
func (w Wall) other() string {
	if w.HeldBy == nil {
		return ""
	}
	_, other, _ := strings.Cut(string(*w.HeldBy), ",")
	return other
}

// text returns the text after the command of a job: what the kernel or the driver holds, or why not; "": only the library holds the budget,
// as it should.
func (w Wall) text() string {
	switch {
	case w.DriverFail != nil:
		return " (held by the library alone: " + line(*w.DriverFail) + ")"
	case w.DriverMax != nil:
		return fmt.Sprintf(" (the %s holds it to %s too)", w.other(), w.DriverMax.Human())
	}
	return ""
}
