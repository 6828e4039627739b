package opencl

import (
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows which device is charged when a context has two devices, and that commands change no charge.
// It uses the OpenCL 1.2 driver of old_test.go.

// usesEach checks the bytes that the daemon reports for a program on each of two devices.
func usesEach(m *rig.Machine, p *rig.Program, first, second uint64) {
	m.T.Helper()
	uses(m, p, first)
	if l := m.Lease(p.PID(), 1); uint64(l.Used) != second {
		m.T.Errorf("the lease says %d bytes of the second device are used, want %d", l.Used, second)
	}
}

// TestSeveralDevices: an object of a context for two devices is charged to the first device until
// it ends, whichever device uses it. The driver's copies on the second device are charged by that
// device's own readings.
func TestSeveralDevices(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G,1G", NoMount: true})
	p := onOld(m)
	p.Want("two c", "ok")
	p.Want("queue there c last", "ok")
	p.Want("buffer a c 10M", "ok")
	p.Want("fill there a", "ok")
	p.Want("sub s a 1K", "ok")
	p.Want("fill there s", "ok")
	usesEach(m, p, 10*mib, 0)
	p.Want("release s", "ok")
	p.Want("release a", "ok")
	usesEach(m, p, 0, 0)
}

// TestOneDevice: in contexts for one device the library does not touch commands.
func TestOneDevice(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G,1G", NoMount: true})
	p := onOld(m)
	p.Want("context c", "ok")
	p.Want("buffer a c 10M", "ok")
	p.Want("queue q c last", "ok")
	p.Want("fill q a", "ok")
	uses(m, p, 10*mib)
	if s := m.Snapshot(); len(s.Leases) != 1 {
		t.Errorf("want one lease: %+v", s.Leases)
	}
}
