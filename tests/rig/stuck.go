package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file ends tests that wait in vain, with a report about all processes of their machine. It also removes machines at the end of tests.
// tests/bounded limits single programs.

// machines has the machines of all running tests, by test.
var machines sync.Map

// giveUp fails a test because an expected event has not happened, with the reason as far as it is known.
func giveUp(t testing.TB, what string) {
	t.Helper()
	if m, ok := machines.Load(t); ok {
		m.(*Machine).stuck(what)
		m.(*Machine).fatalf("after %v not yet: %s", Patience, what)
	}
	t.Fatalf("after %v not yet: %s", Patience, what)
}

// watch ends a test that takes longer than its limit. It kills all processes of the test's machine,
// so that the test's waits end and the other tests of the package can run.
func (m *Machine) watch() {
	if _, ok := m.T.(*testing.B); ok {
		return // it has no limit
	}
	timer := time.AfterFunc(m.o.Life, func() {
		m.stuck(fmt.Sprintf("the test ends within %v", m.o.Life))
		m.killAll()
	})
	m.T.Cleanup(func() { timer.Stop() })
}

// stuck fails the test because an expected event has not happened. It logs all that is known:
// the counts of the daemon and the driver, what each thread of the machine's processes
// waits for, and the daemon's goroutines. The daemon prints its goroutines when it is killed for that.
func (m *Machine) stuck(what string) {
	m.stuckOnce.Do(func() {
		state := m.state()
		m.mu.Lock()
		d, over := m.daemon, m.over
		m.daemon = nil
		m.mu.Unlock()
		if d != nil {
			_ = d.cmd.Process.Signal(unix.SIGQUIT)
			_ = d.cmd.Process.Signal(unix.SIGCONT)
			select {
			case <-d.exited:
			case <-time.After(bounded.Grace):
				_ = d.cmd.Process.Kill()
			}
		}
		if !over {
			m.T.Errorf("not yet: %s\n%s\nthe daemon's log, and its goroutines at the end:\n%s", what, state, m.end64K())
		}
	})
}

// state describes the machine's processes: their threads, and what the processes hold by the counts of the driver and the daemon.
func (m *Machine) state() string {
	var text strings.Builder
	for _, pid := range m.processes() {
		text.WriteString(bounded.Threads(pid))
	}
	sim := bounded.Command(m.T, bounded.Grace, Build(m.T, "sim/simcuda"), "held")
	sim.Env = m.Env()
	held, err := sim.CombinedOutput()
	fmt.Fprintf(&text, "the driver (%v):\n%s", err, held)
	leases := m.Command(append(m.Env(), "GPUARB_SOCKET="+m.Socket), "timeout", "5", Build(m.T, "gpuarb"), "ps")
	ps, err := leases.CombinedOutput()
	fmt.Fprintf(&text, "the daemon (%v):\n%s", err, ps)
	return text.String()
}

// end64K returns the last 64 KiB of the log, which can hold a dump of all goroutines.
func (m *Machine) end64K() string {
	log := m.Log()
	return log[max(0, len(log)-64<<10):]
}

// processes returns all processes that were started on the machine, directly or by other programs: their environment
// names the machine.
func (m *Machine) processes() []int {
	var pids []int
	mark := "SIMCUDA_DIR=" + filepath.Join(m.Dir, "sim")
	paths, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is good
	for _, path := range paths {
		text, err := os.ReadFile(path)
		pid, isPID := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && isPID == nil && pid != os.Getpid() && strings.Contains(string(text), mark+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killAll kills all processes of the machine, including the daemon. The death of the daemon
// also ends reads of its mount.
func (m *Machine) killAll() {
	for range 10 { // processes that are forked meanwhile are found in the next round
		pids := m.processes()
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if len(pids) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// abandon kills a daemon that does not get ready.
func (m *Machine) abandon() {
	m.mu.Lock()
	d := m.daemon
	m.daemon = nil
	m.mu.Unlock()
	if d == nil {
		return
	}
	_ = d.cmd.Process.Kill()
	select {
	case <-d.exited:
	case <-time.After(Patience):
		m.T.Errorf("a killed daemon is still there:\n%s", bounded.Threads(d.cmd.Process.Pid))
	}
}

// fatalf fails the test. If the test has ended, it only ends the calling goroutine, which waited for a program
// of that test.
func (m *Machine) fatalf(format string, args ...any) {
	m.T.Helper()
	m.mu.Lock()
	over := m.over
	m.mu.Unlock()
	if over {
		runtime.Goexit()
	}
	m.T.Fatalf(format, args...)
}

// end stops all programs and removes the folder. If the test failed, it logs the daemon's log.
func (m *Machine) end() {
	defer m.remove()
	m.mu.Lock()
	running := m.daemon != nil
	m.mu.Unlock()
	if running && !m.T.Failed() {
		m.Stop()
	}
}

// remove removes the machine's mounts and folder, whatever state they are in.
func (m *Machine) remove() {
	m.abandon()
	m.mu.Lock()
	m.over = true
	m.mu.Unlock()
	m.killAll()
	if m.Mount != "" {
		_ = unix.Unmount(m.Mount, unix.MNT_DETACH) // in case the daemon did not unmount it
	}
	if strings.Contains(m.Log(), "WARNING: DATA RACE") {
		m.T.Error("the daemon found a data race")
	}
	for _, sign := range []string{"broken invariant", "\npanic: ", "\nfatal error: "} {
		if at := strings.Index(m.Log(), sign); at >= 0 && !m.o.Broken {
			m.T.Errorf("the daemon has broken an invariant: %s", m.Log()[at:min(len(m.Log()), at+8000)])
			break
		}
	}
	if m.T.Failed() {
		log := m.Log()
		m.T.Logf("the daemon's log (its end):\n%s", log[max(0, len(log)-8000):])
	}
	if err := os.RemoveAll(m.Dir); err != nil {
		m.T.Errorf("the machine leaves something behind: %v", err)
	}
}
