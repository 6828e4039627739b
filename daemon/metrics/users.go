package metrics

// This file has the metrics of users and rules. machine.go lists all metrics; family.go has the
// types.

import (
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// userFamilies returns the metrics of users, and of the rules that apply to them.
func userFamilies() []family {
	user := []string{"user"}
	return []family{
		gauge("wait_seconds", "How long requests waited, by user and outcome. Requests that did not wait are not counted.", appendLabels(user, "outcome"), waits),
		gauge("user_memory_bytes", "Memory in use by a user's programs, on all devices.", user,
			perUser(func(u *figures.UserState, o *output, labels []string) { o.value(float64(u.Used), labels...) })),
		gauge("user_memory_limit_bytes", "Memory that all programs of a user may hold together on each device: the lowest of the limits in force; absent without a limit.", user, userLimit),
		gauge("user_streams", "Streams of a user's programs, on all devices.", user,
			perUser(func(u *figures.UserState, o *output, labels []string) { o.value(float64(u.Streams), labels...) })),
		counter("user_pressure_seconds_total", "How long a job of a user waited for memory (some), and how long none of them could continue meanwhile (full).",
			appendLabels(user, "kind"), perUser(func(u *figures.UserState, o *output, labels []string) { o.pressure(u.Pressure, labels) })),
		gauge("rule_memory_limit_bytes", "Memory that a rule gives on a device; absent without a limit.",
			appendLabels([]string{"rule"}, deviceLabels...), ruleLimits),
	}
}

// userLimit exports the limit in force of each user: the one that was set for the user, or that of a rule
// with one budget for the user's programs, if it is lower.
func userLimit(v *view, o *output) {
	for i := range v.Users {
		u := &v.Users[i]
		most := u.Max
		for _, b := range v.Budgets {
			if b.Scope != "user" || b.UID != u.UID {
				continue
			}
			for _, at := range b.Devices {
				most = min(most, at.Max)
			}
		}
		if most != accounting.Max {
			o.value(float64(most), v.users[i])
		}
	}
}

func perUser(put func(*figures.UserState, *output, []string)) func(*view, *output) {
	return func(v *view, o *output) {
		for i := range v.Users {
			put(&v.Users[i], o, v.users[i:i+1])
		}
	}
}

func waits(v *view, o *output) {
	for i := range v.Users {
		for _, w := range v.Users[i].Counts.Waits {
			upTo := make(map[float64]uint64, len(w.UpTo))
			for _, class := range w.UpTo {
				upTo[milliseconds(class.Ms)] = class.Count
			}
			o.histogram(w.Count, milliseconds(w.SumMs), upTo, v.users[i], w.Outcome)
		}
	}
}

func ruleLimits(v *view, o *output) {
	for i, r := range v.Rules {
		for _, d := range r.Devices {
			if d.Max != accounting.Max {
				o.value(float64(d.Max), appendLabels([]string{v.rules[i]}, v.device(d.Device)...)...)
			}
		}
	}
}
