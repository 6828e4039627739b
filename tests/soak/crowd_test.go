package soak

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the crowd of fifty programs under which the daemon dies. soak_test.go adds other faults.

// A crowd is fifty programs on two GPUs, of five kinds.
const (
	brimmers = 14 // hold their limit to the byte, and request one byte more again and again
	waiters  = 12 // wait for memory of GPU 1, which the landlord holds
	films    = 2  // ffmpeg, over and over
	busy     = 21 // allocate and free close to their limit, with three threads each

	brimLimit = 20 * mib
	busyLimit = 40 * mib
	room      = 900 * mib // held by the landlord
	want      = 600 * mib // requested by each waiter; only one such block fits into the room at a time
)

// crowd is the set of programs, with the counts of what they do.
type crowd struct {
	t        *testing.T
	m        *rig.Machine
	brims    []*rig.Program
	wait     []*rig.Program
	busy     []*rig.Program
	landlord *rig.Program
	frames   string // ffmpeg's output in an undisturbed run

	resting sync.RWMutex // held for writing while no busy program works
	stop    chan struct{}
	done    sync.WaitGroup
	refused atomic.Uint64 // bytes refused over a limit
	rounds  atomic.Uint64 // rounds of the busy programs
	filmed  atomic.Uint64
}

// newCrowd starts the programs. Programs that work in a loop begin with work.
func newCrowd(t *testing.T, o rig.Options) *crowd {
	t.Helper()
	o.Devices, o.Sim = "3G,1G", []string{"SIMCUDA_CONTEXT_BYTES=0"}
	o.Config = "schema_version = 1\n[defaults]\non_loss = \"closed\"\non_full = \"wait\"\nwait_timeout = \"max\"\ndeadlock_grace = \"10m\"\n"
	m := rig.New(t, o)
	c := &crowd{t: t, m: m, stop: make(chan struct{})}
	film := rig.Run(t, m.Command(m.Env(), "ffmpeg", filmArguments...))
	if c.frames = film.Stdout; film.Code != 0 || strings.Count(c.frames, "\n") < 50 {
		t.Fatalf("ffmpeg: exit status %d\n%s", film.Code, film.Stderr)
	}
	for range brimmers {
		p := run(m, "--memory", fmt.Sprint(brimLimit))
		p.Want(fmt.Sprintf("alloc all %d", brimLimit), "ok")
		c.brims = append(c.brims, p)
	}
	for range busy {
		c.busy = append(c.busy, run(m, "--memory", fmt.Sprint(busyLimit)))
	}
	onSecond := func() *rig.Program {
		return m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym"), "--device", "1", "-"))
	}
	c.landlord = onSecond()
	c.landlord.Want(fmt.Sprintf("alloc room %d", room), "ok")
	for range waiters {
		c.wait = append(c.wait, onSecond())
	}
	return c
}

var filmArguments = []string{"-nostdin", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=640x360:rate=25", "-frames:v", "60",
	"-vf", "format=nv12,hwupload_cuda,hwdownload,format=nv12", "-f", "framemd5", "-"}

// work starts the programs that work in a loop.
func (c *crowd) work() {
	for _, p := range c.brims {
		c.loop(func(int) {
			if got := p.Ask("alloc over 1"); got != "err 2" {
				c.t.Errorf("a byte over the limit: %s\n%s", got, p.Stderr())
			}
			c.refused.Add(1)
		})
	}
	for i, p := range c.busy {
		c.loop(func(round int) { c.toil(p, i, round) })
	}
	for range films {
		c.loop(func(int) { c.film() })
	}
}

// loop calls f again and again, except while rest holds the crowd.
func (c *crowd) loop(f func(round int)) {
	c.done.Go(func() {
		for round := 0; ; round++ {
			select {
			case <-c.stop:
				return
			default:
			}
			c.resting.RLock()
			f(round)
			c.resting.RUnlock()
		}
	})
}

// toil is one round of a busy program.
func (c *crowd) toil(p *rig.Program, i, round int) {
	if got := p.Ask(fmt.Sprintf("threads 3 50 40M %d", 1000*i+round+1)); !strings.HasPrefix(got, "ok ") {
		c.t.Errorf("a busy program: %s\n%s", got, p.Stderr())
	}
	for _, command := range []string{"stream s", "streamdestroy s"} {
		if got := p.Ask(command); got != "ok" {
			c.t.Errorf("a busy program: %s: %s\n%s", command, got, p.Stderr())
		}
	}
	c.rounds.Add(1)
}

// film runs ffmpeg and checks that its output equals the undisturbed run's.
func (c *crowd) film() {
	cmd := again(c.m, append([]string{"--memory", "64M", "--", "ffmpeg"}, filmArguments...)...)
	if r := rig.RunFor(c.t, bounded.Lifetime, cmd); r.Code != 0 || r.Stdout != c.frames {
		c.t.Errorf("ffmpeg: exit status %d, the same frames: %v\n%s", r.Code, r.Stdout == c.frames, r.Stderr)
	}
	c.filmed.Add(1)
}

// queueUp sends an allocation from each waiter, which then waits for memory.
func (c *crowd) queueUp() {
	for _, p := range c.wait {
		p.Tell(fmt.Sprintf("alloc w %d", want))
	}
}

// serve frees the landlord's memory, lets each waiter allocate and free in turn, and allocates the memory again.
func (c *crowd) serve() {
	c.t.Helper()
	c.landlord.Want("free room", "ok")
	var served sync.WaitGroup
	for _, p := range c.wait {
		served.Go(func() {
			p.Expect("alloc w ok")
			p.Want("free w", "ok")
		})
	}
	bounded.Within(c.t, "all waiting programs are served", served.Wait)
	c.landlord.Want(fmt.Sprintf("alloc room %d", room), "ok")
}

// crowded reports whether enough programs wait, and enough are at their limit.
func (c *crowd) crowded() bool {
	s := c.m.Snapshot()
	full := 0
	for _, l := range s.Leases {
		if l.Used == l.Budget && l.Used > 0 {
			full++
		}
	}
	return len(s.Queue) >= 10 && full >= 10
}

// rest stops the looping programs between two rounds, while f runs.
func (c *crowd) rest(f func()) {
	c.resting.Lock()
	defer c.resting.Unlock()
	f()
}

// allPrograms returns all programs that answer commands.
func (c *crowd) allPrograms() []*rig.Program {
	all := append(append([]*rig.Program{c.landlord}, c.brims...), c.busy...)
	return append(all, c.wait...)
}

// end ends the crowd, and checks that nothing is left.
func (c *crowd) end() {
	c.t.Helper()
	close(c.stop)
	bounded.Within(c.t, "the crowd ends its work", c.done.Wait)
	settle(c.t, c.m, c.allPrograms()...)
	gone(c.t, c.m, c.allPrograms()...)
}

// again returns a `gpuarb run` command that is repeated while it finds no daemon, because gpuarb run does not wait for a daemon
// that never answered it.
func again(m *rig.Machine, args ...string) *exec.Cmd {
	const retry = `while :; do "$@"; r=$?; [ $r -eq 125 ] || exit $r; sleep 0.05; done`
	cmd := m.Gpuarb(append([]string{"run"}, args...)...)
	cmd.Args = append([]string{"sh", "-c", retry, "sh", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	return cmd
}

// killUnderCrowd kills the daemon `kills` times at random moments while a crowd is at work.
func killUnderCrowd(t *testing.T, kills int) {
	c := newCrowd(t, rig.Options{NoMount: true, Life: bounded.Lifetime + time.Duration(kills)*10*time.Second})
	random := rand.New(rand.NewPCG(1, 2))
	c.work()
	began := time.Now()
	for n := 0; n < kills && !t.Failed(); {
		c.queueUp()
		for range 1 + random.IntN(3) { // some daemons die before they have served a client
			rig.Eventually(t, "ten wait, and ten are at their limit", c.crowded)
			<-time.After(time.Duration(random.IntN(20_000)) * time.Microsecond)
			c.m.Kill()
			c.m.Start()
			n++
		}
		c.serve()
		c.rest(func() { settle(t, c.m, c.allPrograms()...) })
	}
	t.Logf("%d kills in %v: %d rounds of busy programs, %d films, %d bytes beyond a limit refused",
		kills, time.Since(began).Round(time.Second), c.rounds.Load(), c.filmed.Load(), c.refused.Load())
	c.end()
	if c.rounds.Load() == 0 || c.filmed.Load() == 0 || c.refused.Load() == 0 {
		t.Error("some programs of the crowd did nothing")
	}
}

// TestKilledUnderACrowd kills the daemon a few times under fifty programs.
func TestKilledUnderACrowd(t *testing.T) {
	t.Parallel()
	killUnderCrowd(t, 6)
}
