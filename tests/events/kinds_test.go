package events

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/events"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that each thing that happens to programs, limits and devices is an event with the right fields. The
// expected values are what the test itself did; each line is also checked against the schema. read_test.go has the ways
// to read them.

// await waits for an event that satisfies `is`, and returns it. Each line so far must satisfy the schema.
func await(m *rig.Machine, what string, is func(*events.Event) bool) (found events.Event) {
	m.T.Helper()
	s := load(m.T.(*testing.T))
	text := ""
	defer func() {
		if m.T.Failed() {
			m.T.Logf("the events:\n%s", text)
		}
	}()
	rig.Eventually(m.T, "there is the event: "+what, func() bool {
		text = m.Read("events")
		for _, e := range parse(m.T.(*testing.T), text) {
			if is(&e) {
				found = e
				return true
			}
		}
		return false
	})
	for line := range strings.Lines(text) {
		if err := s.check(line); err != nil {
			m.T.Errorf("%v in %s", err, line)
		}
	}
	return found
}

// on reports whether an event names the only device, by index and UUID.
func on(m *rig.Machine, e *events.Event) bool {
	return e.Device != nil && *e.Device == 0 && e.UUID == strings.TrimSpace(m.Read("devices/0/uuid"))
}

// of reports whether an event names a process, with its user.
func of(e *events.Event, pid int) bool {
	return e.PID == pid && e.UID != nil && *e.UID == uint32(os.Getuid()) && e.User == rig.User() && e.Job != 0 && strings.Contains(e.Command, "cudaprog-dlsym")
}

// TestGrants: the start of a lease and of a job, a grant, a refusal, and the death of a program with its bytes are events.
// An allocation from credit is not an event.
func TestGrants(t *testing.T) {
	t.Parallel()
	m := machine(t)
	p := program(m, "--name", "train-a", "--memory", "50M")
	pid := p.PID()
	p.Want("alloc a 20M", "ok")
	p.Want("alloc b 40M", "err 2")
	await(m, "the job begins", func(e *events.Event) bool {
		return e.Kind == events.Granted && e.What == "job" && e.JobName == "train-a" && e.Job != 0 && strings.Contains(e.Command, "cudaprog-dlsym")
	})
	await(m, "the lease", func(e *events.Event) bool {
		return e.Kind == events.Granted && e.What == "lease" && of(e, pid) && on(m, e) && e.Limit == 50<<20 && e.JobName == "train-a"
	})
	await(m, "the first bytes", func(e *events.Event) bool {
		return e.Kind == events.Granted && e.What == "memory" && of(e, pid) && on(m, e) && e.Requested == 20<<20 && e.Bytes >= 20<<20
	})
	await(m, "the refusal", func(e *events.Event) bool {
		return e.Kind == events.Refused && of(e, pid) && on(m, e) && e.Reason == "over_budget" && e.Requested == 40<<20 &&
			e.Remaining != nil && *e.Remaining <= 30<<20 && e.Limit == 50<<20 && strings.Contains(e.Text, "is refused")
	})
	was := size(m)
	for range 100 {
		p.Want("alloc c 4K", "ok")
		p.Want("free c", "ok")
	}
	if now := size(m); now != was {
		t.Errorf("allocations from the credit made lines:\n%s", m.Read("events")[was:])
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(m, "the death", func(e *events.Event) bool {
		return e.Kind == events.Died && of(e, pid) && on(m, e) && e.Bytes == 20<<20 && e.Contexts == 1
	})
	await(m, "its memory is free again", func(e *events.Event) bool {
		return e.Kind == events.Reclaimed && of(e, pid) && on(m, e) && e.Bytes == 20<<20
	})
}

// TestEnded checks the event at the end of a job, also of a job whose program replaced gpuarb. The event has the job's summary. The
// log has it too if a request of the job was refused. A job that never began has no such event.
func TestEnded(t *testing.T) {
	t.Parallel()
	m := machine(t)
	for _, flag := range []string{"--exec=false", "--exec"} {
		name := strings.Trim(flag, "-")
		name = strings.ReplaceAll(name, "=", "-")
		p := program(m, flag, "--name", name, "--memory", "50M")
		p.Want("alloc a 20M", "ok")
		p.Want("alloc b 40M", "err 2")
		runner := p.Process()
		p.End()
		ended := await(m, name+" has ended", func(e *events.Event) bool { return e.Kind == events.Ended && e.JobName == name })
		// The text has the assumed cost of the context, unless a reading of the device came first.
		account := regexp.MustCompile(`has ended: it used at most 20 MiB of 50 MiB on GPU 0( \(and [0-9.]+ MiB kept for contexts\))?` +
			`; 1 request refused, for 40 MiB: its budget is 50 MiB \(--memory\)$`)
		if !of(&ended, runner) || !on(m, &ended) || ended.What != "job" || ended.Bytes != 20<<20 || !account.MatchString(ended.Text) {
			t.Errorf("%s: %+v", name, ended)
		}
		m.AwaitLog(`level=INFO msg="` + ended.Text + `"`)
	}
	if r := rig.Run(t, m.Gpuarb("run", "--name", "never", "--memory", "900G", "true")); r.Code != 125 {
		t.Errorf("the daemon accepted an impossible job: %+v", r)
	}
	holder := program(m, "--exclusive")
	holder.Want("alloc a 1M", "ok")
	waiter := m.Begin(m.Gpuarb("run", "--name", "gave-up", "--exclusive", "--wait", "true"))
	await(m, "it waits for its start", func(e *events.Event) bool { return e.Kind == events.Waited && e.JobName == "gave-up" })
	waiter.Signal(unix.SIGTERM)
	if code := waiter.Wait(); code != 143 {
		t.Errorf("the run that gave up exits with %d", code)
	}
	holder.End()
	if r := rig.Run(t, m.Gpuarb("run", "--name", "plain", "true")); r.Code != 0 {
		t.Errorf("a plain job: %+v", r)
	}
	await(m, "the plain job has ended", func(e *events.Event) bool {
		return e.Kind == events.Ended && e.JobName == "plain" && e.Device == nil && strings.HasSuffix(e.Text, "has ended: it asked for no GPU memory")
	})
	for _, e := range parse(t, m.Read("events")) {
		if e.Kind == events.Ended && (e.JobName == "never" || e.JobName == "gave-up") {
			t.Errorf("a job that never began has an end: %+v", e)
		}
	}
}

// TestWaits: the beginning of a wait is an event with its reason, and so is its end, with its length, whether the request was served or refused.
func TestWaits(t *testing.T) {
	t.Parallel()
	m := machine(t)
	holder, waiter := program(m), program(m, "--wait")
	holder.Want("alloc a 80M", "ok")
	pid := waiter.PID()
	waiter.Tell("alloc b 50M")
	begun := await(m, "a request waits", func(e *events.Event) bool {
		return e.Kind == events.Waited && of(e, pid) && on(m, e) && e.Reason == "device_full" && e.What == "memory" && e.Requested == 50<<20 && e.Ticket != 0 &&
			strings.HasSuffix(e.Text, ": the device has no room")
	})
	holder.Want("free a", "ok")
	waiter.Expect("alloc b ok")
	await(m, "it is served", func(e *events.Event) bool {
		return e.Kind == events.Served && of(e, pid) && on(m, e) && e.Ticket == begun.Ticket && e.WaitedMs != nil && *e.WaitedMs >= 0
	})
	holder.Want("alloc d 20M", "ok")
	waiter.Tell("alloc c 40M")
	again := await(m, "it waits again", func(e *events.Event) bool { return e.Kind == events.Waited && e.Ticket > begun.Ticket && of(e, pid) })
	if got := rig.Run(t, m.Gpuarb("queue", "cancel", fmt.Sprint(again.Ticket))); got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	waiter.Expect("alloc c err 2")
	await(m, "it is cancelled", func(e *events.Event) bool {
		return e.Kind == events.Refused && e.Reason == "cancelled" && e.WaitedFor == "device_full" && of(e, pid) && e.Ticket == again.Ticket
	})
}

// TestRecall: reclaiming idle credit is an event that names the client that needs the bytes, and the number of leases
// that lost them.
func TestRecall(t *testing.T) {
	t.Parallel()
	m := machine(t)
	idle, asker := program(m), program(m)
	idle.Want("alloc a 80M", "ok")
	idle.Want("free a", "ok")
	asker.Want("alloc b 60M", "ok")
	pid := asker.PID()
	await(m, "the recall", func(e *events.Event) bool {
		return e.Kind == events.Recalled && of(e, pid) && on(m, e) && e.Leases == 1 && e.Bytes >= 40<<20 && e.Bytes <= 80<<20
	})
}

// TestLimitChanged: a changed limit is an event that names the limit, its holder, the old and new values, and the user and process that changed it. This holds for
// the command and for a file.
func TestLimitChanged(t *testing.T) {
	t.Parallel()
	m := machine(t)
	p := program(m, "--memory", "50M")
	pid := p.PID()
	change := m.Gpuarb("limit", fmt.Sprint(pid), "memory.max=40M")
	if got := rig.Run(t, change); got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	by := func(from, to string, pid int) func(*events.Event) bool {
		return func(e *events.Event) bool {
			return e.Kind == events.LimitChanged && e.Setting == "memory.max" && (from == "" || e.From == from) && e.To == to && e.ByUID != nil && *e.ByUID == uint32(os.Getuid()) &&
				e.ByPID == pid && e.Job != 0 && e.User == rig.User() && strings.Contains(e.Whose, "cudaprog-dlsym") && on(m, e)
		}
	}
	await(m, "the change by the command", by("", "40 MiB", change.Process.Pid))
	file := filepath.Join(m.Mount, "processes", strconv.Itoa(pid), "memory.max")
	write := m.Command(m.Env(), "sh", "-c", "echo 30M > "+file)
	if got := rig.Run(t, write); got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	await(m, "the change by the file", by("40 MiB", "30 MiB", write.Process.Pid))
	slots := m.Gpuarb("limit", "--device", "0", "slots.max=3")
	if got := rig.Run(t, slots); got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	await(m, "the change of a device's", func(e *events.Event) bool {
		return e.Kind == events.LimitChanged && e.Setting == "slots.max" && e.From == "max" && e.To == "3" && on(m, e) && e.ByPID == slots.Process.Pid
	})
}

// TestDeadlock: a broken deadlock is an event that says which process held what, and which requested what.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	m := machine(t)
	older, younger := program(m, "--wait"), program(m, "--wait")
	older.Want("alloc a 40M", "ok")
	younger.Want("alloc b 40M", "ok")
	pids := []int{younger.PID(), older.PID()}
	older.Tell("alloc c 50M")
	await(m, "the older waits", func(e *events.Event) bool { return e.Kind == events.Waited && of(e, pids[1]) })
	younger.Tell("alloc d 55M")
	younger.Expect("alloc d err 2")
	e := await(m, "the deadlock", func(e *events.Event) bool { return e.Kind == events.Deadlock && of(e, pids[0]) && on(m, e) })
	if len(e.Parties) != 2 {
		t.Fatalf("%+v", e.Parties)
	}
	for i, wants := range []uint64{55 << 20, 50 << 20} {
		p := e.Parties[i]
		if p.PID != pids[i] || p.User != rig.User() || p.Job == 0 || p.Ticket == 0 || p.What != "memory" || p.Bytes != wants ||
			p.Device == nil || *p.Device != 0 || len(p.Holds) != 1 || p.Holds[0].Bytes != 40<<20 {
			t.Errorf("party %d: %+v", i, p)
		}
	}
	if e.Ticket != e.Parties[0].Ticket || !strings.Contains(e.Text, "40 MiB") {
		t.Errorf("%+v", e)
	}
}

// TestDevices: a device that is found, a device that falls off the bus, and a reloaded configuration are events.
func TestDevices(t *testing.T) {
	t.Parallel()
	m := machine(t)
	await(m, "the device", func(e *events.Event) bool { return e.Kind == events.DeviceFound && on(m, e) && e.Bytes == 100<<20 })
	if err := unix.Kill(m.DaemonPID(), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await(m, "the configuration", func(e *events.Event) bool { return e.Kind == events.Configured && e.Device == nil && e.UID == nil })
	uuid := strings.TrimSpace(m.Read("devices/0/uuid"))
	m.Sim("lose", "0")
	await(m, "the loss", func(e *events.Event) bool { return e.Kind == events.DeviceLost && *e.Device == 0 && e.UUID == uuid })
}
