package entrypoints

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that page-locked host memory is counted to the byte under the cap of GPUARB_HOST and
// host.max, and never charged to a device. again_test.go has contexts that fail to end while they have such
// memory.

// hostRest checks that exactly limit-held bytes of host memory are left under the cap, to the byte.
func hostRest(t *testing.T, m *rig.Machine, p *rig.Program, limit, held uint64) {
	t.Helper()
	if got := m.SimNumber("host"); got != held {
		t.Errorf("the driver has %d bytes of host memory, want %d", got, held)
	}
	p.Want(fmt.Sprintf("host rest %d", limit-held), "ok")
	p.Want("host more 1", errOutOfMemory)
	p.Want("freehost rest", "ok")
}

func withHost(t *testing.T, limit uint64, f func(t *testing.T, m *rig.Machine, p *rig.Program)) {
	eachWay(t, func(t *testing.T, way string) {
		m := rig.New(t, rig.Options{NoMount: true, Sim: handles(way)})
		env := append(m.PreloadEnv(), fmt.Sprintf("GPUARB_HOST=%d", limit))
		f(t, m, m.Interact(m.Command(env, rig.Build(t, "programs/cudaprog-"+way))))
	})
}

// TestHostIsCounted: each version of each call is counted to the byte, and uncounted if the driver fails.
func TestHostIsCounted(t *testing.T) {
	const limit = 1<<20 + 1
	withHost(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		calls := []struct{ command, symbol, end, wrong string }{
			{"host", "cuMemAllocHost_v2", "freehost", "unregister"},
			{"hostv1", "cuMemAllocHost", "freehost", "unregister"},
			{"hostflags", "cuMemHostAlloc", "freehost", "unregister"},
			{"register", "cuMemHostRegister_v2", "unregister", "freehost"},
			{"registerv1", "cuMemHostRegister", "unregister", "freehost"},
		}
		for _, c := range calls {
			m.Sim("fail", c.symbol+":1:999")
			p.Want(c.command+" a 1000", "err 999")
			m.Sim("clear")
			hostRest(t, m, p, limit, 0)
			p.Want(c.command+" a 1000", "ok")
			hostRest(t, m, p, limit, 1000)
			m.CountCalls(c.symbol)
			p.Want(fmt.Sprintf("%s b %d", c.command, limit-999), errOutOfMemory)
			if n := m.Calls(c.symbol); n != 0 {
				t.Errorf("%s: the driver was asked %d times for what was refused", c.symbol, n)
			}
			m.Sim("clear")
			p.Want(fmt.Sprintf("%s b %d", c.command, limit-1000), "ok")
			p.Want("host more 1", errOutOfMemory)
			p.Want(c.end+" b", "ok")
			if got := p.Ask(c.wrong + " a"); got == "ok" {
				t.Errorf("%s of what %s made: ok", c.wrong, c.command)
			}
			m.Sim("fail", "cuMem*Free*:1:999")
			m.Sim("fail", "cuMemHostUnregister:1:999")
			p.Want(c.end+" a", "err 999")
			m.Sim("clear")
			hostRest(t, m, p, limit, 1000)
			p.Want(c.end+" a", "ok")
			if got := p.Ask(c.end + " a"); got == "ok" {
				t.Errorf("%s twice: ok", c.end)
			}
			hostRest(t, m, p, limit, 0)
		}
	})
}

// TestHostByHandle: host memory with a handle is counted like other host memory, on any NUMA node, until its last
// reference and its last mapping end. It belongs to no context.
func TestHostByHandle(t *testing.T) {
	const limit = 8*mib + 1
	withHost(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		p.Want("reserve r 64M", "ok")
		for _, place := range []string{"2", "3", "4"} { // the host, one NUMA node of it, the nearest node
			m.Sim("fail", "cuMemCreate:1:999")
			p.Want("createhost a 4M "+place, "err 999")
			m.Sim("clear")
			p.Want("createhost a 1000 "+place, errInvalidValue) // not a multiple of the granularity
			hostRest(t, m, p, limit, 0)
			p.Want("createhost a 4M "+place, "ok")
			p.Want("hostflags b 1000", "ok")
			hostRest(t, m, p, limit, 4*mib+1000)
			m.CountCalls("cuMemCreate")
			p.Want("createhost c 4M "+place, errOutOfMemory)
			if n := m.Calls("cuMemCreate"); n != 0 {
				t.Errorf("the driver was asked %d times for what was refused", n)
			}
			m.Sim("clear")
			p.Want("freehost b", "ok")
			p.Want("createhost c 4M "+place, "ok")
			p.Want("host more 2", errOutOfMemory)
			p.Want("releasemem c", "ok")
			p.Want("releasemem c", errInvalidValue)
			hostRest(t, m, p, limit, 4*mib)
			p.Want("map r 0 4M a", "ok")
			p.Want("retain again r 1M", "ok")
			m.Sim("fail", "cuMemRelease:1:999")
			p.Want("releasemem a", "err 999")
			m.Sim("clear")
			p.Want("releasemem a", "ok")
			p.Want("unmap r 0 4M", "ok")
			p.Want("destroy first", "ok")
			p.Want("context first", "ok")
			hostRest(t, m, p, limit, 4*mib) // because of the other reference
			p.Want("map r 0 4M again", "ok")
			p.Want("releasemem again", "ok")
			hostRest(t, m, p, limit, 4*mib) // because of the mapping
			p.Want("unmap r 0 4M", "ok")
			hostRest(t, m, p, limit, 0)
		}
		holds(t, m, p.PID(), 0, 0)
	})
}

// TestHostPools: a block of a host memory pool is counted until it is freed, at once or in stream order.
func TestHostPools(t *testing.T) {
	const limit = 1<<20 + 1
	withHost(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		p.Want("stream s", "ok")
		p.Want("poolhost own", "ok")
		for _, c := range []struct{ alloc, free, symbol string }{
			{"allocpool", "freeasync a s", "cuMemAllocFromPoolAsync"}, {"poolptsz", "freeptsz a s", "cuMemAllocFromPoolAsync_ptsz"},
			{"allocpool", "free a", "cuMemAllocFromPoolAsync"},
		} {
			m.Sim("fail", c.symbol+":1:999")
			p.Want(c.alloc+" a 1000 s own", "err 999")
			m.Sim("clear")
			hostRest(t, m, p, limit, 0)
			p.Want(c.alloc+" a 1000 s own", "ok")
			hostRest(t, m, p, limit, 1000)
			m.CountCalls(c.symbol)
			p.Want(fmt.Sprintf("%s b %d s own", c.alloc, limit-999), errOutOfMemory)
			if n := m.Calls(c.symbol); n != 0 {
				t.Errorf("%s: the driver was asked %d times for what was refused", c.symbol, n)
			}
			m.Sim("clear")
			for _, symbol := range []string{"cuMemFreeAsync", "cuMemFreeAsync_ptsz", "cuMemFree_v2"} {
				m.Sim("fail", symbol+":1:999")
			}
			p.Want(c.free, "err 999")
			m.Sim("clear")
			p.Want("freehost a", errInvalidValue)
			hostRest(t, m, p, limit, 1000)
			p.Want(c.free, "ok")
			p.Want("sync s", "ok")
			hostRest(t, m, p, limit, 0)
			p.Want(c.free, errInvalidValue)
		}
		p.Want("allocpool a 1000 s own", "ok")
		p.Want("pooldestroy own", "ok")
		hostRest(t, m, p, limit, 1000)
		p.Want("free a", "ok")
		hostRest(t, m, p, limit, 0)
		holds(t, m, p.PID(), 0, 0)
	})
}

// TestHostIsNotTheDevices: host memory is neither charged to a device nor bounded by the budget.
func TestHostIsNotTheDevices(t *testing.T) {
	everyWay(t, mib, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		p.Want("host a 64M", "ok")
		p.Want("hostflags b 64M", "ok")
		holds(t, m, p.PID(), 0, 0)
		exactly(p, mib)
	})
}

// TestHostEndsWithItsContext: the host memory of a context is uncounted when any call ends the context.
func TestHostEndsWithItsContext(t *testing.T) {
	const limit = 1 << 20
	withHost(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		p.Want("host kept 1000", "ok")
		fill := func() {
			p.Want("host a 2000", "ok")
			p.Want("register b 3000", "ok")
			hostRest(t, m, p, limit, 6000)
		}
		p.Want("context c", "ok")
		fill()
		p.Want("destroy c", "ok")
		hostRest(t, m, p, limit, 1000)
		for _, end := range []string{"reset", "release"} {
			p.Want("primary c", "ok")
			fill()
			p.Want(end+" 0", "ok")
			p.Want("use first", "ok")
			hostRest(t, m, p, limit, 1000)
			p.Ask("release 0") // releases the context that a reset left retained
		}
		p.Want("freehost kept", "ok")
		hostRest(t, m, p, limit, 0)
	})
}

// TestHostWithoutContext: without a context the driver refuses, and nothing is counted.
func TestHostWithoutContext(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true})
	p := m.Interact(m.Command(append(m.PreloadEnv(), "GPUARB_HOST=1M"), rig.Build(t, "programs/cudaprog-dlsym"),
		"--context", "none"))
	p.Want("host a 4K", "err 201")
	p.Want("context c", "ok")
	hostRest(t, m, p, 1<<20, 0)
}

// TestHostMax: the daemon sets the cap. A program may lower it for itself, but not raise it.
func TestHostMax(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true, Config: "schema_version = 1\n[defaults]\nhost.max = \"1MiB\"\n"})
	for own, limit := range map[string]uint64{"": 1 << 20, "2M": 1 << 20, "max": 1 << 20, "64K": 64 << 10} {
		env := append(m.PreloadEnv(), "GPUARB_HOST="+own)
		p := m.Interact(m.Command(env, rig.Build(t, "programs/cudaprog-dlsym")))
		p.Want("host a 1000", "ok")
		hostRest(t, m, p, limit, 1000)
		p.End()
	}
	// With an unreadable cap cuInit fails, so the program runs neither with a wrong cap nor without a cap.
	r := rig.Run(t, m.Command(append(m.PreloadEnv(), "GPUARB_HOST=64X"), rig.Build(t, "programs/cudaprog-dlsym")))
	if !strings.Contains(r.Stdout, "init err 2") || !strings.Contains(r.Stderr, "GPUARB_HOST=64X is no size") {
		t.Errorf("%s%s", r.Stdout, r.Stderr)
	}
}

// TestHostWithoutDaemon: host memory stays counted while no daemon runs and after the daemon restarts.
func TestHostWithoutDaemon(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	m := rig.New(t, rig.Options{NoMount: true})
	p := m.Interact(m.Command(append(m.PreloadEnv(), "GPUARB_HOST=1M"), rig.Build(t, "programs/cudaprog-dlsym")))
	p.Want("host a 1000", "ok")
	m.Kill()
	hostRest(t, m, p, limit, 1000)
	m.Start()
	p.Want("alloc b 1", "ok")
	hostRest(t, m, p, limit, 1000)
}
