package daemon

import (
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
)

// This file checks the bounds of the daemon's tables: one user gets at most half of a table, and the records of a
// process's live limits are freed after its end. bounds.go has the bounds; setlimit_test.go changes a limit while its
// table is full.

// TestOneUserHasHalfOfEachTable checks that a user gets at most half of each table, that a privileged user can fill
// the rest, and that a full table refuses further users.
func TestOneUserHasHalfOfEachTable(t *testing.T) {
	for _, of := range []bounds{sessionBounds, sessionBounds.within(100), jobBounds, leaseBounds, limitBounds} {
		c := newCounts(of)
		pid := 0
		take := func(uid uint32) (n int, err error) {
			for ; err == nil; n++ {
				pid++
				if err = c.full(pid, uid, uid == 0); err == nil {
					c.add(pid, uid)
				}
			}
			return n - 1, err
		}
		for _, want := range []struct {
			uid  uint32
			rows int
			says string
		}{
			{1000, c.size / 2, "user 1000 has"},
			{0, c.size / 2, "the most of all users"},
			{1001, 0, "the most of all users"},
		} {
			n, err := take(want.uid)
			if n != want.rows || err == nil || !strings.Contains(err.Error(), want.says) || !strings.Contains(err.Error(), c.remedy) ||
				statusOf(err) != ipc.StatusTooMany {
				t.Errorf("%s: user %d has %d, want %d: %v", c.what, want.uid, n, want.rows, err)
			}
		}
	}
}

// TestChangedLimitsGoWithTheirProcess checks the number of records of a process's limits: a second change replaces
// the record for its device, and a change of the process's job on all devices replaces both. The limit survives a
// restart, and its record is freed with the last session of the process.
func TestChangedLimitsGoWithTheirProcess(t *testing.T) {
	b := newBench(t, 1<<30, 1<<30)
	records := func() (n int) {
		b.lock()
		defer b.unlock()
		b.file.Limits.Each(func(int, *statefile.Limit) { n++ })
		return n
	}
	c := b.child(1 << 20)
	for device := range uint32(2) {
		for _, most := range []uint64{1 << 29, 1 << 28} {
			if err := b.limit(requester{privileged: true}, &ipc.LimitRequest{Target: ipc.LimitProcess, ID: uint64(c.pid), Set: ipc.SetMax, Device: device, Max: most}, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := records(); got != 2 {
		t.Errorf("%d records of one process on two devices", got)
	}
	job := b.lease(c.pid, 0).Job
	if err := b.limit(requester{privileged: true}, &ipc.LimitRequest{Target: ipc.LimitJob, ID: job, Set: ipc.SetMax, Device: ipc.AllDevices, Max: 1 << 27}, ""); err != nil {
		t.Fatal(err)
	}
	if got := records(); got != 1 {
		t.Errorf("%d records after a change on every device", got)
	}
	b.restart()
	if l := b.lease(c.pid, 0); l.Budget != 1<<27 {
		t.Errorf("after a restart: %+v", l)
	}
	c.die()
	c.freed()
	b.until("its record is free", func() bool { return records() == 0 })
}
