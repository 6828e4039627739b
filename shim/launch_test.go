package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gpuarb/gpuarb/ipc"
)

// A program starts with the library, in its job, and sees only the devices of the job; its other
// variables stay. The library and the probe are searched in fixed folders, and a message names what
// was tried. vulkan_test.go tests the variables of Vulkan.

func TestLaunchEnviron(t *testing.T) {
	launch := Launch{Library: "/l/libgpuarb.so", Socket: "/s", Job: ipc.Token{0x0a, 15: 0xf0}}
	const (
		job  = "GPUARB_JOB=0a0000000000000000000000000000f0"
		asan = "ASAN_OPTIONS=verify_asan_link_order=0"
	)
	for name, c := range map[string]struct {
		devices    []ipc.JobDevice
		base, want []string
	}{
		"empty": {nil, nil, []string{"LD_PRELOAD=/l/libgpuarb.so", asan, "GPUARB_VULKAN=1", "GPUARB_SOCKET=/s", job, "CUDA_DEVICE_ORDER=PCI_BUS_ID"}},
		"everything there": {
			nil,
			[]string{"A=1", "LD_PRELOAD=a.so b.so:/l/libgpuarb.so", "CUDA_DEVICE_ORDER=X", "GPUARB_JOB=old", "CUDA_VISIBLE_DEVICES=3", "GPUARB_JOB=older"},
			[]string{"A=1", "CUDA_DEVICE_ORDER=X", "CUDA_VISIBLE_DEVICES=3", "LD_PRELOAD=/l/libgpuarb.so:a.so:b.so", "GPUARB_VULKAN=1", "GPUARB_SOCKET=/s", job},
		},
		"options of a sanitizer": {
			nil,
			[]string{"ASAN_OPTIONS=detect_leaks=0", "LD_PRELOAD=/l/libgpuarb.so", "CUDA_DEVICE_ORDER=X"},
			[]string{"CUDA_DEVICE_ORDER=X", "LD_PRELOAD=/l/libgpuarb.so", "ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0", "GPUARB_VULKAN=1", "GPUARB_SOCKET=/s", job},
		},
		"the order of a sanitizer's libraries": {
			nil,
			[]string{"ASAN_OPTIONS=verify_asan_link_order=1", "CUDA_DEVICE_ORDER=X"},
			[]string{"ASAN_OPTIONS=verify_asan_link_order=1", "CUDA_DEVICE_ORDER=X", "LD_PRELOAD=/l/libgpuarb.so", "GPUARB_VULKAN=1", "GPUARB_SOCKET=/s", job},
		},
		"a device": {
			[]ipc.JobDevice{{Vendor: ipc.VendorNVIDIA, UUID: ipc.UUID{0xab}}},
			[]string{"CUDA_DEVICE_ORDER=X", "CUDA_VISIBLE_DEVICES=3", "ROCR_VISIBLE_DEVICES=0", "HIP_VISIBLE_DEVICES=1"},
			[]string{"LD_PRELOAD=/l/libgpuarb.so", asan, "GPUARB_VULKAN=1", "GPUARB_SOCKET=/s", job, "CUDA_DEVICE_ORDER=PCI_BUS_ID",
				"CUDA_VISIBLE_DEVICES=GPU-ab000000-0000-0000-0000-000000000000", "ROCR_VISIBLE_DEVICES=", "ZE_AFFINITY_MASK="},
		},
	} {
		launch.Devices = c.devices
		base := slices.Clone(c.base)
		if diff := cmp.Diff(c.want, launch.Environ(base)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(c.base, base); diff != "" {
			t.Errorf("%s: the base was changed:\n%s", name, diff)
		}
	}
}

// TestVisible checks that each vendor's variable has the devices of that vendor, and that the
// others are empty.
func TestVisible(t *testing.T) {
	amd := ipc.UUID([]byte("7ab3c1d2e4f50617"))
	for _, c := range []struct {
		devices          []ipc.JobDevice
		cuda, rocr, zero string
	}{
		{[]ipc.JobDevice{{Vendor: ipc.VendorNVIDIA, Ordinal: 2}}, "2", "", ""},
		{[]ipc.JobDevice{{Vendor: ipc.VendorAMD, Index: 5, Ordinal: 1}}, "", "1", ""},
		{[]ipc.JobDevice{{Vendor: ipc.VendorAMD, Index: 5, Ordinal: 1, UUID: amd}}, "", "GPU-7ab3c1d2e4f50617", ""},
		{[]ipc.JobDevice{{Vendor: ipc.VendorIntel, Index: 7}}, "", "", "0"},
		{[]ipc.JobDevice{{Vendor: ipc.VendorIntel, Ordinal: 3}, {Vendor: ipc.VendorNVIDIA, UUID: ipc.UUID{1}}, {Vendor: ipc.VendorIntel}},
			"GPU-01000000-0000-0000-0000-000000000000", "", "3,0"},
	} {
		env := visible([]string{"GPU_DEVICE_ORDINAL=1", "ZE_AFFINITY_MASK=9"}, c.devices)
		want := []string{"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=" + c.cuda, "ROCR_VISIBLE_DEVICES=" + c.rocr, "ZE_AFFINITY_MASK=" + c.zero}
		if diff := cmp.Diff(want, env); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.devices, diff)
		}
	}
}

func TestLibraryPaths(t *testing.T) {
	none := func(string) string { return "" }
	want := []string{
		"/opt/bin/libgpuarb.so", "/opt/lib/gpuarb/libgpuarb.so",
		"/usr/local/lib/gpuarb/libgpuarb.so", "/usr/lib/gpuarb/libgpuarb.so", "/usr/lib/" + multiarch() + "/gpuarb/libgpuarb.so",
	}
	if diff := cmp.Diff(want, LibraryPaths("/opt/bin/gpuarb", none)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := LibraryPaths("/usr/bin/gpuarb", none); len(got) != 4 {
		t.Errorf("a path comes twice: %q", got)
	}
	named := func(string) string { return "/x/lib.so" }
	if diff := cmp.Diff([]string{"/x/lib.so"}, LibraryPaths("/opt/bin/gpuarb", named)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFindLibrary(t *testing.T) {
	folder := t.TempDir()
	machine := byte(62)
	if multiarch() == "aarch64-linux-gnu" {
		machine = 183
	}
	header := func(class, kind, machine byte) []byte {
		head := make([]byte, 64)
		copy(head, "\x7fELF")
		head[4], head[5], head[16], head[18] = class, 1, kind, machine
		return head
	}
	beside := filepath.Join(folder, LibraryName)
	named := func(string) string { return beside } // GPUARB_LIB names it, so that an installed library is not found
	for name, text := range map[string][]byte{
		"not a shared object":                         []byte("short"),
		"not a shared object ":                        header(2, 2, machine),
		"a shared object of another kind of machine":  header(1, 3, machine),
		"a shared object of another kind of machine ": header(2, 3, 8),
	} {
		if err := os.WriteFile(beside, text, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := FindLibrary("", named)
		want := fmt.Sprintf("no %s that can be preloaded (tried %s: %s)", LibraryName, beside, strings.TrimSpace(name))
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(beside, header(2, 3, machine), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := FindLibrary(filepath.Join(folder, "gpuarb"), func(string) string { return "" }); err != nil || got != beside {
		t.Errorf("found %q, %v", got, err)
	}
}

// TestFindProbe checks that the probe is found in the folders of the library, and must be a
// program.
func TestFindProbe(t *testing.T) {
	folder := t.TempDir()
	probe := filepath.Join(folder, probeName)
	named := func(string) string { return filepath.Join(folder, LibraryName) }
	_, err := FindProbe("", named)
	if want := fmt.Sprintf("no %s (tried %s: no such file or directory)", probeName, probe); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	for mode, want := range map[os.FileMode]string{0o644: "", 0o755: probe} {
		_ = os.Remove(probe)
		if err := os.WriteFile(probe, nil, mode); err != nil {
			t.Fatal(err)
		}
		if got, err := FindProbe("", named); got != want || (err == nil) != (want != "") {
			t.Errorf("mode %v: %q, %v", mode, got, err)
		}
	}
}
