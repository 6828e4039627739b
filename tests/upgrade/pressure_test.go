package upgrade

import (
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// TestPressureOverAReturn: a daemon of the version before takes over a program that waits, and the next one of this version goes
// on from the pressure that was counted before it.
func TestPressureOverAReturn(t *testing.T) {
	m := rig.New(t, rig.Options{Devices: "100M", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: "schema_version = 1\n"})
	run := func() *rig.Program {
		return m.Interact(m.Gpuarb("run", "--wait", "--", rig.Build(t, "programs/cudaprog-dlsym"), "-"))
	}
	total := func() time.Duration {
		return time.Duration(m.Snapshot().Devices[0].Pressure.Some.TotalUs) * time.Microsecond
	}
	waits := func() {
		rig.Eventually(t, "it waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	}
	holder, waiter := run(), run()
	holder.Want("alloc a 60M", "ok")
	began := time.Now()
	waiter.Tell("alloc b 50M")
	waits()
	rig.Eventually(t, "pressure is counted", func() bool { return total() > 100*time.Millisecond })
	least := total()
	m.Stop()
	most := time.Since(began)
	m.Use(before.path(t, "gpuarbd"))
	m.Start()
	waits()
	m.Stop()
	m.Use("")
	again := time.Now()
	m.Start()
	if got := total(); got < least || got > most+time.Since(again) {
		t.Errorf("it goes on from %v, which is to be from %v to %v", got, least, most)
	}
	waits()
	holder.Want("free a", "ok")
	waiter.Expect("alloc b ok")
	if got := total(); got < least || got > most+time.Since(again) {
		t.Errorf("it comes to %v, of %v to %v", got, least, most)
	}
}
