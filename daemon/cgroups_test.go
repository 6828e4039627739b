package daemon

import (
	"os"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
)

// This file checks how limits of cgroups are kept in the state file: over a restart, with damaged records, with paths
// of equal hashes, and up to the bound on their number. tests/arbitration runs programs in cgroups with limits.

// limitCgroup limits the memory of all programs in a cgroup.
func (b *bench) limitCgroup(path string, most uint64) {
	b.t.Helper()
	r := &ipc.LimitRequest{Target: ipc.LimitCgroup, Set: ipc.SetMax, Device: ipc.AllDevices, Max: most}
	if err := b.limit(requester{pid: os.Getpid(), privileged: true}, r, path); err != nil {
		b.t.Fatal(err)
	}
}

// cgroupsLeft returns the cgroups' limits in force, and the number of records of paths.
func (b *bench) cgroupsLeft() (limits map[string]accounting.Bytes, records int) {
	limits = map[string]accounting.Bytes{}
	for _, s := range b.Snapshot().Budgets {
		limits[s.Cgroup] = s.Devices[0].Max
	}
	b.lock()
	defer b.unlock()
	b.file.Cgroups.Each(func(int, *statefile.Cgroup) { records++ })
	return limits, records
}

// TestRecordsOfCgroups checks that limits of cgroups are recovered by the records of their paths. Two kinds of
// records are dropped with their limits: a path without a limit, which a daemon leaves if it dies between the two
// writes, and a damaged path.
func TestRecordsOfCgroups(t *testing.T) {
	b := newBench(t, 1<<30)
	b.limitCgroup("/a", 1<<20)
	b.limitCgroup("/a/b", 1<<21)
	b.limitCgroup("/c", 1<<22)
	b.limitCgroup("/d", 1<<22)
	b.limitCgroup("/d", ipc.NoLimit)
	if limits, records := b.cgroupsLeft(); len(limits) != 3 || records != 3 {
		t.Fatalf("%v, %d records", limits, records)
	}
	b.lock()
	b.file.Cgroups.At(b.kept.paths[cgroupID("/c")]).Path[1] = 'x'
	at, row, err := b.file.Cgroups.New()
	if err != nil {
		t.Fatal(err)
	}
	row.ID = cgroupID("/e")
	row.SetPath("/e")
	b.file.Cgroups.Commit(at)
	b.unlock()
	b.restart()
	limits, records := b.cgroupsLeft()
	if len(limits) != 2 || limits["/a"] != 1<<20 || limits["/a/b"] != 1<<21 || records != 2 {
		t.Errorf("%v, %d records", limits, records)
	}
	b.limitCgroup("/a", ipc.NoLimit)
	b.limitCgroup("/a/b", ipc.NoLimit)
	if limits, records := b.cgroupsLeft(); len(limits)+records != 0 {
		t.Errorf("%v, %d records", limits, records)
	}
}

// TestManyCgroups checks that the number of cgroups with limits is bounded, and that the message says what to do.
func TestManyCgroups(t *testing.T) {
	b := newBench(t, 1<<30)
	name := func(i int) string {
		return "/c" + string(rune('a'+i/26/26)) + string(rune('a'+i/26%26)) + string(rune('a'+i%26))
	}
	for i := range statefile.MaxCgroups {
		b.limitCgroup(name(i), 1<<20)
	}
	r := &ipc.LimitRequest{Target: ipc.LimitCgroup, Set: ipc.SetMax, Device: ipc.AllDevices, Max: 1}
	if err := b.limit(requester{pid: os.Getpid(), privileged: true}, r, "/more"); statusOf(err) != ipc.StatusTooMany {
		t.Errorf("%v", err)
	}
	b.limitCgroup(name(7), ipc.NoLimit)
	b.limitCgroup("/more", 1<<20)
}

// TestCgroupsOfOneHash checks that two paths with equal hashes each get a number and a limit, also after a restart.
func TestCgroupsOfOneHash(t *testing.T) {
	b := newBench(t, 1<<30)
	b.limitCgroup("/a", 1<<20)
	b.lock()
	at := b.kept.paths[cgroupID("/a")]
	b.kept.paths[cgroupID("/b")] = at // as if both paths had this hash
	b.unlock()
	b.limitCgroup("/b", 1<<21)
	b.lock()
	delete(b.kept.paths, cgroupID("/b"))
	b.unlock()
	for range 2 {
		if limits, records := b.cgroupsLeft(); limits["/a"] != 1<<20 || limits["/b"] != 1<<21 || records != 2 {
			t.Errorf("%v, %d records", limits, records)
		}
		b.restart()
	}
	b.limitCgroup("/b", ipc.NoLimit)
	if limits, records := b.cgroupsLeft(); len(limits) != 1 || records != 1 {
		t.Errorf("%v, %d records", limits, records)
	}
}
