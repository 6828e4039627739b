package arbitration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file tests FREE: what users read there is what a program of a new job is granted, to the byte.

// freeOf returns FREE of GPU 0 as each of the ways shows it, which must agree.
func freeOf(m *rig.Machine) uint64 {
	m.T.Helper()
	free := m.Snapshot().Devices[0].Free
	r := rig.Run(m.T, m.Gpuarb("devices", "--bytes"))
	lines := strings.Split(r.Stdout, "\n")
	for i, name := range strings.Fields(lines[0]) {
		if got := strings.Fields(lines[1])[i]; name == "FREE" && got != fmt.Sprint(uint64(free)) {
			m.T.Errorf("gpuarb devices has %s free, the snapshot %d", got, free)
		}
	}
	if r := rig.Run(m.T, m.Gpuarb("devices", "--json")); !strings.Contains(r.Stdout, fmt.Sprintf(`"free_bytes":%d,`, free)) {
		m.T.Errorf("the snapshot has %d free, gpuarb devices --json:\n%s", free, r.Stdout)
	}
	if text := rig.Run(m.T, m.Gpuarb("metrics")).Stdout; !strings.Contains(text, fmt.Sprintf("kind=\"grantable\",uuid=\"%s\"} %g\n", m.Snapshot().Devices[0].UUID, float64(free))) {
		m.T.Errorf("the snapshot has %d free, and gpuarb metrics has another number", free)
	}
	return uint64(free)
}

// newcomerGets fails the test unless a program of a new job is granted FREE, and refused a byte more.
func newcomerGets(m *rig.Machine, when string) {
	m.T.Helper()
	free := freeOf(m)
	if free == 0 {
		m.T.Errorf("%s: nothing is free", when)
	}
	for _, ask := range []struct {
		bytes uint64
		want  string
	}{{free + 1, errOutOfMemory}, {free, "ok"}} {
		p := cudaprog(m)
		if got := p.Ask(fmt.Sprintf("alloc a %d", ask.bytes)); got != ask.want {
			m.T.Errorf("%s %d bytes are free; a new program that asks for %d: %s, want %s", when, free, ask.bytes, got, ask.want)
		}
		p.End()
	}
	rig.Eventually(m.T, "the new programs' memory is back", func() bool { return uint64(m.Snapshot().Devices[0].Free) == free })
}

// TestFreeIsGranted reads FREE beside programs that hold, reserve, have freed, and wait, and asks for it.
func TestFreeIsGranted(t *testing.T) {
	t.Parallel()
	const context = 64 * mib
	m := rig.New(t, rig.Options{Devices: "2G", NoMount: true, Sim: []string{fmt.Sprint("SIMCUDA_CONTEXT_BYTES=", context)}, Config: "schema_version = 1\n"})
	if got, want := freeOf(m), uint64(2*gib-2*gib/16); got != want {
		t.Errorf("%d bytes are free beside a context that was never measured, want %d", got, want)
	}
	holder := cudaprog(m)
	holder.Want("alloc a 100M", "ok")
	rig.Eventually(t, "the context is measured", func() bool { return m.Snapshot().Devices[0].Overhead == context })
	newcomerGets(m, "beside a program with 100 MiB")

	holder.Want("alloc b 300M", "ok")
	holder.Want("free b", "ok")
	if l := m.Snapshot().Leases[0]; l.Credit < 300*mib {
		t.Fatalf("the program keeps %d bytes of credit, and is to keep what it freed", l.Credit)
	}
	newcomerGets(m, "beside idle credit")

	reserves := cudaprog(m, "--memory", "512M", "--min", "512M")
	reserves.Want("alloc a 1M", "ok")
	newcomerGets(m, "beside a reservation")

	waits := cudaprog(m, "--wait")
	waits.Tell("alloc a 1800M")
	waiting(m, 1)
	if free := freeOf(m); free != 0 {
		t.Errorf("%d bytes are free behind a waiting request", free)
	}
	holder.End()
	reserves.End()
	waits.Expect("alloc a ok")
	waits.End()
	alone := cudaprog(m, "--exclusive")
	alone.Want("alloc a 1M", "ok")
	if free := freeOf(m); free != 0 {
		t.Errorf("%d bytes are free on a device that a job has to itself", free)
	}
	alone.End()
	idle(m)
}
