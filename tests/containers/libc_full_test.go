//go:build full

package containers

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file runs containers that have another C library than the machine: musl, and the oldest glibc that the library
// supports. The driver and the test program in them are built with that C library.

// inMusl is a makefile that builds the test program and the simulated driver for musl.
const inMusl = `include tests/simcuda/build.mk
include tests/programs/build.mk
`

// compiling is the longest time for building the driver and the test program on a busy machine, and for making a root
// folder from packages of Debian's archive.
var compiling = 20 * rig.Patience

// preload is the variable that a device sets.
const preload = "LD_PRELOAD=/usr/lib/gpuarb/libgpuarb.so"

// musl makes the box's root folder for containers: it has only Debian's musl, the driver and the test program.
func (b *box) musl() {
	t := b.T
	t.Helper()
	makefile, build := filepath.Join(b.Dir, "musl.mk"), filepath.Join("build", "musl")
	if err := os.WriteFile(makefile, []byte(inMusl), 0o600); err != nil {
		t.Fatal(err)
	}
	made := bounded.Command(t, compiling, "make", "-s", "-f", makefile, "CC=musl-gcc", "BUILD="+build, build+"/sim/libcuda.so.1", build+"/programs/cudaprog-dlsym")
	made.Dir = "../.."
	if out, err := made.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	build = filepath.Join("../..", build)
	b.root = filepath.Join(b.Dir, "musl-root")
	for _, dir := range []string{"proc", "sys", "dev", "run", "tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(b.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	place(t, "/lib/ld-musl-x86_64.so.1", filepath.Join(b.root, "lib/ld-musl-x86_64.so.1"))
	place(t, build+"/sim/libcuda.so.1", filepath.Join(b.root, "usr/lib/libcuda.so.1"))
	place(t, build+"/programs/cudaprog-dlsym", filepath.Join(b.root, "cudaprog-dlsym"))
}

// TestFullPodmanMusl checks a container with Debian's musl: the program that the engine starts is held to the byte. A
// program of `podman exec` has no LD_PRELOAD. It is not held, but listed as unmanaged of the job, which is charged. With
// -e LD_PRELOAD for podman exec or podman run such programs are held too.
func TestFullPodmanMusl(t *testing.T) {
	b := newBox(t)
	b.musl()
	p := b.Interact(b.in(b.run([]string{"-i", "--name", "one", "--device", "gpuarb.dev/memory=64M"}, "/cudaprog-dlsym")...))
	p.Want("alloc a 67108865", "err 2")
	p.Want("alloc a 48M", "ok")
	p.Want("alloc b 16777217", "err 2")
	named := b.exec("one", []string{"-e", preload})
	named.Want("alloc a 16M", "ok")
	named.Want("alloc b 1", "err 2")
	p.Want("alloc b 1", "err 2")
	b.held(64 << 20)
	named.End()

	free := b.exec("one", nil)
	free.Want("alloc a 8M", "ok")
	id := b.must(b.podman("inspect", "--format", "{{.Id}}", "one")...)
	rig.Eventually(t, "the program without the library is listed as unmanaged of the container's job", func() bool {
		return slices.ContainsFunc(b.Snapshot().Devices[0].UnmanagedBy, func(x figures.UnmanagedState) bool {
			return x.JobName == id && x.Bypass == figures.BypassRemoved
		})
	})
	if jobs := b.must(b.command(), "--socket", b.Socket, "jobs"); !strings.Contains(jobs, "unmanaged") {
		t.Errorf("gpuarb jobs prints\n%s", jobs)
	}
	p.Want("alloc b 16M", "err 2") // the job is charged with it
	free.End()
	rig.Eventually(t, "the job has its bytes again", func() bool { return p.Ask("alloc b 16M") == "ok" })
	p.End()

	whole := b.Interact(b.in(b.run([]string{"-i", "--name", "two", "-e", preload, "--device", "gpuarb.dev/memory=64M"}, "/cudaprog-dlsym")...))
	whole.Want("alloc a 48M", "ok")
	plain := b.exec("two", nil)
	plain.Want("alloc a 16777217", "err 2")
	plain.Want("alloc a 16M", "ok")
	plain.Want("alloc b 1", "err 2")
	plain.End()
	whole.End()
	b.gone()
}

// TestFullPodmanGlibc231 runs a container whose root folder is a Debian 11. Its programs are held to the byte, also those
// of podman exec. The loader reports no error.
func TestFullPodmanGlibc231(t *testing.T) {
	b := newBox(t)
	build, err := filepath.Abs("../../build/bullseye")
	if err != nil {
		t.Fatal(err)
	}
	made := bounded.Command(t, compiling, "tools/test-bullseye.sh", "--build", build)
	made.Dir = "../.."
	if out, err := made.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b.root = build + ":O" // an overlay, so that the container leaves nothing in the folder
	flags := []string{"-i", "--name", "one", "--device", "gpuarb.dev/memory=64M", "-e", "LD_LIBRARY_PATH=/src/build/sim"}
	p := b.Interact(b.in(b.run(flags, "/src/build/programs/cudaprog-dlsym")...))
	p.Want("alloc a 67108865", "err 2")
	p.Want("alloc a 32M", "ok")
	shell := b.podman("exec", "one", "/bin/sh", "-c", "ldd --version | head -n 1; cat /etc/debian_version; grep -c libgpuarb /proc/self/maps")
	if r := rig.Run(t, b.in(shell...)); r.Code != 0 || r.Stderr != "" || !strings.Contains(r.Stdout, "2.31") {
		t.Errorf("%+v", r)
	}
	exec := func(words ...string) *rig.Program {
		return b.Interact(b.in(b.podman(append(append([]string{"exec", "-i"}, words...), "/src/build/programs/cudaprog-dlsym")...)...))
	}
	plain := exec("one")
	plain.Want("alloc a 16M", "ok")
	cleared := exec(append(append([]string{"--user", "1000:1000", "one"}, bare...), "LD_LIBRARY_PATH=/src/build/sim")...)
	cleared.Want("alloc a 16777217", "err 2")
	cleared.Want("alloc a 16M", "ok")
	b.held(64 << 20)
	for _, q := range []*rig.Program{p, plain, cleared} {
		q.Want("alloc z 1", "err 2")
	}
	for _, q := range []*rig.Program{plain, cleared, p} {
		q.End()
	}
	b.gone()
}
