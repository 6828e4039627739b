package opencl

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file runs pyopencl, clinfo and two copies of OpenCL's loader under the library, and programs without a
// daemon or with a device that the daemon does not have. clinfo's answers are compared with those that it
// prints without the library.

// TestPython: pyopencl computes right results, and raises its own MemoryError for a buffer that exceeds the budget.
func TestPython(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	r := rig.Run(t, m.Gpuarb("run", "--memory", "8M", "--", "/usr/bin/python3", "testdata/vectors.py"))
	// Beside three vectors of 400,000 bytes, a budget of 8 MiB has room for six blocks of 1 MiB.
	want := fmt.Sprint("sum right\nmemory ", 8*mib, "\nrefused -4 after 6\n")
	if r.Code != 0 || r.Stdout != want {
		t.Errorf("code %d, got\n%s\nwant\n%s\n%s", r.Code, r.Stdout, want, r.Stderr)
	}
}

// TestTwoLoaders checks that one budget limits what a process takes through two copies of OpenCL's loader.
func TestTwoLoaders(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	r := rig.Run(t, m.Gpuarb("run", "--memory", "64M", "--", "/usr/bin/python3", "testdata/loaders.py", t.TempDir()))
	if want := "0 -4\n-4 -4\n"; r.Code != 0 || r.Stdout != want {
		t.Errorf("code %d, got\n%s\nwant\n%s\n%s", r.Code, r.Stdout, want, r.Stderr)
	}
}

// figures matches clinfo's lines on memory sizes.
var figures = regexp.MustCompile(`(?m)^ *(Global memory size|Max memory allocation) .*\n`)

// TestClinfo: a program that queries everything sees the same with and without the library, except
// for the memory sizes. If the library is switched off, all answers are the same.
func TestClinfo(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	asks := func(cmd *exec.Cmd) string {
		// By default PoCL computes the sizes from the memory that is free at the moment. This
		// variable sets the maximum in GiB.
		cmd.Env = append(cmd.Env, "POCL_MEMORY_LIMIT=1")
		return rig.Run(t, cmd).Stdout
	}
	bare := asks(m.Command(m.Env(), "clinfo"))
	budget := asks(m.Gpuarb("run", "--memory", "64M", "--", "clinfo"))
	off := asks(m.Command(append(m.PreloadEnv(), "GPUARB_DISABLE=1"), "clinfo"))
	if !strings.Contains(bare, "Portable Computing Language") {
		t.Fatalf("clinfo shows no driver:\n%s", bare)
	}
	if diff := cmp.Diff(bare, off); diff != "" {
		t.Errorf("switched off (-without the library +with):\n%s", diff)
	}
	if got := len(figures.FindAllString(budget, -1)); got != 2 || !strings.Contains(budget, "67108864 (64MiB)") {
		t.Errorf("%d figures of memory, want 2 of 64 MiB:\n%s", got, budget)
	}
	if diff := cmp.Diff(figures.ReplaceAllString(bare, ""), figures.ReplaceAllString(budget, "")); diff != "" {
		t.Errorf("under a budget (-without the library +with):\n%s", diff)
	}
}

// TestWithoutADaemon: without a daemon a program runs as without the library, except for the limits
// that it declares itself.
func TestWithoutADaemon(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G", Stopped: true, NoMount: true})
	p := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/clprog-link")))
	p.Want("context c", "ok")
	p.Want("buffer a c 10M", "ok")
	p.Want("release a", "ok")
	p.Want("drop c", "ok")
	p = m.Interact(m.Command(append(m.PreloadEnv(), "GPUARB_MEMORY=8M"), rig.Build(t, "programs/clprog-link")))
	p.Want("context c", "ok")
	p.Want("buffer a c 8M", "ok")
	p.Want("buffer b c 1", "err -4")
	p.Want("release a", "ok")
	p.Want("buffer b c 1", "ok")
}

// TestUnknownDevice: a device that the daemon does not have is not limited.
func TestUnknownDevice(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G", NoMount: true})
	p := begin(m, "link")
	before := p.Ask("total")
	p.Want("context c", "ok")
	p.Want("buffer a c 1M", "ok")
	p.Want("total", before)
	p.Want("release a", "ok")
	if s := m.Snapshot(); len(s.Leases) != 0 {
		t.Errorf("there are leases: %+v", s.Leases)
	}
	if strings.Contains(m.Log(), "does not know") {
		t.Errorf("the daemon takes it for a GPU that it cannot hold:\n%s", m.Log())
	}
}
