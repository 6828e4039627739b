package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/events"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks what a daemon says of jobs of cgroups into which no process comes, with a clock that the test advances.
// tests/bindings runs programs in such jobs.

// cgroupV2 mounts a hierarchy of cgroups for a test, and makes a cgroup in it. It returns the folder of the cgroup.
func cgroupV2(t *testing.T) string {
	t.Helper()
	root := shortDir(t)
	dir := filepath.Join(root, filepath.Base(root))
	if err := unix.Mount("none", root, "cgroup2", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bounded.Until(t, "the cgroups are gone", func() bool { return removeBelow(dir) }) })
	return dir
}

// removeBelow removes a cgroup and those below it, and reports whether it is gone.
func removeBelow(dir string) bool {
	below, _ := os.ReadDir(dir)
	for _, e := range below {
		if e.IsDir() {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	return os.Remove(dir) == nil
}

// open opens the job of a cgroup with a budget of 1 MiB.
func (b *bench) open(as ipc.Binding) {
	b.t.Helper()
	c, err := ipc.Dial(b.t.Context(), b.socket())
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close()
	as.Memory = 1 << 20
	if _, err := c.OpenBinding(b.t.Context(), as, nil); err != nil {
		b.t.Fatal(err)
	}
}

// runIn runs a process in a cgroup until the returned function is called.
func (b *bench) runIn(dir string) (end func()) {
	b.t.Helper()
	cmd := bounded.Command(b.t, bounded.Lifetime, "cat")
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, cmd.Process.Pid), 0o600)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return func() {
		b.t.Helper()
		if err := errors.Join(stdin.Close(), cmd.Wait()); err != nil {
			b.t.Error(err)
		}
	}
}

// came reports whether the daemon has seen a process in the cgroup of a job.
func (b *bench) came(name string) bool {
	b.lock()
	defer b.unlock()
	for path, j := range b.bindings {
		if filepath.Base(path) == name {
			return j.bound.came
		}
	}
	return false
}

// named returns the state of the job with a name.
func (b *bench) named(name string) (none figures.JobState, open bool) {
	for _, j := range b.Snapshot().Jobs {
		if j.Name == name {
			return j, true
		}
	}
	return none, false
}

// eventsOf returns the number of events of a kind about the job with a name.
func (b *bench) eventsOf(kind events.Kind, name string) (n int) {
	_, err := b.history.Read(context.Background(), 0, false, ipc.MaxEventLines, func(lines []byte, _ int64) error {
		for line := range bytes.Lines(lines) {
			var e events.Event
			if json.Unmarshal(line, &e) == nil && e.Kind == kind && e.JobName == name {
				n++
			}
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// TestNoProcessComes: if no process is in the cgroup of a job in the ten minutes after the opening, one event says so. The state shows it
// until a process comes. After a restart of the daemon there is no second event, and the state still shows it. The job stays open. Only a
// job that closes when it is idle is closed, after its own time, which may be shorter or longer than ten minutes.
func TestNoProcessComes(t *testing.T) {
	pod := cgroupV2(t)
	b := newClockedBench(t, 1<<30)
	for name, as := range map[string]ipc.Binding{"plain": {}, "kept": {Until: ipc.UntilClosed}, "soon": {Until: ipc.UntilIdle, Idle: 5 * time.Minute},
		"late": {Until: ipc.UntilIdle, Idle: time.Hour}, "used": {}} {
		if err := os.Mkdir(filepath.Join(pod, name), 0o755); err != nil {
			t.Fatal(err)
		}
		as.Name, as.Cgroup = name, filepath.Join(pod, name)
		b.open(as)
	}
	end := b.runIn(filepath.Join(pod, "used"))
	b.until("the process is seen", func() bool { return b.came("used") })
	end()
	open := map[string]bool{"plain": true, "kept": true, "late": true, "soon": true, "used": true}
	check := func(when string, missed map[string]bool) {
		t.Helper()
		for name := range open {
			j, is := b.named(name)
			if is != open[name] || j.NoProcess != missed[name] {
				t.Errorf("%s: the job %s is open: %v, and shown without a process: %v", when, name, is, j.NoProcess)
			}
			if n := b.eventsOf(events.NoProcess, name); (n == 1) != missed[name] || n > 1 {
				t.Errorf("%s: %d events of the job %s", when, n, name)
			}
		}
	}
	b.clock.Advance(missedAfter - time.Minute)
	b.until("the idle job is closed", func() bool { _, is := b.named("soon"); return !is })
	open["soon"] = false
	check("after nine minutes", nil)
	b.clock.Advance(time.Minute)
	missed := map[string]bool{"plain": true, "kept": true, "late": true}
	b.until("the events", func() bool {
		return b.eventsOf(events.NoProcess, "plain")+b.eventsOf(events.NoProcess, "kept")+b.eventsOf(events.NoProcess, "late") == 3
	})
	check("after ten minutes", missed)
	b.restart()
	b.clock.Advance(missedAfter)
	end = b.runIn(filepath.Join(pod, "plain"))
	b.until("the process is seen", func() bool { return b.came("plain") })
	end()
	if j, _ := b.named("plain"); j.NoProcess {
		t.Error("a job is shown without a process after one has come")
	}
	for name, want := range map[string]bool{"kept": true, "late": true, "used": false} {
		if j, _ := b.named(name); j.NoProcess != want {
			t.Errorf("after a restart, the job %s is shown without a process: %v", name, j.NoProcess)
		}
		if n := b.eventsOf(events.NoProcess, name); n != 0 {
			t.Errorf("after a restart there are %d more events of the job %s", n, name)
		}
	}
	b.clock.Advance(time.Hour)
	b.until("the idle job is closed", func() bool { _, is := b.named("late"); return !is })
}
