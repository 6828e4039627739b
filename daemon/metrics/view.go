package metrics

// This file prepares the labels of a snapshot for all families. exporter.go makes the view;
// labels.go makes the values.

import (
	"cmp"
	"strconv"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// view is a snapshot with the labels of its rows.
type view struct {
	figures.Snapshot
	devices map[int][]string // labels device and uuid, by index
	users   []string         // label user, in the order of the snapshot
	rules   []string         // label rule, in the order of the snapshot
}

func newView(s figures.Snapshot) *view {
	v := &view{Snapshot: s, devices: make(map[int][]string, len(s.Devices))}
	for _, d := range s.Devices {
		v.devices[d.Index] = []string{accounting.IndexName(d.Index), labelValue(d.UUID)}
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

// device returns the labels of a device. For no particular device the label is "any".
func (v *view) device(index int) []string {
	if labels, ok := v.devices[index]; ok {
		return labels
	}
	return []string{"any", ""}
}

// microseconds converts microseconds to seconds.
func microseconds(us uint64) float64 { return float64(us) / float64(time.Second/time.Microsecond) }

// milliseconds converts milliseconds to seconds.
func milliseconds(ms uint64) float64 { return float64(ms) / float64(time.Second/time.Millisecond) }
