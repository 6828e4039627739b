package report

import (
	"sort"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// The files of a process, job or device have the values of the snapshot, one per file, also if a
// value is unknown or several leases add up. gpufs tests the files, and report_test.go the tables.

func valuesOf[T any](t *testing.T, fields []Field[T], of T) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, f := range fields {
		text := f.Text(of)
		if _, twice := got[f.Name]; twice {
			t.Errorf("%s is there twice", f.Name)
		}
		if text != "" && !strings.HasSuffix(text, "\n") || text == "\n" {
			t.Errorf("%s holds %q", f.Name, text)
		}
		got[f.Name] = strings.TrimSuffix(text, "\n")
	}
	return got
}

func compare(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	var names []string
	for name := range want {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if got[name] != want[name] {
			t.Errorf("%s: %s is %q, want %q", what, name, got[name], want[name])
		}
	}
}

func snapshotOfTwo() figures.Snapshot {
	return figures.Snapshot{
		Processes: []figures.ProcessState{
			{PID: 5, User: "ann", Command: "a\nb", State: figures.StateOver, Job: 1},
			{PID: 6, User: "bob", Command: "only looks", State: figures.StateRunning, Job: 2},
			{PID: 7, State: figures.StateRunning, Job: 3},
		},
		Leases: []figures.LeaseState{
			{PID: 5, Device: 0, State: figures.StateDraining, Used: 10, Budget: 100, Min: 5, Peak: 20, Streams: 1, StreamsMax: 256, Admitted: 1},
			{PID: 5, Device: 0, State: figures.StateRunning, Used: 30, Budget: 100, Min: 5, Peak: 40, Streams: 2, StreamsMax: 128, Slot: true, Denied: 2},
			{PID: 6, Device: 2, Used: 999},
			{PID: 5, Device: 1, State: figures.StateRunning, Used: 2, Budget: accounting.Max, Peak: 3, StreamsMax: 256, Slot: true, AtMax: 4},
		},
		Jobs: []figures.JobState{
			{ID: 2, StreamsMax: 64, Processes: []int{6, 8}, Devices: []figures.JobDeviceState{{Min: 7, Max: 70, Used: 1}, {Device: 1, Min: 9, Max: 90, Used: 2}}},
			{ID: 3},
		},
	}
}

func TestProcessFields(t *testing.T) {
	s := snapshotOfTwo()
	p := ProcessOf(s, s.Processes[0])
	compare(t, "in all", valuesOf(t, ProcessFields(), p), map[string]string{
		"command": `a\nb`, "user": "ann", "state": "over", "job": "1",
		"memory.current": "42", "memory.max": "100", "memory.min": "0", "memory.peak": "63",
		"memory.events": "max 4\nadmitted 1\ndenied 2", "streams.current": "3", "streams.max": "128", "slots": "2",
	})
	compare(t, "on device 0", valuesOf(t, LeaseFields(), p.On(0)), map[string]string{
		"state": "draining", "memory.current": "40", "memory.max": "100", "memory.min": "5", "slots": "1",
	})
	compare(t, "on device 1", valuesOf(t, LeaseFields(), p.On(1)), map[string]string{
		"state": "running", "memory.current": "2", "memory.max": "max", "memory.min": "0", "streams.max": "256",
	})
	if got := p.Devices(); len(got) != 2 || got[0] != 0 || got[1] != 1 {
		t.Errorf("devices %v", got)
	}
}

// TestWithoutLease checks the values of a process that only made queries.
func TestWithoutLease(t *testing.T) {
	s := snapshotOfTwo()
	s.Leases = nil
	p := ProcessOf(s, s.Processes[1])
	compare(t, "with a job", valuesOf(t, ProcessFields(), p), map[string]string{
		"memory.current": "0", "memory.max": "70", "memory.min": "7", "streams.max": "64", "slots": "0",
	})
	p = ProcessOf(s, s.Processes[2])
	compare(t, "with an empty job", valuesOf(t, ProcessFields(), p), map[string]string{
		"memory.current": "0", "memory.max": "max", "memory.min": "0", "command": "-", "user": "-",
	})
}

func TestJobFields(t *testing.T) {
	s := snapshotOfTwo()
	compare(t, "job", valuesOf(t, JobFields(), s.Jobs[0]), map[string]string{
		"memory.current": "3", "memory.max": "70", "memory.min": "7", "processes": "6\n8", "state": "-", "command": "-",
	})
	compare(t, "job of nobody", valuesOf(t, JobFields(), s.Jobs[1]), map[string]string{"processes": "", "memory.max": "max"})
}

func TestDeviceFields(t *testing.T) {
	d := figures.DeviceState{Total: 100, Capacity: 90, Used: 5, SlotsMax: 0, Lost: true, Name: "A\x1bB"}
	compare(t, "device", valuesOf(t, DeviceFields(), d), map[string]string{
		"memory.total": "100", "memory.max": "90", "memory.current": "5", "slots.max": "max", "uuid": "-", "name": `A\x1bB`,
		"memory.events": "max 0\nadmitted 0\ndenied 0\nlost 1", "state": "lost",
	})
	d = figures.DeviceState{Leased: true}
	compare(t, "claimed", valuesOf(t, DeviceFields(), d), map[string]string{"state": "claimed"})
	d.ExclusiveJob = 3
	compare(t, "exclusive", valuesOf(t, DeviceFields(), d), map[string]string{"state": "exclusive"})
}
