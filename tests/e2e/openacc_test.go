package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that programs of GCC's OpenACC get the same answers under the library, and that their memory and
// their streams are limited and counted exactly. agree and zero, which compare daemon and driver, are used by other
// files, too.
//
// GCC's runtime for OpenACC and OpenMP opens the driver by itself. It keeps a context for each device
// that a program uses, a stream for each queue, and asks the driver how much memory there is.

// script lists commands with answers that must be equal in each way of starting the program.
var script = []struct{ command, answer string }{
	{"alloc a 1000000", "ok"}, {"copy a 1000000 3", "right"}, {"other b 5000", "ok"},
	{"free a", "ok"}, {"free b", "ok"}, {"alloc c 3", "ok"}, {"copy c 3 1", "right"}, {"free c", "ok"},
}

// agree fails the test unless the daemon and the driver have equal figures for a process on a device.
func agree(t *testing.T, m *rig.Machine, pid, device int) {
	t.Helper()
	l, h := m.Lease(pid, device), m.HeldBy(pid, device)
	if uint64(l.Used) != h.Bytes || int(l.Streams) != h.Streams {
		t.Errorf("GPU %d: the daemon has %d bytes and %d streams, the driver %d and %d",
			device, l.Used, l.Streams, h.Bytes, h.Streams)
	}
}

// zero waits until no program holds device memory, by the figures of both daemon and driver.
func zero(t *testing.T, m *rig.Machine) {
	t.Helper()
	rig.Eventually(t, "no lease is left", func() bool { return len(m.Snapshot().Leases) == 0 })
	for _, device := range []string{"0", "1"} {
		if used := m.SimNumber("used", device); used != 0 {
			t.Errorf("the driver still holds %d bytes of GPU %s", used, device)
		}
	}
}

// TestOpenACCIsTheSameUnderTheShim: an OpenACC program gives the same answers with the shim as without.
func TestOpenACCIsTheSameUnderTheShim(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	program := rig.Build(t, "programs/openacc")
	for name, start := range map[string]func() *rig.Program{
		"bare":    func() *rig.Program { return m.Interact(m.Command(m.Env(), program)) },
		"preload": func() *rig.Program { return m.Interact(m.Command(m.PreloadEnv(), program)) },
		"run": func() *rig.Program {
			return m.Interact(m.Gpuarb("run", "--memory", "8G", "--streams", "3", "--", program))
		},
	} {
		p := start()
		pid := p.PID()
		p.Want("memory", fmt.Sprintf("ok %d %d", 8<<30, 8<<30))
		for _, step := range script {
			p.Want(step.command, step.answer)
			if name != "bare" {
				agree(t, m, pid, 0)
			}
		}
		if h := m.HeldBy(pid, 0); h.Streams != 3 {
			t.Errorf("%s: the driver has %d streams, want one for each queue", name, h.Streams)
		}
		if said := p.End(); said != "" {
			t.Errorf("%s: it says %q", name, said)
		}
	}
	zero(t, m)
}

// TestOpenACCSeesAndKeepsItsBudget: the runtime reports the budget as its memory. The last byte and the last stream
// are granted, and the ones after them are refused.
func TestOpenACCSeesAndKeepsItsBudget(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true})
	const budget = 3_000_001
	p := m.Interact(m.Gpuarb("run", "--memory", fmt.Sprint(budget), "--streams", "4", "--", rig.Build(t, "programs/openacc")))
	pid := p.PID()
	p.Want("memory", fmt.Sprintf("ok %d %d", budget, budget))
	p.Want("alloc a 3000000", "ok")
	p.Want("memory", fmt.Sprintf("ok %d %d", budget, 1))
	p.Want("alloc b 2", "none")
	p.Want("alloc b 1", "ok")
	p.Want("memory", fmt.Sprintf("ok %d %d", budget, 0))
	p.Want("copy a 3000000 4", "right")
	agree(t, m, pid, 0)
	p.Want("free a", "ok")
	p.Want("memory", fmt.Sprintf("ok %d %d", budget, budget-1))
	p.Want("other c 3000002", "none")
	p.Want("other c 3000001", "ok") // each device has the budget once
	agree(t, m, pid, 0)
	agree(t, m, pid, 1)
	p.Tell("copy b 1 5")
	if code := p.Wait(); code != 1 {
		t.Errorf("refused a stream it ends with %d, want its own 1", code)
	}
	for _, part := range []string{
		"): out of memory on GPU 0: asked 2 bytes, 1 byte left",
		"libgomp: nvptx_alloc error: out of memory",
		"libgomp: cuStreamCreate error: out of memory",
	} {
		if !strings.Contains(p.Stderr(), part) {
			t.Errorf("it does not say %q:\n%s", part, p.Stderr())
		}
	}
	zero(t, m)
}

// TestOpenACCWithoutTheBudgetsFigures: with budget figures switched off, the program sees the whole device and is still held to its
// budget. With the library switched off it has no budget.
func TestOpenACCWithoutTheBudgetsFigures(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true})
	bare := m.Interact(m.Command(m.Env(), rig.Build(t, "programs/openacc")))
	device := bare.Ask("memory")
	_ = bare.End()
	for variable, answer := range map[string]string{"GPUARB_VIRTUALIZE=0": "none", "GPUARB_DISABLE=1": "ok"} {
		cmd := m.Gpuarb("run", "--memory", "1M", "--", rig.Build(t, "programs/openacc"))
		cmd.Env = append(cmd.Env, variable)
		p := m.Interact(cmd)
		p.Want("memory", device)
		p.Want("alloc a 1048577", answer)
		if n := len(m.Snapshot().Leases); (n == 1) != (answer == "none") {
			t.Errorf("%s: %d leases", variable, n)
		}
		_ = p.End()
	}
	zero(t, m)
}
