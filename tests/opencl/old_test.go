package opencl

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file runs programs on an OpenCL 1.2 driver that has the simulated GPUs and by default does not report
// the end of a context: contexts, buffers, and CUDA in the same process. several_test.go uses the driver for
// commands on two devices.

// onOld starts clprog on OpenCL 1.2 (tests/programs/oldopencl.c), on the machine's GPUs.
func onOld(m *rig.Machine, environ ...string) *rig.Program {
	m.T.Helper()
	folder := filepath.Dir(rig.Build(m.T, "programs/oldopencl/libOpenCL.so.1"))
	env := append(append(m.PreloadEnv(), "LD_LIBRARY_PATH="+folder), environ...)
	return m.Interact(m.Command(env, rig.Build(m.T, "programs/clprog-dlsym")))
}

// TestOldContexts: if the driver does not report when a context ends, the context gives its slots back
// with the last reference of the program. References that the driver holds do not count. A context
// for two devices takes a slot of each.
func TestOldContexts(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G,1G", NoMount: true,
		Config: "schema_version = 1\n[defaults]\nslots.max = 1\nwait_timeout = \"200ms\"\n"})
	first, second := onOld(m), onOld(m)
	for _, verb := range []string{"two", "contexttype"} {
		first.Want(verb+" c", "ok")
		second.Want("context c", "err -5")
		first.Want("retain c", "ok")
		first.Want("buffer a c 1M", "ok")
		first.Want("drop c", "ok")
		first.Want("release a", "ok")
		second.Want(verb+" c", "err -5")
		first.Want("drop c", "ok")
		second.Want(verb+" c", "ok")
		first.Want("context c", "err -5")
		second.Want("drop c", "ok")
	}
}

// TestOneHandle: contexts that have the same handle one after another, each for a different device,
// are charged to their own devices, whether the driver reports their ends or not.
func TestOneHandle(t *testing.T) {
	t.Parallel()
	for _, environ := range [][]string{nil, {"OLDOPENCL_TELLS=1"}} {
		m := rig.New(t, rig.Options{Devices: "1G,1G", NoMount: true})
		p := onOld(m, environ...)
		p.Want("context first", "ok")
		p.Want("buffer a first 1M", "ok")
		p.Want("buffer b first 2M", "ok")
		p.Want("drop first", "ok")
		p.Want("contextlast other", "ok")
		p.Want("same first other", "err 1") // the buffers still use the context
		p.Want("buffer d other 4M", "ok")
		usesEach(m, p, 3*mib, 4*mib)
		p.Want("release a", "ok")
		p.Want("release b", "ok")
		for _, verb := range []string{"context", "contextlast", "two", "contextlast"} {
			p.Want(verb+" c", "ok")
			p.Want("same first c", "ok")
			p.Want("buffer a c 1M", "ok")
			if verb == "contextlast" {
				usesEach(m, p, 0, 5*mib)
			} else {
				usesEach(m, p, mib, 4*mib)
			}
			p.Want("drop c", "ok")
			p.Want("release a", "ok")
		}
		usesEach(m, p, 0, 4*mib)
	}
}

// TestGPU: the memory of a context for two GPUs is charged to the first. That includes buffers in
// the program's own memory, because a GPU works on a copy. The program sees its budget as free
// memory.
func TestGPU(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G,1G", NoMount: true})
	p := onOld(m)
	p.Want("two c", "ok")
	p.Want("hostbuffer a c 24M", "ok")
	uses(m, p, 24*mib)
	if l := m.Lease(p.PID(), 1); l.Used != 0 {
		t.Errorf("the second device is charged %d bytes", l.Used)
	}
	p.Want("free", fmt.Sprint("ok ", 1000<<10, " ", 512<<10))
	p.Want("buffer b c 1000M", "ok")
	p.Want("free", "ok 0 0")
	p.Want("buffer d c 1", "err -4")
	p.Want("release b", "ok")
	p.Want("release a", "ok")
	uses(m, p, 0)
}

// TestNoDriverOfCUDA: an OpenCL driver that exports one of CUDA's functions is not mistaken for
// CUDA's driver. CUDA's driver, which is loaded later, is arbitrated.
func TestNoDriverOfCUDA(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G", NoMount: true})
	const script = `
import ctypes, sys
opencl = ctypes.CDLL(sys.argv[1])
print(opencl.cuGetExportTable(None, None), hasattr(opencl, "cuInit"), hasattr(opencl, "cuMemAlloc_v2"))
cuda = ctypes.CDLL("libcuda.so.1")
total = ctypes.c_size_t()
print(cuda.cuInit(0), cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0), total.value)
print(opencl.cuGetExportTable(None, None), hasattr(opencl, "cuMemAlloc_v2"))
`
	r := rig.Run(t, m.Gpuarb("run", "--memory", "64M", "--", "/usr/bin/python3", "-c", script,
		rig.Build(t, "programs/nvopencl/libnvidia-opencl.so.1")))
	if want := "4242 False False\n0 0 67108864\n4242 False\n"; r.Stdout != want {
		t.Errorf("got\n%s\nwant\n%s\n%s", r.Stdout, want, r.Stderr)
	}
}

// TestBothInterfaces: the CUDA memory and the OpenCL memory of a process on one device are in one
// lease and under one budget.
func TestBothInterfaces(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G,1G", NoMount: true})
	p := m.Begin(m.Gpuarb("run", "--memory", "64M", "--", "/usr/bin/python3", "testdata/both.py",
		rig.Build(t, "programs/oldopencl/libOpenCL.so.1")))
	p.Expect("buffer True 0")
	p.Expect("buffer False -4")
	p.Expect(fmt.Sprint("free ", 34*mib))
	p.Expect("buffer True 0")
	p.Expect("alloc 2")
	if s := m.Snapshot(); len(s.Leases) != 1 || s.Leases[0].Used != 64*mib {
		t.Errorf("want one lease of 64 MiB: %+v", s.Leases)
	}
	p.End()
}
