package gpu

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has three of the checks in the table of driver_test.go, which run on the simulated driver and on a real
// GPU: the toolkit's stub, managed memory larger than the device, and a daemon that is stopped.

// stub checks a program that first opens the toolkit's stub of the driver, which fails, and then the driver. The driver must be limited.
func stub(t *testing.T, m *rig.Machine) {
	p := m.Interact(m.Gpuarb("run", "--memory", "16M", "--", rig.Build(t, "programs/copies")))
	p.Want("open a "+rig.Build(t, "sim/toolkit/libcuda.so"), "ok")
	p.Want("find a dlsym", "ok")
	p.Want("open b "+driverPath(t, m), "ok") // the stub has the driver's SONAME, so the driver needs its full path
	p.Want("find b dlsym", "ok")
	if got := p.Ask("init a"); got == "ok" {
		t.Fatal("the stub works")
	}
	for _, step := range []string{"init b", "context b"} {
		p.Want(step, "ok")
	}
	p.Want("alloc b 16777217", "err 2")
	p.Want("alloc b 16777216", "ok")
	p.End()
}

// driverPath returns the path of the driver's library that programs on this machine load.
func driverPath(t *testing.T, m *rig.Machine) string {
	t.Helper()
	p := program(t, m, "dlsym", m.Env())
	defer p.End()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(maps), "\n") {
		if at := strings.Index(line, "/"); at >= 0 && strings.Contains(line[at:], "/libcuda.so") {
			return line[at:]
		}
	}
	t.Fatal("the program has no libcuda.so")
	return ""
}

// managedBeyond checks that a program without a limit can have more managed memory than the device, as without gpuarb. A program
// with a budget can have managed memory up to its budget.
func managedBeyond(t *testing.T, m *rig.Machine) {
	total := uint64(m.Snapshot().Devices[0].Total)
	p := program(t, m, "dlsym", m.PreloadEnv())
	p.Want(fmt.Sprintf("managed x %d", total+1024*mib), "ok")
	if used := uint64(m.Lease(p.PID(), 0).Used); used != total+1024*mib {
		t.Errorf("%d bytes are counted, want %d", used, total+1024*mib)
	}
	p.Want("free x", "ok")
	p.End()
	p = program(t, m, "dlsym", limited(m, 16*mib))
	p.Want("managed x 16M", "ok")
	p.Want("managed y 1", "err 2")
	p.Want("free x", "ok")
	p.Want("managed y 16M", "ok")
	p.End()
}

// stoppedDaemon checks that a program can allocate and free while its daemon is stopped, and that its budget holds again when the
// daemon continues.
func stoppedDaemon(t *testing.T, m *rig.Machine) {
	p := program(t, m, "dlsym", limited(m, 512*mib))
	p.Want("alloc a 1M", "ok")
	pid := p.PID()
	m.Halt(m.DaemonPID())
	for _, step := range []string{"alloc b 400M", "free b", "alloc b 2M"} {
		p.Want(step, "ok")
	}
	if said := p.Stderr(); !strings.Contains(said, "the daemon does not answer") {
		t.Errorf("it says %q", said)
	}
	if err := unix.Kill(m.DaemonPID(), unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the program asks the daemon again", func() bool {
		p.Want("alloc c 1M", "ok")
		p.Want("free c", "ok")
		return uint64(m.Lease(pid, 0).Used) == 3*mib
	})
	p.Want(fmt.Sprintf("alloc c %d", 509*mib+1), "err 2")
	p.Want(fmt.Sprintf("alloc c %d", 509*mib), "ok")
	p.End()
}
