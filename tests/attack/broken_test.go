package attack

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that a bug of the daemon itself costs programs only a pause. They run a build of gpuarbd that panics
// at a named place, and expect it to restart itself with every count as before. crash_test.go has daemons that are
// killed from outside.

// breakable returns a machine, and a function that makes its daemon panic the next `times` times that it comes to a
// named place in its code.
func breakable(t *testing.T, place string, o rig.Options) (m *rig.Machine, breaks func(times int)) {
	t.Helper()
	left := filepath.Join(t.TempDir(), "left")
	o.Binary, o.Broken = rig.Build(t, "faults/gpuarbd"), true
	o.Environ = []string{"GPUARB_BREAK=" + place, "GPUARB_BREAKS_LEFT=" + left}
	m = rig.New(t, o)
	return m, func(times int) {
		t.Helper()
		if err := os.WriteFile(left, make([]byte, times), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// failures waits until the log has at least atLeast broken invariants, and returns how many are in it. The log comes through a pipe: a
// client may have its answer before the line that the daemon wrote earlier has been read.
func failures(m *rig.Machine, atLeast int) (n int) {
	m.T.Helper()
	rig.Eventually(m.T, fmt.Sprintf("the log has %d broken invariants", atLeast), func() bool {
		n = strings.Count(m.Log(), "broken invariant: the daemon starts itself again")
		return n >= atLeast
	})
	return n
}

// TestBrokenInvariantIsAPause checks that a daemon restarts itself, in its own process, when it breaks an invariant with or without its lock
// held. Programs see only a pause, programs that start meanwhile are limited too, and no count changes. The log has
// the facts that lead to the cause.
func TestBrokenInvariantIsAPause(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"alloc.decided", "request.answered"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			m, breaks := breakable(t, place, rig.Options{Devices: "1G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
			a, b := cudaprog(m), cudaprog(m)
			say(t, a, "alloc a 100M", "ok")
			say(t, b, "alloc a 200M", "ok")
			run := m.Interact(m.Gpuarb("run", "--memory", "300M", "--min", "300M", "--", rig.Build(t, "programs/cudaprog-dlsym")))
			daemon := m.DaemonPID()
			cause := fmt.Sprintf("client_pid=%d client_start=[0-9]+ request=Alloc ", b.PID())
			if place == "request.answered" { // The daemon comes to this place after its reply, so it may break there at the end of an earlier request.
				cause = fmt.Sprintf("client_pid=(%d|%d|%d) client_start=[0-9]+ request=(Alloc|Context) ", a.PID(), b.PID(), run.PID())
			}
			breaks(1)
			say(t, b, "alloc b 100M", "ok")
			late := cudaprog(m)
			say(t, late, "alloc a 50M", "ok")
			say(t, a, "alloc b 100M", "ok")
			say(t, run, "alloc a 300M", "ok")
			say(t, run, "alloc b 1", "err 2")
			agree(t, m)
			if n := failures(m, 1); n != 1 || m.DaemonPID() != daemon {
				t.Errorf("%d broken invariants are in the log of PID %d, which was %d", n, m.DaemonPID(), daemon)
			}
			for _, want := range []string{"faults: broken at " + place, cause, `daemon\.\(\*client\)\.serve`} {
				if line := lineOf(m.Log(), "broken invariant"); !regexp.MustCompile(want).MatchString(line) {
					t.Errorf("the log does not say %q: %s", want, line)
				}
			}
			if text := m.Read("leases"); !strings.Contains(text, fmt.Sprint(200<<20)) {
				t.Errorf("/gpu is not there again: %s", text)
			}
			for _, p := range []*rig.Program{a, b, run, late} {
				p.End()
			}
			m.AllGone()
		})
	}
}

// lineOf returns the rest of a text's line behind the first occurrence of a word.
func lineOf(text, word string) string {
	_, rest, _ := strings.Cut(text, word)
	line, _, _ := strings.Cut(rest, "\n")
	return line
}

// TestClientThatBreaksTheDaemon checks that the daemon no longer serves a process whose requests broke it twice, tells that
// process so, and goes on serving all others.
func TestClientThatBreaksTheDaemon(t *testing.T) {
	t.Parallel()
	m, breaks := breakable(t, "alloc.decided", rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	a, b := cudaprog(m), cudaprog(m)
	say(t, a, "alloc a 100M", "ok")
	say(t, b, "alloc a 200M", "ok")
	pid := b.PID()
	breaks(2)
	if got := b.Ask("alloc b 100M"); got == "ok" {
		t.Error("a client that broke the daemon twice was served")
	}
	say(t, a, "alloc b 100M", "ok")
	m.AwaitLog(fmt.Sprintf("a process is not served any more: its requests broke the daemon\" client_pid=%d", pid))
	if n := failures(m, 2); n != 2 {
		t.Errorf("the daemon failed %d times", n)
	}
	for _, l := range m.Snapshot().Leases {
		if l.PID == pid && l.State != "unmanaged" {
			t.Errorf("the session was resumed: %+v", l)
		}
	}
	if !strings.Contains(b.Stderr(), "broke the daemon twice") {
		t.Errorf("it is told %q", b.Stderr())
	}
	b.CloseStdin()
	b.Wait()
	next := cudaprog(m)
	say(t, next, "alloc a 200M", "ok")
	a.End()
	next.End()
	m.AllGone()
}

// TestThirdFailureSetsTheStateAside checks a daemon that fails for the third time within a minute while it restores the
// state file. It sets the file aside and starts without it. The programs then report their memory.
func TestThirdFailureSetsTheStateAside(t *testing.T) {
	t.Parallel()
	m, breaks := breakable(t, "recover.sessions", rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	a := cudaprog(m)
	say(t, a, "alloc a 100M", "ok")
	m.Kill()
	breaks(3)
	m.Start()
	if n := failures(m, 3); n != 3 {
		t.Errorf("the daemon failed %d times", n)
	}
	if _, err := os.Stat(m.Socket + ".state.broken"); err != nil {
		t.Errorf("nothing was set aside: %v", err)
	}
	m.AwaitLog("the state file is set aside")
	say(t, a, "alloc b 100M", "ok")
	agree(t, m)
	a.End()
	m.AllGone()
}

// TestSocketStaysOverAFailure checks that a client that connects while the daemon restarts itself waits, and is not refused.
func TestSocketStaysOverAFailure(t *testing.T) {
	t.Parallel()
	m, breaks := breakable(t, "request.answered", rig.Options{Devices: "1G", NoMount: true})
	before, err := os.Stat(m.Socket)
	if err != nil {
		t.Fatal(err)
	}
	stop, refused := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(refused)
		for {
			select {
			case <-stop:
				return
			default:
			}
			c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: m.Socket, Net: "unixpacket"})
			switch {
			case err == nil:
				c.Close()
			case !errors.Is(err, unix.EAGAIN): // EAGAIN: the queue of the socket is full
				refused <- err
				return
			}
		}
	}()
	breaks(1)
	rig.Run(t, m.Gpuarb("ps"))
	if n := failures(m, 1); n != 1 {
		t.Errorf("the daemon failed %d times", n)
	}
	m.Snapshot()
	close(stop)
	if err := <-refused; err != nil {
		t.Error(err)
	}
	if after, err := os.Stat(m.Socket); err != nil || !os.SameFile(before, after) {
		t.Errorf("the socket is another one: %v", err)
	}
}
