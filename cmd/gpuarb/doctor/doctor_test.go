package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/version"
)

// This file checks the findings and the advice of `gpuarb doctor` on machines that the tests
// describe by files, variables, the daemon's state and the answers of probes.
// tests/e2e/doctor_test.go runs the command on a whole machine.

// machine makes a root folder with files.
func machine(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// examine examines a machine and returns the findings by check. state is the state of its daemon;
// nil: no daemon.
func examine(t *testing.T, root string, env map[string]string, state *figures.Snapshot) map[string][]Finding {
	t.Helper()
	d := &Doctor{
		Root: root, Timeout: 5 * time.Second, Executable: "/nowhere/bin/gpuarb",
		Getenv: func(name string) string { return env[name] },
		Slow:   func(string) func() { return func() {} },
		Ask: func(context.Context) (figures.Snapshot, string, error) {
			if state == nil {
				return figures.Snapshot{}, "", errors.New("no daemon answers")
			}
			return *state, socket, nil
		},
	}
	byCheck := map[string][]Finding{}
	for _, f := range d.Examine() {
		byCheck[f.Check] = append(byCheck[f.Check], f)
	}
	return byCheck
}

const socket = "/run/gpuarb/gpuarb.sock"

const mountTable = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" +
	"90 22 0:50 / /gpu rw,nosuid - fuse.gpuarb gpuarb rw\n" +
	"91 22 0:51 / /home/a\\040b/gpu rw - fuse gpuarb rw\n" +
	"92 22 0:52 / /mnt rw - fuse.sshfs host: rw\n"

func TestDoctorHealthy(t *testing.T) {
	state := figures.Snapshot{Version: version.Version, Devices: []figures.DeviceState{
		{Index: 0, Vendor: "nvidia", Name: "A", UUID: "GPU-a", PCI: "0000:01:00.0"}, {Index: 1, Vendor: "amd", Name: "B", UUID: "b", PCI: "0000:02:00.0"}}}
	root := machine(t, map[string]string{
		"proc/self/mountinfo":  mountTable,
		"gpu/version":          version.Version + "\n",
		"home/a b/gpu/version": version.Version + "\n",
	})
	got := examine(t, root, nil, &state)
	for check, text := range map[string]string{
		"daemon":  "answers at " + socket,
		"version": "gpuarb and the daemon are " + version.Version,
		"devices": "0 (A, GPU-a, 0000:01:00.0), 1 (B, b, 0000:02:00.0)",
		"mount":   "/gpu is alive, version " + version.Version,
	} {
		if len(got[check]) == 0 || got[check][0].Verdict != Fine || got[check][0].Text != text {
			t.Errorf("%s: %+v\nwant %s", check, got[check], text)
		}
	}
	if mounts := got["mount"]; len(mounts) != 2 || mounts[1].Verdict != Fine || !strings.HasPrefix(mounts[1].Text, "/home/a b/gpu is") {
		t.Errorf("mounts: %+v", mounts)
	}
}

// TestDoctorWithoutSystemd checks that the advice does not name systemd if systemd does not run.
func TestDoctorWithoutSystemd(t *testing.T) {
	for path, want := range map[string]string{"run/systemd/system/x": "systemctl status gpuarbd, or ", "run/x": "start gpuarbd as root"} {
		f := examine(t, machine(t, map[string]string{path: ""}), nil, nil)["daemon"][0]
		if f.Verdict != Wrong || !strings.HasPrefix(*f.Advice, want) || !strings.HasSuffix(*f.Advice, "with gpuarbd --user") {
			t.Errorf("%s: %+v %s", path, f, *f.Advice)
		}
	}
}

func TestDoctorQueries(t *testing.T) {
	for value, want := range map[string]Verdict{"": Fine, "1": Fine, "0": Note} {
		f := examine(t, machine(t, nil), map[string]string{"GPUARB_VIRTUALIZE": value}, nil)["queries"]
		if len(f) != 1 || f[0].Verdict != want || !strings.Contains(f[0].Text, "GPUARB_VIRTUALIZE=0") {
			t.Errorf("GPUARB_VIRTUALIZE=%q: %+v", value, f)
		}
	}
}

func TestDoctorSick(t *testing.T) {
	root := machine(t, map[string]string{"proc/self/mountinfo": mountTable, "gpu/version": "1.0\n", "dev/fuse": ""})
	got := examine(t, root, map[string]string{"LD_LIBRARY_PATH": "/no:", "GPUARB_LIB": "/nowhere/libgpuarb.so"}, &figures.Snapshot{Version: "9.9"})
	for check, want := range map[string]Finding{
		"daemon":  {Verdict: Fine, Text: "answers at " + socket},
		"version": {Verdict: Note, Text: "gpuarb is " + version.Version + ", the daemon is 9.9"},
		"devices": {Verdict: Wrong, Text: "the daemon knows no GPU on this machine"},
		"shim":    {Verdict: Wrong, Text: "no libgpuarb.so that can be preloaded (tried /nowhere/libgpuarb.so: no such file or directory)"},
		"fuse":    {Verdict: Note, Text: "/dev/fuse is no device"},
		"mount":   {Verdict: Wrong, Text: `/gpu is served by version "1.0", the daemon is "9.9"`},
	} {
		f := got[check][0]
		if f.Verdict != want.Verdict || !strings.HasPrefix(f.Text, want.Text) {
			t.Errorf("%s: %+v\nwant %+v", check, f, want)
		}
		if f.Verdict == Wrong && f.Advice == nil {
			t.Errorf("%s: no advice on %s", check, f.Text)
		}
	}
}

// TestDoctorKernel checks the finding about NVIDIA's kernel module and libcuda.so.1: both present,
// each without the other, and the library in a folder that programs do not search.
func TestDoctorKernel(t *testing.T) {
	version := map[string]string{"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.1  now\nGCC\n"}
	with, bare := machine(t, version), t.TempDir()
	version["usr/local/nvidia/lib64/libcuda.so.1"] = ""
	aside := machine(t, version)
	absent, idle, works := probeResult{outcome: "absent"}, probeResult{outcome: "caught"}, probeResult{outcome: "caught", devices: 1}
	for _, c := range []struct {
		root string
		cuda probeResult
		want Verdict
		text string
	}{
		{with, works, Fine, "kernel: NVIDIA UNIX x86_64 Kernel Module 550.1 now"},
		{with, absent, Wrong, "the kernel has NVIDIA UNIX x86_64 Kernel Module 550.1 now, but there is no libcuda.so.1"},
		{bare, idle, Note, "there is a libcuda.so.1, but the kernel's NVIDIA driver is not loaded"},
		{bare, works, "", ""},
		{bare, absent, "", ""},
		{aside, absent, Wrong, "/usr/local/nvidia/lib64 has a libcuda.so.1, and programs do not look there"},
		{aside, works, Fine, "kernel: NVIDIA UNIX x86_64 Kernel Module 550.1 now"},
	} {
		d := &Doctor{Root: c.root}
		d.checkKernel(c.cuda)
		if got := append(d.findings, Finding{})[0]; got.Verdict != c.want || got.Text != c.text {
			t.Errorf("%s, %+v: %+v", c.root, c.cuda, got)
		}
	}
}

// TestDoctorKnowsMoreThanTheDaemon checks what is said if NVML finds GPUs here that the daemon does
// not find.
func TestDoctorKnowsMoreThanTheDaemon(t *testing.T) {
	for _, c := range []struct {
		nvml         probeResult
		path         string // value of LD_LIBRARY_PATH
		text, advice string
	}{
		{probeResult{outcome: "absent"}, "", "", "nvidia-smi"},
		{probeResult{outcome: "caught", path: "/a/libnvidia-ml.so.1", devices: 2}, "/b:/a/", ", and NVML has 2 here, as LD_LIBRARY_PATH leads to /a", "ldconfig"},
		{probeResult{outcome: "caught", path: "/a/libnvidia-ml.so.1", devices: 2}, "", ", and NVML (/a/libnvidia-ml.so.1) has 2 here", "looks again every three seconds"},
	} {
		d := &Doctor{state: &figures.Snapshot{}, nvml: c.nvml, Getenv: func(string) string { return c.path }}
		d.checkDevices()
		if f := d.findings[0]; f.Verdict != Wrong || f.Text != "the daemon knows no GPU on this machine"+c.text || !strings.Contains(*f.Advice, c.advice) {
			t.Errorf("%+v: %+v, %s", c.nvml, f, *f.Advice)
		}
	}
}

// TestProbesAnswer checks that output of a driver is not mistaken for the answer of the probe.
func TestProbesAnswer(t *testing.T) {
	want := probeResult{outcome: "not caught", path: "/a b/c", devices: 2, detail: "x, y"}
	for text, ok := range map[string]bool{
		"cuda\tnot caught\t/a b/c\t2\tx, y\n":                                          true,
		"cuda\tcaught\t/x\t1\t\nhello cuda\n\ncuda\tnot caught\t/a b/c\t2\tx, y\ncuda": true,
		"": false, "cuda": false, "nvml\tcaught\t/x\t1\t\n": false, "cuda\tcaught\t/x\tmany\t\n": false,
	} {
		if got, found := parseAnswer(text, "cuda"); found != ok || ok && got != want {
			t.Errorf("%q: %v, %+v", text, found, got)
		}
	}
}

// TestWhyItFails checks that error codes of drivers and loaders are explained, with advice.
func TestWhyItFails(t *testing.T) {
	for _, c := range []struct {
		api          string
		got          probeResult
		text, advice string
	}{
		{"vulkan", probeResult{outcome: "broken", path: "/lib/v", detail: "vkCreateInstance fails with -9"},
			"Vulkan cannot be used: /lib/v: vkCreateInstance fails with -9 (VK_ERROR_INCOMPATIBLE_DRIVER): the loader found no Vulkan driver", "libGLX_nvidia.so.0"},
		{"vulkan", probeResult{outcome: "broken", path: "/lib/v", detail: "vkCreateInstance fails with -3"}, "fails with -3 (VK_ERROR_INITIALIZATION_FAILED): a Vulkan driver or a layer", "VK_LOADER_DEBUG=all"},
		{"vulkan", probeResult{outcome: "broken", path: "/lib/v", detail: "vkCreateInstance fails with -1"}, "fails with -1 (VK_ERROR_OUT_OF_HOST_MEMORY): the loader", "VK_LOADER_DEBUG=all"},
		{"vulkan", probeResult{outcome: "broken", path: "/lib/v", detail: "vkCreateInstance fails with -77"}, "/lib/v: vkCreateInstance fails with -77", "reinstall it, if programs are to use Vulkan"},
		{"opencl", probeResult{outcome: "caught", path: "/lib/o", detail: "clGetPlatformIDs fails with -1001"},
			"OpenCL is caught: /lib/o, 0 devices; clGetPlatformIDs fails with -1001 (CL_PLATFORM_NOT_FOUND_KHR): ", "/etc/OpenCL/vendors"},
		{"cuda", probeResult{outcome: "caught", path: "/lib/c", detail: "cuInit fails with 100"}, "0 devices; cuInit fails with 100 (CUDA_ERROR_NO_DEVICE): CUDA finds no GPU", "--gpus all"},
		{"cuda", probeResult{outcome: "caught", path: "/lib/c", detail: "cuInit fails with 1"}, "0 devices; cuInit fails with 1", "without gpuarb"},
	} {
		d := &Doctor{}
		for _, a := range apis {
			if a.name == c.api {
				d.reportAPI(a, c.got)
			}
		}
		if f := d.findings[0]; f.Verdict != Note || f.Advice == nil || !strings.Contains(f.Text, c.text) || !strings.Contains(*f.Advice, c.advice) {
			t.Errorf("%+v: %+v", c.got, f)
		}
	}
}

// TestDevicesThatDoNotTellUse checks that doctor names the devices on which only calls count as use, if idle jobs make room for others: instances
// of MIG, devices of other vendors, and devices whose driver does not tell. Without such jobs it says nothing of that.
func TestDevicesThatDoNotTellUse(t *testing.T) {
	instance, tells := figures.DeviceState{Index: 1, Vendor: "nvidia", Name: "MIG 1g", Parent: new(0)}, 0
	state := figures.Snapshot{Version: version.Version, Devices: []figures.DeviceState{
		{Index: 0, Vendor: "nvidia", Name: "H100"}, instance, {Index: 2, Vendor: "amd", Name: "MI300"}, {Index: 3, Vendor: "nvidia", Name: "old"}},
		Leases: []figures.LeaseState{{Device: 0, State: figures.StateRunning, AgeSeconds: 60, Util: &tells}, {Device: 3, State: figures.StateRunning, AgeSeconds: 60}}}
	for text, want := range map[string]int{"[defaults]\nevict.how = \"hook\"\n": 3, "[[rule]]\n  evict.how = \"unit\"\n": 3, "evict.how = \"never\"\n": 0, "# evict.how = \"hook\"\n": 0, "": 0} {
		state.Config.Text = text
		found := examine(t, machine(t, nil), nil, &state)["idle"]
		if len(found) != want {
			t.Errorf("%q: %d devices are named, want %d: %v", text, len(found), want, found)
		}
		for i, f := range found {
			if name := []string{"device 1 (MIG 1g)", "device 2 (MI300)", "device 3 (old)"}[i]; f.Verdict != Note || !strings.Contains(f.Text, name) {
				t.Errorf("%q: finding %d is %v, want a note about %s", text, i, f, name)
			}
		}
	}
}
