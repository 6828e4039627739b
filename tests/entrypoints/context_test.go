package entrypoints

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows how contexts and streams are counted, whichever call makes, attaches, pushes or ends them,
// and that the memory of a context is requested before the context exists. primary_test.go has threads that
// share the primary context.

// objects compares a process's numbers of contexts and streams with the driver's
// count and the daemon's.
func objects(t *testing.T, m *rig.Machine, pid, device, contexts, streams int) {
	t.Helper()
	if h := m.HeldBy(pid, device); h.Contexts != contexts || h.Streams != streams {
		t.Errorf("the driver has %d contexts and %d streams on GPU %d, want %d and %d",
			h.Contexts, h.Streams, device, contexts, streams)
	}
	if l := m.Lease(pid, device); l.Contexts != contexts || l.Streams != streams {
		t.Errorf("the daemon says %d contexts and %d streams on GPU %d, want %d and %d",
			l.Contexts, l.Streams, device, contexts, streams)
	}
}

// withContext runs everyWay with a program that begins with a context of some kind.
func withContext(t *testing.T, how string, limit uint64, f func(t *testing.T, m *rig.Machine, p *rig.Program)) {
	eachWay(t, func(t *testing.T, way string) {
		m := rig.New(t, rig.Options{NoMount: true, Sim: handles(way)})
		env := append(m.PreloadEnv(), fmt.Sprintf("GPUARB_MEMORY=%d", limit))
		f(t, m, m.Interact(m.Command(env, rig.Build(t, "programs/cudaprog-"+way), "--context", how)))
	})
}

// TestContextVersions: each way to make a context counts one, or none if the driver fails. Each way to
// end a context uncounts the objects in it.
func TestContextVersions(t *testing.T) {
	const limit = 8 * mib
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		versions := map[string]string{"contextv1": "cuCtxCreate", "context": "cuCtxCreate_v2",
			"contextv3": "cuCtxCreate_v3", "contextv4": "cuCtxCreate_v4",
			"contextglv1": "cuGLCtxCreate", "contextgl": "cuGLCtxCreate_v2",
			"contextvdpauv1": "cuVDPAUCtxCreate", "contextvdpau": "cuVDPAUCtxCreate_v2"}
		for make, symbol := range versions {
			for _, end := range []string{"destroy", "destroyv1"} {
				m.Sim("fail", symbol+":1-:2")
				p.Want(make+" c", errOutOfMemory)
				m.Sim("clear")
				p.Want(make+" c 7", "err 101") // no such device
				objects(t, m, pid, 0, 1, 0)
				p.Want(make+" c 0", "ok")
				objects(t, m, pid, 0, 2, 0) // counted before the program makes any other call
				p.Want("alloc a 4M", "ok")
				p.Want("array b 1024 1024 1 1", "ok")
				p.Want("stream s", "ok")
				objects(t, m, pid, 0, 2, 1)
				holds(t, m, pid, 0, 5*mib)
				m.Sim("fail", "cuCtxDestroy*:1:999")
				p.Want(end+" c", "err 999")
				m.Sim("clear")
				objects(t, m, pid, 0, 2, 1)
				holds(t, m, pid, 0, 5*mib)
				p.Want(end+" c", "ok")
				objects(t, m, pid, 0, 1, 0)
				holds(t, m, pid, 0, 0)
			}
		}
		exactly(p, limit)
	})
}

// TestStreamDestroyedByTheFirstVersion: the first version of cuStreamDestroy uncounts the stream, too.
func TestStreamDestroyedByTheFirstVersion(t *testing.T) {
	everyWay(t, 8*mib, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		m.Sim("fail", "cuStreamDestroy:1:999")
		p.Want("streamdestroyv1 s", "err 999")
		m.Sim("clear")
		objects(t, m, pid, 0, 1, 1)
		p.Want("streamdestroyv1 s", "ok")
		objects(t, m, pid, 0, 1, 0)
		p.Want("streamdestroyv1 s", errInvalidHandle)
		objects(t, m, pid, 0, 1, 0)
	})
}

// TestContextAttached: a context that was attached n times ends with the nth detach.
func TestContextAttached(t *testing.T) {
	everyWay(t, 8*mib, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("alloc a 1M", "ok")
		p.Want("attach again", "ok")
		m.Sim("fail", "cuCtxDetach:1:999")
		p.Want("detach again", "err 999")
		m.Sim("clear")
		p.Want("detach again", "ok")
		objects(t, m, pid, 0, 1, 0)
		holds(t, m, pid, 0, mib)
		p.Want("detach first", "ok")
		objects(t, m, pid, 0, 0, 0)
		holds(t, m, pid, 0, 0)
	})
}

// TestContextPrimary: the primary context counts as one, however often it is retained.
func TestContextPrimary(t *testing.T) {
	const limit = 8 * mib
	withContext(t, "none", limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		m.Sim("fail", "cuDevicePrimaryCtxRetain:1-:2")
		p.Want("primary c", errOutOfMemory)
		m.Sim("clear")
		for _, suffix := range []string{"", "v1"} {
			p.Want("primary c", "ok")
			p.Want("primary c", "ok")
			p.Want("alloc a 4M", "ok")
			p.Want("stream s", "ok")
			objects(t, m, pid, 0, 1, 1)
			p.Want("release"+suffix+" 0", "ok")
			objects(t, m, pid, 0, 1, 1)
			holds(t, m, pid, 0, 4*mib)
			p.Want("release"+suffix+" 0", "ok")
			objects(t, m, pid, 0, 0, 0)
			holds(t, m, pid, 0, 0)
			p.Want("release"+suffix+" 0", "err 201")

			p.Want("primary c", "ok")
			p.Want("alloc a 4M", "ok")
			p.Want("stream s", "ok")
			m.Sim("fail", "cuDevicePrimaryCtxReset*:1:999")
			p.Want("reset"+suffix+" 0", "err 999")
			m.Sim("clear")
			holds(t, m, pid, 0, 4*mib)
			p.Want("reset"+suffix+" 0", "ok")
			objects(t, m, pid, 0, 0, 0)
			holds(t, m, pid, 0, 0)
			p.Want("primary c", "ok")
			objects(t, m, pid, 0, 1, 0)
			exactly(p, limit)
			p.Want("release"+suffix+" 0", "ok")
			p.Want("release"+suffix+" 0", "ok")
			objects(t, m, pid, 0, 0, 0)
		}
	})
}

// TestContextOfTheRuntime: the CUDA runtime gets its context through a private table of the driver, and ends it
// by exported functions.
func TestContextOfTheRuntime(t *testing.T) {
	const limit = 8 * mib
	withContext(t, "runtime", limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		objects(t, m, pid, 0, 1, 0) // before the first allocation
		p.Want("alloc a 4M", "ok")
		p.Want("stream s", "ok")
		p.Want("runtime again", "ok")
		p.Want("primary other", "ok")
		objects(t, m, pid, 0, 1, 1)
		p.Want("release 0", "ok")
		objects(t, m, pid, 0, 1, 1)
		p.Want("resetv1 0", "ok")
		objects(t, m, pid, 0, 0, 0)
		holds(t, m, pid, 0, 0)
		p.Want("runtime again", "ok")
		p.Want("alloc a 4M", "ok")
		objects(t, m, pid, 0, 1, 0)
		holds(t, m, pid, 0, 4*mib)
		p.Want("reset 0", "ok")
		holds(t, m, pid, 0, 0)
	})
}

// TestContextEndsWithinItsEnd: when a context ends, the driver calls destructors of the CUDA runtime,
// which may release contexts that the runtime retained. These inner calls must not block.
func TestContextEndsWithinItsEnd(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true})
	env := append(m.PreloadEnv(), "GPUARB_LOG=stderr")
	p := m.Interact(m.Command(env, rig.Build(t, "programs/cudaprog-dlsym"), "--context", "none"))
	pid := p.PID()
	p.Want("primary c", "ok")
	p.Want("alloc a 4M", "ok")
	p.Want("atend c", "ok")
	p.Want("reset 0", "ok")
	objects(t, m, pid, 0, 0, 0)
	holds(t, m, pid, 0, 0)
	p.Want("release 0", "err 201") // it was released already
	p.End()
	if said := p.Stderr(); strings.Contains(said, "busy") {
		t.Errorf("it waited for its own thread: %s", said)
	}
}

// TestContextPushed: the library learns of another thread's context when the program pushes it.
func TestContextPushed(t *testing.T) {
	for _, version := range []string{"", "v1"} {
		t.Run("push"+version, func(t *testing.T) {
			withContext(t, "none", 8*mib, func(t *testing.T, m *rig.Machine, p *rig.Program) {
				pid := p.PID()
				p.Want("unseen c", "ok")
				if n := len(m.Snapshot().Leases); n != 0 {
					t.Errorf("%d leases already: this test shows nothing", n)
				}
				p.Want("push"+version+" c", "ok")
				objects(t, m, pid, 0, 1, 0)
				p.Want("pop"+version+" again", "ok")
				p.Want("alloc a 1", "err 201")
				p.Want("push"+version+" again", "ok")
				objects(t, m, pid, 0, 1, 0)
				p.Want("alloc a 4M", "ok")
				holds(t, m, pid, 0, 4*mib)
			})
		})
	}
}

// TestContextGreen: a green context counts as one, and the primary context that it keeps alive counts as another.
// Memory allocated in the green context belongs to the primary context.
func TestContextGreen(t *testing.T) {
	const limit = 8 * mib
	withContext(t, "none", limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		m.Sim("fail", "cuGreenCtxCreate:1:999")
		p.Want("green g", "err 999")
		m.Sim("clear")
		p.Want("green g 0", "ok")
		objects(t, m, pid, 0, 2, 0)
		m.Sim("fail", "cuGreenCtxStreamCreate:1:999")
		p.Want("greenstream s g", "err 999")
		m.Sim("clear")
		p.Want("greenstream s g", "ok")
		objects(t, m, pid, 0, 2, 1)
		p.Want("streamdestroy s", "ok")
		objects(t, m, pid, 0, 2, 0)

		p.Want("greencontext c g", "ok")
		p.Want("use c", "ok")
		p.Want("alloc a 4M", "ok")
		p.Want("stream s", "ok")
		p.Want("allocasync b 1M s", "ok")
		p.Want("freeasync b s", "ok")
		p.Want("sync s", "ok")
		objects(t, m, pid, 0, 2, 1) // no third context
		exactly(p, limit-4*mib)
		holds(t, m, pid, 0, 4*mib)
		p.Want("green other", "ok")
		objects(t, m, pid, 0, 3, 1)
		m.Sim("fail", "cuGreenCtxDestroy:1:999")
		p.Want("greendestroy g", "err 999")
		m.Sim("clear")
		p.Want("greendestroy g", "ok")
		objects(t, m, pid, 0, 2, 1) // the other green context keeps the primary context
		holds(t, m, pid, 0, 4*mib)
		p.Want("greendestroy other", "ok")
		objects(t, m, pid, 0, 0, 0)
		holds(t, m, pid, 0, 0)
	})
}

// TestContextGreenStreamCap: streams of green contexts count under the cap.
func TestContextGreenStreamCap(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true})
	p := m.Interact(m.Command(append(m.PreloadEnv(), "GPUARB_STREAMS=2"), rig.Build(t, "programs/cudaprog-gpa")))
	p.Want("green g", "ok")
	p.Want("stream a", "ok")
	p.Want("greenstream b g", "ok")
	m.CountCalls("cuGreenCtxStreamCreate")
	p.Want("greenstream c g", errOutOfMemory)
	if n := m.Calls("cuGreenCtxStreamCreate"); n != 0 {
		t.Errorf("the driver was asked %d times for what was refused", n)
	}
	objects(t, m, p.PID(), 0, 3, 2)
	p.Want("streamdestroy b", "ok")
	p.Want("greenstream c g", "ok")
}

// TestContextsAgainAndAgain: threads that come and go with contexts of their own leave nothing behind.
func TestContextsAgainAndAgain(t *testing.T) {
	everyWay(t, 8*mib, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		p.Tell(strings.Repeat("context c;alloc a 4M;stream s;host h 4K;green g;destroy c;greendestroy g;", 20))
		for range 20 * 7 {
			if line := p.Line(); !strings.HasSuffix(line, " ok") {
				t.Fatal(line)
			}
		}
		objects(t, m, p.PID(), 0, 1, 0)
		holds(t, m, p.PID(), 0, 0)
		if n := m.SimNumber("host"); n != 0 {
			t.Errorf("%d bytes of host memory are left", n)
		}
	})
}

// TestContextIsAskedFor: the memory of a context is requested before the context is made, and returned if the
// driver fails. The test sees it to the byte, because a neighbour fills the rest of the device.
func TestContextIsAskedFor(t *testing.T) {
	t.Parallel()
	const cost = 64 * mib
	calls := []struct {
		command, symbol string
		cost            uint64
		undo            string
	}{
		{"contextv1 c", "cuCtxCreate", cost, "destroy c"},
		{"context c", "cuCtxCreate_v2", cost, "destroy c"},
		{"contextv3 c", "cuCtxCreate_v3", cost, "destroy c"},
		{"contextv4 c", "cuCtxCreate_v4", cost, "destroy c"},
		{"contextglv1 c", "cuGLCtxCreate", cost, "destroy c"},
		{"contextgl c", "cuGLCtxCreate_v2", cost, "destroy c"},
		{"contextvdpauv1 c", "cuVDPAUCtxCreate", cost, "destroy c"},
		{"contextvdpau c", "cuVDPAUCtxCreate_v2", cost, "destroy c"},
		{"primary c", "cuDevicePrimaryCtxRetain", cost, "release 0"},
		{"green c", "cuGreenCtxCreate", 2 * cost, "greendestroy c"},
	}
	for _, c := range calls {
		t.Run(c.symbol, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{NoMount: true, Devices: "1G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=64M"},
				Config: "schema_version = 1\n[defaults]\ncontext_reserve = \"64MiB\"\n"})
			neighbour := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym")))
			fill := func(left uint64, answer string) {
				t.Helper()
				neighbour.Want(fmt.Sprintf("alloc all %d", 1<<30-cost-left), answer)
			}
			p := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-gpa"), "--context", "none"))
			fill(c.cost-1, "ok")
			m.CountCalls(c.symbol)
			p.Want(c.command, errOutOfMemory)
			if n := m.Calls(c.symbol); n != 0 {
				t.Errorf("the driver was asked %d times for what was refused", n)
			}
			m.Sim("clear")
			neighbour.Want("free all", "ok")

			m.Sim("fail", c.symbol+":1:999")
			p.Want(c.command, "err 999")
			m.Sim("clear")
			fill(0, "ok") // the failed context kept no memory
			neighbour.Want("free all", "ok")

			fill(c.cost, "ok")
			p.Want(c.command, "ok")
			neighbour.Want("alloc more 1", errOutOfMemory)
			if used := m.SimNumber("used", "0"); used != 1<<30 {
				t.Errorf("the driver has given %d bytes", used)
			}
			neighbour.Want("free all", "ok")
			p.Want(c.undo, "ok")
			rig.Eventually(t, "the memory of the context is returned", func() bool {
				return neighbour.Ask(fmt.Sprintf("alloc all %d", 1<<30-cost)) == "ok"
			})
		})
	}
}

// TestContextsThatEndUnderThreads: a context ends while threads allocate in it. An allocation of that moment
// is uncharged with the context, whether the library recorded it before or after the end.
func TestContextsThatEndUnderThreads(t *testing.T) {
	everyWay(t, 4<<30, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("endthreads 4 200", "ok")
		holds(t, m, pid, 0, 0)
		l, h := m.Lease(pid, 0), m.HeldBy(pid, 0)
		if l.Streams != 0 || h.Streams != 0 || l.Contexts != 1 || h.Contexts != 1 {
			t.Errorf("the daemon says %d streams and %d contexts; the driver has %d and %d",
				l.Streams, l.Contexts, h.Streams, h.Contexts)
		}
		exactly(p, 4<<30)
	})
}
