package shim

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A Vulkan program finds the library as a layer, installed or not, and layers that the user has set
// stay. launch_test.go tests all other variables.

// manifest writes a manifest for the Vulkan loader into a folder.
func manifest(t *testing.T, folder string) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "gpuarb_layer.json"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestLayer checks that GPUARB_VULKAN suffices if the Vulkan loader finds the manifest itself.
// Otherwise variables of the loader name the folder of the manifest too, beside the user's own
// folders. withoutLayer removes everything that withLayer added.
func TestLayer(t *testing.T) {
	root := t.TempDir()
	built, installed := root+"/build/vulkan", root+"/usr/share/vulkan/implicit_layer.d"
	manifest(t, built)
	manifest(t, installed)
	const on, ours = "GPUARB_VULKAN=1", "VK_LAYER_GPUARB_arbiter"
	for name, c := range map[string]struct {
		library    string
		base, want []string
	}{
		"installed":          {"/usr/lib/gpuarb/libgpuarb.so", []string{"XDG_DATA_DIRS=/x:" + root + "/usr/share/"}, []string{on}},
		"installed aside":    {"/usr/lib/gpuarb/libgpuarb.so", nil, []string{on, "VK_ADD_LAYER_PATH=" + installed, "VK_INSTANCE_LAYERS=" + ours}},
		"without a manifest": {"/other/libgpuarb.so", nil, []string{on}},
		"built":              {"/build/libgpuarb.so", nil, []string{on, "VK_ADD_LAYER_PATH=" + built, "VK_INSTANCE_LAYERS=" + ours}},
		"beside the user's": {
			"/build/libgpuarb.so", []string{"VK_ADD_LAYER_PATH=/a", "VK_INSTANCE_LAYERS=VK_LAYER_A"},
			[]string{on, "VK_ADD_LAYER_PATH=/a:" + built, "VK_INSTANCE_LAYERS=VK_LAYER_A:" + ours},
		},
		"in place of the loader's": {
			"/build/libgpuarb.so", []string{"VK_LAYER_PATH=/a:/b"},
			[]string{on, "VK_LAYER_PATH=/a:/b:" + built, "VK_INSTANCE_LAYERS=" + ours},
		},
	} {
		got := withLayer(c.base, root+c.library)
		want := c.want
		if strings.HasPrefix(name, "installed") {
			want = append(append([]string{}, c.base...), c.want...)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if again := withLayer(got, root+c.library); !slices.Equal(slices.Sorted(slices.Values(again)), slices.Sorted(slices.Values(got))) {
			t.Errorf("%s, a second time: %q, want %q", name, again, got)
		}
		if diff := cmp.Diff(c.base, withoutLayer(got), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s, taken out (-want +got):\n%s", name, diff)
		}
	}
}
