package vulkan

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has no test. It makes the machine, the environment of a Vulkan program, and the manifests of the
// layers that the tests of this package put into the chain.

// Names of the layers: the library's, the counting layer, and three layers from Debian.
const (
	ours       = "VK_LAYER_GPUARB_arbiter"
	witness    = "VK_LAYER_TEST_count"
	validation = "VK_LAYER_KHRONOS_validation"
	mangohud   = "VK_LAYER_MANGOHUD_overlay"
	overlay    = "VK_LAYER_MESA_overlay"
)

// ways lists the ways in which vkprog finds Vulkan's functions (tests/programs/vkprog.h).
var ways = []string{"link", "dlsym", "instance", "device"}

const mib = 1 << 20

// lavapipe returns the variable that makes the loader use lavapipe alone, whatever else is
// installed.
func lavapipe(t testing.TB) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/share/vulkan/icd.d/lvp_icd*.json")
	if len(found) == 0 {
		t.Fatal("no lavapipe in /usr/share/vulkan/icd.d: run `tools/setup.sh test` first")
	}
	return "VK_DRIVER_FILES=" + found[0]
}

// machine returns a machine without a GPU, whose CPU is a device with this much memory, and with
// further lines of configuration.
func machine(t *testing.T, memory string, config ...string) *rig.Machine {
	t.Helper()
	text := "schema_version = 1\n"
	for _, more := range config {
		text += more + "\n"
	}
	return rig.New(t, rig.Options{Devices: "none", CPU: true, NoMount: true, Environ: []string{lavapipe(t)},
		Config: text + "[[device]]\nmatch.vendor = \"cpu\"\nmemory = \"" + memory + "\"\n"})
}

// oneAtATime gives a device one slot, and lets a request for it wait 200 ms.
const oneAtATime = "[defaults]\nslots.max = 1\nwait_timeout = \"200ms\"\n"

// vulkan completes a command's environment: the driver, and of this machine's settings only those
// in environ.
func vulkan(m *rig.Machine, cmd *exec.Cmd, environ ...string) *exec.Cmd {
	m.T.Helper()
	cmd.Env = slices.DeleteFunc(cmd.Env, func(kv string) bool { return strings.HasPrefix(kv, "VK_") || strings.HasPrefix(kv, "XDG_") })
	cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR="+m.Dir, lavapipe(m.T))
	cmd.Env = append(cmd.Env, environ...)
	return cmd
}

// run returns a command under gpuarb run with these flags; the loader finds the layer.
func run(m *rig.Machine, flags []string, command ...string) *exec.Cmd {
	m.T.Helper()
	args := append(append([]string{"run"}, flags...), "--")
	return vulkan(m, m.Gpuarb(append(args, command...)...))
}

// begin starts vkprog under gpuarb run with these flags.
func begin(m *rig.Machine, way string, flags ...string) *rig.Program {
	m.T.Helper()
	return m.Interact(run(m, flags, rig.Build(m.T, "programs/vkprog-"+way)))
}

// withDevice starts vkprog as begin does, and makes an instance i and a logical device d.
func withDevice(m *rig.Machine, way string, flags ...string) *rig.Program {
	m.T.Helper()
	p := begin(m, way, flags...)
	p.Want("instance i", "ok")
	p.Want("device d i", "ok")
	return p
}

// alone returns the environment of a program with the preload and no other layer.
func alone(m *rig.Machine) []string {
	m.T.Helper()
	return []string{"GPUARB_VULKAN=1", "VK_INSTANCE_LAYERS=" + ours, "VK_ADD_LAYER_PATH=" + filepath.Dir(built(m))}
}

// built returns the path of the manifest that make builds.
func built(m *rig.Machine) string { return rig.Build(m.T, "vulkan/gpuarb_layer.json") }

// chain returns the environment of a preloaded program with these layers, from the program's end to
// the driver's. The loader orders layers by the folders in which it finds them, so each layer gets
// a folder of its own.
func chain(m *rig.Machine, layers ...string) []string {
	m.T.Helper()
	var folders []string
	for i, name := range layers {
		folders = append(folders, filepath.Join(m.Dir, "layers", fmt.Sprint(i, "-", name)))
		place(m, folders[i], "layer.json", manifest(m, name))
	}
	place(m, filepath.Join(m.Dir, "layers"), "vk_layer_settings.txt", "khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG\n"+
		"khronos_validation.report_flags = error,warn,perf\nkhronos_validation.log_filename = stdout\n")
	return []string{"GPUARB_VULKAN=1", "VK_LAYER_SETTINGS_PATH=" + filepath.Join(m.Dir, "layers"),
		"VK_INSTANCE_LAYERS=" + strings.Join(layers, ":"), "VK_LAYER_PATH=" + strings.Join(folders, ":")}
}

// place writes a file, and makes its folder.
func place(m *rig.Machine, folder, name, text string) {
	m.T.Helper()
	err := os.MkdirAll(folder, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600)
	}
	if err != nil {
		m.T.Fatal(err)
	}
}

// manifest returns the text of a layer's manifest. It has no variable that enables the layer.
func manifest(m *rig.Machine, name string) string {
	m.T.Helper()
	library, prefix := "", "vk"
	switch name {
	case ours:
		library, prefix = rig.Build(m.T, "libgpuarb.so"), ""
	case witness:
		library = rig.Build(m.T, "programs/libvkcount.so")
	case mangohud:
		library, prefix = "/usr/$LIB/mangohud/libMangoHud.so", "overlay_"
	case overlay:
		library = "libVkLayer_MESA_overlay.so"
	case validation:
		library = "libVkLayer_khronos_validation.so"
	}
	functions := fmt.Sprintf(`"vkGetInstanceProcAddr": "%[1]sGetInstanceProcAddr", "vkGetDeviceProcAddr": "%[1]sGetDeviceProcAddr"`, prefix)
	if prefix == "" {
		functions = `"vkNegotiateLoaderLayerInterfaceVersion": "vkNegotiateLoaderLayerInterfaceVersion"`
	}
	return fmt.Sprintf(`{"file_format_version": "1.0.0", "layer": {"name": %q, "type": "GLOBAL", "api_version": "1.3.230",
"library_path": %q, "implementation_version": "1", "description": "of a test", "functions": {%s}}}`, name, library, functions)
}

// uses checks the bytes that the daemon reports for a program.
func uses(m *rig.Machine, p *rig.Program, want uint64) {
	m.T.Helper()
	if l := m.Lease(p.PID(), m.First()); uint64(l.Used) != want {
		m.T.Errorf("the lease says %d bytes are used, want %d", l.Used, want)
	}
}

// used returns the bytes that the daemon reports for a program; 0 if it has no lease.
func used(m *rig.Machine, p *rig.Program) uint64 {
	m.T.Helper()
	pid := p.PID()
	for _, l := range m.Snapshot().Leases {
		if l.PID == pid {
			return uint64(l.Used)
		}
	}
	return 0
}

// idle checks that no process on the machine holds a byte.
func idle(m *rig.Machine) {
	m.T.Helper()
	rig.Eventually(m.T, "no lease is left, and no byte of any", func() bool {
		s := m.Snapshot()
		return len(s.Leases) == 0 && s.Devices[0].Granted == 0 && s.Devices[0].Used == 0
	})
}
