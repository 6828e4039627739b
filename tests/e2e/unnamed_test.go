package e2e

import (
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that users are told if a driver does not report the memory of each process, because memory that
// bypasses the library is then charged to no program.

// TestDeviceWithoutFigures: under WSL, for example, a driver does not report how much memory each process uses. doctor says what is
// therefore not charged, until the driver reports it again.
func TestDeviceWithoutFigures(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G", NoMount: true})
	p := holder(m, 0, "64M")
	const note = "does not say what a process uses: memory that no call names is charged to nobody"
	told := func() bool { return strings.Contains(rig.Run(t, m.Gpuarb("doctor")).Stdout, note) }
	if told() {
		t.Error("it says so of a device that names all")
	}
	m.Sim("set", "nvml-list", "3")
	rig.Eventually(t, "the doctor says so", told)
	p.Want("alloc b 64M", "ok")
	if l := m.Lease(p.PID(), 0); l.Used != 128<<20 {
		t.Errorf("it uses %d", l.Used)
	}
	m.Sim("set", "nvml-list", "0")
	rig.Eventually(t, "the device names its processes again", func() bool { return !told() })
	p.End()
}
