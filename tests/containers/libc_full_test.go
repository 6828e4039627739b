//go:build full

package containers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file runs a container that has another C library than the machine.

// inMusl is a makefile that builds the test program and the simulated driver for musl.
const inMusl = `include tests/simcuda/build.mk
include tests/programs/build.mk
`

// TestFullPodmanMusl checks that a container with Debian's musl is refused one byte more than its budget. No test grants
// memory there: the simulated driver shares locks with the daemon's copy of it, and musl's locks differ from glibc's.
func TestFullPodmanMusl(t *testing.T) {
	b := newBox(t)
	makefile, build := filepath.Join(b.Dir, "musl.mk"), filepath.Join(b.Dir, "musl")
	if err := os.WriteFile(makefile, []byte(inMusl), 0o600); err != nil {
		t.Fatal(err)
	}
	made := bounded.Command(t, rig.Patience, "make", "-s", "-f", makefile, "CC=musl-gcc", "BUILD="+build, build+"/sim/libcuda.so.1", build+"/programs/cudaprog-dlsym")
	made.Dir = "../.."
	if out, err := made.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b.root = filepath.Join(b.Dir, "musl-root")
	for _, dir := range []string{"proc", "sys", "dev", "run", "tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(b.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	place(t, "/lib/ld-musl-x86_64.so.1", filepath.Join(b.root, "lib/ld-musl-x86_64.so.1"))
	place(t, build+"/sim/libcuda.so.1", filepath.Join(b.root, "usr/lib/libcuda.so.1"))
	place(t, build+"/programs/cudaprog-dlsym", filepath.Join(b.root, "cudaprog-dlsym"))
	p := b.Interact(b.in(b.run([]string{"-i", "--name", "one", "--device", "gpuarb.dev/memory=64M"}, "/cudaprog-dlsym")...))
	p.Want("alloc a 67108865", "err 2")
	if jobs := b.jobs(); !strings.Contains(jobs, "64MiB") {
		t.Errorf("the jobs are\n%s", jobs)
	}
	p.End()
}
