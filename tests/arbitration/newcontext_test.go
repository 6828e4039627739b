package arbitration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that a context counts from the moment in which it is made, although the device shows its memory only
// later: no program is granted memory that a context of another program is about to take. The oracle is the driver's
// own count of the requests that found too little memory. context_test.go has the contexts of reservations.

// costly returns a machine with a device of 8 GiB on which each context costs 500 MiB. The configuration does not say so.
func costly(t *testing.T) *rig.Machine {
	return rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=500M", "SIMCUDA_ALLOC_DELAY_US=30000"}})
}

// neverLacked fails the test if the driver had too little memory for a request.
func neverLacked(m *rig.Machine) {
	m.T.Helper()
	if n := m.SimNumber("lacked", "0"); n > 0 {
		m.T.Errorf("the driver had too little memory for %d requests", n)
	}
}

// TestContextsCountWhenTheyAreMade: eight programs that start together need more memory than the device has. All of them may wait. None
// fails, and the driver never runs out of memory.
func TestContextsCountWhenTheyAreMade(t *testing.T) {
	t.Parallel()
	m := costly(t)
	var all []*rig.Program
	for range 8 {
		all = append(all, m.Begin(m.Gpuarb("run", "--wait", "--", rig.Build(t, "programs/cudaprog-dlsym"),
			"alloc a 900M; sleep 200; free a")))
	}
	for _, p := range all {
		for _, want := range []string{"ready", "alloc a ok", "sleep ok", "free a ok"} {
			p.Expect(want)
		}
		p.Wait()
	}
	neverLacked(m)
	idle(m)
}

// TestOnlyAReadingIsMissing: a context costs much less than is assumed before one is known. A program that may not wait asks for all the
// rest of the device just after its context was made, while the device does not answer. It is not refused because of the assumption: its
// request waits for a reading.
func TestOnlyAReadingIsMissing(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=32M"}})
	m.Sim("hang", "0")
	p := m.Begin(m.Gpuarb("run", "--no-wait", "--", rig.Build(t, "programs/cudaprog-dlsym"), "alloc a 8160M; alloc b 1M"))
	p.Expect("ready")
	m.Sim("answer", "0")
	p.Expect("alloc a ok")
	p.Expect("alloc b err 2") // the device has no room for it, whatever a context costs
	p.Wait()
	neverLacked(m)
	idle(m)
}

// TestAStartAwaitsAReading: a run that may not wait reserves nearly all of the device, just after another program has made its context, while
// the device does not answer. It is not refused because of what is assumed for that context: it begins when a reading shows what it costs.
// A run that would not have room then is refused.
func TestAStartAwaitsAReading(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=32M"}})
	m.Sim("hang", "0")
	p := cudaprog(m, "--no-wait")
	before := connections(m)
	fits := m.Begin(m.Gpuarb("run", "--no-wait", "--min", "7500M", "--", "echo", "begun"))
	rig.Eventually(t, "the run has connected", func() bool { return connections(m) > before })
	m.Sim("answer", "0")
	fits.Expect("begun")
	fits.Wait()
	rig.Eventually(t, "the run's job has ended", func() bool { return len(m.Snapshot().Jobs) == 1 })
	p.Want("alloc a 1G", "ok")
	if r := rig.Run(t, m.Gpuarb("run", "--no-wait", "--min", "7500M", "--", "true")); r.Code != 75 {
		t.Errorf("%d: %s", r.Code, r.Stderr)
	}
	p.End()
	idle(m)
}

// connections returns how many sockets the daemon has open.
func connections(m *rig.Machine) (n int) {
	m.T.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", m.DaemonPID())
	entries, err := os.ReadDir(dir)
	if err != nil {
		m.T.Fatal(err)
	}
	for _, e := range entries {
		if at, _ := os.Readlink(filepath.Join(dir, e.Name())); strings.HasPrefix(at, "socket:") {
			n++
		}
	}
	return n
}

// TestTheDriverHasLessThanTheBooks: a program without the library takes memory that no reading has shown yet, and a program that may wait is
// granted more than is left. The driver refuses that. The program waits until the device shows room, and goes on. A program that may not
// wait is refused, with the name of the program that the device shows.
func TestTheDriverHasLessThanTheBooks(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=64M"}})
	program := rig.Build(t, "programs/cudaprog-dlsym")
	waits, asks := m.Interact(m.Gpuarb("run", "--wait", "--", program)), m.Interact(m.Gpuarb("run", "--no-wait", "--", program))
	waits.Want("alloc first 1M", "ok")
	asks.Want("alloc first 1M", "ok")
	m.Sim("hang", "0") // from now on no reading shows what the stranger takes
	stranger := m.Interact(m.Command(m.Env(), program))
	stranger.Want("alloc a 5G", "ok")
	pid, waiter := stranger.PID(), waits.PID()
	waits.Tell("alloc a 6G")
	rig.Eventually(t, "the driver has refused the first", func() bool { return m.SimNumber("lacked", "0") >= 1 })
	rig.Eventually(t, "its bytes are back", func() bool { return m.Lease(waiter, 0).Used < 1<<30 })
	asks.Tell("alloc a 6G")
	rig.Eventually(t, "the driver has refused both", func() bool { return m.SimNumber("lacked", "0") >= 2 })
	m.Sim("answer", "0")
	if got := asks.Line(); got != "alloc a err 2" {
		t.Errorf("%q", got)
	}
	waiting(m, 1)
	stranger.End()
	waits.Expect("alloc a ok")
	waits.End()
	if said := asks.End(); !strings.Contains(said, "out of memory on GPU 0: asked 6 GiB") || !strings.Contains(said, fmt.Sprintf("cudaprog-dlsym[%d] 5 GiB (unmanaged)", pid)) {
		t.Errorf("it says %q", said)
	}
	idle(m)
}

// TestTheDriverRefusesForGood: the driver has no memory for what the books and the device's own figures allow. Its error goes through, with
// the programs that the device shows.
func TestTheDriverRefusesForGood(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=64M"}})
	p := m.Interact(m.Gpuarb("run", "--wait", "--", rig.Build(t, "programs/cudaprog-dlsym")))
	p.Want("alloc first 1G", "ok")
	m.Sim("fail", "cuMemAlloc_v2:*:2")
	p.Want("alloc a 1G", "err 2")
	m.Sim("clear")
	p.Want("alloc a 6G", "ok")
	pid := p.PID()
	if said, want := p.End(), fmt.Sprintf("out of memory on GPU 0: the driver has no room for 1 GiB that the budgets allow; the device shows: %s's cudaprog-dlsym[%d] 1 GiB", rig.User(), pid); !strings.Contains(said, want) {
		t.Errorf("it says %q, not %q", said, want)
	}
	idle(m)
}

// TestTheDriverHasNoRoomForAContext: a program without the library has taken all of the device, and no reading has shown that. The driver
// refuses the context of a program that may wait. The program waits until the device shows room for one.
func TestTheDriverHasNoRoomForAContext(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=64M"}})
	program := rig.Build(t, "programs/cudaprog-dlsym")
	m.Sim("hang", "0")
	stranger := m.Interact(m.Command(m.Env(), program))
	stranger.Want("alloc a 8128M", "ok")
	p := m.Begin(m.Gpuarb("run", "--wait", "--", program, "alloc a 1G"))
	rig.Eventually(t, "the driver has refused the context", func() bool { return m.SimNumber("lacked", "0") >= 1 })
	m.Sim("answer", "0")
	waiting(m, 1)
	stranger.End()
	p.Expect("ready")
	p.Expect("alloc a ok")
	p.Wait()
	idle(m)
}
