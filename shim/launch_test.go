package shim

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gpuarb/gpuarb/ipc"
)

func TestLaunchEnviron(t *testing.T) {
	launch := Launch{Library: "/l/libgpuarb.so", Socket: "/s", Job: ipc.Token{0x0a, 15: 0xf0}}
	const job = "GPUARB_JOB=0a0000000000000000000000000000f0"
	for name, c := range map[string]struct {
		device     string
		base, want []string
	}{
		"empty": {"", nil, []string{"LD_PRELOAD=/l/libgpuarb.so", "GPUARB_SOCKET=/s", job, "CUDA_DEVICE_ORDER=PCI_BUS_ID"}},
		"everything there": {
			"GPU-1",
			[]string{"A=1", "LD_PRELOAD=a.so b.so:/l/libgpuarb.so", "CUDA_DEVICE_ORDER=X", "GPUARB_JOB=old", "CUDA_VISIBLE_DEVICES=3", "GPUARB_JOB=older"},
			[]string{"A=1", "CUDA_DEVICE_ORDER=X", "LD_PRELOAD=/l/libgpuarb.so:a.so:b.so", "GPUARB_SOCKET=/s", job, "CUDA_VISIBLE_DEVICES=GPU-1"},
		},
	} {
		launch.Device = c.device
		base := slices.Clone(c.base)
		if diff := cmp.Diff(c.want, launch.Environ(base)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(c.base, base); diff != "" {
			t.Errorf("%s: the base was changed:\n%s", name, diff)
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
	find := func() (string, error) {
		return FindLibrary(filepath.Join(folder, "gpuarb"), func(string) string { return "" })
	}
	for name, text := range map[string][]byte{
		"not a shared object":                         []byte("short"),
		"not a shared object ":                        header(2, 2, machine),
		"a shared object of another kind of machine":  header(1, 3, machine),
		"a shared object of another kind of machine ": header(2, 3, 8),
	} {
		if err := os.WriteFile(beside, text, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := find()
		missing, ok := err.(*NoLibraryError)
		if !ok || missing.Tried[0].Path != beside || missing.Tried[0].Err.Error()+" " != name && missing.Tried[0].Err.Error() != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(beside, header(2, 3, machine), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := find(); err != nil || got != beside {
		t.Errorf("found %q, %v", got, err)
	}
}
