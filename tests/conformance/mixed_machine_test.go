package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the machine of the tests in mixed_test.go, on which CUDA, OpenCL and Vulkan share a device.

// interfaces are the programming interfaces whose objects tests/programs/mixed.c makes: CUDA on the simulated driver, OpenCL on PoCL and Vulkan on
// lavapipe. All three count on device 0.
var interfaces = []string{"cuda", "opencl", "vulkan"}

// Arguments for a program that uses the interfaces in turn, and for one that has an object of each interface at once.
const (
	turns  = "cuda/opencl/vulkan"
	atOnce = "cuda+opencl+vulkan"
)

// orders are all orders in which three programs can come, as indices.
var orders = [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}

// often is how many times `make test` repeats each test of a mix. TestFullMixed repeats it a hundred times.
const often = 5

// meeting returns a machine with one device that all interfaces use, and with a limit of slots.
func meeting(t *testing.T, most int, scope string, more ...string) *rig.Machine {
	t.Helper()
	return rig.New(t, rig.Options{Devices: "4G", NoMount: true, Quiet: true, Life: time.Hour, Config: fmt.Sprintf(
		"schema_version = 1\n[[device]]\nmatch.index = 0\nalso = [\"pocl\", \"llvmpipe\"]\n"+
			"[defaults]\nslots.max = %d\nslots.scope = %q\n", most, scope) + strings.Join(more, "\n")})
}

// only restricts a command to the drivers PoCL and lavapipe, moves their caches into the machine's folder, and turns off
// all Vulkan layers except those named in env.
func only(m *rig.Machine, cmd *exec.Cmd, env ...string) *exec.Cmd {
	m.T.Helper()
	found, _ := filepath.Glob("/usr/share/vulkan/icd.d/lvp_icd*.json")
	if len(found) == 0 {
		m.T.Fatal("no lavapipe in /usr/share/vulkan/icd.d: run `tools/setup.sh test` first")
	}
	cmd.Env = slices.DeleteFunc(cmd.Env, func(kv string) bool {
		return strings.HasPrefix(kv, "VK_") || strings.HasPrefix(kv, "XDG_") || strings.HasPrefix(kv, "OPENCL_")
	})
	cmd.Env = append(cmd.Env, "VK_DRIVER_FILES="+found[0], "OCL_ICD_VENDORS=/etc/OpenCL/vendors/pocl.icd", "XDG_CACHE_HOME="+m.Dir)
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// ours is the name of gpuarb's Vulkan layer.
const ours = "VK_LAYER_GPUARB_arbiter"

// together starts the program that uses all interfaces, under the bare preload with more variables. It has no object yet.
func together(m *rig.Machine, env ...string) *rig.Program {
	m.T.Helper()
	layers := []string{"GPUARB_VULKAN=1", "VK_INSTANCE_LAYERS=" + ours,
		"VK_ADD_LAYER_PATH=" + filepath.Dir(rig.Build(m.T, "vulkan/gpuarb_layer.json"))}
	return m.Interact(only(m, m.Command(m.PreloadEnv(), rig.Build(m.T, "programs/mixed")), append(layers, env...)...))
}

// several starts the program n times.
func several(m *rig.Machine, n int, env ...string) (all []*rig.Program) {
	m.T.Helper()
	for range n {
		all = append(all, together(m, env...))
	}
	return all
}

// counted returns an environment in which layers in front of the drivers (tests/programs/made.c) count created objects, and a
// function that returns their count.
func counted(m *rig.Machine) (env []string, made func() int) {
	m.T.Helper()
	library, file := rig.Build(m.T, "programs/libmade.so"), filepath.Join(m.Dir, "made")
	manifest := fmt.Sprintf(`{"file_format_version": "1.0.0", "layer": {"name": "VK_LAYER_TEST_made", "type": "GLOBAL",
"library_path": %q, "api_version": "1.3.230", "implementation_version": "1", "description": "counts"}}`, library)
	for path, text := range map[string]string{filepath.Join(m.Dir, "made.json"): manifest, file: string(make([]byte, 16))} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			m.T.Fatal(err)
		}
	}
	m.CountCalls("cuCtxCreate*")
	env = []string{"MADE=" + file, "OPENCL_LAYERS=" + library, "VK_INSTANCE_LAYERS=" + ours + ":VK_LAYER_TEST_made",
		"VK_ADD_LAYER_PATH=" + filepath.Dir(rig.Build(m.T, "vulkan/gpuarb_layer.json")) + ":" + m.Dir}
	return env, func() int {
		m.T.Helper()
		counts, err := os.ReadFile(file)
		if err != nil || len(counts) != 16 {
			m.T.Fatalf("what was made: %v, %v", counts, err)
		}
		return m.Calls("cuCtxCreate*") + int(counts[0]) + int(counts[8])
	}
}

// device returns the daemon's state of the only device.
func device(m *rig.Machine) figures.DeviceState {
	m.T.Helper()
	return m.Snapshot().Devices[0]
}

// empty checks that no job has a slot, and that the programs that still run hold no byte.
func empty(m *rig.Machine) {
	m.T.Helper()
	s := m.Snapshot()
	if d := s.Devices[0]; d.SlotsCurrent != 0 || d.Used != 0 || d.Streams != 0 {
		m.T.Errorf("%d slots, %d bytes and %d streams are held, although no program has an object", d.SlotsCurrent, d.Used, d.Streams)
	}
	for _, l := range s.Leases {
		if l.Used != 0 || l.Slot {
			m.T.Errorf("process %d holds %d bytes, and a slot: %v", l.PID, l.Used, l.Slot)
		}
	}
	if held := m.SimNumber("total"); held != 0 {
		m.T.Errorf("the driver holds %d bytes", held)
	}
}

// end ends programs, and checks that nothing of them is left.
func end(m *rig.Machine, all ...*rig.Program) {
	m.T.Helper()
	for _, p := range all {
		p.End()
	}
	m.AllGone()
}
