package entrypoints

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/tests/rig"
	"golang.org/x/sys/unix"
)

// This file shows how threads share the request for the primary context, and that the library notices each end
// of that context. context_test.go has all other ways to make a context.

// roomFor makes a machine with a program without a context. Beside a neighbour program there is memory for
// the given number of contexts.
func roomFor(t *testing.T, way string, contexts uint64) (*rig.Machine, *rig.Program) {
	t.Helper()
	m := rig.New(t, rig.Options{NoMount: true, Devices: "1G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=64M"},
		Config: "schema_version = 1\n[defaults]\ncontext_reserve = \"64MiB\"\n"})
	neighbour := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym")))
	neighbour.Want(fmt.Sprintf("alloc all %d", 1<<30-64*mib-contexts*64*mib), "ok")
	return m, m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-"+way), "--context", "none"))
}

// TestPrimaryContextWithSiblings: several threads need the primary context at once, by retaining it or by making a green
// context each. The device has memory for one primary context, besides the green contexts. One thread asks the daemon for
// the primary context, and the other threads wait for its answer.
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
				m.Sim("fail", c.symbol+":*:delay=20ms") // long enough for all threads to arrive
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

// TestPrimaryContextMadeAnew: a counted context is destroyed and made again before a reading of the device shows
// its end. The device has memory for one context, so the new context must take the place of the old one.
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

// TestPrimaryContextRefusedToSiblings: if there is no memory for the context, each thread is refused without a call of the driver.
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

// TestPrimaryContextAfterTheAskerLeft: the thread that asked the daemon ends, and the next thread gets the context.
func TestPrimaryContextAfterTheAskerLeft(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true, Devices: "1G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=64M"},
		Config: "schema_version = 1\n[defaults]\ncontext_reserve = \"64MiB\"\non_full = \"wait\"\n"})
	neighbour := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym")))
	neighbour.Want(fmt.Sprintf("alloc all %d", 1<<30-64*mib), "ok")
	p := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym"), "--context", "none"))
	p.Want("retainaside", "ok")
	rig.Eventually(t, "the thread waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	p.Want("retainleave", "ok")
	neighbour.Want("free all", "ok")
	p.Want("retainthreads 8", "ok 8 0")
	p.Want("primary c", "ok")
	p.Want("alloc a 1M", "ok")
	holds(t, m, p.PID(), 0, mib)
}

// TestPrimaryContextRetainedAgain: retaining and releasing a primary context that has other holders does not inspect the
// objects in it. The library still notices its end, even if a holder released it without a hooked call.
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
			p.Want("release 0", "ok") // the last holder
			holds(t, m, pid, 0, 0)
			// The CUDA runtime retains and releases the context by calls that are not hooked.
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
			// A reset ends the context although it is still retained.
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

// TestContextsThatTakeTheirTime: a driver may take seconds to make a context. The bytes that are expected for it stay reserved
// until the call returns, however often the device is read meanwhile.
func TestContextsThatTakeTheirTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ command, symbol, way string }{
		{"primary c", "cuDevicePrimaryCtxRetain", "dlsym"},
		{"primary c", "cuDevicePrimaryCtxRetain", "link"},
		{"context c", "cuCtxCreate_v2", "gpa"},
	} {
		t.Run(c.symbol+"/"+c.way, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{NoMount: true, Devices: "1G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=64M"},
				Config: "schema_version = 1\n[defaults]\ncontext_reserve = \"64MiB\"\n"})
			bare := m.Interact(m.Command(m.Env(), rig.Build(t, "programs/cudaprog-dlsym")))
			neighbour := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym")))
			neighbour.Want(fmt.Sprintf("alloc all %d", 1<<30-4*64*mib), "ok")
			p := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-"+c.way), "--context", "none"))
			pid := p.PID()
			m.Sim("fail", fmt.Sprintf("%s:1:stop:pid=%d", c.symbol, pid))
			p.Tell(c.command)
			rig.Eventually(t, "the program is in the driver's call", func() bool { return stopped(t, pid) })
			for i := range 4 {
				command, used := "alloc a 1M", accounting.Bytes(65*mib)
				if i%2 == 1 {
					command, used = "free a", 64*mib
				}
				bare.Want(command, "ok")
				rig.Eventually(t, "the daemon has read the device again", func() bool { return m.Snapshot().Devices[0].Unmanaged == used })
			}
			neighbour.Want("alloc more 65M", "err 2")
			if err := unix.Kill(pid, unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
			p.Expect(c.command + " ok")
			rig.Eventually(t, "the device shows the context", func() bool { return m.Lease(pid, 0).Overhead == 64*mib })
			p.Want("alloc a 1M", "ok")
		})
	}
}

// stopped reports whether a process was stopped by a signal.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := bytes.Cut(stat, []byte(") "))
	return len(after) > 0 && after[0] == 'T'
}
