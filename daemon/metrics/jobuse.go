package metrics

// This file has the metrics of how jobs use devices: utilisation, and since when they are idle. machine.go lists them.

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/gpuarb/gpuarb/internal/figures"
)

// jobUse is the use of a device by the living processes of a job.
type jobUse struct {
	job      uint64
	device   int
	percent  int   // utilisation, added up
	known    bool  // the device tells utilisation
	unusedMs int64 // the shortest time without use
}

// jobUses returns the use of each device by each job that has a lease there, sorted by job and device.
func jobUses(leases []figures.LeaseState) (uses []jobUse) {
	type key struct {
		job    uint64
		device int
	}
	at := map[key]int{}
	for i := range leases {
		l := &leases[i]
		if l.State == figures.StateDraining || l.State == figures.StateLost {
			continue
		}
		k, known := at[key{l.Job, l.Device}]
		if !known {
			k = len(uses)
			at[key{l.Job, l.Device}] = k
			uses = append(uses, jobUse{job: l.Job, device: l.Device, unusedMs: l.UnusedMs})
		}
		u := &uses[k]
		u.unusedMs = min(u.unusedMs, l.UnusedMs)
		if l.Util != nil {
			u.known, u.percent = true, u.percent+*l.Util
		}
	}
	slices.SortFunc(uses, func(x, y jobUse) int { return cmp.Or(cmp.Compare(x.job, y.job), cmp.Compare(x.device, y.device)) })
	return uses
}

func (u jobUse) labels(v *view) []string {
	return appendLabels([]string{strconv.FormatUint(u.job, 10)}, v.device(u.device)...)
}

func jobUtilization(v *view, o *output) {
	for _, u := range jobUses(v.Leases) {
		if u.known {
			o.value(float64(u.percent)/100, u.labels(v)...)
		}
	}
}

func jobIdle(v *view, o *output) {
	for _, u := range jobUses(v.Leases) {
		o.value(milliseconds(uint64(u.unusedMs)), u.labels(v)...)
	}
}
