package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// `gpuarb why` says which budget limits a job and which command helps. The expected sentences are
// written by hand. report_test.go tests the tables.

// limited returns a job that uses a part of its own budget of 2 MiB. It shares the
// 6 GiB budget of its user. Only 1 GiB of that is free, because most of it is reserved.
func limited(used accounting.Bytes) figures.Snapshot {
	const mib = accounting.Bytes(1 << 20)
	return figures.Snapshot{
		Devices: []figures.DeviceState{{Vendor: "nvidia", Capacity: 8 * gib}},
		Jobs: []figures.JobState{{ID: 32, User: "bob", Command: "train", Rule: "the defaults",
			Devices: []figures.JobDeviceState{{Max: 2 * mib, MaxBy: "gpuarb run --memory", Used: used}}}},
		Budgets: []figures.BudgetState{{Name: "user bob", Jobs: []uint64{32},
			Devices: []figures.BudgetDeviceState{{Max: 6 * gib, MaxBy: "the defaults", Used: used, Free: gib}}}},
	}
}

// TestWhyOfIdleHolders checks that a job that waits for memory is told which processes hold memory of that device and do nothing. Its own
// processes count too, but not the one that waits.
func TestWhyOfIdleHolders(t *testing.T) {
	lease := func(pid int, used accounting.Bytes, idle int64, util *int) figures.LeaseState {
		return figures.LeaseState{PID: pid, User: "ann", Command: "python3", Job: uint64(pid), Used: used, UnusedMs: idle, Util: util, State: figures.StateRunning}
	}
	s := figures.Snapshot{
		Devices: []figures.DeviceState{{Vendor: "nvidia", Capacity: 8 * gib}},
		Jobs:    []figures.JobState{{ID: 1, User: "bob", Command: "train", Rule: "the defaults", Devices: []figures.JobDeviceState{{Max: accounting.Max}}}},
		Queue:   []figures.TicketState{{Job: 1, WantsBytes: gib, Wants: "1 GiB", Reason: "device_full", Text: "waits for 1 GiB"}},
		Leases:  []figures.LeaseState{lease(1, gib, 0, nil), lease(2, gib, 12*60_000, new(0)), lease(3, 2*gib, 45_000, nil), lease(4, gib, 9_999, nil), lease(5, 0, 60_000, nil)},
	}
	why := func() string {
		var out bytes.Buffer
		if err := WriteWhy(&out, Whys(s, func(figures.JobState) bool { return true })); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if want := "         ann's python3[3] holds 2 GiB and has made no call for 45s\n" +
		"         ann's python3[2] holds 1 GiB and has done nothing for 12min\n  for 0s it waits"; !strings.Contains(why(), want) {
		t.Errorf("%s is not in\n%s", want, why())
	}
	for pid := range 4 {
		s.Leases = append(s.Leases, lease(10+pid, gib, 60_000, nil))
	}
	if want := "and 1 more of that kind: `gpuarb ps --idle 10s` lists them"; !strings.Contains(why(), want) {
		t.Errorf("%s is not in\n%s", want, why())
	}
	s.Queue[0].WantsBytes = 0 // it waits for a slot
	if text := why(); strings.Contains(text, "has made no call") {
		t.Errorf("%s", text)
	}
}

// TestWhyOfABudget checks that an exceeded budget is not called nearly used up. It also checks that
// the free part of a shared budget is named, because others may have reserved the rest.
func TestWhyOfABudget(t *testing.T) {
	for used, want := range map[accounting.Bytes]string{
		3<<20 + 200<<10: "its own budget on GPU 0 is exceeded (3.1 MiB of 2 MiB), and it gets nothing new until it is under: ",
		2 << 20:         "its own budget on GPU 0 is used up, and what it asks for beyond that is refused: ",
		2<<20 - 1:       "its own budget on GPU 0 is nearly used up, and what it asks for beyond that is refused: ",
	} {
		var out bytes.Buffer
		if err := WriteWhy(&out, Whys(limited(used), func(figures.JobState) bool { return true })); err != nil {
			t.Fatal(err)
		}
		for _, said := range []string{want + "start it with more --memory, or `gpuarb limit --job 32 memory.max=SIZE` raises it (with sudo, where the daemon is the system's)\n",
			" of 6 GiB are used (by the defaults), 1 GiB are free; "} {
			if !strings.Contains(out.String(), said) {
				t.Errorf("%q is not in\n%s", said, out.String())
			}
		}
	}
}
