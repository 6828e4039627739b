package arbiter_test

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file has the reference model of pressure. Whenever time passes, it goes through all objects and adds up how long requests wait.

type refPressure struct{ some, full time.Duration }

// refPressures has the pressures of devices, jobs and users.
type refPressures struct {
	devices map[*refDevice]refPressure
	jobs    map[*refJob]refPressure
	users   map[uint32]refPressure
}

func newRefPressures() refPressures {
	return refPressures{map[*refDevice]refPressure{}, map[*refJob]refPressure{}, map[uint32]refPressure{}}
}

// weigh adds a time, during which nothing changed, to the pressures of the devices, jobs and users with a request that waits for bytes.
// Whether a request waits for bytes is taken from the arbiter's last evaluation of it: after later grants another limit may refuse the
// request first, which the arbiter does not check each time.
func (d *drive) weigh(pause time.Duration) {
	on, of, by := map[*refDevice]bool{}, map[*refJob]bool{}, map[uint32]bool{}
	for _, t := range d.tickets {
		for _, dev := range d.spots(t) {
			if d.arb.WaitsForBytes(t.id, dev.index) {
				on[dev], of[t.job], by[t.job.uid] = true, true, true
			}
		}
	}
	leases := func(j *refJob, on *refDevice) bool {
		return slices.ContainsFunc(j.sessions, func(s *refSession) bool {
			return !s.dead && slices.ContainsFunc(s.leases, func(l *refLease) bool { return !l.lost && (on == nil || l.device == on) })
		})
	}
	stands := func(on *refDevice, in func(*refJob) bool) bool {
		return !slices.ContainsFunc(d.jobs, func(j *refJob) bool { return in(j) && leases(j, on) && !d.blocked(j) })
	}
	for dev := range on {
		d.pressures.devices[dev] = d.pressures.devices[dev].add(pause, stands(dev, func(*refJob) bool { return true }))
	}
	for j := range of {
		d.pressures.jobs[j] = d.pressures.jobs[j].add(pause, stands(nil, func(x *refJob) bool { return x == j }))
	}
	for uid := range by {
		d.pressures.users[uid] = d.pressures.users[uid].add(pause, stands(nil, func(x *refJob) bool { return x.uid == uid }))
	}
}

func (p refPressure) add(pause time.Duration, full bool) refPressure {
	if p.some += pause; full {
		p.full += pause
	}
	return p
}

// checkPressures compares the arbiter's totals with the reference's.
func (d *drive) checkPressures() {
	s := d.arb.Snapshot(d.world.now)
	same := func(what string, n any, got figures.PressureState, want refPressure) {
		if got.Some.TotalUs != uint64(want.some.Microseconds()) || got.Full.TotalUs != uint64(want.full.Microseconds()) {
			d.fail("the pressure of %s %v is %+v, want %v", what, n, got, want)
		}
	}
	for i, dev := range d.devices {
		same("device", i, s.Devices[i].Pressure, d.pressures.devices[dev])
	}
	for _, u := range s.Users {
		same("user", u.UID, u.Pressure, d.pressures.users[u.UID])
	}
	for _, j := range d.jobs {
		for _, state := range s.Jobs {
			if j.run && state.ID == uint64(j.id) || j.hasProcess(state.Processes) {
				same("job", state.ID, state.Pressure, d.pressures.jobs[j])
			}
		}
	}
}

func (j *refJob) hasProcess(pids []int) bool {
	return slices.ContainsFunc(j.sessions, func(s *refSession) bool {
		return len(s.leases) > 0 && slices.Contains(pids, s.leases[0].process.PID)
	})
}
