package arbiter

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// Snapshot returns the whole state, exact at this moment: every word is read once,
// and the sums of devices and jobs are of those readings. Version and the counters
// of messages are the caller's to fill in.
func (a *Arbiter) Snapshot(now time.Time) accounting.Snapshot {
	s := accounting.Snapshot{TimeUnixNano: now.UnixNano(), Stats: a.stats}
	leases := make([]*lease, 0, len(a.leases))
	for _, l := range a.leases {
		a.look(l)
		leases = append(leases, l)
	}
	slices.SortFunc(leases, func(x, y *lease) int {
		if x.device != y.device {
			return cmp.Compare(x.device.Index, y.device.Index)
		}
		return byAge(x, y)
	})
	s.Leases = make([]accounting.LeaseState, len(leases))
	for i, l := range leases {
		a.leaseState(&s.Leases[i], l, now)
	}
	s.Devices = make([]accounting.DeviceState, len(a.devices))
	for i, d := range a.devices {
		s.Devices[i] = a.deviceState(d)
	}
	s.Processes = a.processStates()
	s.Jobs = a.jobStates()
	s.Stats.Clients = uint64(len(s.Processes))
	s.Stats.Leases = uint64(len(leases))
	return s
}

// leaseState describes a lease that was just looked at.
func (a *Arbiter) leaseState(to *accounting.LeaseState, l *lease, now time.Time) {
	p := &l.session.process
	granted := l.sum.Granted()
	*to = accounting.LeaseState{
		PID: p.PID, User: p.User, UID: p.UID, Device: l.device.Index, State: l.state(),
		Used: l.seen, Granted: granted, Credit: granted - l.seen,
		Budget: l.sum.Max(), Min: l.sum.Min(), Peak: l.peak, Overhead: l.overhead,
		Streams: l.sum.Streams(), StreamsMax: l.sum.StreamsMax(), Contexts: l.contexts,
		Job: uint64(l.session.job.id), AgeSeconds: max(0, int64(now.Sub(l.opened)/time.Second)),
		Admitted: l.admitted, Denied: l.denied, AtMax: l.atMax, Command: p.Command,
	}
	if l.session.alive() && !l.lost {
		to.Pending = min(a.words.Pending(l.id), l.seen)
	}
}

// state is how a lease is doing.
func (l *lease) state() accounting.State {
	switch {
	case l.lost:
		return accounting.StateLost
	case !l.session.alive():
		return accounting.StateDraining
	case l.sum.Over():
		return accounting.StateOver
	case l.unverified:
		return accounting.StateUnverified
	}
	return accounting.StateRunning
}

// worse returns the state that comes first by precedence.
func worse(x, y accounting.State) accounting.State {
	for _, s := range [...]accounting.State{
		accounting.StateLost, accounting.StateDraining, accounting.StateOver,
		accounting.StateUnverified, accounting.StateWaiting,
	} {
		if x == s || y == s {
			return s
		}
	}
	return accounting.StateRunning
}

// deviceState describes a device whose leases were just looked at.
func (a *Arbiter) deviceState(d *device) accounting.DeviceState {
	sums := a.ledger.Device(d.Index)
	return accounting.DeviceState{
		Index: d.Index, Vendor: d.Vendor, Name: d.Name, UUID: d.UUID, PCI: d.PCI, Lost: d.lost,
		Total: d.Total, Reserve: d.reserve(), Capacity: sums.Limit,
		Granted: sums.Granted, Committed: sums.Committed, Used: d.peak.seen, Peak: d.peak.most,
		Unmanaged: d.unmanaged, Overhead: d.overhead,
		Streams: sums.Streams, SlotsMax: d.rule.SlotsMax,
		Admitted: d.admitted, Denied: d.denied, AtMax: d.atMax,
		UnmanagedBy: slices.Clone(d.unmanagedBy),
	}
}

// processStates describes the clients, by PID.
func (a *Arbiter) processStates() []accounting.ProcessState {
	sessions := slices.SortedFunc(maps.Values(a.sessions), func(x, y *session) int {
		if x.process.PID != y.process.PID {
			return cmp.Compare(x.process.PID, y.process.PID)
		}
		return cmp.Compare(x.id, y.id)
	})
	states := make([]accounting.ProcessState, len(sessions))
	for i, s := range sessions {
		p := &s.process
		states[i] = accounting.ProcessState{
			PID: p.PID, StartTicks: p.StartTicks, UID: p.UID, User: p.User, Command: p.Command,
			State: s.state(), Job: uint64(s.job.id),
		}
	}
	return states
}

// state is how a process is doing: as the worst of its leases.
func (s *session) state() accounting.State {
	state := accounting.StateRunning
	if !s.alive() {
		state = accounting.StateDraining
	}
	for _, l := range s.leases {
		state = worse(state, l.state())
	}
	return state
}

// jobStates describes the jobs, by ID.
func (a *Arbiter) jobStates() []accounting.JobState {
	jobs := a.sortedJobs()
	states := make([]accounting.JobState, len(jobs))
	pids := make([]int, 0, len(a.sessions))
	on := make([]accounting.JobDeviceState, 0, len(jobs)*len(a.devices))
	for i, j := range jobs {
		p := &j.request.Process
		to := &states[i]
		*to = accounting.JobState{
			ID: uint64(j.id), UID: p.UID, User: p.User, Command: cmp.Or(j.request.Command, p.Command),
			State: accounting.StateRunning, Run: j.run, PerProcess: j.each(), StreamsMax: j.streamsMax(),
		}
		first := len(pids)
		for _, s := range j.sessions {
			pids = append(pids, s.process.PID)
			to.State = worse(to.State, s.state())
		}
		to.Processes = pids[first:len(pids):len(pids)]
		slices.Sort(to.Processes)
		first = len(on)
		for _, d := range a.devices {
			on = append(on, j.deviceState(d))
		}
		to.Devices = on[first:len(on):len(on)]
	}
	return states
}

// deviceState is a job's account on a device. A device that it never touched costs nothing.
func (j *job) deviceState(d *device) accounting.JobDeviceState {
	limits := j.limits(d)
	if j.each() {
		limits = j.perProcess(d)
	}
	state := accounting.JobDeviceState{Device: d.Index, Min: limits.Min, Max: limits.Max}
	for _, p := range j.peaks {
		if p.device == d {
			state.Used, state.Peak = p.seen, p.most
		}
	}
	return state
}
