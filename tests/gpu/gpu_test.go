//go:build gpu

package gpu

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the tests that need a real GPU. driver_test.go has checks that also run on the simulated driver.

// Two budgets: every program here fits the larger one, and none fits
// the smaller one. The device must have more memory than the larger budget.
const (
	ample = 4 << 30
	tight = 128 * mib
)

// onDevice returns a machine with this host's first GPU. It returns false if that GPU has too little free memory.
func onDevice(t *testing.T) (*rig.Machine, bool) {
	t.Helper()
	m := rig.New(t, rig.Options{NoMount: true, System: true})
	if d := m.Snapshot().Devices[0]; uint64(d.Capacity) < ample+ample/4 {
		t.Logf("not tested: %s has %d MiB to give, 5 GiB are needed", d.Name, d.Capacity/mib)
		return nil, false
	}
	return m, true
}

// TestRealDriver repeats the steps of TestDriver on this machine's first GPU, one at
// a time, because the measured figures are of the whole device.
func TestRealDriver(t *testing.T) {
	for name, check := range driverChecks {
		t.Run(name, func(t *testing.T) { check(t, rig.New(t, rig.Options{NoMount: true, System: true})) })
	}
}

// answersTo is the file into which TestRealAnswers writes the answers of this machine's driver; "": none.
var answersTo = flag.String("gpu.answers", "", "write what the driver answers to this `FILE`")

// TestRealAnswers: this machine's driver answers a program under the library as without it. The test prints where its answers differ from
// those that the simulated driver imitates.
func TestRealAnswers(t *testing.T) {
	m := rig.New(t, rig.Options{NoMount: true, System: true})
	var file strings.Builder
	for _, s := range sections(t) {
		t.Run(s.name, func(t *testing.T) {
			bare := answered(t, m, m.Env(), s)
			hold(t, "under the library", s, answered(t, m, m.PreloadEnv(), s), bare)
			fmt.Fprintf(&file, "\n== %s\n", s.name)
			for i, command := range s.commands {
				fmt.Fprintf(&file, "%s → %s\n", command, bare[i])
				if bare[i] != s.answers[i] {
					t.Logf("measured: %q: this driver says %q, the file %q", command, bare[i], s.answers[i])
				}
			}
		})
	}
	if *answersTo != "" {
		if err := os.WriteFile(*answersTo, []byte(file.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// frameworks are Python modules, each with a statement that fails if the module, or a part that it
// needs for a GPU, is missing.
var frameworks = []struct {
	module, probe string
	modes         []string
}{
	{"torch", `import torch; assert torch.version.cuda, "torch is built without CUDA"`,
		[]string{"caching", "expandable", "async", "graphs"}},
	{"jax", `import importlib.util as u, jax, jaxlib
assert "cuda" in jaxlib.__version__ or any(u.find_spec("jax_cuda%d_plugin" % n) for n in range(11, 20)), "jax has no plugin for CUDA"`,
		[]string{"preallocate", "platform"}},
	{"cupy", `import cupy`, []string{"pool", "managed", "async"}},
	{"numba.cuda", `from numba import cuda; cuda.jit("void(int32[:])")(lambda x: None)`, []string{"plain"}},
}

// python returns an interpreter in which a probe succeeds, or the reason why none does.
func python(t *testing.T, probe string) (interpreter, why string) {
	t.Helper()
	for _, name := range []string{os.Getenv("PYTHON"), "python3", "/usr/bin/python3"} {
		if name == "" || strings.Contains(why, name+": ") {
			continue
		}
		out, err := bounded.Command(t, bounded.Patience, name, "-c", probe).CombinedOutput()
		if err == nil {
			return name, ""
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		why += fmt.Sprintf("; %s: %v: %s", name, err, lines[len(lines)-1])
	}
	return "", strings.TrimPrefix(why, "; ")
}

// TestFrameworks: each framework computes within a budget, is refused above it with
// its own error, and continues. In a budget that is too small it is refused at once, and
// continues with less.
func TestFrameworks(t *testing.T) {
	for _, f := range frameworks {
		interpreter, why := python(t, f.probe)
		if interpreter == "" {
			t.Logf("not tested: %s (%s)", f.module, why)
			continue
		}
		for _, mode := range f.modes {
			for name, limit := range map[string]uint64{"ample": ample, "tight": tight} {
				t.Run(fmt.Sprintf("%s/%s/%s", f.module, mode, name), func(t *testing.T) {
					framework(t, interpreter, f.module, mode, limit)
				})
			}
		}
	}
}

// TestSpeed measures what the library costs a PyTorch program that trains, in steps per second: with PyTorch's
// caching allocator, and with an allocation of the driver for each tensor.
func TestSpeed(t *testing.T) {
	interpreter, why := python(t, frameworks[0].probe)
	if interpreter == "" {
		t.Logf("not tested: PyTorch's speed (%s)", why)
		return
	}
	m, ok := onDevice(t)
	if !ok {
		return
	}
	script, err := filepath.Abs("testdata/speed_torch.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"", "PYTORCH_NO_CUDA_MEMORY_CACHING=1"} {
		var steps [2][]string
		for range 2 {
			for i, env := range [][]string{m.Env(), limited(m, ample)} {
				r := rig.Run(t, m.Command(append(env, strings.Fields(setting)...), interpreter, script))
				if r.Code != 0 {
					t.Fatal(r.Stderr)
				}
				steps[i] = append(steps[i], strings.TrimSpace(r.Stdout))
			}
		}
		t.Logf("measured: PyTorch trains %v steps a second, under the library %v %s", steps[0], steps[1], setting)
	}
}

// framework runs a framework's script. The script prints "holding" while it holds most of its
// memory, and waits; at the end it prints "all well".
func framework(t *testing.T, interpreter, module, mode string, limit uint64) {
	m, ok := onDevice(t)
	if !ok {
		return
	}
	script, err := filepath.Abs("testdata/with_" + strings.ReplaceAll(module, ".", "_") + ".py")
	if err != nil {
		t.Fatal(err)
	}
	look := observer(t, m)
	p := m.Begin(m.Command(limited(m, limit), interpreter, script, mode, fmt.Sprint(limit), fmt.Sprint(limit == tight)))
	for line := p.Line(); line != "all well"; line = p.Line() {
		t.Log(line)
		if line == "holding" {
			compare(t, m, look, limit, mode != "managed")
			p.Tell("go on")
		}
	}
	p.End()
	rig.Eventually(t, "its lease is gone", func() bool { return len(m.Snapshot().Leases) == 0 })
}

// compare compares the ledger with NVML's figure for the only program. NVML's figure
// is larger, by contexts and code, and never smaller. Managed memory is an exception,
// because NVML counts only its bytes on the device.
func compare(t *testing.T, m *rig.Machine, look *rig.Program, limit uint64, whole bool) {
	t.Helper()
	leases := m.Snapshot().Leases
	if len(leases) != 1 {
		t.Fatalf("%d leases, want one: %+v", len(leases), leases)
	}
	held, used := uint64(leases[0].Used), usedBy(t, look, leases[0].PID)
	if held == 0 || held > limit {
		t.Errorf("the ledger says %d bytes, of at most %d", held, limit)
	}
	switch {
	case used == 0:
		t.Logf("not tested: NVML does not know process %d (another PID namespace?)", leases[0].PID)
	case used < held && whole:
		t.Errorf("NVML says %d bytes, the ledger %d", used, held)
	default:
		t.Logf("measured: %s: the ledger says %d MiB, NVML %d MiB", t.Name(), held/mib, used/mib)
	}
}

// TestNvidiaSMI: nvidia-smi shows the budget as the device's memory.
func TestNvidiaSMI(t *testing.T) {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		t.Logf("not tested: nvidia-smi (%v)", err)
		return
	}
	m, ok := onDevice(t)
	if !ok {
		return
	}
	args := []string{"--id=0", "--query-gpu=memory.total,memory.used,memory.free", "--format=csv,noheader,nounits"}
	for limit, want := range map[uint64]string{ample: "4096, 0, 4096", tight: "128, 0, 128"} {
		r := rig.Run(t, m.Command(limited(m, limit), path, args...))
		if got := strings.TrimSpace(r.Stdout); r.Code != 0 || got != want {
			t.Errorf("status %d: %q, want %q\n%s", r.Code, got, want, r.Stderr)
		}
	}
	bare := rig.Run(t, m.Command(m.Env(), path, args...))
	off := rig.Run(t, m.Command(limited(m, ample, "GPUARB_DISABLE=1"), path, "--id=0", "--query-gpu=memory.total",
		"--format=csv,noheader,nounits"))
	if !strings.HasPrefix(bare.Stdout, strings.TrimSpace(off.Stdout)) || off.Code != 0 {
		t.Errorf("disabled: %q, without the preload: %q", off.Stdout, bare.Stdout)
	}
}

// compiler returns the path of nvcc, in PATH or in the folder of NVIDIA's own packages.
func compiler() (string, error) {
	path, err := exec.LookPath("nvcc")
	if err != nil {
		if usual, also := exec.LookPath("/usr/local/cuda/bin/nvcc"); also == nil {
			return usual, nil
		}
	}
	return path, err
}

// TestRuntime runs a program of the CUDA runtime, linked statically and dynamically.
func TestRuntime(t *testing.T) {
	nvcc, err := compiler()
	if err != nil {
		t.Logf("not tested: programs of the CUDA runtime (%v)", err)
		return
	}
	for _, cudart := range []string{"static", "shared"} {
		t.Run(cudart, func(t *testing.T) {
			m := rig.New(t, rig.Options{NoMount: true, System: true})
			binary := filepath.Join(m.Dir, "runtime")
			libraries := filepath.Join(filepath.Dir(filepath.Dir(nvcc)), "lib64")
			build := rig.Run(t, m.Command(m.Env(), nvcc, "-cudart", cudart, "-Xlinker", "-rpath="+libraries,
				"-o", binary, "testdata/runtime.cu"))
			if build.Code != 0 {
				t.Fatal(build.Stderr)
			}
			for _, limit := range []uint64{2 * tight, tight} {
				r := rig.Run(t, m.Command(limited(m, limit), binary, fmt.Sprint(limit)))
				if r.Code != 0 || strings.TrimSpace(r.Stdout) != "all well" {
					t.Errorf("under %d MiB: status %d\n%s\n%s", limit/mib, r.Code, r.Stdout, r.Stderr)
				}
			}
		})
	}
}

// built returns the path of a program that make builds if an interface's headers are installed. If not, it logs that and returns "".
func built(t *testing.T, name string) string {
	t.Helper()
	cmd := bounded.Command(t, bounded.Patience, "make", "--no-print-directory", "build/programs/"+name)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Logf("not tested: %s cannot be built (%v)\n%s", name, err, out)
		return ""
	}
	return rig.Build(t, "programs/"+name)
}

// holds checks that the daemon has one lease, of the program, with the wanted bytes.
func holds(t *testing.T, m *rig.Machine, p *rig.Program, want uint64) {
	t.Helper()
	if s := m.Snapshot(); len(s.Leases) != 1 || s.Leases[0].PID != p.PID() || uint64(s.Leases[0].Used) != want {
		t.Errorf("want one lease of %d bytes: %+v", want, s.Leases)
	}
}

// TestOpenCL: NVIDIA's OpenCL library loads libcuda.so.1, and the library also catches calls inside it. Memory of OpenCL is charged once: when the
// program creates it, or when the driver allocates it, which may be at its first use.
func TestOpenCL(t *testing.T) {
	icd, err := os.ReadFile("/etc/OpenCL/vendors/nvidia.icd")
	if err != nil {
		t.Logf("not tested: NVIDIA's OpenCL (%v)", err)
		return
	}
	for _, way := range []string{"dlsym", "extension"} {
		binary := built(t, "clprog-"+way)
		if binary == "" {
			return
		}
		m := rig.New(t, rig.Options{NoMount: true, System: true})
		vendors := filepath.Join(m.Dir, "vendors") // only NVIDIA's driver
		if err := os.Mkdir(vendors, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(vendors, "nvidia.icd"), icd, 0o600); err != nil {
			t.Fatal(err)
		}
		p := m.Interact(m.Command(limited(m, tight, "OCL_ICD_VENDORS="+vendors), binary))
		p.Want("context c", "ok")
		p.Want("buffer a c 100M", "ok")
		holds(t, m, p, 100*mib)
		for _, use := range []string{"queue q c first", "fill q a", "map q a"} { // mapping waits for the commands before it
			p.Want(use, "ok")
		}
		holds(t, m, p, 100*mib)
		p.Want("buffer b c 28M", "ok")
		holds(t, m, p, tight)
		p.Want("buffer d c 1", "err -4")
		p.Want("release a", "ok")
		p.Want("release b", "ok")
		holds(t, m, p, 0)
		p.End()
	}
}

// TestVulkan: memory of NVIDIA's Vulkan is charged once, too.
func TestVulkan(t *testing.T) {
	var manifests []string
	for _, folder := range []string{"/etc/vulkan", "/usr/share/vulkan"} {
		found, _ := filepath.Glob(folder + "/icd.d/nvidia_icd*.json") // the pattern is sound
		manifests = append(manifests, found...)
	}
	if len(manifests) == 0 {
		t.Log("not tested: NVIDIA's Vulkan (no nvidia_icd.json)")
		return
	}
	for _, way := range []string{"dlsym", "device"} {
		binary := built(t, "vkprog-"+way)
		if binary == "" {
			return
		}
		m := rig.New(t, rig.Options{NoMount: true, System: true})
		command := m.Gpuarb("run", "--memory", fmt.Sprint(tight), "--", binary)
		command.Env = append(command.Env, "VK_DRIVER_FILES="+manifests[0], "VK_ICD_FILENAMES="+manifests[0]) // older loaders read the second variable
		p := m.Interact(command)
		for _, step := range []string{"instance i", "device d i", "alloc a d 100M", "dispatch d 10"} {
			p.Want(step, "ok")
		}
		holds(t, m, p, 100*mib)
		p.Want(fmt.Sprintf("alloc b d %d", tight-100*mib), "ok")
		holds(t, m, p, tight)
		p.Want("alloc c d 1", "err -2")
		p.Want("free a", "ok")
		p.Want("free b", "ok")
		holds(t, m, p, 0)
		p.End()
	}
}
