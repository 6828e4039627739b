//go:build soak

package soak

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file runs the crowd of crowd_test.go for a given time, with random faults (`make soak`).

var (
	soakFor  = flag.Duration("soak.for", 2*time.Minute, "how long")
	soakSeed = flag.Uint64("soak.seed", 1, "of the faults and their times")
)

const (
	mostPause  = 4 * time.Second  // longest pause between two faults
	checkEvery = 20 * time.Second // time between two comparisons of all counts
	lineEvery  = time.Minute
)

// soak is a crowd, with the faults that happen to it.
type soak struct {
	*crowd
	random  *rand.Rand
	faults  map[string]int
	victims []*victim
	stopped []int // processes stopped by SIGSTOP
	checks  int
	began   time.Time
	next    time.Time // time of the next line of figures
	// Sums of all ended daemons.
	granted, refusals, waited uint64
	queued                    bool
}

// victim runs programs one after another; each may be killed at any time.
type victim struct {
	mu     sync.Mutex
	cmd    *exec.Cmd
	killed bool
	ended  *atomic.Uint64
}

// TestSoak runs a crowd for a given time, with a fault every few seconds.
func TestSoak(t *testing.T) {
	s := &soak{random: rand.New(rand.NewPCG(*soakSeed, 0)), faults: map[string]int{}, began: time.Now()}
	s.crowd = newCrowd(t, rig.Options{Life: *soakFor + bounded.Lifetime, Quiet: true})
	s.work()
	for range 4 {
		v := &victim{ended: new(atomic.Uint64)}
		s.victims = append(s.victims, v)
		s.loop(func(round int) { s.live(v, round) })
	}
	s.next = s.began.Add(lineEvery)
	for check := s.began.Add(checkEvery); time.Since(s.began) < *soakFor && !t.Failed(); {
		<-time.After(time.Duration(s.random.Int64N(int64(mostPause))))
		s.turn()
		s.fault()
		if time.Now().After(check) {
			s.check()
			check = time.Now().Add(checkEvery)
		}
	}
	s.check()
	s.line()
	s.end()
	fmt.Printf("soak: %v, seed %d: %d comparisons of all counts, faults %v; at the end nothing is left: %v\n",
		time.Since(s.began).Round(time.Second), *soakSeed, s.checks, s.faults, !t.Failed())
}

// live runs one program of a victim from its start to its end.
func (s *soak) live(v *victim, round int) {
	cmd := again(s.m, "--memory", "30M", "--", rig.Build(s.t, "programs/cudaprog-dlsym"), "alloc a 10M; stream s",
		fmt.Sprintf("threads 3 3000 25M %d", round+1), "free a")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		s.t.Errorf("a victim: %v", err)
		return
	}
	v.mu.Lock()
	v.cmd, v.killed = cmd, false
	v.mu.Unlock()
	err := cmd.Wait()
	v.mu.Lock()
	v.cmd = nil
	killed := v.killed
	v.mu.Unlock()
	if err != nil && !killed || strings.Contains(out.String(), "free a err") {
		s.t.Errorf("a program ended that the test did not kill: %v\n%s", err, out.String())
	}
	v.ended.Add(1)
}

// kill kills the victim's current program, if there is one, with its children.
func (v *victim) kill() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cmd != nil {
		v.killed = true
		_ = unix.Kill(-v.cmd.Process.Pid, unix.SIGKILL)
	}
}

// turn makes the waiters wait, or serves them if they wait.
func (s *soak) turn() {
	if s.queued = !s.queued; s.queued {
		s.queueUp()
		return
	}
	s.wake()
	s.serve()
}

// fault causes one random fault.
func (s *soak) fault() {
	kinds := []struct {
		name string
		do   func()
	}{
		{"daemon killed", func() { s.restart(s.m.Kill) }},
		{"daemon killed", func() { s.restart(s.m.Kill) }},
		{"daemon stopped", func() { s.restart(s.m.Stop) }},
		{"daemon frozen", s.freezeDaemon},
		{"client killed", func() { s.victims[s.random.IntN(len(s.victims))].kill() }},
		{"client killed", func() { s.victims[s.random.IntN(len(s.victims))].kill() }},
		{"client frozen", s.freeze},
		{"client frozen", s.freeze},
		{"clients go on", s.wake},
		{"limit changed", s.limit},
		{"device slow", func() { s.m.Sim("set", "alloc-delay", fmt.Sprint(s.random.IntN(3)*500)) }},
		{"memory late", func() { s.m.Sim("set", "release-delay-ms", fmt.Sprint(s.random.IntN(3)*300)) }},
		{"unmounted", func() { _ = unix.Unmount(s.m.Mount, unix.MNT_DETACH) }},
		{"configuration read", func() { _ = unix.Kill(s.m.DaemonPID(), unix.SIGHUP) }},
	}
	k := kinds[s.random.IntN(len(kinds))]
	s.faults[k.name]++
	k.do()
}

// restart ends the daemon and starts the next one, which mounts the filesystem again.
func (s *soak) restart(end func()) {
	stats := s.m.Snapshot().Stats
	s.granted, s.refusals, s.waited = s.granted+stats.Admitted, s.refusals+stats.Denied, s.waited+stats.Waited
	end()
	s.m.Start()
	if leases := s.m.Read("leases"); !strings.Contains(leases, "PID USER") {
		s.t.Errorf("after a restart, %s/leases is %q", s.m.Mount, leases)
	}
}

// freezeDaemon stops the daemon for less time than a program waits for an answer.
func (s *soak) freezeDaemon() {
	pid := s.m.DaemonPID()
	_ = unix.Kill(pid, unix.SIGSTOP)
	<-time.After(time.Duration(s.random.IntN(1500)) * time.Millisecond)
	_ = unix.Kill(pid, unix.SIGCONT)
}

// freeze stops a program with SIGSTOP, until wake.
func (s *soak) freeze() {
	all := s.allPrograms()
	pid := all[s.random.IntN(len(all))].Process()
	for _, p := range append(children(pid), pid) {
		_ = unix.Kill(p, syscall.SIGSTOP)
		s.stopped = append(s.stopped, p)
	}
}

// wake continues all stopped programs.
func (s *soak) wake() {
	for _, pid := range s.stopped {
		_ = unix.Kill(pid, unix.SIGCONT)
	}
	s.stopped = nil
}

// children returns the children of a process, such as the program of a `gpuarb run`.
func children(pid int) (pids []int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, field := range strings.Fields(string(text)) {
		var child int
		if _, err := fmt.Sscan(field, &child); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

// limit lowers or raises the limit of a busy program.
func (s *soak) limit() {
	for _, pid := range children(s.busy[s.random.IntN(len(s.busy))].Process()) {
		to := fmt.Sprintf("memory.max=%dM", 1+s.random.IntN(busyLimit/mib))
		if r := rig.Run(s.t, s.m.Gpuarb("limit", fmt.Sprint(pid), to)); r.Code != 0 {
			s.t.Errorf("gpuarb limit: %s", r.Stderr)
		}
	}
}

// check compares all counts while no program works.
func (s *soak) check() {
	s.wake()
	s.m.Sim("set", "alloc-delay", "0")
	s.rest(func() {
		if s.queued {
			s.serve()
			s.queued = false
		}
		settle(s.t, s.m, s.allPrograms()...)
	})
	s.checks++
	if log := s.m.Log(); strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic:") || strings.Contains(log, "level=ERROR") {
		s.t.Errorf("the daemon's log:\n%s", log)
	}
	if time.Now().After(s.next) {
		s.line()
		s.next = s.next.Add(lineEvery)
	}
}

// line prints a line of figures.
func (s *soak) line() {
	snapshot := s.m.Snapshot()
	pid := s.m.DaemonPID()
	fds, _ := os.ReadDir(filepath.Join("/proc", fmt.Sprint(pid), "fd"))
	verdict := "agree"
	if s.t.Failed() {
		verdict = "DIFFER"
	}
	var killed uint64
	for _, v := range s.victims {
		killed += v.ended.Load()
	}
	fmt.Printf("soak: %6s leases %d, granted %d, refused %d, waited %d, programs' rounds %d, films %d, ended %d; "+
		"daemon: RSS %d KiB, %d descriptors, %d goroutines, %d errors; ledger and driver %s\n",
		time.Since(s.began).Round(time.Second), len(snapshot.Leases), s.granted+snapshot.Stats.Admitted, s.refusals+snapshot.Stats.Denied,
		s.waited+snapshot.Stats.Waited, s.rounds.Load(), s.filmed.Load(), killed, rss(pid), len(fds), snapshot.Stats.Goroutines,
		strings.Count(s.m.Log(), "level=ERROR"), verdict)
}

// rss returns a process's resident memory, in KiB.
func rss(pid int) (kib int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			_, _ = fmt.Sscan(rest, &kib)
		}
	}
	return kib
}
