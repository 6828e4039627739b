package arbitration

import (
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
