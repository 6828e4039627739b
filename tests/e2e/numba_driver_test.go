package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that numba's own tests of its CUDA driver layer have the same results under the library as without
// it. numba_test.go has numba's limits.

// driverTests are the modules of numba's own tests that need a driver. Their tests that
// compile kernels fail, because there is no compiler.
var driverTests = []string{
	"test_array_attr", "test_context_stack", "test_cuda_array_slicing", "test_cuda_auto_context",
	"test_cuda_devicerecord", "test_cuda_driver", "test_cuda_memory", "test_cuda_ndarray",
	"test_deallocations", "test_detect", "test_emm_plugins", "test_events", "test_host_alloc",
	"test_linker", "test_managed_alloc", "test_pinned", "test_profiler", "test_reset_device",
	"test_runtime", "test_select_device", "test_streams",
}

// results runs the tests and returns the result of each.
func results(t *testing.T, m *rig.Machine, env []string) map[string]string {
	script, err := filepath.Abs("testdata/numba_results.py")
	if err != nil {
		t.Fatal(err)
	}
	cmd := m.Command(append(env, "NUMBA_CACHE_DIR="+m.Dir), python(), append([]string{script}, driverTests...)...)
	cmd.Dir = m.Dir
	r := rig.RunFor(t, bounded.Lifetime, cmd)
	if r.Code != 0 {
		t.Errorf("exit status %d\n%s", r.Code, r.Stderr)
	}
	ended := map[string]string{}
	for line := range strings.Lines(r.Stdout) {
		test, result, _ := strings.Cut(strings.TrimSpace(line), " ")
		ended[test] = result
	}
	return ended
}

// TestNumbasOwnDriverTests checks that each of these tests has the same result under the preload as without it,
// and that most of them succeed.
func TestNumbasOwnDriverTests(t *testing.T) {
	t.Parallel()
	var bare, shim map[string]string
	t.Run("run", func(t *testing.T) {
		t.Run("bare", func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: "512M", NoMount: true, Stopped: true})
			bare = results(t, m, m.Env())
		})
		t.Run("preload", func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: "512M", NoMount: true})
			shim = results(t, m, m.PreloadEnv())
			rig.Eventually(t, "the lease ends", func() bool { return len(m.Snapshot().Leases) == 0 })
			if held := m.SimNumber("used", "0"); held != 0 {
				t.Errorf("the driver still holds %d bytes", held)
			}
		})
	})
	well := 0
	for test, want := range bare {
		if got := shim[test]; got != want {
			t.Errorf("%s: %q with the preload, %q without", test, got, want)
		}
		if want == "ok" {
			well++
		}
	}
	if len(shim) != len(bare) || well < 120 || 3*well < 2*len(bare) {
		t.Errorf("%d tests with the preload, %d without, of which %d ended well", len(shim), len(bare), well)
	}
}
