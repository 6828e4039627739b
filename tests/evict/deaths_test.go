package evict

import (
	"fmt"
	"testing"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/rig"
	"golang.org/x/sys/unix"
)

// These tests kill the daemon, the server, the waiting program or the hook at each step of a suspension. kill_test.go has the types desk
// and server. It also kills the daemon at its fault points.

// step is a point of a suspension at which a test kills one of the processes.
type step string

const (
	atSuspending step = "suspending" // the hook runs
	atSuspended  step = "suspended"  // the waiting program has its memory
	atReturning  step = "returning"  // the return waits in the queue
	atResuming   step = "resuming"   // the hook runs, and the job's memory is reserved
	atStuck      step = "stuck"      // the hook has failed, and the job's memory stays reserved
)

// play is the course of a suspension: a server that has 6 of 8 GiB makes room for a program that wants 4 GiB.
type play struct {
	t     *testing.T
	m     *rig.Machine
	s     *server
	pid   int          // PID of the server
	waits *rig.Program // program that the server makes room for; nil: it was killed
	call  call         // hook that runs at the step
}

// playUntil starts a play, and returns it when it has come to a step. With bare the server is started without `gpuarb run`.
func playUntil(t *testing.T, at step, bare bool) *play {
	d := newDesk(t)
	m := d.machine(rig.Options{}, `evict.return = "never"`)
	p := &play{t: t, m: m, s: &server{desk: d, has: true}}
	if p.s.Program = cudaprog(m); bare {
		p.s.Program = m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym")))
	}
	p.s.Want("alloc a 6G", "ok")
	p.pid, p.waits = p.s.PID(), cudaprog(m)
	p.waits.Tell("alloc b 4G")
	if p.call = d.next("suspend"); at == atSuspending {
		return p
	}
	p.s.does(p.call)
	p.waits.Expect("alloc b ok")
	p.residence(figures.Suspended)
	if at == atSuspended {
		return p
	}
	p.resume()
	rig.Eventually(t, "the return waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	if at == atReturning {
		return p
	}
	p.waits.Want("free b", "ok")
	if p.call = d.next("resume"); at == atResuming {
		return p
	}
	p.call.ends(1)
	p.residence(figures.Stuck)
	return p
}

// job returns the server's job. A restart of the daemon changes the number of a job without `gpuarb run`.
func (p *play) job() (j figures.JobState, found bool) {
	for _, j := range p.m.Snapshot().Jobs {
		for _, pid := range j.Processes {
			if pid == p.pid {
				return j, true
			}
		}
	}
	return j, false
}

// residence waits until the server's job has a residence.
func (p *play) residence(want figures.Residence) {
	p.t.Helper()
	rig.Eventually(p.t, "the job is "+string(want), func() bool { j, found := p.job(); return found && j.Residence == want })
}

// resume asks for the return of the server's job.
func (p *play) resume() {
	p.t.Helper()
	j, _ := p.job()
	if r := rig.Run(p.t, p.m.Gpuarb("resume", fmt.Sprint(j.ID))); r.Code != 0 {
		p.t.Fatalf("gpuarb resume: %d, %s", r.Code, r.Stderr)
	}
}

// toTheEnd continues the play from a step: the waiting program gets its memory and frees it, and the server returns. At the end nothing
// may wait and nothing may be reserved.
func (p *play) toTheEnd(at step) {
	p.t.Helper()
	if at == atSuspending && p.waits != nil {
		p.s.until("the waiting program has its memory", func() bool { return !p.waits.Silent() })
		p.waits.Expect("alloc b ok")
	}
	if p.waits != nil && at != atResuming && at != atStuck {
		p.waits.Want("free b", "ok")
	}
	p.s.until("the server is suspended, returns, or has its memory", func() bool { j, _ := p.job(); return j.Residence != figures.Suspending })
	if j, _ := p.job(); j.Residence == figures.Stuck || j.Residence == figures.Suspended && len(p.m.Snapshot().Queue) == 0 {
		p.resume()
	}
	p.s.until("the server has its memory", func() bool { return p.s.has })
	p.s.quiet(p.m, 6*gib)
	p.fits(2 * gib)
}

// fits allocates n bytes in another program. Then the device must be full by the driver's count.
func (p *play) fits(n uint64) {
	p.t.Helper()
	other := cudaprog(p.m)
	other.Want(fmt.Sprintf("alloc c %d", n), "ok")
	if used := p.m.SimNumber("used", "0"); used != 8*gib {
		p.t.Errorf("the driver has %d bytes in use, and must be full", used)
	}
	other.End()
}

// steps calls f in a test for each step.
func steps(t *testing.T, f func(t *testing.T, at step)) {
	for _, at := range []step{atSuspending, atSuspended, atReturning, atResuming, atStuck} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			f(t, at)
		})
	}
}

// TestDaemonDies: the daemon is killed at each step. A hook that runs ends with it. The next daemon knows the state of each job,
// reserves what was reserved, and completes the suspension.
func TestDaemonDies(t *testing.T) {
	t.Parallel()
	for name, bare := range map[string]bool{"gpuarb run": false, "preload": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps(t, func(t *testing.T, at step) {
				p := playUntil(t, at, bare)
				before, _ := p.job()
				reserved := p.m.Snapshot().Devices[0].Reserved
				p.m.Kill()
				p.m.Start() // at once: programs look for a lost daemon for two seconds
				s := p.m.Snapshot()
				if after, _ := p.job(); after.Residence != before.Residence || s.Devices[0].Reserved != reserved {
					t.Errorf("the job was %q with %d reserved, and is %q with %d", before.Residence, reserved, after.Residence, s.Devices[0].Reserved)
				}
				if at == atReturning && (len(s.Queue) != 1 || s.Queue[0].WantsBytes != 6*gib) {
					t.Errorf("the return waits no more: %+v", s.Queue)
				}
				if (at == atResuming || at == atStuck) && reserved != 6*gib {
					t.Errorf("%d bytes are reserved", reserved)
				}
				if at == atSuspending || at == atResuming {
					rig.Eventually(t, "the hook ends with its daemon", func() bool { return !p.call.lives() })
				}
				p.toTheEnd(at)
			})
		})
	}
}

// TestDaemonStops: the daemon is stopped while a hook runs. The hook ends, and the next daemon continues the suspension.
func TestDaemonStops(t *testing.T) {
	t.Parallel()
	for _, at := range []step{atSuspending, atResuming} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			p := playUntil(t, at, false)
			p.m.Stop()
			p.m.Start()
			rig.Eventually(t, "the hook ends with its daemon", func() bool { return !p.call.lives() })
			p.toTheEnd(at)
		})
	}
}

// TestSuspendedProgramDies: the server is killed at each step. Then its memory and its reservation are free, and the waiting program
// keeps its memory or gets it.
func TestSuspendedProgramDies(t *testing.T) {
	t.Parallel()
	steps(t, func(t *testing.T, at step) {
		p := playUntil(t, at, false)
		if err := unix.Kill(p.pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if at == atSuspending {
			p.waits.Expect("alloc b ok")
		}
		if at == atSuspending || at == atResuming {
			p.call.ends(0)
		}
		rig.Eventually(t, "its job is gone", func() bool { return len(p.m.Snapshot().Jobs) == 1 })
		held := uint64(4 * gib)
		if at == atResuming || at == atStuck {
			held = 0
		}
		p.s.quiet(p.m, held)
		p.fits(8*gib - held)
		p.m.Kill() // the next daemon must find no record of the suspension
		p.m.Start()
		p.s.quiet(p.m, held)
	})
}

// TestWaitingProgramDies: the program for which the server makes room is killed at each step. The server returns as if that program had
// freed its memory.
func TestWaitingProgramDies(t *testing.T) {
	t.Parallel()
	steps(t, func(t *testing.T, at step) {
		p := playUntil(t, at, false)
		pid := 0
		for _, l := range p.m.Snapshot().Leases {
			if l.PID != p.pid {
				pid = l.PID
			}
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p.waits = nil
		if at == atSuspending || at == atResuming {
			p.s.does(p.call)
		}
		p.toTheEnd(at)
	})
}

// TestHookDies: the hook is killed. If it asked the job to give its memory back, the job keeps the memory. If it asked the job to take the
// memory again, the job is stuck until a user resumes it.
func TestHookDies(t *testing.T) {
	t.Parallel()
	for _, at := range []step{atSuspending, atResuming} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			p := playUntil(t, at, false)
			if err := unix.Kill(p.call.pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if at == atResuming {
				p.residence(figures.Stuck)
				p.toTheEnd(at)
				return
			}
			p.residence("")
			p.m.AwaitLog("signal: killed; it is not asked again for 30 s")
			p.s.Want("free a", "ok") // without a hook
			p.waits.Expect("alloc b ok")
			p.waits.Want("free b", "ok")
			p.s.Want("alloc a 6G", "ok")
			p.s.quiet(p.m, 6*gib)
		})
	}
}
