package gpu

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has checks that need only a driver. They run on the simulated driver in each `make test`, and on a real GPU by gpu_test.go.

const mib = 1 << 20

// TestDriver runs the checks of TestRealDriver on simulated devices.
func TestDriver(t *testing.T) {
	t.Parallel()
	options := rig.Options{NoMount: true, Devices: "2G", Sim: []string{"SIMCUDA_RESERVED=16M", "SIMCUDA_MANAGED_MOVES=1"}}
	for name, check := range driverChecks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, rig.New(t, options))
		})
	}
}

// driverChecks are checks that need only a driver.
var driverChecks = map[string]func(t *testing.T, m *rig.Machine){
	"budget":      budget,
	"queries":     queries,
	"costs":       costs,
	"granularity": granularity,
	"death":       death,
	"wait":        wait,
	"shared":      shared,
	"calls":       calls,
	"starts":      starts,
	"inherited":   inherited,
	"stub":        stub,
	"managed":     managedBeyond,
	"stopped":     stoppedDaemon,
}

// program starts the variant of cudaprog that finds the driver in the given way. env decides whether it runs under the
// preload, and with which budget.
func program(t *testing.T, m *rig.Machine, way string, env []string, args ...string) *rig.Program {
	t.Helper()
	return m.Interact(m.Command(env, rig.Build(t, "programs/cudaprog-"+way), args...))
}

func limited(m *rig.Machine, limit uint64, more ...string) []string {
	return append(m.PreloadEnv(), append(more, fmt.Sprintf("GPUARB_MEMORY=%d", limit))...)
}

// memory returns the free and used bytes of the first device, from NVML without the budget's figures.
func memory(t *testing.T, p *rig.Program) (free, used uint64) {
	t.Helper()
	var total, reserved uint64
	if _, err := fmt.Sscanf(p.Ask("nvmlmemory2"), "ok %d %d %d %d", &free, &used, &total, &reserved); err != nil {
		t.Fatalf("nvmlmemory2: %v", err)
	}
	return free, used
}

// usedBy returns the bytes that a process uses, from NVML without the budget's figures; 0: NVML does not list it.
func usedBy(t *testing.T, observer *rig.Program, pid int) uint64 {
	t.Helper()
	for _, field := range strings.Fields(observer.Ask("nvmlprocesses compute 3 100")) {
		var of int
		var bytes uint64
		if n, _ := fmt.Sscanf(field, "%d:%d", &of, &bytes); n == 2 && of == pid {
			return bytes
		}
	}
	return 0
}

// observer starts a program without a context that sees the device's own figures.
func observer(t *testing.T, m *rig.Machine) *rig.Program {
	t.Helper()
	return program(t, m, "dlsym", m.Env(), "--context", "none")
}

// budget checks that a budget is granted to the last byte and the next byte is refused. The ledger must have
// the requested bytes, and the device's figure must not be below them.
func budget(t *testing.T, m *rig.Machine) {
	const limit = 256*mib + 1
	look := observer(t, m)
	for _, way := range []string{"dlsym", "link", "gpa"} {
		p := program(t, m, way, limited(m, limit))
		pid := p.PID()
		p.Want("alloc a 64M", "ok")
		p.Want("pitch b 4096 4096", "ok 4096")
		p.Want("create c 64M", "ok")
		p.Want("array d 1024 1024 32 4", "ok") // four floats: 16 MiB
		p.Want("stream s", "ok")
		p.Want("allocasync e 32M s", "ok")
		p.Want("sync s", "ok")
		const held = (64 + 16 + 64 + 16 + 32) * mib
		if l := m.Lease(pid, 0); uint64(l.Used) != held || l.Contexts != 1 || l.Streams != 1 {
			t.Errorf("%s: the lease says %d bytes, %d contexts, %d streams", way, l.Used, l.Contexts, l.Streams)
		}
		if used := usedBy(t, look, pid); used != 0 && used < held {
			t.Errorf("%s: NVML says %d bytes, the ledger %d", way, used, held)
		} else if used != 0 {
			t.Logf("%s: NVML says %d MiB beyond the %d MiB asked for", way, (used-held)/mib, held/mib)
		}
		p.Want(fmt.Sprintf("alloc f %d", limit-held), "ok")
		for _, more := range []string{"alloc g 1", "create g 2M", "array g 16 16 32 4", "allocasync g 512 s", "managed g 4096"} {
			p.Want(more, "err 2")
		}
		p.Want("write a 7", "ok")
		p.Want("read a", "ok 7")
		for _, end := range []string{"free a", "free b", "releasemem c", "arraydestroy d", "freeasync e s", "sync s", "free f"} {
			p.Want(end, "ok")
		}
		p.Want("alloc all 128M", "ok")
		p.End()
		rig.Eventually(t, "its lease is gone", func() bool { return len(m.Snapshot().Leases) == 0 })
	}
}

// queries checks that CUDA and NVML report the same budget.
func queries(t *testing.T, m *rig.Machine) {
	const limit = 512 * mib
	p := program(t, m, "gpa", limited(m, limit))
	p.Want("alloc a 100M", "ok")
	free := uint64(limit - 100*mib)
	p.Want("info", fmt.Sprintf("ok %d %d", free, uint64(limit)))
	p.Want("total 0", fmt.Sprintf("ok %d", uint64(limit)))
	p.Want("nvmlmemory", fmt.Sprintf("ok %d %d %d", free, limit-free, uint64(limit)))
	p.Want("nvmlmemory2", fmt.Sprintf("ok %d %d %d 0", free, limit-free, uint64(limit)))
	p.Want("nvmlprocesses compute 3 10", fmt.Sprintf("ok 1 %d:%d", p.PID(), 100*mib))
}

// costs measures the memory of contexts and streams.
func costs(t *testing.T, m *rig.Machine) {
	look := observer(t, m)
	p := program(t, m, "gpa", m.PreloadEnv(), "--context", "none")
	before, _ := memory(t, look)
	for _, step := range []struct{ what, command string }{
		{"a primary context", "primary c 0"},
		{"one made beside it", "context d 0"},
		{"a further one", "context e 0"},
		{"a first stream", "stream s"},
		{"64 more streams", "streammany t 64"},
	} {
		if got := p.Ask(step.command); !strings.HasPrefix(got, "ok") {
			t.Fatalf("%s: %s", step.command, got)
		}
		after, _ := memory(t, look)
		t.Logf("measured: %s costs %d KiB; NVML says %d KiB of the process", step.what,
			(int64(before)-int64(after))/1024, usedBy(t, look, p.PID())/1024)
		before = after
	}
}

// granularity measures how the driver rounds allocations.
func granularity(t *testing.T, m *rig.Machine) {
	const blocks = 16
	look := observer(t, m)
	p := program(t, m, "gpa", m.PreloadEnv())
	p.Want("alloc warm 1", "ok")
	for _, size := range []uint64{1, 512, 64 << 10, mib, mib + 1, 2 * mib, 2*mib + 1, 3 * mib, 32*mib + 1} {
		before, _ := memory(t, look)
		p.Want(fmt.Sprintf("many a %d %d", blocks, size), fmt.Sprintf("ok %d", blocks))
		after, _ := memory(t, look)
		t.Logf("measured: %d blocks of %d bytes take %d bytes each", blocks, size, (int64(before)-int64(after))/blocks)
		p.Want("freemany a", fmt.Sprintf("ok %d", blocks))
	}
}

// death measures how soon a dead process's memory is free, and when it can be granted again.
func death(t *testing.T, m *rig.Machine) {
	look := observer(t, m)
	p := program(t, m, "gpa", m.PreloadEnv())
	p.Want("alloc a 512M", "ok")
	pid := p.PID()
	held, _ := memory(t, look)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	rig.Eventually(t, "the driver has freed the memory", func() bool {
		free, _ := memory(t, look)
		return free >= held+512*mib
	})
	back := time.Since(killed)
	rig.Eventually(t, "its lease ends", func() bool { return len(m.Snapshot().Leases) == 0 })
	t.Logf("measured: after SIGKILL the memory is back within %v, the lease gone within %v", back, time.Since(killed))
	program(t, m, "gpa", limited(m, 512*mib)).Want("alloc a 512M", "ok")
}

// wait checks that a program that does not fit beside another one waits until that one has ended, and then continues.
func wait(t *testing.T, m *rig.Machine) {
	capacity := uint64(m.Snapshot().Devices[0].Capacity)
	ask := fmt.Sprintf("alloc a %d", capacity/10*6)
	binary := rig.Build(t, "programs/cudaprog-dlsym")
	first := m.Interact(m.Gpuarb("run", "--wait=5m", "--", binary))
	first.Want(ask, "ok")
	second := m.Interact(m.Gpuarb("run", "--wait=5m", "--", binary))
	second.Tell(ask)
	rig.Eventually(t, "the second program waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	if !second.Silent() {
		t.Error("it was answered while it waited")
	}
	ending := time.Now()
	first.End()
	second.Expect("alloc a ok")
	t.Logf("measured: %v after the first was told to end the second has its %d MiB", time.Since(ending), capacity/10*6/mib)
	second.Want("write a 7", "ok")
	second.Want("read a", "ok 7")
	second.End()
}

// shared checks that memory that one process hands to another is charged to the first process alone, for each way of sharing.
func shared(t *testing.T, m *rig.Machine) {
	giver := program(t, m, "gpa", limited(m, 640*mib))
	taker := program(t, m, "dlsym", limited(m, 64*mib))
	exported := func(command string) string {
		handle, well := strings.CutPrefix(giver.Ask(command), "ok ")
		if !well {
			t.Fatalf("%s: %s", command, handle)
		}
		return handle
	}
	reads := func(name string, want int) {
		if !strings.HasPrefix(m.Snapshot().Devices[0].Name, "Simulated") { // the simulated driver does not share the contents of memory
			taker.Want("read "+name, fmt.Sprint("ok ", want))
		}
	}
	taker.Want("alloc own 1M", "ok")

	giver.Want("alloc a 2M", "ok")
	giver.Want("write a 7", "ok")
	giver.Want("syncall", "ok")
	taker.Want("ipcopen a "+exported("ipcget a"), "ok")
	reads("a", 7)

	giver.Want("createshared b 2M", "ok")
	taker.Want(fmt.Sprintf("importfd b %d %s", giver.PID(), exported("exportfd b")), "ok")
	for _, p := range []*rig.Program{giver, taker} {
		p.Want("reserve r 2M", "ok")
		p.Want("map r 0 2M b", "ok")
		p.Want("access r 0 2M 0", "ok")
	}
	giver.Want("write r 8", "ok")
	giver.Want("syncall", "ok")
	reads("r", 8)

	giver.Want("createshared big 512M", "ok")
	look := observer(t, m)
	before := usedBy(t, look, taker.PID())
	taker.Want(fmt.Sprintf("importfd big %d %s", giver.PID(), exported("exportfd big")), "ok")
	t.Logf("measured: a process that imports 512 MiB is counted %d MiB more by NVML", (usedBy(t, look, taker.PID())-before)/mib)
	taker.Want("releasemem big", "ok")
	giver.Want("releasemem big", "ok")

	giver.Want("stream s", "ok")
	giver.Want("poolshared p", "ok")
	giver.Want("allocpool c 2M s p", "ok")
	giver.Want("write c 9", "ok")
	giver.Want("syncall", "ok")
	taker.Want(fmt.Sprintf("poolimport p %d %s", giver.PID(), exported("poolexport p")), "ok")
	taker.Want("ptrimport c p "+exported("ptrexport c"), "ok")
	reads("c", 9)

	if has, took := m.Lease(giver.PID(), 0), m.Lease(taker.PID(), 0); has.Used < 6*mib || took.Used != 1*mib {
		t.Errorf("the giver's lease says %d bytes, of 6 MiB or more; the taker's %d, which has 1 MiB of its own", has.Used, took.Used)
	}
	taker.Want("ipcclose a", "ok")
	taker.Want("free c", "ok")
	taker.Want("unmap r 0 2M", "ok")
	taker.Want("releasemem b", "ok")
	taker.Want("alloc more 62M", "ok")
	taker.End()
	giver.Want("free a", "ok")
	giver.End()
}

// calls measures what the library adds to calls. Runs with and without the library alternate, and the fastest run of each counts.
func calls(t *testing.T, m *rig.Machine) {
	const count, turns = 2000, 9
	bare := program(t, m, "dlsym", m.Env())
	under := program(t, m, "dlsym", limited(m, 1024*mib))
	for _, p := range []*rig.Program{bare, under} {
		p.Want("stream s", "ok")
		p.Want("alloc a 1M", "ok")
	}
	for _, call := range []struct{ what, command string }{
		{"to allocate and free 1 MiB", "pairs %d 1M"},
		{"the same in stream order", "asyncpairs %d 1M s"},
		{"to make and destroy a stream", "streamthreads 1 %d 0"},
		{"cuMemGetInfo", "infos %d"},
		{"nvmlDeviceGetMemoryInfo", "nvmlinfos %d"},
	} {
		took := func(p *rig.Program) time.Duration {
			began := time.Now()
			if got := p.Ask(fmt.Sprintf(call.command, count)); !strings.HasPrefix(got, "ok") {
				t.Fatalf("%s: %s", call.what, got)
			}
			return time.Since(began) / count
		}
		var without, with []time.Duration
		for range turns {
			without, with = append(without, took(bare)), append(with, took(under))
		}
		t.Logf("measured: %s takes %v, and %v under the library", call.what, slices.Min(without), slices.Min(with))
	}
}

// starts measures the time of many programs that start at once, each with a context and 1 MiB: without
// the library, under it without a daemon, and with a daemon.
func starts(t *testing.T, m *rig.Machine) {
	programs := int(min(24, m.Snapshot().Devices[0].Capacity/(512*mib)))
	binary := rig.Build(t, "programs/cudaprog-dlsym")
	together := func(env []string) time.Duration { return m.Together(programs, env, binary, "alloc a 1M; free a") }
	alone := append(m.PreloadEnv(), "GPUARB_SOCKET="+filepath.Join(m.Dir, "none"), "GPUARB_ON_LOSS=open")
	t.Logf("measured: %d programs at once, the first ones: %v", programs, together(m.Env()))
	var took [3][]time.Duration
	for range 2 {
		for i, env := range [][]string{m.Env(), alone, m.PreloadEnv()} {
			took[i] = append(took[i], together(env))
		}
	}
	t.Logf("measured: %d programs at once take %v; under the library without a daemon %v, with one %v",
		programs, took[0], took[1], took[2])
}
