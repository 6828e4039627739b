package entrypoints

import (
	"fmt"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// roomFor makes a machine with a program without a context, and with room for so many
// contexts beside its neighbour.
func roomFor(t *testing.T, way string, contexts uint64) (*rig.Machine, *rig.Program) {
	t.Helper()
	m := rig.New(t, rig.Options{NoMount: true, Devices: "1G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=64M"},
		Config: "schema_version = 1\n[defaults]\ncontext_reserve = \"64MiB\"\n"})
	neighbour := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym")))
	neighbour.Want(fmt.Sprintf("alloc all %d", 1<<30-64*mib-contexts*64*mib), "ok")
	return m, m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-"+way), "--context", "none"))
}

// Threads that want the primary context at once, where there is room for it once: one
// asks, and the others wait for its answer.
func TestPrimaryContextWithSiblings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		command, symbol string
		room            uint64
	}{
		{"retainthreads 8", "cuDevicePrimaryCtxRetain", 1},
		{"greenthreads 8", "cuGreenCtxCreate", 9},
	} {
		for _, way := range []string{"dlsym", "link", "gpa"} {
			t.Run(c.symbol+"/"+way, func(t *testing.T) {
				t.Parallel()
				m, p := roomFor(t, way, c.room)
				m.Sim("fail", c.symbol+":*:delay=20ms") // long enough for all of them to come
				for range 5 {
					p.Want(c.command, "ok 8 0")
					if h := m.HeldBy(p.PID(), 0); h.Contexts != 0 {
						t.Fatalf("%d contexts are left", h.Contexts)
					}
				}
				m.Sim("clear")
				l := m.Lease(p.PID(), 0)
				if l.Contexts != 0 {
					t.Errorf("the daemon counts %d contexts", l.Contexts)
				}
			})
		}
	}
}

// A context that the device has shown takes its place again when it is destroyed and made
// anew, though no reading has shown that it went: the device has room for one.
func TestPrimaryContextMadeAnew(t *testing.T) {
	t.Parallel()
	m, p := roomFor(t, "dlsym", 1)
	for range 3 {
		p.Want("primary c", "ok")
		rig.Eventually(t, "the device shows the context", func() bool { return m.Lease(p.PID(), 0).Overhead > 0 })
		for range 3 {
			p.Want("release 0", "ok")
			p.Want("primary c", "ok")
		}
		p.Want("release 0", "ok")
	}
}

// Where there is no room each of them is refused, and the driver hears of none.
func TestPrimaryContextRefusedToSiblings(t *testing.T) {
	t.Parallel()
	m, p := roomFor(t, "dlsym", 0)
	m.CountCalls("cuDevicePrimaryCtxRetain")
	for range 5 {
		p.Want("retainthreads 8", "ok 0 8")
	}
	if n := m.Calls("cuDevicePrimaryCtxRetain"); n != 0 {
		t.Errorf("the driver was asked %d times", n)
	}
}

// The thread that asks ends, or jumps out of where it is: the next one gets it.
func TestPrimaryContextAfterTheAskerLeft(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"exit", "jump"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{NoMount: true, Devices: "1G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=64M"},
				Config: "schema_version = 1\n[defaults]\ncontext_reserve = \"64MiB\"\non_full = \"wait\"\n"})
			neighbour := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym")))
			neighbour.Want(fmt.Sprintf("alloc all %d", 1<<30-64*mib), "ok")
			p := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym"), "--context", "none"))
			p.Want("retainaside", "ok")
			rig.Eventually(t, "the thread waits", func() bool { return len(m.Snapshot().Queue) == 1 })
			p.Want("retainleave "+how, "ok")
			neighbour.Want("free all", "ok")
			p.Want("retainthreads 8", "ok 8 0")
			p.Want("primary c", "ok")
			p.Want("alloc a 1M", "ok")
			holds(t, m, p.PID(), 0, mib)
		})
	}
}

// A primary context that others keep is retained and released without a look at what
// lives in it; its end is noticed all the same, also where somebody let go of it unseen.
func TestPrimaryContextRetainedAgain(t *testing.T) {
	everyWayExactly(t, 64*mib, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("destroy first", "ok")
		for range 3 {
			p.Want("primary c", "ok")
			p.Want("alloc a 1M", "ok")
			p.Want("stream s", "ok")
			p.Want("retainpairs 100", "ok")
			holds(t, m, pid, 0, mib)
			p.Want("release 0", "ok") // the last
			holds(t, m, pid, 0, 0)
			// The runtime has it, which nobody sees, and then lets go of it.
			p.Want("runtime c", "ok")
			p.Want("use c", "ok")
			p.Want("alloc a 1M", "ok")
			p.Want("retainpairs 100", "ok")
			holds(t, m, pid, 0, mib)
			p.Want("primary c", "ok")
			p.Want("release 0", "ok")
			holds(t, m, pid, 0, mib)
			p.Want("release 0", "ok")
			holds(t, m, pid, 0, 0)
			// Reset, it is gone, though it is retained still.
			p.Want("primary c", "ok")
			p.Want("primary c", "ok")
			p.Want("alloc a 1M", "ok")
			p.Want("reset 0", "ok")
			holds(t, m, pid, 0, 0)
			p.Want("primary c", "ok")
			p.Want("alloc a 1M", "ok")
			holds(t, m, pid, 0, mib)
			for p.Ask("release 0") == "ok" {
			}
			holds(t, m, pid, 0, 0)
		}
		if l := m.Lease(pid, 0); l.Contexts != 0 || l.Streams != 0 {
			t.Errorf("the daemon counts %d contexts and %d streams", l.Contexts, l.Streams)
		}
	})
}
