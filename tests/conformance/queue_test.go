package conformance

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the tests of the rows D1 to D6 of rows.txt: the queue for slots.

// TestD1OneSlot: five clients use one slot as often as they can, and at most one of them is inside at any time.
func TestD1OneSlot(t *testing.T) {
	t.Parallel()
	m := slots(t, 1, "process")
	file := filepath.Join(m.Dir, "count")
	var group sync.WaitGroup
	for range 5 {
		cmd := m.Command(m.PreloadEnv(), rig.Build(t, "programs/permits"), "1", "50", "own", file)
		group.Go(func() { permitted(t, cmd, 1) })
	}
	group.Wait()
	if s := m.Snapshot(); len(s.Queue) != 0 || s.Devices[0].SlotsCurrent != 0 {
		t.Errorf("afterwards %d wait and %d slots are taken", len(s.Queue), s.Devices[0].SlotsCurrent)
	}
}

// TestD2InOrder: waiting requests are served in the order of their arrival.
func TestD2InOrder(t *testing.T) {
	t.Parallel()
	m := slots(t, 1, "job")
	holder := bare(m)
	holder.Want("context c", "ok")
	var queue []*rig.Program
	for i := range 5 {
		p := bare(m)
		p.Tell("context c")
		parks(m, p, i+1)
		queue = append(queue, p)
	}
	for i, p := range queue {
		holder.End()
		rig.Eventually(t, "the next request is served", func() bool {
			return slices.ContainsFunc(queue[i:], func(p *rig.Program) bool { return !p.Silent() })
		})
		for _, late := range queue[i+1:] {
			if !late.Silent() {
				t.Fatalf("a later request was served before, or together with, number %d", i)
			}
		}
		p.Expect("context c ok")
		holder = p
	}
	holder.End()
}

// TestD3Cancelled: a waiting request that is cancelled in any way leaves the queue at once, and takes no slot.
func TestD3Cancelled(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(t *testing.T, m *rig.Machine, p *rig.Program){
		"death": func(t *testing.T, _ *rig.Machine, p *rig.Program) {
			p.Signal(syscall.SIGKILL)
		},
		"cancel": func(t *testing.T, m *rig.Machine, p *rig.Program) {
			r := rig.Run(t, m.Gpuarb("queue", "cancel", fmt.Sprint(m.Snapshot().Queue[0].Ticket)))
			if r.Code != 0 {
				t.Errorf("gpuarb queue cancel: %d %s", r.Code, r.Stderr)
			}
			if got := p.Line(); got != "context c "+errOutOfMemory {
				t.Errorf("the cancelled call: %s", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := slots(t, 1, "job")
			holder, gone, next := bare(m), bare(m), bare(m)
			holder.Want("context c", "ok")
			gone.Tell("context c")
			parks(m, gone, 1)
			next.Tell("context c")
			parks(m, next, 2)
			leave(t, m, gone)
			waiting(m, 1)
			if s := m.Snapshot(); s.Stats.QueueDepth != 1 || !next.Silent() {
				t.Errorf("queue_depth %d, the next one served: %t", s.Stats.QueueDepth, !next.Silent())
			}
			holder.End()
			if got := next.Line(); got != "context c ok" {
				t.Errorf("the next one: %s", got)
			}
			next.End()
		})
	}
}

// TestD3Timeout: a request that has waited for its time limit is refused and leaves the queue.
func TestD3Timeout(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "4G", NoMount: true, Config: "schema_version = 1\n" +
		"[defaults]\nslots.max = 1\nwait_timeout = \"200ms\"\n"})
	holder, late := bare(m), bare(m)
	holder.Want("context c", "ok")
	late.Want("context c", errOutOfMemory)
	if s := m.Snapshot(); s.Stats.QueueDepth != 0 || len(s.Queue) != 0 || s.Devices[0].SlotsCurrent != 1 {
		t.Errorf("afterwards: %+v", s.Stats)
	}
	holder.Want("destroy c", "ok")
	late.Want("context c", "ok")
	holder.End()
	late.End()
}

// TestD3Signals: SIGINT, SIGTERM and SIGHUP to `gpuarb run` cancel the waiting requests of its job.
func TestD3Signals(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			m := slots(t, 1, "job")
			holder := bare(m)
			holder.Want("context c", "ok")
			p := m.Begin(m.Gpuarb("run", "--", "/bin/true"))
			waiting(m, 1)
			p.Signal(signal)
			waiting(m, 0)
			if status := p.Wait(); status != 128+int(signal) {
				t.Errorf("gpuarb run ended with %d", status)
			}
			holder.End()
		})
	}
}

// TestD4Statistics: queue_depth, in_flight, total_jobs, last_wait_ms, last_run_ms and
// oldest_queued_ms have the right values.
func TestD4Statistics(t *testing.T) {
	t.Parallel()
	m := slots(t, 1, "job")
	if s := m.Snapshot().Stats; s.QueueDepth != 0 || s.OldestQueuedMs != 0 || s.InFlight != 0 || s.TotalJobs != 0 {
		t.Errorf("at rest: %+v", s)
	}
	first, second := bare(m), bare(m)
	first.Want("context c", "ok")
	if s := m.Snapshot().Stats; s.InFlight != 1 || s.Waited != 0 {
		t.Errorf("with one holder: %+v", s)
	}
	second.Tell("context c")
	parks(m, second, 1)
	rig.Eventually(t, "the oldest request has waited for some time", func() bool { return m.Snapshot().Stats.OldestQueuedMs >= 20 })
	if s := m.Snapshot().Stats; s.QueueDepth != 1 || s.InFlight != 1 || s.TotalJobs < 1 {
		t.Errorf("with one waiter: %+v", s)
	}
	first.End()
	if got := second.Line(); got != "context c ok" {
		t.Fatal(got)
	}
	s := m.Snapshot().Stats
	if s.QueueDepth != 0 || s.OldestQueuedMs != 0 || s.InFlight != 1 || s.Waited != 1 || s.LastWaitMs < 20 || s.LastRunMs < 20 || s.TotalJobs != 2 {
		t.Errorf("after it was served: %+v", s)
	}
	second.End()
}

// TestD5Capacity: N slots admit N jobs. A limit below 1 is an error in files; TestA5Tunable has such limits in the
// environment.
func TestD5Capacity(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			m := slots(t, n, "job")
			var holders []*rig.Program
			for range n {
				p := bare(m)
				p.Want("context c", "ok")
				holders = append(holders, p)
			}
			late := bare(m)
			late.Tell("context c")
			parks(m, late, 1)
			holders[n-1].End()
			if got := late.Line(); got != "context c ok" {
				t.Error(got)
			}
		})
	}
	t.Run("0", func(t *testing.T) {
		m := rig.New(t, rig.Options{Devices: "4G", NoMount: true, Stopped: true,
			Config: "schema_version = 1\n[defaults]\nslots.max = 0\n"})
		if err := m.TryStart(); err == nil || !strings.Contains(err.Error(), "slots.max") {
			t.Errorf("a cap of 0 in a file: %v", err)
		}
	})
}

// TestD6Active: a program is active from the moment when it queues until it has released its slot. Afterwards
// it is idle, with the time since then.
func TestD6Active(t *testing.T) {
	t.Parallel()
	m := slots(t, 1, "process")
	first, second := bare(m), bare(m)
	first.Want("context c", "ok")
	second.Tell("context c")
	parks(m, second, 1)
	if a := activity(m, second); a != "active" {
		t.Errorf("a waiter is %s", a)
	}
	if a := activity(m, first); a != "active" {
		t.Errorf("a holder is %s", a)
	}
	first.Want("destroy c", "ok")
	if got := second.Line(); got != "context c ok" {
		t.Fatal(got)
	}
	if a := activity(m, first); a != "idle" {
		t.Errorf("a program that released its slot is %s", a)
	}
	if a := activity(m, second); a != "active" {
		t.Errorf("a program that was served is %s", a)
	}
	second.End()
	first.End()
}

// activity returns whether a process's lease is active or idle.
func activity(m *rig.Machine, p *rig.Program) string {
	m.T.Helper()
	l := m.Lease(p.Process(), 0)
	switch {
	case l.Active && l.IdleMs == 0:
		return "active"
	case !l.Active && l.ActiveMs == 0:
		return "idle"
	}
	return fmt.Sprintf("both: %+v", l)
}
