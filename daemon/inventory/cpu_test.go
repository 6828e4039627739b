package inventory

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/procfacts"
)

// This file checks when the processor is a device: if a driver of OpenCL or Vulkan that computes on it is installed
// and the environment does not rule that driver out. The folders of drivers are made by the tests.

// files writes files below a folder, by their paths.
func files(t *testing.T, root string, text map[string]string) {
	t.Helper()
	for name, content := range text {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestProcessorIsFoundByItsDrivers(t *testing.T) {
	root := t.TempDir()
	files(t, root, map[string]string{
		"pocl/pocl.icd": "libpocl.so.2\n", "pocl/other.icd": "libnvidia-opencl.so.1\n", "gpu/nvidia.icd": "libnvidia-opencl.so.1\n",
		"gpu/pocl.icd.disabled": "libpocl.so.2\n", "path/a.icd": "/usr/lib/pocl/libOther.so\n", "path/[x]/pocl.icd": "libpocl.so.2",
		"lvp/lvp_icd.x86_64.json": "{}", "radeon/radeon_icd.x86_64.json": "{}", "empty/x": "",
	})
	for _, c := range []struct {
		name           string
		openCL, vulkan string // folders of root that stand for the usual folders of drivers
		env            map[string]string
		found          bool
	}{
		{"nothing", "none", "none", nil, false},
		{"empty folders", "empty", "empty", nil, false},
		{"PoCL", "pocl", "none", nil, true},
		{"drivers of GPUs alone", "gpu", "radeon", nil, false},
		{"a library that only lies in a folder of that name", "path", "none", nil, false},
		{"lavapipe", "none", "lvp", nil, true},
		{"another folder of OpenCL's", "pocl", "none", map[string]string{"OCL_ICD_VENDORS": "ROOT/gpu"}, false},
		{"another folder that has it", "none", "none", map[string]string{"OCL_ICD_VENDORS": "ROOT/pocl"}, true},
		{"a folder with a name like a pattern", "none", "none", map[string]string{"OCL_ICD_VENDORS": "ROOT/path/[x]"}, true},
		{"one file", "none", "none", map[string]string{"OCL_ICD_VENDORS": "ROOT/pocl/pocl.icd"}, true},
		{"one file of another", "pocl", "none", map[string]string{"OCL_ICD_VENDORS": "ROOT/pocl/other.icd"}, false},
		{"one file of the usual folder", "pocl", "none", map[string]string{"OCL_ICD_VENDORS": "pocl.icd"}, true},
		{"a library", "none", "none", map[string]string{"OCL_ICD_VENDORS": "libpocl.so.2"}, true},
		{"a library that is not there", "pocl", "none", map[string]string{"OCL_ICD_VENDORS": "/dev/null"}, false},
		{"an empty variable", "pocl", "none", map[string]string{"OCL_ICD_VENDORS": ""}, true},
		{"a manifest", "none", "none", map[string]string{"VK_DRIVER_FILES": "ROOT/radeon/radeon_icd.x86_64.json:ROOT/lvp/lvp_icd.x86_64.json"}, true},
		{"a folder of manifests", "none", "none", map[string]string{"VK_DRIVER_FILES": "ROOT/lvp"}, true},
		{"another manifest", "none", "lvp", map[string]string{"VK_DRIVER_FILES": "ROOT/radeon/radeon_icd.x86_64.json"}, false},
		{"a manifest that is not there", "none", "lvp", map[string]string{"VK_DRIVER_FILES": "ROOT/none/lvp_icd.x86_64.json"}, false},
		{"the older variable", "none", "none", map[string]string{"VK_ICD_FILENAMES": "ROOT/lvp/lvp_icd.x86_64.json"}, true},
		{"the newer one counts", "none", "none", map[string]string{"VK_ICD_FILENAMES": "ROOT/lvp/lvp_icd.x86_64.json", "VK_DRIVER_FILES": "/dev/null"}, false},
	} {
		d := drivers{
			getenv: func(name string) string { return strings.ReplaceAll(c.env[name], "ROOT", root) },
			openCL: filepath.Join(root, c.openCL), vulkan: []string{filepath.Join(root, "empty"), filepath.Join(root, c.vulkan)},
		}
		if list := d.processor(procfacts.Here); (len(list) == 1) != c.found {
			t.Errorf("%s: %+v", c.name, list)
		}
	}
}

func TestProcessorIsDescribed(t *testing.T) {
	root, proc := t.TempDir(), t.TempDir()
	files(t, root, map[string]string{"pocl.icd": "libpocl.so.2\n"})
	files(t, proc, map[string]string{"meminfo": "MemTotal: 4096 kB\n"})
	d := drivers{getenv: func(string) string { return "" }, openCL: root}
	list := d.processor(procfacts.Root(proc))
	if len(list) != 1 {
		t.Fatalf("%+v", list)
	}
	want := Device{Index: accounting.ProcessorIndex, Vendor: "cpu", Name: "processor", UUID: "CPU-67707561-7262-3a70-726f-636573736f72", Total: 4 << 20}
	copy(want.UUIDBytes[:], "gpuarb:processor")
	if list[0].device != want {
		t.Errorf("%+v, want %+v", list[0].device, want)
	}
	if back, err := parseUUID("GPU-" + strings.TrimPrefix(want.UUID, "CPU-")); err != nil || back != want.UUIDBytes {
		t.Errorf("%v reads back as %v, %v", want.UUID, back, err)
	}
	if u, err := list[0].source.usage(); u.Lost || u.ProcessesKnown || u.Processes != nil || err != nil {
		t.Errorf("%+v, %v", u, err)
	}
	if list := d.processor(procfacts.Root(t.TempDir())); list != nil {
		t.Errorf("a machine that does not say how much memory it has: %+v", list)
	}
}

// TestProcessorComesLast checks that the processor is listed last, with an index that no GPU can have.
func TestProcessorComesLast(t *testing.T) {
	folder := t.TempDir()
	files(t, folder, map[string]string{"pocl.icd": "libpocl.so.2\n"})
	open := func(getenv func(string) string) []Device {
		inv := Open(Options{SysfsRoot: "testdata/mixed", Getenv: getenv})
		defer inv.Close()
		return inv.Devices()
	}
	gpus, all := open(noDrivers), open(func(string) string { return folder })
	if len(all) != len(gpus)+1 || !slices.Equal(all[:len(gpus)], gpus) {
		t.Fatalf("%+v, and without the processor %+v", all, gpus)
	}
	if last := all[len(gpus)]; last.Vendor != "cpu" || last.Index != accounting.ProcessorIndex {
		t.Errorf("%+v", last)
	}
}
