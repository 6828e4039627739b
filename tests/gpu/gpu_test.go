//go:build gpu

package gpu

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// TestRealDriver repeats the steps of TestDriver on this machine's first GPU, one at
// a time: what is measured is the whole device's.
func TestRealDriver(t *testing.T) {
	for name, check := range driverChecks {
		t.Run(name, func(t *testing.T) { check(t, rig.New(t, rig.Options{NoMount: true, System: true})) })
	}
}

// python is an interpreter that has a module, or "".
func python(module string) string {
	for _, name := range []string{os.Getenv("PYTHON"), "python3", "/usr/bin/python3"} {
		if name != "" && exec.Command(name, "-c", "import "+module).Run() == nil {
			return name
		}
	}
	return ""
}

// Each framework computes within a budget, is refused beyond it in its own words, and
// goes on; the budget is the one of GPUARB_MEMORY.
func TestFrameworks(t *testing.T) {
	for _, c := range []struct {
		module string
		modes  []string
	}{
		{"torch", []string{"caching", "expandable", "async", "graphs"}},
		{"jax", []string{"preallocate", "platform"}},
		{"cupy", []string{"pool", "managed", "async"}},
		{"numba.cuda", []string{"plain"}},
	} {
		interpreter := python(c.module)
		if interpreter == "" {
			t.Logf("%s is not installed here: not tested", c.module)
			continue
		}
		for _, mode := range c.modes {
			t.Run(c.module+"/"+mode, func(t *testing.T) { framework(t, interpreter, c.module, mode) })
		}
	}
}

func framework(t *testing.T, interpreter, module, mode string) {
	const limit = 4 << 30
	m := rig.New(t, rig.Options{NoMount: true, System: true})
	script, err := filepath.Abs("testdata/with_" + strings.ReplaceAll(module, ".", "_") + ".py")
	if err != nil {
		t.Fatal(err)
	}
	r := rig.Run(t, m.Command(limited(m, limit), interpreter, script, mode, fmt.Sprint(limit)))
	if r.Code != 0 || !strings.HasSuffix(strings.TrimSpace(r.Stdout), "all well") {
		t.Errorf("status %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	}
	t.Log(r.Stdout)
	rig.Eventually(t, "its lease is gone", func() bool { return len(m.Snapshot().Leases) == 0 })
}

// nvidia-smi shows the budget as the device.
func TestNvidiaSMI(t *testing.T) {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		t.Log("nvidia-smi is not installed here: not tested")
		return
	}
	m := rig.New(t, rig.Options{NoMount: true, System: true})
	args := []string{"--id=0", "--query-gpu=memory.total,memory.used,memory.free", "--format=csv,noheader,nounits"}
	r := rig.Run(t, m.Command(limited(m, 4<<30), path, args...))
	if got := strings.TrimSpace(r.Stdout); r.Code != 0 || got != "4096, 0, 4096" {
		t.Errorf("status %d: %q\n%s", r.Code, got, r.Stderr)
	}
	bare := rig.Run(t, m.Command(m.Env(), path, args...))
	off := rig.Run(t, m.Command(limited(m, 4<<30, "GPUARB_DISABLE=1"), path, "--id=0", "--query-gpu=memory.total",
		"--format=csv,noheader,nounits"))
	if !strings.HasPrefix(bare.Stdout, strings.TrimSpace(off.Stdout)) || off.Code != 0 {
		t.Errorf("disabled: %q, without the preload: %q", off.Stdout, bare.Stdout)
	}
}

// A program of the CUDA runtime, linked with it in either way.
func TestRuntime(t *testing.T) {
	nvcc, err := exec.LookPath("nvcc")
	if err != nil {
		t.Log("nvcc is not installed here: programs of the runtime are not tested")
		return
	}
	for _, cudart := range []string{"static", "shared"} {
		t.Run(cudart, func(t *testing.T) {
			m := rig.New(t, rig.Options{NoMount: true, System: true})
			binary := filepath.Join(m.Dir, "runtime")
			build := rig.Run(t, m.Command(m.Env(), nvcc, "-cudart", cudart, "-o", binary, "testdata/runtime.cu"))
			if build.Code != 0 {
				t.Fatal(build.Stderr)
			}
			r := rig.Run(t, m.Command(limited(m, 256*mib), binary))
			if r.Code != 0 || strings.TrimSpace(r.Stdout) != "all well" {
				t.Errorf("status %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
			}
		})
	}
}
