package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/version"
)

// machine is a root folder with the files given, by path.
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

// examine looks at a machine, and returns the findings by their check.
func examine(t *testing.T, root string, env map[string]string) map[string][]finding {
	t.Helper()
	d := &doctor{
		app: &app{
			stdout: new(bytes.Buffer), stderr: new(bytes.Buffer), executable: "/nowhere/bin/gpuarb",
			getenv: func(name string) string { return env[name] },
		},
		root:     root,
		patience: 5 * time.Second,
	}
	byCheck := map[string][]finding{}
	for _, f := range d.examine() {
		byCheck[f.Check] = append(byCheck[f.Check], f)
	}
	return byCheck
}

const mountTable = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" +
	"90 22 0:50 / /gpu rw,nosuid - fuse.gpuarb gpuarb rw\n" +
	"91 22 0:51 / /home/a\\040b/gpu rw - fuse gpuarb rw\n" +
	"92 22 0:52 / /mnt rw - fuse.sshfs host: rw\n"

func TestDoctorHealthy(t *testing.T) {
	daemon := startDaemon(t, func(d *fakeDaemon) { d.state.Version = version.Version })
	library := testLibrary(t)
	driver, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	root := machine(t, map[string]string{
		"proc/self/mountinfo":        mountTable,
		"gpu/version":                version.Version + "\n",
		"home/a b/gpu/version":       version.Version + "\n",
		"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.1  now\nGCC\n",
		"opt/libcuda.so.1":           string(driver),
		"etc/ld.so.cache":            "glibc-ld.so.cache1.1\x00junk\x00libcuda.so.1\x00/opt/libcuda.so.1\x00libm.so.6\x00/x\x00",
	})
	got := examine(t, root, map[string]string{"GPUARB_SOCKET": daemon.socket, "GPUARB_LIB": library})
	for check, text := range map[string]string{
		"daemon":  "answers at " + daemon.socket,
		"version": "gpuarb and the daemon are " + version.Version,
		"devices": listDevices(twoDevices()),
		"driver":  root + "/opt/libcuda.so.1; kernel: NVIDIA UNIX x86_64 Kernel Module 550.1 now",
		"shim":    library + " loads",
		"mount":   "/gpu is alive, version " + version.Version,
	} {
		if len(got[check]) == 0 || got[check][0].Verdict != fine || got[check][0].Text != text {
			t.Errorf("%s: %+v\nwant %s", check, got[check], text)
		}
	}
	if mounts := got["mount"]; len(mounts) != 2 || mounts[1].Verdict != fine || !strings.HasPrefix(mounts[1].Text, "/home/a b/gpu is") {
		t.Errorf("mounts: %+v", mounts)
	}
	if got["catches"][0].Verdict != unknown {
		t.Errorf("a library without any function of CUDA: %+v", got["catches"])
	}
}

func TestDoctorQueries(t *testing.T) {
	for value, want := range map[string]verdict{"": fine, "1": fine, "0": note} {
		f := examine(t, machine(t, nil), map[string]string{"GPUARB_VIRTUALIZE": value})["queries"]
		if len(f) != 1 || f[0].Verdict != want || !strings.Contains(f[0].Text, "GPUARB_VIRTUALIZE=0") {
			t.Errorf("GPUARB_VIRTUALIZE=%q: %+v", value, f)
		}
	}
}

func TestDoctorSick(t *testing.T) {
	daemon := startDaemon(t, func(d *fakeDaemon) { d.state.Devices = nil })
	root := machine(t, map[string]string{"proc/self/mountinfo": mountTable, "gpu/version": "1.0\n", "dev/fuse": ""})
	got := examine(t, root, map[string]string{"GPUARB_SOCKET": daemon.socket, "LD_LIBRARY_PATH": "/no:", "GPUARB_LIB": "/nowhere/libgpuarb.so"})
	for check, want := range map[string]finding{
		"daemon":  {Verdict: fine, Text: "answers at " + daemon.socket},
		"version": {Verdict: note, Text: "gpuarb is " + version.Version + ", the daemon is 9.9"},
		"devices": {Verdict: wrong, Text: "the daemon knows no GPU on this machine"},
		"driver":  {Verdict: wrong, Text: "the dynamic linker finds no libcuda.so.1 (LD_LIBRARY_PATH, its cache, the standard folders)"},
		"shim":    {Verdict: wrong, Text: "no libgpuarb.so that can be preloaded (tried /nowhere/libgpuarb.so: no such file or directory)"},
		"catches": {Verdict: unknown, Text: "needs both the driver and the shim"},
		"fuse":    {Verdict: note, Text: "/dev/fuse is no device"},
		"mount":   {Verdict: wrong, Text: `/gpu is served by version "1.0", the daemon is "9.9"`},
	} {
		f := got[check][0]
		if f.Verdict != want.Verdict || !strings.HasPrefix(f.Text, want.Text) {
			t.Errorf("%s: %+v\nwant %+v", check, f, want)
		}
		if f.Verdict == wrong && f.Advice == "" {
			t.Errorf("%s: no advice on %s", check, f.Text)
		}
	}
}

func TestDoctorWithoutDaemon(t *testing.T) {
	got := finish(t, gpuarb(t, []string{"GPUARB_SOCKET=/no/socket"}, "doctor"))
	wantCode(t, got, 1)
	if !strings.HasPrefix(got.stdout, "wrong   daemon   no gpuarb daemon answers (tried /no/socket: no such file or directory)") ||
		!strings.Contains(got.stdout, "\n                 → systemctl status gpuarbd") || got.stderr != "" {
		t.Errorf("%v", got)
	}
	got = finish(t, gpuarb(t, []string{"GPUARB_SOCKET=/no/socket"}, "doctor", "--json"))
	wantCode(t, got, 1)
	var findings []finding
	if err := json.Unmarshal([]byte(got.stdout), &findings); err != nil || len(findings) < 9 || findings[0].Verdict != wrong {
		t.Errorf("%v: %+v", err, findings)
	}
}

// A library that cannot be loaded is noticed by the linker's own words.
func TestDoctorBrokenShim(t *testing.T) {
	text, err := os.ReadFile(testLibrary(t))
	if err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "lib.so")
	if err := os.WriteFile(broken, text[:4096], 0o755); err != nil {
		t.Fatal(err)
	}
	got := examine(t, t.TempDir(), map[string]string{"GPUARB_SOCKET": "/no/socket", "GPUARB_LIB": broken})
	if f := got["shim"][0]; f.Verdict != wrong || !strings.HasPrefix(f.Text, broken+" does not load: ") {
		t.Errorf("%+v", f)
	}
}

func TestDoctorCatches(t *testing.T) {
	for _, c := range []struct {
		missed string
		dlsym  bool
		want   verdict
	}{
		{"", true, fine},
		{"cuMemCreate cuArrayCreate_v2", true, note},
		{"cuMemCreate cuMemAllocAsync_v3", true, wrong},
		{"cuGetProcAddress_v3", true, wrong},
		{"", false, wrong},
	} {
		d := &doctor{}
		d.judgeCatches(strings.Fields(c.missed), c.dlsym)
		if got := d.findings[0]; got.Verdict != c.want {
			t.Errorf("%s, dlsym %v: %+v, want %s", c.missed, c.dlsym, got, c.want)
		}
	}
	for name, want := range map[string]bool{
		"cuMemAlloc_v2": true, "cuMemAllocAsync_ptsz": true, "cuMemCreate": true, "cuArray3DCreate_v2": true,
		"cuStreamCreateWithPriority": true, "cuGetProcAddress_v2": true,
		"cuMemAllocHost_v2": false, "cuMemHostAlloc": false, "cuMemFree_v2": false, "cuStreamQuery": false,
	} {
		if taking.MatchString(name) != want {
			t.Errorf("%s is taken for one that takes memory or streams: %v", name, !want)
		}
	}
}
