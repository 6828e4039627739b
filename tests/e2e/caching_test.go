package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that --wait and allocators that keep freed memory get on with each other: the first request that would wait is refused, so
// that the allocator frees its cache, and the next one waits. The allocators are numba's, and testdata/caching.c in place of PyTorch's. The
// oracle is the program's own account of what the driver gave it and refused it.

// compiled returns a C program or library of testdata, built with gcc.
func compiled(t *testing.T, name string, args ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	if r := rig.Run(t, bounded.Command(t, rig.Patience, "gcc", append(args, "-D_GNU_SOURCE", "-O1", "-o", out)...)); r.Code != 0 {
		t.Fatalf("gcc: %s", r.Stderr)
	}
	return out
}

// TestNumbaFreesItsCacheBeforeItWaits: numba keeps 3 GiB that its program has freed, and wants 4 GiB. Another program holds 3 GiB of the
// 8 GiB and does nothing. So numba's request fits as soon as numba frees what it keeps.
func TestNumbaFreesItsCacheBeforeItWaits(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G"})
	holder := m.Interact(m.Gpuarb("run", "--", cudaprog(t, "dlsym"), "-"))
	holder.Want("alloc a 3G", "ok")
	numba := func(flags ...string) *rig.Program {
		cmd := m.Gpuarb(append(append([]string{"run"}, flags...), "--", python(), "testdata/numba_cache.py", "3221225472", "4294967296")...)
		cmd.Env = append(cmd.Env, "NUMBA_CUDA_MAX_PENDING_DEALLOCS_RATIO=1")
		p := m.Begin(cmd)
		if line := p.Line(); line != "freed 3221225472" {
			t.Fatalf("%s\n%s", line, p.Stderr())
		}
		return p
	}
	p := numba("--wait")
	if line := p.Line(); line != "has 4294967296" {
		t.Fatalf("%s\n%s", line, p.Stderr())
	}
	p.CloseStdin()
	if status := p.Wait(); status != 0 {
		t.Fatalf("exit status %d\n%s", status, p.Stderr())
	}
	if said := "refused so that caches of freed memory are dropped (wait_after), and the next request waits"; !strings.Contains(p.Stderr(), said) {
		t.Errorf("%q is not in\n%s", said, p.Stderr())
	}

	// Turned off, numba waits with its full cache until the other program frees something.
	p = numba("--wait", "--refuse-first=false")
	rig.Eventually(t, "numba waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	holder.Want("free a", "ok")
	if line := p.Line(); line != "has 4294967296" {
		t.Fatalf("%s\n%s", line, p.Stderr())
	}
}

// TestWhichAllocatorsAreRefusedFirst: a program takes 2 GiB where 1 GiB is free. A file that it has loaded, the rule and the flags decide
// whether that is refused at first. The next request waits either way.
func TestWhichAllocatorsAreRefusedFirst(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: `schema_version = 1
[[rule]]
name = "off"
match.command = "* off"
on_full = "wait"
wait_after = 0
[[rule]]
name = "three"
match.command = "* three"
on_full = "wait"
wait_after = 3
`})
	program := compiled(t, "caching", "testdata/caching.c", "-ldl")
	library := compiled(t, "library.so", "-shared", "-fPIC", "-x", "c", "/dev/null")
	holder := m.Interact(m.Gpuarb("run", "--", cudaprog(t, "dlsym"), "-"))
	holder.Want("alloc a 6G", "ok")
	holder.Want("alloc b 1G", "ok")
	text, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		loaded   string // file that the program loads, below a folder of its own
		argument string
		flags    []string
		refused  int
	}{
		{"PyTorch", "site-packages/torch/lib/libc10_cuda.so", "", []string{"--wait"}, 1},
		{"CuPy", "dist-packages/cupy/cuda/memory.so", "", []string{"--wait"}, 1},
		{"numba", "site-packages/llvmlite/binding/libllvmlite.so", "", []string{"--wait"}, 1},
		{"JAX", "site-packages/jaxlib/xla_extension.so", "", []string{"--wait"}, 1},
		{"TensorFlow", "x/libtensorflow_framework.so.2", "", []string{"--wait"}, 1},
		{"a user whose name is one", "cupy/program.so", "", []string{"--wait"}, 0},
		{"a name that is longer", "x/libc10_cudaless.so", "", []string{"--wait"}, 0},
		{"no allocator", "", "", []string{"--wait"}, 0},
		{"no allocator, but the flag", "", "", []string{"--wait", "--refuse-first"}, 1},
		{"the flag inside a job", "", "", []string{"--wait", "--", rig.Build(t, "gpuarb"), "run", "--refuse-first"}, 1},
		{"the flag turns it off", "x/libc10_cuda.so", "", []string{"--wait", "--refuse-first=false"}, 0},
		{"the rule turns it off", "x/libc10_cuda.so", "off", nil, 0},
		{"the flag before the rule", "", "off", []string{"--refuse-first"}, 1},
		{"the rule", "", "three", nil, 3},
		{"turned off before the rule", "", "three", []string{"--refuse-first=false"}, 0},
	} {
		args := append(append([]string{"run"}, c.flags...), "--", program)
		if c.argument != "" {
			args = append(args, c.argument)
		}
		p := m.Begin(m.Gpuarb(args...))
		ask := func(command, want string) {
			t.Helper()
			if p.Tell(command); want != "" {
				if got := p.Line(); got != want {
					t.Fatalf("%s: %s: %s, want %s\n%s", c.name, command, got, want, p.Stderr())
				}
			}
		}
		ask("plain", "plain now")
		ask("take 512", "took") // the session and the lease exist before the library is loaded
		if c.loaded != "" {
			path := filepath.Join(t.TempDir(), c.loaded)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, text, 0o755); err != nil {
				t.Fatal(err)
			}
			ask("load "+path, "loaded")
		}
		// A second burst follows the grant of the first.
		for range 2 {
			for range c.refused {
				ask("take 1024", "err 2")
			}
			ask("take 1024", "")
			rig.Eventually(t, c.name+": the request waits", func() bool { return len(m.Snapshot().Queue) == 1 })
			holder.Want("free b", "ok")
			if got := p.Line(); got != "took" {
				t.Fatalf("%s: %s\n%s", c.name, got, p.Stderr())
			}
			ask("give", "given")
			ask("empty", "emptied")
			holder.Want("alloc b 1G", "ok")
		}
		p.CloseStdin()
		if status := p.Wait(); status != 0 {
			t.Errorf("%s: exit status %d\n%s", c.name, status, p.Stderr())
		}
	}
}

// TestBurstEndsWithAGrant: a program whose cache is dropped goes on with that memory, without any request to the daemon. When it lacks room
// the next time, its cache is full again, and is dropped again.
func TestBurstEndsWithAGrant(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	program := compiled(t, "caching", "testdata/caching.c", "-ldl")
	holder := m.Interact(m.Gpuarb("run", "--", cudaprog(t, "dlsym"), "-"))
	holder.Want("alloc a 5G", "ok")
	p := m.Begin(m.Gpuarb("run", "--wait", "--refuse-first", "--", program))
	for round, want := range []string{"took", "took again", "took again", "took again"} {
		p.Tell("take 2048")
		if got := p.Line(); got != want {
			t.Fatalf("round %d: %s, want %s\n%s", round, got, want, p.Stderr())
		}
		p.Tell("give")
		if got := p.Line(); got != "given" {
			t.Fatal(got)
		}
	}
}

// TestDriverRefusesWithinABurst: a program's first request is refused, and its cache is dropped. The next request is granted, but the driver
// lacks the memory, because a program without gpuarb has just taken it. The burst is not over: the request waits instead of being refused.
func TestDriverRefusesWithinABurst(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	holder := m.Interact(m.Gpuarb("run", "--", cudaprog(t, "dlsym"), "-"))
	holder.Want("alloc a 5G", "ok")
	p := m.Begin(m.Gpuarb("run", "--wait", "--refuse-first", "--", compiled(t, "caching", "testdata/caching.c", "-ldl")))
	says := func(want string) {
		t.Helper()
		if got := p.Line(); got != want {
			t.Fatalf("%s, want %s\n%s", got, want, p.Stderr())
		}
	}
	p.Tell("take 1024")
	says("took")
	p.Tell("give")
	says("given")
	m.Sim("hang", "0") // from now on no reading shows what the stranger takes
	stranger := m.Interact(m.Command(m.Env(), cudaprog(t, "dlsym"), "-"))
	stranger.Want("alloc a 1G", "ok")
	p.Tell("take 2500") // also fits beside a context that no reading has shown
	rig.Eventually(t, "the driver has refused the program", func() bool { return m.SimNumber("lacked", "0") == 1 })
	m.Sim("answer", "0")
	rig.Eventually(t, "the program waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	stranger.End()
	says("took again")
}
