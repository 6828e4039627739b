package e2e

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that Halide, whose runtime is compiled while the program runs and then looks up the driver, is
// limited to the byte.

// TestHalide: code that was compiled at run time also finds the driver through the library, and is limited
// to the byte. When it is refused, the program ends as it does on a full device.
func TestHalide(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true})
	const script = "testdata/halide_memory.py"
	const bytes, one = "1048576", 1048576 // a size that Halide's own cache does not round up
	for name, cmd := range map[string]*exec.Cmd{
		"bare":    m.Command(m.Env(), python(), script, bytes),
		"preload": m.Command(m.PreloadEnv(), python(), script, bytes),
		"run":     m.Gpuarb("run", "--memory", bytes, "--", python(), script, bytes),
	} {
		p := m.Begin(cmd)
		for _, line := range []string{"malloc 0", "up 0", "down 0", "copy right", "done"} {
			p.Expect(line)
		}
		if name != "bare" {
			leases := m.Snapshot().Leases
			if len(leases) != 1 {
				t.Fatalf("%s: %d leases", name, len(leases))
			}
			agree(t, m, leases[0].PID, leases[0].Device)
			if leases[0].Used != one {
				t.Errorf("%s: it uses %d bytes", name, leases[0].Used)
			}
		}
		p.Tell("")
		p.Expect("free 0")
		if said := p.End(); said != "" {
			t.Errorf("%s: it says %q", name, said)
		}
		zero(t, m)
	}
	m.Sim("fail", "cuMemAlloc_v2:*:2")
	bare := rig.Run(t, m.Command(m.Env(), python(), script, bytes))
	m.Sim("clear")
	refused := rig.Run(t, m.Gpuarb("run", "--summary=false", "--memory", "1048575", "--", python(), script, bytes))
	first, rest, _ := strings.Cut(refused.Stderr, "\n")
	if !strings.Contains(first, "): out of memory on GPU ") || rest != bare.Stderr || refused.Stdout != bare.Stdout {
		t.Errorf("refused by the budget: %+v\nby the device: %+v", refused, bare)
	}
	if bare.Code != -1 || refused.Code != 128+6 { // Halide aborts
		t.Errorf("it ends with %d, by the device %d", refused.Code, bare.Code)
	}
	zero(t, m)
}
