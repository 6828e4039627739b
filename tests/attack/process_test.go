package attack

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that clients and daemons that are stopped, replace themselves by exec, or are killed in the middle
// of requests leave all other programs their memory. The oracle is the driver's count.

// TestStoppedClients: programs that were stopped with idle credit delay no other client. The daemon reclaims their idle
// credit, also after restarts, and they go on when they are continued.
func TestStoppedClients(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	var stopped []*rig.Program
	var pids []int
	for range 4 {
		p := cudaprog(m)
		say(t, p, "alloc a 100M", "ok")
		say(t, p, "free a", "ok") // idle credit from here on
		pids = append(pids, p.PID())
		m.Halt(pids[len(pids)-1])
		stopped = append(stopped, p)
	}
	p := cudaprog(m)
	say(t, p, "alloc all 1G", "ok")
	sane(t, m)
	say(t, p, "free all", "ok")
	for range 5 {
		m.Kill()
		m.Start()
		say(t, p, "alloc most 900M", "ok")
		say(t, p, "free most", "ok")
	}
	for i, q := range stopped {
		check(t, syscall.Kill(-pids[i], syscall.SIGCONT))
		say(t, q, "alloc a 50M", "ok")
	}
	settle(t, m, append(stopped, p))
}

// TestStoppedDaemon: a daemon that is stopped and continued keeps its sessions. Programs go on
// within their credit or wait, and every byte is accounted as before.
func TestStoppedDaemon(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	crowd := make([]*rig.Program, 5)
	for i := range crowd {
		crowd[i] = cudaprog(m)
	}
	for round := range 5 * *scale {
		var wg sync.WaitGroup
		for i, p := range crowd {
			wg.Go(func() {
				if got := p.Ask(fmt.Sprintf("threads 3 60 100M %d", 10*round+i+1)); !strings.HasPrefix(got, "ok") {
					t.Errorf("threads: %s", got)
				}
			})
		}
		for range 5 {
			m.Halt(m.DaemonPID())
			check(t, syscall.Kill(m.DaemonPID(), syscall.SIGCONT))
		}
		wg.Wait()
		agree(t, m)
	}
	for _, p := range crowd {
		p.End()
	}
	m.AllGone()
}

// TestExecUnderFire: programs replace themselves by exec again and again while the daemon is
// killed. Memory of the old program is never counted for the new one.
func TestExecUnderFire(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	program := rig.Build(t, "programs/cudaprog-dlsym")
	p, q := cudaprog(m), cudaprog(m)
	say(t, q, "alloc a 300M", "ok")
	for round := range 10 * *scale {
		say(t, p, "alloc a 700M", "ok")
		if round%2 == 1 {
			say(t, p, "closefds", "ok")
		}
		if round%3 == 2 {
			m.Kill()
		}
		p.Tell("exec " + program)
		if got := p.Line(); got != "ready" {
			t.Fatalf("after exec: %q", got)
		}
		if round%3 == 2 {
			m.Start()
		}
		rig.Eventually(t, "the memory is back", func() bool { return p.Ask("alloc b 700M") == "ok" })
		settle(t, m, []*rig.Program{p, q})
		say(t, p, "free b", "ok")
	}
}

// TestExitInTheMiddle: programs that are killed while their threads send requests leave nothing behind.
func TestExitInTheMiddle(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	r := random(t)
	keeper := cudaprog(m)
	say(t, keeper, "alloc a 200M", "ok")
	var wg sync.WaitGroup
	for range 4 {
		r := rand.New(rand.NewPCG(r.Uint64(), 0))
		wg.Go(func() {
			for range 15 * *scale {
				p := m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym"), "threads 4 100000 300M 7")
				if err := p.Start(); err != nil {
					t.Error(err)
					return
				}
				rig.Eventually(t, "the program has a lease", func() bool {
					return strings.Contains(m.Sim("held"), fmt.Sprintf("%d ", p.Process.Pid))
				})
				_ = p.Process.Signal([]os.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGSEGV}[r.IntN(3)])
				_ = rig.Wait(t, rig.Patience, p)
			}
		})
	}
	wg.Wait()
	rig.Eventually(t, "only one lease is left", func() bool { return len(m.Snapshot().Leases) == 1 })
	agree(t, m)
	say(t, keeper, "alloc b 800M", "ok")
	sane(t, m)
}
