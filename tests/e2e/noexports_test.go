package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that a program which cannot run under the library's exported driver functions runs without them
// (--no-exports, or no_exports in a rule), and is limited nevertheless.

// TestVariablesNamedLikeFunctions checks a library that has variables with the names of driver
// functions. Under gpuarb's exports its program crashes, after a warning that names --no-exports.
// Without exports the program runs and is held to its budget.
func TestVariablesNamedLikeFunctions(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	library := filepath.Join(t.TempDir(), "libcuew.so")
	compile := func(args ...string) {
		t.Helper()
		if r := rig.Run(t, bounded.Command(t, rig.Patience, "gcc", append([]string{"-D_GNU_SOURCE", "-O1"}, args...)...)); r.Code != 0 {
			t.Fatalf("gcc: %s", r.Stderr)
		}
	}
	compile("-fPIC", "-shared", "-o", library, "testdata/cuew.c", "-ldl")
	for _, way := range []string{"linked", "opened"} {
		t.Run(way, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), way)
			if way == "linked" {
				compile("-DLINKED", "-o", program, "testdata/cuewmain.c", library, "-Wl,-rpath,"+filepath.Dir(library))
			} else {
				compile("-o", program, "testdata/cuewmain.c", "-ldl")
			}
			run := func(flags []string, bytes string) rig.Result {
				words := slices.Concat([]string{"run", "--memory", "1M"}, flags, []string{"--", program, library, bytes})
				return rig.Run(t, m.Gpuarb(words...))
			}
			got := run(nil, "1")
			if got.Code != 128+11 || !strings.Contains(got.Stderr, library) || strings.Count(got.Stderr, "gpuarb run --no-exports") != 1 {
				t.Errorf("with exports: status %d, want a crash and one line that names the library and the way out\n%s", got.Code, got.Stderr)
			}
			if got = run([]string{"--no-exports"}, "1048576"); got.Code != 0 || got.Stdout != "0\n" || strings.Contains(got.Stderr, "variable") {
				t.Errorf("without exports: status %d, %q\n%s", got.Code, got.Stdout, got.Stderr)
			}
			if got = run([]string{"--no-exports"}, "1048577"); got.Code != 0 || got.Stdout != "2\n" {
				t.Errorf("without exports, a byte more than the budget: status %d, %q\n%s", got.Code, got.Stdout, got.Stderr)
			}
			if got = rig.Run(t, m.Gpuarb("run", "--memory", "1M", "--", rig.Build(t, "gpuarb"), "run", "--no-exports", "--", program, library, "1048577")); got.Stdout != "2\n" {
				t.Errorf("inside another run: status %d, %q\n%s", got.Code, got.Stdout, got.Stderr)
			}
		})
	}
}

// TestRuleWithoutExports: a rule gives the programs that it matches, and their children, the library without exports.
// Other programs have the usual library. A flag of the command line overrides the rule, in both directions.
func TestRuleWithoutExports(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true,
		Config: "schema_version = 1\n[[rule]]\nname = \"cuew\"\nmatch.command = \"*--cuew*\"\nno_exports = true\n"})
	preloads := func(want string, args ...string) {
		t.Helper()
		shell := []string{"sh", "-c", `echo "$LD_PRELOAD"`}
		got := rig.Run(t, m.Gpuarb(slices.Concat(args, shell)...))
		if list := strings.Split(strings.TrimSpace(got.Stdout), ":"); got.Code != 0 || list[0] != rig.Build(t, want) || strings.Count(got.Stdout, "libgpuarb.so") != 1 {
			t.Errorf("gpuarb %v: status %d, LD_PRELOAD is %swant %s\n%s", args, got.Code, got.Stdout, want, got.Stderr)
		}
	}
	const usual, other = "libgpuarb.so", "no-exports/libgpuarb.so"
	gpuarb := rig.Build(t, "gpuarb")
	preloads(usual, "run", "--")
	preloads(other, "run", "--name", "x--cuew", "--")
	preloads(usual, "run", "--name", "x--cuew", "--no-exports=false", "--")
	preloads(other, "run", "--name", "x--cuew", "--", gpuarb, "run", "--")
	preloads(usual, "run", "--name", "x--cuew", "--", gpuarb, "run", "--no-exports=false", "--")
	preloads(other, "run", "--no-exports", "--", gpuarb, "run", "--")
	preloads(other, "claim", "--exec", "env", "MARK=--cuew")
	preloads(usual, "claim", "--exec")

	library := filepath.Join(t.TempDir(), "libcuew.so")
	program := filepath.Join(t.TempDir(), "--cuew")
	for _, args := range [][]string{{"-fPIC", "-shared", "-o", library, "testdata/cuew.c", "-ldl"}, {"-o", program, "testdata/cuewmain.c", "-ldl"}} {
		if r := rig.Run(t, bounded.Command(t, rig.Patience, "gcc", append([]string{"-D_GNU_SOURCE", "-O1"}, args...)...)); r.Code != 0 {
			t.Fatalf("gcc: %s", r.Stderr)
		}
	}
	for bytes, want := range map[string]string{"1048576": "0\n", "1048577": "2\n"} {
		if got := rig.Run(t, m.Gpuarb("run", "--memory", "1M", "--", program, library, bytes)); got.Code != 0 || got.Stdout != want {
			t.Errorf("%s bytes of 1M: status %d, %q\n%s", bytes, got.Code, got.Stdout, got.Stderr)
		}
	}
}

// TestLookUpsWithoutExports checks that without exports a program is limited in whichever way it
// looks up the driver's functions.
func TestLookUpsWithoutExports(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	for _, how := range []string{"plain", "version", "oldest", "default", "again"} {
		p := m.Interact(m.Gpuarb("run", "--memory", "1M", "--no-exports", "--", rig.Build(t, "programs/loader"), "drive", "libcuda.so.1", how))
		p.Want("alloc 1048576", "ok")
		p.Want("alloc 1", "err 2")
		p.End()
	}
}

// TestWeakReferenceWithoutDriver checks a weak reference to a driver function on a machine without a driver. With
// exports it is the library's function, which returns CUDA_ERROR_NOT_FOUND; without exports it is NULL.
func TestWeakReferenceWithoutDriver(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "weak")
	if r := rig.Run(t, bounded.Command(t, rig.Patience, "gcc", "-o", program, "testdata/weak.c")); r.Code != 0 {
		t.Fatalf("gcc: %s", r.Stderr)
	}
	for library, want := range map[string]string{"": "missing\n", "libgpuarb.so": "500\n", "no-exports/libgpuarb.so": "missing\n"} {
		var env []string
		if library != "" {
			env = []string{"LD_PRELOAD=" + rig.Build(t, library)}
		}
		got, err := runOrdinary(rig.Patience, t.TempDir(), env, program)
		if err != nil || got.stdout != want {
			t.Errorf("with %q: %v, %+v, want %q", library, err, got, want)
		}
	}
}
