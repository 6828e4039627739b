package metrics

import (
	"cmp"
	"strconv"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/figures"
)

// view is a snapshot, with the labels of what it has.
type view struct {
	figures.Snapshot
	devices map[int][]string // the labels device and uuid, by index
	users   []string         // the label user, in the snapshot's order
	rules   []string         // likewise
}

func newView(s figures.Snapshot) *view {
	v := &view{Snapshot: s, devices: make(map[int][]string, len(s.Devices))}
	for _, d := range s.Devices {
		v.devices[d.Index] = []string{accounting.IndexName(d.Index), clean(d.UUID)}
	}
	var users, rules []string
	for _, u := range s.Users {
		users = append(users, cmp.Or(u.Name, strconv.FormatUint(uint64(u.UID), 10)))
	}
	for _, r := range s.Rules {
		rules = append(rules, r.Name)
	}
	v.users, v.rules = distinct(users), distinct(rules)
	return v
}

// device are the labels of a device; of none in particular, "any".
func (v *view) device(index int) []string {
	if labels, ok := v.devices[index]; ok {
		return labels
	}
	return []string{"any", ""}
}

// microseconds are seconds.
func microseconds(us uint64) float64 { return float64(us) / float64(time.Second/time.Microsecond) }

// milliseconds are seconds.
func milliseconds(ms uint64) float64 { return float64(ms) / float64(time.Second/time.Millisecond) }
