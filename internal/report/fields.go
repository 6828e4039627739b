package report

// This file has the values of devices, processes, jobs, users and cgroups: each is a file below
// /gpu. Package gpufs serves the files.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// Field is a file in the folder of a device, process, job, cgroup or user, whose state has the type
// T. Text returns the content with the newline at the end.
type Field[T any] struct {
	Name string
	Text func(T) string
}

// one makes a field of a single value.
func one[T any](name string, value func(T) string) Field[T] {
	return Field[T]{name, func(t T) string { return value(t) + "\n" }}
}

// DeviceFields returns the files of a device, by name.
func DeviceFields() []Field[figures.DeviceState] {
	type device = figures.DeviceState
	return []Field[device]{
		{"memory.events", func(d device) string {
			lost := 0
			if d.Lost {
				lost = 1
			}
			return fmt.Sprintf("max %d\nadmitted %d\ndenied %d\nlost %d\n", d.AtMax, d.Admitted, d.Denied, lost)
		}},
		one("memory.current", func(d device) string { return Value(d.Used) }),
		one("memory.free", func(d device) string { return Value(d.Free) }),
		one("memory.max", func(d device) string { return Value(d.Capacity) }),
		one("memory.overhead", func(d device) string { return Value(d.Overhead) }),
		one("memory.peak", func(d device) string { return Value(d.Peak) }),
		{"memory.pressure", func(d device) string { return pressureText(d.Pressure) }},
		one("memory.reserve", func(d device) string { return Value(d.Reserve) }),
		one("memory.suspended", func(d device) string { return Value(d.Suspended) }),
		one("memory.total", func(d device) string { return Value(d.Total) }),
		one("memory.unmanaged", func(d device) string { return Value(d.Unmanaged) }),
		one("name", func(d device) string { return line(d.Name) }),
		one("pci", func(d device) string { return line(d.PCI) }),
		one("slots.current", func(d device) string { return strconv.Itoa(d.SlotsCurrent) }),
		one("slots.max", func(d device) string { return count(d.SlotsMax) }),
		one("state", DeviceState),
		one("streams.current", func(d device) string { return strconv.Itoa(d.Streams) }),
		one("uuid", func(d device) string { return line(d.UUID) }),
		one("vendor", func(d device) string { return line(d.Vendor) }),
	}
}

// Process is a client process with its leases, and its job; nil: the job is not known.
type Process struct {
	State  figures.ProcessState
	Leases []figures.LeaseState
	Job    *figures.JobState
}

// ProcessOf collects what the snapshot has about a process. Leases are found by PID alone, so
// leases of a dead process that had the PID before are included.
func ProcessOf(s figures.Snapshot, state figures.ProcessState) Process {
	p := Process{State: state, Job: s.Job(state.Job)}
	for i := range s.Leases {
		if s.Leases[i].PID == state.PID {
			p.Leases = append(p.Leases, s.Leases[i])
		}
	}
	return p
}

// On returns the process as one device sees it: with only the leases there. Its state is the worst
// state of these leases.
func (p Process) On(device int) Process {
	q := Process{State: p.State}
	for _, l := range p.Leases {
		if l.Device == device {
			q.Leases = append(q.Leases, l)
		}
	}
	states := []figures.State{figures.StateLost, figures.StateDraining, figures.StateOver,
		figures.StateUnverified, figures.StateStuck, figures.StateSuspending, figures.StateSuspended, figures.StateResuming,
		figures.StateWaiting, figures.StateRunning}
	for _, state := range states {
		if slices.ContainsFunc(q.Leases, func(l figures.LeaseState) bool { return l.State == state }) {
			q.State.State = state
			break
		}
	}
	return q
}

// Devices returns the indices of the devices on which the process has a lease.
func (p Process) Devices() []int {
	var list []int
	for _, l := range p.Leases {
		list = append(list, l.Device)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// sum adds up amounts of all elements. It is Max if one amount is Max.
func sum[T any](all []T, of func(T) accounting.Bytes) (sum accounting.Bytes) {
	for _, x := range all {
		sum = sum.Plus(of(x))
	}
	return sum
}

// lowest returns the lowest limit of all elements; none: the value for an empty list.
func lowest[T any](all []T, of func(T) accounting.Bytes, none accounting.Bytes) accounting.Bytes {
	if len(all) == 0 {
		return none
	}
	b := accounting.Max
	for _, x := range all {
		b = min(b, of(x))
	}
	return b
}

// lowest returns the lowest limit of the leases. Without leases, it is the lowest limit of the job.
func (p Process) lowest(of func(figures.LeaseState) accounting.Bytes,
	ofJob func(figures.JobDeviceState) accounting.Bytes, none accounting.Bytes) accounting.Bytes {
	if len(p.Leases) == 0 && p.Job != nil {
		return lowest(p.Job.Devices, ofJob, none)
	}
	return lowest(p.Leases, of, none)
}

func jobMin(d figures.JobDeviceState) accounting.Bytes { return d.Min }
func jobMax(d figures.JobDeviceState) accounting.Bytes { return d.Max }

func (p Process) streamsMax() string {
	least := 0
	for _, l := range p.Leases {
		if least == 0 || l.StreamsMax < least {
			least = l.StreamsMax
		}
	}
	if len(p.Leases) == 0 && p.Job != nil {
		least = p.Job.StreamsMax
	}
	return count(least)
}

// LeaseFields returns the values that a process has on each device, and in total. The total of
// amounts is the sum over the leases; the total of limits is the lowest.
func LeaseFields() []Field[Process] {
	type lease = figures.LeaseState
	total := func(name string, of func(lease) accounting.Bytes) Field[Process] {
		return one(name, func(p Process) string { return Value(sum(p.Leases, of)) })
	}
	number := func(name string, of func(lease) int) Field[Process] {
		return one(name, func(p Process) string {
			n := 0
			for _, l := range p.Leases {
				n += of(l)
			}
			return strconv.Itoa(n)
		})
	}
	return []Field[Process]{
		total("memory.current", func(l lease) accounting.Bytes { return l.Used }),
		{"memory.events", func(p Process) string {
			var atMax, admitted, denied uint64
			for _, l := range p.Leases {
				atMax += l.AtMax
				admitted += l.Admitted
				denied += l.Denied
			}
			return fmt.Sprintf("max %d\nadmitted %d\ndenied %d\n", atMax, admitted, denied)
		}},
		one("memory.max", func(p Process) string {
			return Value(p.lowest(func(l lease) accounting.Bytes { return l.Budget }, jobMax, accounting.Max))
		}),
		one("memory.min", func(p Process) string {
			return Value(p.lowest(func(l lease) accounting.Bytes { return l.Min }, jobMin, 0))
		}),
		total("memory.overhead", func(l lease) accounting.Bytes { return l.Overhead }),
		total("memory.peak", func(l lease) accounting.Bytes { return l.Peak }),
		total("memory.pending", func(l lease) accounting.Bytes { return l.Pending }),
		number("slots", func(l lease) int {
			if l.Slot {
				return 1
			}
			return 0
		}),
		one("state", func(p Process) string { return line(string(p.State.State)) }),
		number("streams.current", func(l lease) int { return l.Streams }),
		one("streams.max", Process.streamsMax),
	}
}

// ProcessFields returns the files of a process, by name.
func ProcessFields() []Field[Process] {
	return append([]Field[Process]{
		one("cgroup", func(p Process) string { return line(p.State.Cgroup) }),
		one("command", func(p Process) string { return line(p.State.Command) }),
		one("container", func(p Process) string { return line(p.State.Container) }),
		one("job", func(p Process) string { return strconv.FormatUint(p.State.Job, 10) }),
		one("nspid", func(p Process) string { return line(nspid(p.State.NSPID)) }),
		one("user", func(p Process) string { return line(p.State.User) }),
	}, LeaseFields()...)
}

// nspid formats a PID in a namespace; "": not known.
func nspid(pid int) string {
	if pid == 0 {
		return ""
	}
	return strconv.Itoa(pid)
}

// Freeze is the name of the file that is 1 while a job is asked to give its memory back, and while it is suspended.
const Freeze = "freeze"

// JobFields returns the files of a job, by name. Amounts are sums over its devices. Limits hold on
// each device, and the lowest is shown.
func JobFields() []Field[figures.JobState] {
	type job = figures.JobState
	total := func(name string, of func(figures.JobDeviceState) accounting.Bytes) Field[job] {
		return one(name, func(j job) string { return Value(sum(j.Devices, of)) })
	}
	return []Field[job]{
		one("command", func(j job) string { return line(j.Command) }),
		one(Freeze, func(j job) string {
			if j.Residence == figures.Suspending || j.Residence == figures.Suspended {
				return "1"
			}
			return "0"
		}),
		total("memory.current", func(d figures.JobDeviceState) accounting.Bytes { return d.Used }),
		one("memory.max", func(j job) string { return Value(lowest(j.Devices, jobMax, accounting.Max)) }),
		one("memory.min", func(j job) string { return Value(lowest(j.Devices, jobMin, 0)) }),
		total("memory.peak", func(d figures.JobDeviceState) accounting.Bytes { return d.Peak }),
		{"memory.pressure", func(j job) string { return pressureText(j.Pressure) }},
		total("memory.suspended", func(d figures.JobDeviceState) accounting.Bytes { return d.Suspended }),
		one("name", func(j job) string { return line(j.Name) }),
		{"processes", func(j job) string { return pidLines(j.Processes) }},
		one("state", func(j job) string { return line(string(j.State)) }),
		one("streams.max", func(j job) string { return count(j.StreamsMax) }),
		one("user", func(j job) string { return line(j.User) }),
	}
}

// pidLines formats PIDs, one per line.
func pidLines(pids []int) string {
	var b strings.Builder
	for _, pid := range pids {
		fmt.Fprintln(&b, pid)
	}
	return b.String()
}

// CgroupFields returns the files of a cgroup, by name.
func CgroupFields() []Field[figures.CgroupState] {
	type group = figures.CgroupState
	return []Field[group]{
		{"cgroup.procs", func(g group) string { return pidLines(g.Processes) }},
		one("memory.current", func(g group) string { return Value(g.Used) }),
		one("memory.max", func(g group) string { return Value(g.Max) }),
		one("streams.current", func(g group) string { return fmt.Sprint(g.Streams) }),
	}
}

// UserFields returns the files of a user, by name.
func UserFields() []Field[figures.UserState] {
	type user = figures.UserState
	return []Field[user]{
		one("memory.current", func(u user) string { return Value(u.Used) }),
		one("memory.max", func(u user) string { return Value(u.Max) }),
		{"memory.pressure", func(u user) string { return pressureText(u.Pressure) }},
		{"stats", func(u user) string {
			var b strings.Builder
			requestCounts(&b, u.Counts)
			return b.String()
		}},
		one("streams.current", func(u user) string { return fmt.Sprint(u.Streams) }),
	}
}
