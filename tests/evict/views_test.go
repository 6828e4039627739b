package evict

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/events"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that files, commands, events and metrics show which jobs are asked to make room, which are suspended, and which return.
// hook_test.go has what happens to the memory.

// gpuarb runs the command, which must succeed, and returns its output.
func gpuarb(m *rig.Machine, args ...string) string {
	m.T.Helper()
	r := rig.Run(m.T, m.Gpuarb(args...))
	if r.Code != 0 {
		m.T.Fatalf("gpuarb %v: %d, %s", args, r.Code, r.Stderr)
	}
	return r.Stdout
}

// eventsOf returns the events about a job that say something about its residence.
func eventsOf(m *rig.Machine, job uint64) (all []events.Event) {
	m.T.Helper()
	for line := range strings.Lines(gpuarb(m, "events", "--json")) {
		e, err := events.Parse([]byte(line))
		if err != nil {
			m.T.Fatalf("%v in %s", err, line)
		}
		switch e.Kind {
		case events.Suspending, events.Suspended, events.SuspendFailed, events.Resuming, events.Resumed, events.Stuck:
			if e.Job == job {
				all = append(all, e)
			}
		}
	}
	return all
}

// TestEvents: each step of a suspension is an event with the bytes, the time that it took, and who asked: a waiting request, or a user.
func TestEvents(t *testing.T) {
	t.Parallel()
	folder := hooks(t)
	m := machine(t, folder)
	idle, waits := cudaprog(m), cudaprog(m)
	idle.Want("alloc a 6G", "ok")
	waits.Tell("alloc b 4G")
	said(t, folder, "suspend")
	ticket := m.Snapshot().Queue[0].Ticket
	idle.Want("free a", "ok")
	ends(t, folder, 0)
	if got := waits.Line(); got != "alloc b ok" {
		t.Fatalf("the waiting program says %q", got)
	}
	m.AwaitLog("gave its memory back") // the request is served before the hook has ended
	waits.Want("free b", "ok")
	gpuarb(m, "resume", "1")
	said(t, folder, "resume")
	idle.Want("alloc a 6G", "ok")
	ends(t, folder, 0)
	m.AwaitLog("has its memory again")
	gpuarb(m, "suspend", "1")
	said(t, folder, "suspend")
	ends(t, folder, 1)
	m.AwaitLog("keeps its memory")
	var got []string
	for _, e := range eventsOf(m, 1) {
		if e.PID == 0 || e.User != rig.User() || e.UID == nil || *e.UID != uint32(os.Getuid()) {
			t.Errorf("the event %s names process %d of %q", e.Kind, e.PID, e.User)
		}
		by := "nobody"
		switch {
		case e.Ticket == ticket:
			by = "the request"
		case e.ByUID != nil && *e.ByUID == uint32(os.Getuid()) && e.ByPID != 0:
			by = "the user"
		}
		got = append(got, fmt.Sprintf("%s %d GiB, by %s", e.Kind, e.Bytes>>30, by))
		if e.Kind == events.SuspendFailed && e.TookMs < 2000 {
			t.Errorf("it was asked for %d ms, although a job has 2 s to give its memory back", e.TookMs)
		}
	}
	want := []string{"suspending 0 GiB, by the request", "suspended 6 GiB, by the request", "resuming 6 GiB, by the user", "resumed 0 GiB, by the user",
		"suspending 0 GiB, by the user", "suspend_failed 0 GiB, by the user"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the events are\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	stats := m.Snapshot().Stats
	if stats.Suspended != 1 || stats.NotSuspended != 1 || stats.Resumed != 1 || stats.Stuck != 0 {
		t.Errorf("counted are %d suspensions, %d that failed, %d returns, and %d stuck jobs", stats.Suspended, stats.NotSuspended, stats.Resumed, stats.Stuck)
	}
}
