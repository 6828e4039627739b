package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that `gpuarb doctor` finds what prevents the library from limiting programs, with drivers that fail,
// crash or hang, and takes nothing of a device itself.

// finding is the result of one check in the output of `gpuarb doctor --json`.
type finding struct{ Check, Verdict, Text, Advice string }

// doctor runs gpuarb doctor on a machine with more variables, and returns its findings by the names of the checks.
func doctor(m *rig.Machine, env ...string) map[string]finding {
	m.T.Helper()
	command := m.Gpuarb("doctor", "--json")
	command.Env = append(command.Env, env...)
	r := rig.Run(m.T, command)
	var list []finding
	if err := json.Unmarshal([]byte(r.Stdout), &list); err != nil {
		m.T.Fatalf("%v\n%s\n%s", err, r.Stdout, r.Stderr)
	}
	byCheck := map[string]finding{}
	bad := false
	for _, f := range list {
		bad = bad || f.Verdict == "wrong"
		if byCheck[f.Check].Verdict != "wrong" {
			byCheck[f.Check] = f
		}
	}
	if bad != (r.Code == 1) {
		m.T.Errorf("exit status %d for %+v", r.Code, list)
	}
	return byCheck
}

// says compares a finding's verdict, and checks that its text has all of the words.
func says(t *testing.T, f finding, verdict string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(f.Text+" → "+f.Advice, word) {
			t.Errorf("want %q in %+v", word, f)
		}
	}
	if f.Verdict != verdict {
		t.Errorf("want %s: %+v", verdict, f)
	}
}

// TestDoctorSeesWhatIsCaught: doctor reports each installed interface as caught. Its checks take nothing of a device: no
// lease, and no slot, so it works even if no slot is free.
func TestDoctorSeesWhatIsCaught(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G,2G", NoMount: true, CPU: true, Config: "schema_version = 1\n[defaults]\nslots.max = 1\n"})
	p := m.Interact(m.Gpuarb("run", "--exclusive", "--", rig.Build(t, "programs/cudaprog-dlsym")))
	p.Want("alloc a 1M", "ok")
	before := m.Snapshot()
	got := doctor(m)
	says(t, got["cuda"], "ok", "CUDA is caught: ", "/sim/libcuda.so.1, 2 devices")
	says(t, got["nvml"], "ok", "NVML is caught: ", "/sim/libnvidia-ml.so.1, 2 devices")
	says(t, got["opencl"], "ok", "OpenCL is caught: ", "/libOpenCL.so.1, ")
	says(t, got["vulkan"], "ok", "Vulkan is caught: ", "/libvulkan.so.1, ")
	if after := m.Snapshot(); len(after.Leases) != len(before.Leases) || after.Stats.Denied != before.Stats.Denied || len(after.Queue) > 0 {
		t.Errorf("the probe was seen by the daemon: %+v, before %+v", after, before)
	}
	m.Stop()
	says(t, doctor(m)["cuda"], "ok", "CUDA is caught")
	says(t, doctor(m, "GPUARB_DISABLE=1")["shim"], "wrong", "GPUARB_DISABLE=1: nothing of the programs", "unset GPUARB_DISABLE")
	p.End()
}

// TestDoctorOnOddDrivers runs doctor with the machine's own CUDA driver, which may be absent or without a GPU, and with drivers
// that are newer than the library, hang, crash or fail. It checks that doctor names the problem, and still looks at the other
// interfaces.
func TestDoctorOnOddDrivers(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true})
	odd := filepath.Dir(rig.Build(t, "programs/oddcuda/libcuda.so.1"))
	decoy := filepath.Join(m.Dir, "decoy")
	if err := os.Mkdir(decoy, 0o755); err != nil {
		t.Fatal(err)
	}
	copyFile(t, filepath.Join(odd, "libcuda.so.1"), filepath.Join(decoy, "libOpenCL.so.1"))
	verdict, without := driverHere(t)
	for name, c := range map[string]struct {
		env                  []string
		check, verdict, want string
	}{
		"machine's": {[]string{"LD_LIBRARY_PATH="}, "cuda", verdict, without},
		"newer":     {[]string{"LD_LIBRARY_PATH=" + odd}, "cuda", "wrong", "cuMemAlloc by cuGetProcAddress in " + odd},
		"hangs":     {[]string{"LD_LIBRARY_PATH=" + odd, "ODDCUDA=hang"}, "cuda", "unknown", "hangs: no answer within 5s"},
		"crashes":   {[]string{"LD_LIBRARY_PATH=" + odd, "ODDCUDA=crash"}, "cuda", "unknown", "segmentation fault"},
		"fails":     {[]string{"LD_LIBRARY_PATH=" + odd, "ODDCUDA=fail"}, "cuda", "note", "0 devices; cuInit fails with 999 (CUDA_ERROR_UNKNOWN)"},
		"no driver": {[]string{"VK_DRIVER_FILES=/dev/null"}, "vulkan", "note", "vkCreateInstance fails with -9 (VK_ERROR_INCOMPATIBLE_DRIVER): the loader found no Vulkan driver"},
		"layer off": {[]string{"VK_LOADER_LAYERS_DISABLE=*"}, "vulkan", "wrong", "→ try it without VK_LOADER_LAYERS_DISABLE=*"},
		"a decoy":   {[]string{"LD_LIBRARY_PATH=" + decoy}, "opencl", "note", "libOpenCL.so.1: it has none of the interface's functions"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := doctor(m, c.env...)
			says(t, got[c.check], c.verdict, c.want)
			if c.check == "cuda" {
				says(t, got["opencl"], "ok", "OpenCL is caught")
			}
		})
	}
}

// driverHere calls this machine's own CUDA driver, if there is one, and returns what doctor must
// say about it: the verdict and a part of the text.
func driverHere(t *testing.T) (verdict, text string) {
	t.Helper()
	const ask = `
import ctypes
try:
    print("cuInit", ctypes.CDLL("libcuda.so.1").cuInit(0))
except OSError as error:
    print(error)`
	cmd := bounded.Command(t, bounded.Patience, "/usr/bin/python3", "-c", ask)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("asking the machine's driver: %v: %s", err, out)
	}
	code, answered := strings.CutPrefix(strings.TrimSpace(string(out)), "cuInit ")
	switch {
	case answered && code == "0":
		return "ok", "CUDA is caught"
	case answered:
		return "note", "cuInit fails with " + code
	case strings.HasPrefix(string(out), "libcuda.so.1: cannot open"):
		return "ok", "CUDA is not installed (no libcuda.so.1)"
	default:
		return "note", "CUDA cannot be used"
	}
}

// TestDoctorSeesGPUsThatTheDaemonDoesNot: if the daemon was started without a driver, doctor says that the daemon knows
// no GPU, and, if the shell that runs doctor has a driver, how many GPUs that driver shows.
func TestDoctorSeesGPUsThatTheDaemonDoesNot(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "none", CPU: true, NoMount: true})
	says(t, doctor(m)["devices"], "wrong", "the daemon knows no GPU", "nvidia-smi")
	says(t, doctor(m, "SIMCUDA_DEVICES=1G,1G", "SIMCUDA_DIR="+t.TempDir())["devices"], "wrong", "the daemon knows no GPU", "NVML has 2 here", "/build/sim", "ldconfig")
}

// TestDoctorMissesParts: doctor reports a library that does not load, a library without its probe, and one that Vulkan's loader does not know.
func TestDoctorMissesParts(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true})
	build := portable(t, m)
	drivers, err := filepath.Glob("/usr/share/vulkan/icd.d/lvp_icd*.json")
	if err != nil || len(drivers) == 0 {
		t.Fatalf("no lavapipe: %v", err)
	}
	look := func() map[string]finding {
		return doctor(m, "GPUARB_LIB="+build+"/libgpuarb.so", "XDG_DATA_DIRS="+build, "VK_DRIVER_FILES="+drivers[0])
	}
	says(t, look()["shim"], "unknown", "no gpuarb-probe (tried "+build+"/gpuarb-probe: no such file or directory)", "make install")
	copyFile(t, rig.Build(t, "gpuarb-probe"), build+"/gpuarb-probe")
	if err := os.Chmod(build+"/gpuarb-probe", 0o755); err != nil {
		t.Fatal(err)
	}
	says(t, look()["shim"], "ok", build+"/libgpuarb.so loads")
	says(t, look()["vulkan"], "wrong", "Vulkan is NOT caught", "the layer is not known → make install")
	if err := os.Truncate(build+"/libgpuarb.so", 64); err != nil {
		t.Fatal(err)
	}
	says(t, look()["shim"], "wrong", build+"/libgpuarb.so does not load: ", "cannot be preloaded")
}
