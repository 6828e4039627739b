package accounting_test

import (
	"slices"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
)

func TestInCgroup(t *testing.T) {
	for _, c := range []struct {
		at, of string
		want   bool
	}{
		{"/a", "/a", true}, {"/a/b", "/a", true}, {"/ab", "/a", false}, {"/a", "/a/b", false},
		{"/", "/", true}, {"/a", "/", true}, {"/", "/a", false}, {"", "/", true}, {"", "/a", false},
	} {
		if got := accounting.InCgroup(c.at, c.of); got != c.want {
			t.Errorf("%q in %q: %v", c.at, c.of, got)
		}
	}
}

func TestCgroupOf(t *testing.T) {
	for at, want := range map[string]string{"/a/b": "/a/b", "": "/", "/": "/", "/../a": "/", "/..": "/", "/..a": "/..a", "a": "/", "/a/../b": "/"} {
		if got := accounting.CgroupOf(at); got != want {
			t.Errorf("%q: %q, want %q", at, got, want)
		}
	}
}

// TestCgroupState: a cgroup has what runs below it too, and processes of its own.
func TestCgroupState(t *testing.T) {
	s := accounting.Snapshot{
		Leases: []accounting.LeaseState{{Cgroup: "/a/b", Used: 1, Streams: 1}, {Cgroup: "/a", Used: 2, Streams: 1}, {Cgroup: "/ab", Used: 4},
			{Cgroup: "/../x", Used: 8}},
		Processes: []accounting.ProcessState{{PID: 1, Cgroup: "/a/b"}, {PID: 2, Cgroup: "/a"}, {PID: 3, Cgroup: "/ab"}, {PID: 4, Cgroup: "/../x"}},
		Budgets: []accounting.BudgetState{{Cgroup: "/a", Devices: []accounting.BudgetDeviceState{{Max: 9}, {Max: 7}}}, {Cgroup: "/d/e", Devices: []accounting.BudgetDeviceState{{Max: 5}}},
			{Cgroup: "/a/b", Rule: "containers", Devices: []accounting.BudgetDeviceState{{Max: 1}}}},
	}
	for of, want := range map[string]accounting.CgroupState{
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
