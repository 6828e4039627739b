package gpufs

import (
	"io"
	"slices"
	"strconv"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/report"
)

// devices/N

func (b *builder) devices(s *snapshot) ([]entry, bool) {
	list := make([]entry, 0, len(s.Devices))
	for _, d := range s.Devices {
		list = append(list, b.deviceEntry(d.Index))
	}
	return list, true
}

func (b *builder) findDevice(s *snapshot, name string) (entry, bool) {
	n, ok := number(name)
	if !ok {
		return entry{}, false
	}
	d, ok := s.device(int(n))
	return b.deviceEntry(d.Index), ok
}

func (b *builder) deviceEntry(index int) entry {
	id := identity{kind: kindDevice, device: index + 1}
	find := func(s *snapshot) (accounting.DeviceState, bool) { return s.device(index) }
	dir := alive(find, func(accounting.DeviceState) []entry {
		entries := append(values(b.device, find),
			entry{name: "leases", text: rendered(func(w io.Writer, s accounting.Snapshot) error {
				return files.Leases(w, onDevice(s, index))
			})},
			entry{name: "queue", text: rendered(func(w io.Writer, s accounting.Snapshot) error {
				return files.Queue(w, onDevice(s, index))
			})},
			entry{name: "unmanaged", text: rendered(func(w io.Writer, s accounting.Snapshot) error {
				return files.Unmanaged(w, onDevice(s, index))
			})})
		return numbered(b.knobs(entries, deviceKnobs, Setting{Of: OfDevice, Device: index}), id, b.uid)
	})
	return entry{name: strconv.Itoa(index), id: id, uid: b.uid, dir: dir}
}

// onDevice leaves one device, the leases of it, and the tickets that wait for it, those
// that would take any device among them.
func onDevice(s accounting.Snapshot, index int) accounting.Snapshot {
	s.Devices = slices.DeleteFunc(slices.Clone(s.Devices), func(d accounting.DeviceState) bool { return d.Index != index })
	var leases []accounting.LeaseState
	for _, l := range s.Leases {
		if l.Device == index {
			leases = append(leases, l)
		}
	}
	s.Leases = leases
	var queue []accounting.TicketState
	for _, t := range s.Queue {
		if t.Device == index || t.Device < 0 {
			queue = append(queue, t)
		}
	}
	s.Queue = queue
	return s
}

// processes/PID

func (b *builder) processes(s *snapshot) ([]entry, bool) {
	list := make([]entry, 0, len(s.Processes))
	for i, p := range s.Processes {
		if i > 0 && p.PID == s.Processes[i-1].PID {
			continue // another session of it, or of the PID's last owner
		}
		latest, _ := s.processByPID(p.PID)
		list = append(list, b.processEntry(latest))
	}
	return list, true
}

func (b *builder) findProcess(s *snapshot, name string) (entry, bool) {
	n, ok := number(name)
	if !ok {
		return entry{}, false
	}
	p, ok := s.processByPID(int(n))
	return b.processEntry(p), ok
}

// holding collects what a snapshot has on a process.
func holding(s *snapshot, id processID) (report.Process, bool) {
	p, ok := s.process(id)
	if !ok {
		return report.Process{}, false
	}
	return report.ProcessOf(s.Snapshot, p), true
}

func (b *builder) processEntry(p accounting.ProcessState) entry {
	pid := processID{p.PID, p.StartTicks}
	id := identity{kind: kindProcess, id: uint64(p.PID), generation: p.StartTicks}
	find := func(s *snapshot) (report.Process, bool) { return holding(s, pid) }
	stillThere := func(s *snapshot) (accounting.ProcessState, bool) { return s.process(pid) }
	dir := alive(stillThere, func(p accounting.ProcessState) []entry {
		devices := entry{name: "devices", dir: &directory{changing: true,
			list: func(s *snapshot) ([]entry, bool) { return b.processDevices(s, pid) },
			find: func(s *snapshot, name string) (entry, bool) { return b.findProcessDevice(s, pid, name) },
		}}
		entries := append(values(b.process, find), devices)
		return numbered(b.knobs(entries, accountKnobs, Setting{Of: OfProcess, Device: AllDevices,
			PID: p.PID, StartTicks: p.StartTicks}), id, p.UID)
	})
	return entry{name: strconv.Itoa(p.PID), id: id, uid: p.UID, dir: dir}
}

// processes/PID/devices/N

func (b *builder) processDevices(s *snapshot, pid processID) ([]entry, bool) {
	p, ok := holding(s, pid)
	if !ok {
		return nil, false
	}
	var list []entry
	for _, index := range p.Devices() {
		list = append(list, b.processDeviceEntry(p.State, index))
	}
	return list, true
}

func (b *builder) findProcessDevice(s *snapshot, pid processID, name string) (entry, bool) {
	n, ok := number(name)
	if !ok {
		return entry{}, false
	}
	p, ok := holding(s, pid)
	if !ok || !slices.Contains(p.Devices(), int(n)) {
		return entry{}, false
	}
	return b.processDeviceEntry(p.State, int(n)), true
}

func (b *builder) processDeviceEntry(p accounting.ProcessState, index int) entry {
	pid := processID{p.PID, p.StartTicks}
	id := identity{kind: kindProcessDevice, id: uint64(p.PID), generation: p.StartTicks, device: index + 1}
	find := func(s *snapshot) (report.Process, bool) {
		p, ok := holding(s, pid)
		q := p.On(index)
		return q, ok && len(q.Leases) > 0
	}
	dir := alive(find, func(q report.Process) []entry {
		return numbered(b.knobs(values(b.lease, find), leaseKnobs, Setting{Of: OfProcess, Device: index,
			PID: p.PID, StartTicks: p.StartTicks}), id, q.State.UID)
	})
	return entry{name: strconv.Itoa(index), id: id, uid: p.UID, dir: dir}
}

// jobs/ID

func (b *builder) jobs(s *snapshot) ([]entry, bool) {
	list := make([]entry, 0, len(s.Jobs))
	for _, j := range s.Jobs {
		list = append(list, b.jobEntry(j))
	}
	return list, true
}

func (b *builder) findJob(s *snapshot, name string) (entry, bool) {
	n, ok := number(name)
	if !ok {
		return entry{}, false
	}
	j, ok := s.job(n)
	return b.jobEntry(j), ok
}

func (b *builder) jobEntry(j accounting.JobState) entry {
	id := identity{kind: kindJob, id: j.ID}
	find := func(s *snapshot) (accounting.JobState, bool) { return s.job(j.ID) }
	dir := alive(find, func(j accounting.JobState) []entry {
		return numbered(b.knobs(values(b.job, find), accountKnobs, Setting{Of: OfJob, Device: AllDevices, Job: j.ID}), id, j.UID)
	})
	return entry{name: strconv.FormatUint(j.ID, 10), id: id, uid: j.UID, dir: dir}
}
