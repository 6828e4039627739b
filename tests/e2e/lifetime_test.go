package e2e

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

func lines(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n"))
}

// only returns the one lease there is.
func only(t *testing.T, m *rig.Machine) (pid int, used uint64, state string) {
	t.Helper()
	s := m.Snapshot()
	if len(s.Leases) != 1 {
		t.Fatalf("%d leases, want one: %+v", len(s.Leases), s.Leases)
	}
	l := s.Leases[0]
	return l.PID, uint64(l.Used), string(l.State)
}

func TestKilledDaemonIsResumedToTheByte(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"run", "preload"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: "8G", Config: "schema_version = 1\n[defaults]\nmemory.max = \"64M\"\n"})
			var p *prog
			if how == "run" {
				p = start(t, m.Gpuarb("run", "--memory", "64M", "--", cudaprog(t, "dlsym")))
			} else {
				p = start(t, m.Command(m.PreloadEnv(), cudaprog(t, "dlsym")))
			}
			p.tell("alloc a 12345678", "alloc a ok")
			p.tell("alloc b 1000001", "alloc b ok")
			p.tell("free b", "free b ok")
			p.tell("stream s", "stream s ok")
			m.Kill()
			p.tell("alloc c 99999", "alloc c ok") // within its credit: the daemon is not missed
			m.Start()
			const used = 12345678 + 99999
			pid, got, state := only(t, m)
			if got != used || state != "running" {
				t.Errorf("%d bytes, state %s; want %d, running", got, state, used)
			}
			if h := held(m, pid); h != fmt.Sprintf("%d 2 1 1", used) {
				t.Errorf("the driver says %q", h)
			}
			rest := 64<<20 - used
			p.tell(fmt.Sprintf("alloc d %d", rest+1), "alloc d err 2")
			p.tell(fmt.Sprintf("alloc d %d", rest), "alloc d ok")
			p.tell("alloc e 1", "alloc e err 2")
			if _, got, _ := only(t, m); got != 64<<20 {
				t.Errorf("%d bytes, want the whole budget", got)
			}
			p.end()
			rig.Eventually(t, "its lease is gone", func() bool { return len(m.Snapshot().Leases) == 0 })
			if d := m.Snapshot().Devices[0]; d.Granted != 0 || d.Used != 0 {
				t.Errorf("at the end %d granted, %d used", d.Granted, d.Used)
			}
		})
	}
}

// TestDiedWhileNobodyWatched: a holder that dies between two daemons is reaped by
// the second.
func TestDiedWhileNobodyWatched(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G"})
	p := start(t, m.Command(m.PreloadEnv(), cudaprog(t, "dlsym")))
	p.tell("alloc a 1G", "alloc a ok")
	m.Kill()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
	m.Start()
	rig.Eventually(t, "its lease is gone", func() bool { return len(m.Snapshot().Leases) == 0 })
	if g := m.Snapshot().Devices[0].Granted; g != 0 {
		t.Errorf("%d bytes are still granted", g)
	}
}

func TestForkedChildHasNoLease(t *testing.T) {
	t.Parallel()
	for _, fork := range []string{"fork", "rawfork"} {
		t.Run(fork, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: "8G"})
			p := start(t, m.Command(m.PreloadEnv(), cudaprog(t, "dlsym")))
			p.tell("alloc a 5M", "alloc a ok")
			// After a fork the driver knows the child no more; whatever it answers
			// there, the parent's account must not move.
			p.tell(fork+"\nfree a\nalloc b 1M\njoin", "free a err")
			p.answer("alloc b err")
			p.answer("fork ok 0")
			if _, got, _ := only(t, m); got != 5<<20 {
				t.Errorf("%d bytes after the child, want the parent's 5 MiB", got)
			}
			p.tell("free a", "free a ok")
			if _, got, _ := only(t, m); got != 0 {
				t.Errorf("%d bytes at the end", got)
			}
			p.end()
		})
	}
}

func TestExecEndsTheLease(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G"})
	p := start(t, m.Command(m.PreloadEnv(), cudaprog(t, "dlsym")))
	p.tell("alloc a 5M", "alloc a ok")
	if _, err := fmt.Fprintln(p.in, "exec "+cudaprog(t, "link")); err != nil {
		t.Fatal(err)
	}
	p.answer("ready")
	rig.Eventually(t, "the old lease is gone", func() bool {
		s := m.Snapshot()
		return len(s.Leases) == 1 && s.Leases[0].Used == 0
	})
	p.tell("alloc b 1M", "alloc b ok")
	if _, got, _ := only(t, m); got != 1<<20 {
		t.Errorf("%d bytes, want 1 MiB", got)
	}
	p.end()
}

func TestClosedDescriptorsKeepTheLease(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G"})
	p := start(t, m.Gpuarb("run", "--memory", "64M", "--", cudaprog(t, "dlsym")))
	p.tell("alloc a 5M", "alloc a ok")
	p.tell("closefds", "closefds ok")
	rig.Eventually(t, "the daemon has noticed", func() bool {
		pid, used, _ := only(t, m)
		return syscall.Kill(pid, 0) == nil && used == 5<<20
	})
	p.tell("alloc b 59M", "alloc b ok")
	p.tell("alloc c 1", "alloc c err 2")
	if _, got, _ := only(t, m); got != 64<<20 {
		t.Errorf("%d bytes, want the whole budget", got)
	}
	p.tell("free a", "free a ok")
	p.end()
	rig.Eventually(t, "its lease is gone", func() bool { return len(m.Snapshot().Leases) == 0 })
}

// TestForkedChildKeepsTheMemory: the parent is dead, its child still has the
// device open; what it held is out of reach until the child is gone too.
func TestForkedChildKeepsTheMemory(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	p := start(t, m.Command(m.PreloadEnv(), cudaprog(t, "dlsym")))
	p.tell("alloc a 1G", "alloc a ok")
	p.tell("fork\npid\nhold\njoin", "")
	child := strings.TrimPrefix(p.out.Text(), "pid ok ")
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = p.cmd.Process.Wait()
	rig.Eventually(t, "the memory counts as unmanaged", func() bool {
		d := m.Snapshot().Devices[0]
		return d.Granted == 0 && d.Unmanaged == 1<<30
	})
	by := m.Snapshot().Devices[0].UnmanagedBy
	if len(by) != 1 || !strings.Contains(by[0].Command, "["+child+"]") {
		t.Errorf("unmanaged by %+v, want the child, %s", by, child)
	}
	if !strings.Contains(m.Log(), "["+child+"] keeps its 1 GiB") {
		t.Errorf("no event names the child, %s", child)
	}
	_ = p.in.Close() // the child's hold ends
	rig.Eventually(t, "the memory is back", func() bool {
		d := m.Snapshot().Devices[0]
		return d.Unmanaged == 0 && d.Capacity == d.Total
	})
}
