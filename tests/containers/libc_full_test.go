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

// This file plays containers whose C library is another than the machine's.

// inMusl makes the test program and the driver for musl.
const inMusl = `include tests/simcuda/build.mk
include tests/programs/build.mk
`

// TestFullPodmanMusl refuses programs in a container of Debian's musl what is more than its budget. The simulated driver
// cannot grant memory there, because the locks that it shares with the daemon's are those of another C library.
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
