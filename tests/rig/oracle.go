package rig

import (
	"fmt"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file has the oracle: the simulated driver's own count of what processes hold. Tests compare it with the daemon's
// leases by Machine.Disagreement.

// Held is the simulated driver's count of what a process holds on a device.
type Held struct {
	PID      int
	Start    uint64 // clock ticks since boot
	Device   int
	Bytes    uint64
	Allocs   int
	Streams  int
	Contexts int
}

// Held returns what every process holds, by the driver's count.
func (m *Machine) Held() []Held {
	m.T.Helper()
	var all []Held
	for line := range strings.Lines(m.Sim("held")) {
		var h Held
		if _, err := fmt.Sscan(line, &h.PID, &h.Start, &h.Device, &h.Bytes, &h.Allocs, &h.Streams, &h.Contexts); err != nil {
			if strings.HasPrefix(line, "PID") {
				continue
			}
			m.fatalf("simcuda held: %q: %v", line, err)
		}
		all = append(all, h)
	}
	return all
}

// HeldBy returns what one process holds on one device, by the driver's count. The result is zero if the driver
// does not know the process.
func (m *Machine) HeldBy(pid, device int) Held {
	m.T.Helper()
	for _, h := range m.Held() {
		if h.PID == pid && h.Device == device {
			return h
		}
	}
	return Held{PID: pid, Device: device}
}

// CountCalls makes the driver count the calls of a function, or of all functions that match
// a glob, from here on.
func (m *Machine) CountCalls(pattern string) {
	m.T.Helper()
	m.Sim("fail", pattern+":1000000000:1") // a fault at the thousand-millionth call, which never comes
}

// Calls returns how many calls a pattern of CountCalls has counted.
func (m *Machine) Calls(pattern string) int {
	m.T.Helper()
	for line := range strings.Lines(m.Sim("faults")) {
		fields := strings.Fields(line)
		n, calls := 0, ""
		if len(fields) > 3 {
			calls = fields[3]
		}
		if _, err := fmt.Sscanf(calls, "calls=%d", &n); err == nil && fields[0] == pattern && fields[1] == "code" {
			return n
		}
	}
	m.fatalf("the calls of %s are not counted", pattern)
	return 0
}

// Lease returns the daemon's state of a process's lease on a device. The test fails
// if the daemon has no such lease.
func (m *Machine) Lease(pid, device int) figures.LeaseState {
	m.T.Helper()
	s := m.Snapshot()
	for _, l := range s.Leases {
		if l.PID == pid && l.Device == device {
			return l
		}
	}
	m.fatalf("process %d has no lease on GPU %d: %+v", pid, device, s.Leases)
	return figures.LeaseState{}
}

// First returns the index of the first device in the snapshot.
func (m *Machine) First() int {
	m.T.Helper()
	return m.Snapshot().Devices[0].Index
}

// Processor returns the processor's row; the zero row if the processor is not shown.
func (m *Machine) Processor() figures.DeviceState {
	m.T.Helper()
	s := m.Snapshot()
	if d := s.Device(accounting.ProcessorIndex); d != nil {
		return *d
	}
	return figures.DeviceState{}
}

// Disagreement describes where the daemon's count differs from the driver's own, for all processes
// but those in except; "": they agree. Call it only while no driver call is in progress.
func (m *Machine) Disagreement(except ...int) string {
	m.T.Helper()
	type place struct{ pid, device int }
	held, wrong := map[place]Held{}, ""
	for _, h := range m.Held() {
		held[place{h.PID, h.Device}] = h
	}
	for _, pid := range except {
		for device := range 2 {
			delete(held, place{pid, device})
		}
	}
	for _, l := range m.Snapshot().Leases {
		h, ok := held[place{l.PID, l.Device}]
		delete(held, place{l.PID, l.Device})
		if ok && (uint64(l.Used) != h.Bytes || l.Streams != h.Streams) {
			wrong += fmt.Sprintf("process %d on GPU %d: the daemon says %d bytes and %d streams (%s), the driver %d and %d\n",
				l.PID, l.Device, l.Used, l.Streams, l.State, h.Bytes, h.Streams)
		}
	}
	for at, h := range held {
		if h.Bytes > 0 || h.Streams > 0 {
			wrong += fmt.Sprintf("process %d on GPU %d holds %d bytes and %d streams, and has no lease\n", at.pid, at.device, h.Bytes, h.Streams)
		}
	}
	return wrong
}
