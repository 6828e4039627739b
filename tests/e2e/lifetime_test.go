package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that programs keep their exact memory over a kill or a stop of the daemon, also if they have closed
// all descriptors. The oracle is the driver's count. tests/attack has the same under load.

// kill sends SIGKILL to a process, and does not wait until it is dead.
func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// cudaprog returns the variant of cudaprog that finds the driver in the given way.
func cudaprog(t *testing.T, how string) string { return rig.Build(t, "programs/cudaprog-"+how) }

// only returns the only lease.
func only(t *testing.T, m *rig.Machine) (pid int, used uint64, state string) {
	t.Helper()
	s := m.Snapshot()
	if len(s.Leases) != 1 {
		t.Fatalf("%d leases, want one: %+v", len(s.Leases), s.Leases)
	}
	l := s.Leases[0]
	return l.PID, uint64(l.Used), string(l.State)
}

// TestKilledDaemonIsResumedToTheByte: after a kill of the daemon, the next daemon counts each program's memory to the byte.
func TestKilledDaemonIsResumedToTheByte(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"run", "preload"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: "8G", Config: "schema_version = 1\n[defaults]\nmemory.max = \"64M\"\n"})
			var p *rig.Program
			if how == "run" {
				p = m.Interact(m.Gpuarb("run", "--memory", "64M", "--", cudaprog(t, "dlsym")))
			} else {
				p = m.Interact(m.Command(m.PreloadEnv(), cudaprog(t, "dlsym")))
			}
			p.Want("alloc a 12345678", "ok")
			p.Want("alloc b 1000001", "ok")
			p.Want("free b", "ok")
			p.Want("stream s", "ok")
			m.Kill()
			p.Want("alloc c 99999", "ok") // fits its credit, so it needs no daemon
			m.Start()
			const used = 12345678 + 99999
			pid, got, state := only(t, m)
			if got != used || state != "running" {
				t.Errorf("%d bytes, state %s; want %d, running", got, state, used)
			}
			if h := m.HeldBy(pid, 0); h.Bytes != used || h.Allocs != 2 || h.Streams != 1 {
				t.Errorf("the driver says %+v", h)
			}
			rest := 64<<20 - used
			p.Want(fmt.Sprintf("alloc d %d", rest+1), "err 2")
			p.Want(fmt.Sprintf("alloc d %d", rest), "ok")
			p.Want("alloc e 1", "err 2")
			if _, got, _ := only(t, m); got != 64<<20 {
				t.Errorf("%d bytes, want the whole budget", got)
			}
			p.End()
			rig.Eventually(t, "its lease is gone", func() bool { return len(m.Snapshot().Leases) == 0 })
			if d := m.Snapshot().Devices[0]; d.Granted != 0 || d.Used != 0 {
				t.Errorf("at the end %d granted, %d used", d.Granted, d.Used)
			}
		})
	}
}

// TestClosedDescriptorsOverARestart: a program closes all its descriptors, including that of its lease page, and still
// counts in the page. The next daemon can open the page, and does not grant the page's idle credit
// a second time.
func TestClosedDescriptorsOverARestart(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Config: "schema_version = 1\n[defaults]\nmemory.max = \"64M\"\n"})
	p := m.Interact(m.Command(append(m.PreloadEnv(), "GPUARB_ON_LOSS=open"), cudaprog(t, "dlsym")))
	pid := p.PID()
	p.Want("alloc a 40M", "ok")
	p.Want("alloc b 1M", "ok")
	p.Want("free a", "ok") // 40 MiB of idle credit
	p.Want("closefds", "ok")
	m.Kill()
	p.Want("alloc c 50M", "ok") // no daemon runs
	m.Start()
	rig.Eventually(t, "the program has found the daemon", func() bool {
		p.Want("context x", "ok") // needs an answer of the daemon
		p.Want("destroy x", "ok")
		return m.Lease(pid, 0).Used != 1<<20
	})
	agree := func() {
		t.Helper()
		got, held := m.Lease(pid, 0), m.HeldBy(pid, 0)
		if uint64(got.Used) != held.Bytes {
			t.Errorf("%d bytes are used, the driver says %d", got.Used, held.Bytes)
		}
	}
	agree()
	p.Want(fmt.Sprintf("alloc e %d", 13<<20), "ok")
	p.Want("alloc f 1", "err 2")
	agree()
	for _, name := range []string{"b", "c", "e"} {
		p.Want("free "+name, "ok")
	}
	agree()
	p.Want("alloc g 64M", "ok")
	agree()
	if n := m.Snapshot().Stats.ClampedWords; n != 0 {
		t.Errorf("%d credit words were clamped", n)
	}
	p.End()
}

// TestRowsWhileTheDaemonStops reads the table again and again while a daemon stops and the
// next daemon resumes its sessions. Each read shows the true bytes, or no rows. Credit counts neither as usage
// nor as a peak.
func TestRowsWhileTheDaemonStops(t *testing.T) {
	t.Parallel()
	const held = 48 << 20
	m := rig.New(t, rig.Options{})
	p := m.Interact(m.Gpuarb("run", "--memory", "64M", "--", cudaprog(t, "dlsym")))
	p.Want(fmt.Sprintf("alloc a %d", held), "ok")
	if l := m.Lease(p.PID(), 0); l.Credit == 0 {
		t.Fatalf("%+v, want credit that is not in use", l)
	}
	want := fmt.Sprintf(`"used_bytes":%d,`, held)
	stop, wrong := make(chan struct{}), make(chan string, 1)
	go func() {
		defer close(wrong)
		for {
			select {
			case <-stop:
				return
			default:
			}
			text, err := os.ReadFile(filepath.Join(m.Mount, "leases.json"))
			if err == nil && strings.Contains(string(text), `"pid"`) && !strings.Contains(string(text), want) {
				wrong <- string(text)
				return
			}
		}
	}()
	for range 10 {
		m.Stop()
		m.Start()
	}
	close(stop)
	if text, ok := <-wrong; ok {
		t.Errorf("a reader saw %s, want %s", text, want)
	}
}
