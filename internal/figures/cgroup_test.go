package figures_test

import (
	"slices"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// The figures of a cgroup include the programs in the cgroups below it, but its list of processes
// has only its own. gpufs/cgroups_test.go tests the files that show them.

// TestCgroupState checks that a cgroup includes what runs below it, but lists only its own
// processes.
func TestCgroupState(t *testing.T) {
	s := figures.Snapshot{
		Leases: []figures.LeaseState{{Cgroup: "/a/b", Used: 1, Streams: 1}, {Cgroup: "/a", Used: 2, Streams: 1}, {Cgroup: "/ab", Used: 4},
			{Cgroup: "/../x", Used: 8}},
		Processes: []figures.ProcessState{{PID: 1, Cgroup: "/a/b"}, {PID: 2, Cgroup: "/a"}, {PID: 3, Cgroup: "/ab"}, {PID: 4, Cgroup: "/../x"}},
		Budgets: []figures.BudgetState{{Cgroup: "/a", Devices: []figures.BudgetDeviceState{{Max: 9}, {Max: 7}}}, {Cgroup: "/d/e", Devices: []figures.BudgetDeviceState{{Max: 5}}},
			{Cgroup: "/a/b", Rule: "containers", Devices: []figures.BudgetDeviceState{{Max: 1}}}},
	}
	for of, want := range map[string]figures.CgroupState{
		"/":    {Max: accounting.Max, Used: 15, Streams: 2, Processes: []int{4}},
		"/a":   {Max: 7, Used: 3, Streams: 2, Processes: []int{2}},
		"/a/b": {Max: accounting.Max, Used: 1, Streams: 1, Processes: []int{1}},
		"/d":   {Max: accounting.Max},
		"/d/e": {Max: 5},
	} {
		if got, ok := s.Cgroup(of); !ok || got.Max != want.Max || got.Used != want.Used || got.Streams != want.Streams || !slices.Equal(got.Processes, want.Processes) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if got, ok := s.Cgroup("/x"); ok {
		t.Errorf("%+v", got)
	}
}
