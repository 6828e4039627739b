package opencl

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that a CPU driver which is configured by `also` to count on a GPU shares the GPU's lease,
// budget, slots and size. old_test.go has CUDA and OpenCL in one process without such a setting.

// also puts PoCL on the first of two simulated GPUs.
const also = "schema_version = 1\n[[device]]\nmatch.index = 0\nalso = [\"pocl\", \"llvmpipe\"]\n"

// TestAlsoOnAGPU: a driver that computes on the CPU and is configured to count on a GPU is one
// device with that GPU. The memory of a program by CUDA and by PoCL is in one lease and under one
// budget, whichever it uses first.
func TestAlsoOnAGPU(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G,1G", CPU: true, NoMount: true, Config: also})
	p := m.Begin(m.Gpuarb("run", "--memory", "64M", "--", "/usr/bin/python3", "testdata/both.py", "libOpenCL.so.1"))
	p.Expect("buffer True 0")
	p.Expect("buffer False -4")
	p.Expect(fmt.Sprint("free ", 34*mib))
	p.Expect("buffer True 0")
	p.Expect("alloc 2")
	if s := m.Snapshot(); len(s.Leases) != 1 || s.Leases[0].Used != 64*mib || len(s.Devices) != 2 {
		t.Errorf("want one lease of 64 MiB, and the processor hidden: %+v", s)
	}
	p.End()
	rig.Eventually(t, "all of it is back", func() bool { return len(m.Snapshot().Leases) == 0 })
}

// TestAlsoHasOneSlot: a program that uses such a driver takes the GPU's slot, and sees the GPU's
// size.
func TestAlsoHasOneSlot(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G,1G", NoMount: true, Config: also + "slots.max = 1\n[defaults]\nwait_timeout = \"200ms\"\n"})
	first := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-link")))
	second := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/clprog-link")))
	second.Want("total", fmt.Sprint("ok ", 1024*mib))
	second.Want("context c", "err -5")
	first.End()
	rig.Eventually(t, "the slot is free", func() bool { return second.Ask("context c") == "ok" })
	second.Want("hostbuffer h c 10M", "ok")
	uses(m, second, 0) // PoCL uses the program's own memory, whatever device it counts on
	second.Want("buffer a c 10M", "ok")
	uses(m, second, 10*mib)
}

// TestAlsoChanged: a changed configuration applies to programs that start later.
func TestAlsoChanged(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G,1G", CPU: true, NoMount: true, Config: also})
	first := begin(m, "link")
	first.Want("context c", "ok")
	const other = "schema_version = 1\n[[device]]\nmatch.vendor = \"cpu\"\nmemory = \"2G\"\n"
	if err := os.WriteFile(filepath.Join(m.Dir, "gpuarb.toml"), []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(m.DaemonPID(), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the other one is in force", func() bool { return m.Processor().Total == 2<<30 })
	second := begin(m, "link")
	second.Want("context c", "ok")
	second.Want("buffer a c 1M", "ok")
	if l := m.Lease(second.PID(), accounting.ProcessorIndex); l.Used != mib {
		t.Errorf("who starts later has %d bytes on the processor", l.Used)
	}
	first.Want("buffer a c 1M", "ok")
	uses(m, first, mib)
	m.Kill()
	m.Start()
	first.Want("buffer b c 1M", "ok")
	uses(m, first, 2*mib)
}
