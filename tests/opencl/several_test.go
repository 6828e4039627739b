package opencl

import (
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// usesEach asks for the bytes that the daemon says a program uses of each of two devices.
func usesEach(m *rig.Machine, p *rig.Program, first, second uint64) {
	m.T.Helper()
	uses(m, p, first)
	if l := m.Lease(p.PID(), 1); uint64(l.Used) != second {
		m.T.Errorf("the lease says %d bytes of the second device are used, want %d", l.Used, second)
	}
}

// TestSeveralDevices: an object of a context for two devices is charged to the first, and to the second from a queue's
// first command on that uses it there, whichever, once, until it ends.
func TestSeveralDevices(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G,1G", NoMount: true})
	p := onOld(m)
	p.Want("two c", "ok")
	p.Want("queue here c first", "ok")
	p.Want("queue there c last", "ok")
	commands := map[string][]string{
		"fill":            {"fill there a"},
		"copy from":       {"copy there a b"},
		"copy to itself":  {"copy there a a"},
		"map":             {"map there a"},
		"part":            {"sub s a 1K", "fill there s", "release s"},
		"launch":          {"kernel k", "argument k 0 a", "argument k 1 a", "launch there k", "endkernel k"},
		"launch of parts": {"sub s a 1K", "kernel k", "plain k 0", "argument k 1 s", "launch there k", "release s", "endkernel k"},
	}
	p.Want("buffer b c 1", "ok")
	p.Want("fill there b", "ok")
	for name, lines := range commands {
		p.Want("buffer a c 10M", "ok")
		p.Want("fill here a", "ok")
		p.Want("copy here a a", "ok")
		p.Want("wrongfill there a", "err -30") // the driver's own answer
		usesEach(m, p, 10*mib+1, 1)
		for range 2 {
			for _, line := range lines {
				p.Want(line, "ok")
			}
		}
		if usesEach(m, p, 10*mib+1, 10*mib+1); t.Failed() {
			t.Fatal(name)
		}
		p.Want("release a", "ok")
		usesEach(m, p, 1, 1)
	}
	p.Want("release b", "ok")
	usesEach(m, p, 0, 0)
}

// TestSeveralDevicesRefused: such a command is refused where the device has no room for the object, and takes nothing; another
// argument than before is what is used.
func TestSeveralDevicesRefused(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G,64M", NoMount: true})
	p := onOld(m)
	p.Want("two c", "ok")
	p.Want("queue q c last", "ok")
	p.Want("kernel k", "ok")
	for _, one := range []string{"buffer a c 40M", "buffer b c 25M", "buffer d c 1M", "argument k 0 a", "argument k 1 b"} {
		p.Want(one, "ok")
	}
	p.Want("launch q k", "err -4")
	p.Want("copy q a b", "err -4")
	usesEach(m, p, 66*mib, 0)
	p.Want("plain k 1", "ok")
	p.Want("launch q k", "ok")
	p.Want("fill q b", "err -4")
	p.Want("map q b", "err -4")
	usesEach(m, p, 66*mib, 40*mib)
	p.Want("release a", "ok")
	p.Want("launch q k", "ok") // what it was set to has ended
	p.Want("fill q b", "ok")
	usesEach(m, p, 26*mib, 25*mib)
}

// TestOneDevice: in contexts for one device a command is the driver's alone.
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
