package soak

import (
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file restarts the daemon after each death, and compares all counts afterwards. All tests of this package use it.

// keeper starts the machine's daemon again whenever it has ended, as systemd does. Programs
// look for a lost daemon for two seconds.
type keeper struct {
	t    *testing.T
	m    *rig.Machine
	done sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	starts  int  // daemons that became ready
	planned bool // the test itself causes the next end
	deaths  int  // ends that the test did not cause
	over    bool
}

func keep(t *testing.T, m *rig.Machine) *keeper {
	k := &keeper{t: t, m: m, starts: 1}
	k.changed = sync.NewCond(&k.mu)
	k.done.Go(k.run)
	t.Cleanup(k.stop)
	return k
}

func (k *keeper) run() {
	for {
		<-k.m.Exited()
		k.mu.Lock()
		if k.over {
			k.mu.Unlock()
			return
		}
		if !k.planned {
			k.deaths++
			k.m.Arm() // the next daemon does not die of the fault again
		}
		k.planned = false
		k.mu.Unlock()
		if err := k.m.TryStart(); err != nil {
			k.mu.Lock()
			k.deaths++
			k.mu.Unlock()
			k.m.Arm()
			if err = k.m.TryStart(); err != nil {
				k.t.Errorf("the next daemon: %v", err)
				return
			}
		}
		k.mu.Lock()
		k.starts++
		k.mu.Unlock()
		k.changed.Broadcast()
	}
}

// again kills the daemon and returns when the next one is ready. environ, such as a fault, is set for the next daemon.
func (k *keeper) again(environ ...string) {
	k.t.Helper()
	k.m.Arm(environ...)
	k.mu.Lock()
	k.planned = true
	starts := k.starts
	k.mu.Unlock()
	if err := unix.Kill(k.m.DaemonPID(), unix.SIGKILL); err != nil {
		k.t.Fatalf("the daemon: %v", err)
	}
	bounded.Within(k.t, "the next daemon is ready", func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		for k.starts == starts && !k.t.Failed() {
			k.changed.Wait()
		}
	})
}

// ready returns when a daemon answers. A program without a session looks for a daemon only for a short time.
func (k *keeper) ready() {
	k.t.Helper()
	rig.Eventually(k.t, "a daemon answers", func() bool {
		c, err := ipc.Dial(k.t.Context(), k.m.Socket)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// died returns how many daemons have ended without the test's doing.
func (k *keeper) died() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.deaths
}

// stop ends the keeping: the machine ends the last daemon.
func (k *keeper) stop() {
	k.mu.Lock()
	k.over = true
	k.mu.Unlock()
}

// settle sends a request from each program, so that each resumes its session, and
// compares all counts.
func settle(t *testing.T, m *rig.Machine, programs ...*rig.Program) {
	t.Helper()
	wrong := ""
	t.Cleanup(func() {
		if wrong != "" {
			t.Log(wrong)
		}
	})
	rig.Eventually(t, "the counts agree", func() bool {
		for _, p := range programs {
			p.Ask("info") // needs an answer of the daemon, and changes no count
		}
		wrong = m.Disagreement()
		return wrong == ""
	})
	if n := m.Snapshot().Stats.ClampedWords; n != 0 {
		t.Errorf("%d credit words of honest programs were clamped", n)
	}
}

// brim checks that a program that holds `held` bytes of its limit gets exactly the rest, and not
// one byte more.
func brim(t *testing.T, p *rig.Program, held, limit uint64) {
	t.Helper()
	left := limit - held
	for _, step := range [][2]string{{fmt.Sprintf("alloc over %d", left+1), "err 2"},
		{fmt.Sprintf("alloc last %d", left), "ok"}, {"alloc over 1", "err 2"}, {"free last", "ok"}} {
		if got := p.Ask(step[0]); got != step[1] {
			t.Errorf("%d of %d bytes are held, and %s: %s\n%s", held, limit, step[0], got, p.Stderr())
		}
	}
}

// gone ends programs, and waits until no process, lease or memory remains.
func gone(t *testing.T, m *rig.Machine, programs ...*rig.Program) {
	t.Helper()
	for _, p := range programs {
		p.End()
	}
	m.AllGone()
}
