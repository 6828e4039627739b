package gpufs

// This file has the folders devices/N, processes/PID, processes/PID/devices/N and jobs/ID. root.go calls it; tree.go
// has the parts of a folder.

import (
	"io"
	"slices"
	"strconv"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
)

// numberedDirectory makes a directory of things with numbers, which come and go.
func numberedDirectory[T any](all func(*snapshot) ([]T, bool), find func(*snapshot, uint64) (T, bool), entryOf func(T) entry) *directory {
	return numberedBy(number, all, find, entryOf)
}

// numberedBy makes such a directory; number converts a name to the number.
func numberedBy[T any](number func(string) (uint64, bool), all func(*snapshot) ([]T, bool), find func(*snapshot, uint64) (T, bool), entryOf func(T) entry) *directory {
	return &directory{changing: true,
		list: func(s *snapshot) ([]entry, bool) {
			found, ok := all(s)
			list := make([]entry, 0, len(found))
			for _, t := range found {
				list = append(list, entryOf(t))
			}
			return list, ok
		},
		find: func(s *snapshot, name string) (entry, bool) {
			n, ok := number(name)
			if !ok {
				return entry{}, false
			}
			t, ok := find(s, n)
			return entryOf(t), ok
		},
	}
}

// deviceNumber converts a device's name to its index; the processor's name is cpu.
func deviceNumber(name string) (uint64, bool) {
	if name == accounting.IndexName(accounting.ProcessorIndex) {
		return accounting.ProcessorIndex, true
	}
	n, ok := number(name)
	return n, ok && n < accounting.MaxGPUs
}

// devices makes the folder devices.
func (b *builder) devices() *directory {
	return numberedBy(deviceNumber, func(s *snapshot) ([]figures.DeviceState, bool) { return s.Devices, true },
		func(s *snapshot, n uint64) (figures.DeviceState, bool) { return s.device(int(n)) },
		func(d figures.DeviceState) entry { return b.deviceEntry(d.Index) })
}

// deviceEntry makes the folder devices/N.
func (b *builder) deviceEntry(index int) entry {
	table := func(name string, print func(io.Writer, figures.Snapshot) error) entry {
		return entry{name: name, text: rendered(func(w io.Writer, s figures.Snapshot) error { return print(w, onDevice(s, index)) })}
	}
	return folder(b, entry{name: accounting.IndexName(index), id: identity{kind: kindDevice, device: index + 1}, uid: b.uid}, nil,
		func(s *snapshot) (figures.DeviceState, bool) { return s.device(index) },
		b.device, Setting{Of: rules.Owner{Kind: rules.OfDevice, ID: uint64(index)}, Device: index}, func() []entry {
			return []entry{table("leases", files.Leases), table("queue", files.Queue), table("unmanaged", files.Unmanaged)}
		})
}

// onDevice reduces a snapshot to one device: the device, its leases, and the tickets that wait for it or for any
// device.
func onDevice(s figures.Snapshot, index int) figures.Snapshot {
	s.Devices = slices.DeleteFunc(slices.Clone(s.Devices), func(d figures.DeviceState) bool { return d.Index != index })
	s.Leases = slices.DeleteFunc(slices.Clone(s.Leases), func(l figures.LeaseState) bool { return l.Device != index })
	s.Queue = slices.DeleteFunc(slices.Clone(s.Queue), func(t figures.TicketState) bool { return t.Device != index && t.Device >= 0 })
	return s
}

// processes makes the folder processes.
func (b *builder) processes() *directory {
	d := numberedDirectory((*snapshot).latest, func(s *snapshot, n uint64) (figures.ProcessState, bool) { return s.processByPID(int(n)) },
		b.processEntry)
	d.pid = func(name string) int {
		n, _ := number(name)
		return int(n)
	}
	return d
}

// processReport collects a process's figures from a snapshot.
func processReport(s *snapshot, id processID) (report.Process, bool) {
	p, ok := s.process(id)
	if !ok {
		return report.Process{}, false
	}
	return report.ProcessOf(s.Snapshot, p), true
}

// processEntry makes the folder processes/PID.
func (b *builder) processEntry(p figures.ProcessState) entry {
	pid := processID{p.PID, p.StartTicks}
	find := func(s *snapshot) (report.Process, bool) { return processReport(s, pid) }
	return folder(b, entry{name: strconv.Itoa(p.PID), id: identity{kind: kindProcess, id: uint64(p.PID), generation: p.StartTicks}, uid: p.UID, part: part{pid: p.PID}},
		func(s *snapshot) bool { _, ok := s.process(pid); return ok }, find, b.process, Setting{Of: processOwner(p.PID, p.StartTicks), Device: rules.AllDevices}, func() []entry {
			devices := numberedBy(deviceNumber,
				func(s *snapshot) ([]int, bool) { p, ok := find(s); return p.Devices(), ok },
				func(s *snapshot, n uint64) (int, bool) {
					p, _ := find(s)
					return int(n), slices.Contains(p.Devices(), int(n))
				},
				func(index int) entry { return b.processDeviceEntry(p, index) })
			devices.pid = func(string) int { return p.PID }
			return []entry{{name: "devices", dir: devices}}
		})
}

// processDeviceEntry makes the folder processes/PID/devices/N.
func (b *builder) processDeviceEntry(p figures.ProcessState, index int) entry {
	pid := processID{p.PID, p.StartTicks}
	id := identity{kind: kindProcessDevice, id: uint64(p.PID), generation: p.StartTicks, device: index + 1}
	return folder(b, entry{name: accounting.IndexName(index), id: id, uid: p.UID, part: part{pid: p.PID}}, nil, func(s *snapshot) (report.Process, bool) {
		p, ok := processReport(s, pid)
		q := p.On(index)
		return q, ok && len(q.Leases) > 0
	}, b.lease, Setting{Of: processOwner(p.PID, p.StartTicks), Device: index}, nil)
}

// jobs makes the folder jobs.
func (b *builder) jobs() *directory {
	return numberedDirectory(func(s *snapshot) ([]figures.JobState, bool) { return s.Jobs, true }, (*snapshot).job, b.jobEntry)
}

// jobEntry makes the folder jobs/ID.
func (b *builder) jobEntry(j figures.JobState) entry {
	return folder(b, entry{name: strconv.FormatUint(j.ID, 10), id: identity{kind: kindJob, id: j.ID}, uid: j.UID}, nil,
		func(s *snapshot) (figures.JobState, bool) { return s.job(j.ID) },
		b.job, Setting{Of: rules.Owner{Kind: rules.OfJob, ID: j.ID}, Device: rules.AllDevices}, nil)
}

// processOwner returns the owner of a process's limits.
func processOwner(pid int, start uint64) rules.Owner {
	return rules.Owner{Kind: rules.OfProcess, ID: uint64(pid), Start: start}
}
