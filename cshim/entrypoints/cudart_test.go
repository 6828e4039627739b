//go:build cudart

package entrypoints

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks the shim under NVIDIA's own CUDA runtime, on the vendor's libcuda, without a device.
// libcuda_test.go asks that libcuda without a runtime.

// acquires lists functions by which every runtime since 11.2 acquires and releases memory, streams
// and contexts, or reads free memory.
var acquires = []string{
	"cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemAllocManaged", "cuMemAllocAsync", "cuMemAllocAsync_ptsz",
	"cuMemHostAlloc", "cuArrayCreate_v2", "cuArray3DCreate_v2", "cuMipmappedArrayCreate", "cuMemFree_v2",
	"cuMemFreeAsync", "cuMemGetInfo_v2", "cuDeviceTotalMem_v2", "cuMemPoolCreate", "cuStreamCreate",
	"cuGraphInstantiate_v2", "cuGraphLaunch", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxReset",
}

// TestRealRuntime compares NVIDIA's own runtime with and without the shim. With the shim it must
// get the driver's functions, or their wrappers, and its calls must return the same results. It
// needs no device. CUDART_FOLDERS and LIBCUDA_FOLDERS name the folders of both;
// tools/test-cudart.sh fetches them.
func TestRealRuntime(t *testing.T) {
	runtimes, drivers := filepath.SplitList(os.Getenv("CUDART_FOLDERS")), filepath.SplitList(os.Getenv("LIBCUDA_FOLDERS"))
	if len(runtimes) == 0 || len(drivers) == 0 {
		t.Fatal("CUDART_FOLDERS or LIBCUDA_FOLDERS names none; run make test-cudart")
	}
	hooked := readTable(t).hooked
	for _, runtime := range runtimes {
		program := filepath.Join(t.TempDir(), "runtime")
		compile(t, "-std=c11", "-D_GNU_SOURCE", "-O2", "-rdynamic", "-o", program,
			filepath.FromSlash("../test/runtime.c"), runtimeIn(t, runtime), "-ldl", "-Wl,-rpath,"+runtime)
		for _, driver := range drivers {
			t.Run(filepath.Base(runtime)+" on "+filepath.Base(driver), func(t *testing.T) {
				bare := runtimeOn(t, driver, program)
				compare(t, hooked, bare, runtimeOn(t, driver, program, shim(t)), 40)
				checkAcquires(t, bare)
			})
		}
	}
}

func runtimeIn(t *testing.T, folder string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, "libcudart.so.*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v; want one runtime", folder, found, err)
	}
	return found[0]
}

func runtimeOn(t *testing.T, driver, program string, shim ...string) []string {
	t.Helper()
	cmd := bounded.Command(t, patience, program, shim...)
	cmd.Env = []string{"LD_LIBRARY_PATH=" + driver, "LD_PRELOAD=" + strings.Join(shim, ":")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("runtime: %v\n%.2000s", err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// checkAcquires checks that the runtime asked for the functions by which it acquires.
func checkAcquires(t *testing.T, lines []string) {
	t.Helper()
	for _, symbol := range acquires {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasSuffix(line, " driver:"+symbol) }) {
			t.Errorf("the runtime did not get %s", symbol)
		}
	}
	if calls := lines[len(lines)-1]; !strings.HasPrefix(calls, "call cudaDeviceReset ") {
		t.Errorf("the program ended with %q", calls)
	}
}
