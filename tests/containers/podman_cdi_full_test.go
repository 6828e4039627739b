//go:build full

package containers

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file plays containers that root's podman starts with gpuarb's CDI devices: their programs together hold what
// the device says, to the byte, however they were started.

// TestFullPodmanDevices runs two containers with different devices. The first holds its budget with a program that the
// engine started, and with programs that are executed in it: also without an environment, and as another user.
func TestFullPodmanDevices(t *testing.T) {
	b := newBox(t)
	one := b.Interact(b.in(b.run([]string{"-i", "--name", "one", "--device", "gpuarb.dev/memory=64M"}, "/cudaprog-dlsym")...))
	two := b.Interact(b.in(b.run([]string{"-i", "--name", "two", "--device", "gpuarb.dev/memory=128M"}, "/cudaprog-dlsym")...))
	one.Want("alloc a 67108865", "err 2")
	one.Want("alloc a 32M", "ok")
	two.Want("alloc a 128M", "ok")
	two.Want("alloc b 1", "err 2")
	plain := b.exec("one", nil)
	plain.Want("alloc a 8M", "ok")
	cleared := b.exec("one", nil, bare...)
	cleared.Want("alloc a 16M", "ok")
	other := b.exec("one", []string{"--user", "1000:1000"})
	other.Want("alloc a 8M", "ok")
	b.held(192 << 20)
	for _, p := range []interface{ Want(string, string) }{one, plain, cleared, other} {
		p.Want("alloc z 1", "err 2")
	}
	cleared.End()
	other.Want("alloc b 16M", "ok")
	other.Want("alloc c 1", "err 2")
	for _, p := range []interface{ End() string }{plain, other, one, two} {
		p.End()
	}
	b.gone()
}

// TestFullPodmanAnnotation names budget and job by annotations, and opens a job without a limit. The device annotation
// without an annotation is refused.
func TestFullPodmanAnnotation(t *testing.T) {
	b := newBox(t)
	b.sleeper("named", "annotation", "--annotation", "gpuarb.dev/memory=3M", "--annotation", "gpuarb.dev/name=podman:web")
	b.sleeper("whole", "all")
	named, whole := b.exec("named", nil), b.exec("whole", nil)
	named.Want("alloc a 3M", "ok")
	named.Want("alloc b 1", "err 2")
	whole.Want("alloc a 1G", "ok")
	if jobs := b.jobs(); !strings.Contains(jobs, "podman:web") || !strings.Contains(jobs, b.must(b.podman("inspect", "--format", "{{.Id}}", "whole")...)) {
		t.Errorf("the jobs are\n%s", jobs)
	}
	r := rig.Run(t, b.in(b.run([]string{"--device", "gpuarb.dev/memory=annotation"}, "/bin/sleep", "0")...))
	if r.Code == 0 || !strings.Contains(r.Stderr, "gpuarb.dev/memory") {
		t.Errorf("without an annotation: %+v", r)
	}
	named.End()
	whole.End()
}

// TestFullPodmanRestart restarts a container: its job is closed and opened again, with the whole budget.
func TestFullPodmanRestart(t *testing.T) {
	b := newBox(t)
	b.sleeper("one", "64M")
	p := b.exec("one", nil)
	p.Want("alloc a 64M", "ok")
	b.held(64 << 20)
	b.must(b.podman("restart", "--time", "0", "one")...)
	p.Wait()
	p = b.exec("one", nil, bare...)
	p.Want("alloc a 64M", "ok")
	p.Want("alloc b 1", "err 2")
	b.held(64 << 20)
	p.End()
	b.must(b.podman("stop", "--time", "0", "one")...)
	b.gone()
}

// TestFullPodmanMonitorKilled kills the process that watches a container: its programs stay held, and the job closes
// although no closing hook runs, and although podman leaves the cgroup behind.
func TestFullPodmanMonitorKilled(t *testing.T) {
	b := newBox(t)
	p := b.Interact(b.in(b.run([]string{"-i", "--name", "one", "--device", "gpuarb.dev/memory=64M"}, "/cudaprog-dlsym")...))
	p.Want("alloc a 48M", "ok")
	bound := b.jobs()
	b.sleeper("two", "64M")
	q := b.exec("two", nil)
	q.Want("alloc a 48M", "ok")
	b.removeCgroups("two") // at the end of the test, because podman leaves them behind
	if err := syscall.Kill(b.number("two", "ConmonPid"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	q.Want("alloc b 17M", "err 2")
	q.Want("alloc b 16M", "ok")
	b.held(112 << 20)
	if err := syscall.Kill(b.number("two", "Pid"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the memory of the killed container is free", func() bool { return b.SimNumber("total", "0") == 48<<20 })
	// Without its monitor, podman finds out only at the second attempt that the container has ended.
	rig.Eventually(t, "podman removes the container", func() bool {
		return rig.Run(t, b.in(b.podman("rm", "--force", "--time", "0", "two")...)).Code == 0
	})
	rig.Eventually(t, "its job is closed", func() bool { return strings.Count(b.jobs(), "/libpod-") == strings.Count(bound, "/libpod-") })
	p.End()
	b.gone()
}

// TestFullPodmanUpgrade installs another library and starts another daemon while a container runs. Its program stays
// held, the next one has the new library, and both share the budget.
func TestFullPodmanUpgrade(t *testing.T) {
	b := newBox(t)
	b.sleeper("one", "64M")
	sum := func(where ...string) string {
		t.Helper()
		out, _, _ := strings.Cut(b.must(where...), " ")
		return out
	}
	inside := b.podman("exec", "one", "/usr/bin/sha256sum", "/usr/lib/gpuarb/libgpuarb.so")
	old := sum(inside...)
	p := b.exec("one", nil)
	p.Want("alloc a 32M", "ok")
	b.from(t, newer(t, b))
	if now := sum(inside...); now == old || now != sum("sha256sum", filepath.Join(b.folder(), "libgpuarb.so")) {
		t.Errorf("the container has the library %s, before the installation %s", now, old)
	}
	p.Want("alloc b 8M", "ok") // of the old library
	b.Stop()
	q := b.exec("one", []string{"-e", "GPUARB_ON_LOSS=open"})
	q.Want("alloc a 1M", "err 2") // the marker closes the loss
	p.Want("alloc c 25M", "err 2")
	b.Use(filepath.Join(b.prefix, "bin/gpuarbd"))
	b.Start()
	q.Want("alloc a 24M", "ok")
	q.Want("alloc b 1", "err 2")
	p.Want("alloc c 1", "err 2")
	b.held(64 << 20)
	p.End()
	q.End()
}

// newer returns a folder like the build's whose library has a few more bytes at its end, which the loader ignores.
func newer(t *testing.T, b *box) string {
	t.Helper()
	build, folder := filepath.Dir(rig.Build(t, "gpuarb")), filepath.Join(b.Dir, "newer")
	if out, err := bounded.Command(t, bounded.Patience, "sh", "-ec", `mkdir "$2"; cd "$1"; cp -r gpuarb gpuarbd libgpuarb.so no-exports gpuarb-probe share "$2"`, "sh", build, folder).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	library, err := os.OpenFile(filepath.Join(folder, "libgpuarb.so"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer library.Close()
	if _, err := library.WriteString("newer"); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestFullPodmanWithoutDaemon starts a container while no daemon runs: it is not created, and the engine repeats the
// reason. With the daemon, the same command succeeds.
func TestFullPodmanWithoutDaemon(t *testing.T) {
	b := newBox(t)
	b.Stop()
	r := rig.Run(t, b.in(b.run([]string{"--device", "gpuarb.dev/memory=64M"}, "/bin/sleep", "0")...))
	if r.Code == 0 || !strings.Contains(r.Stderr, "gpuarbd") {
		t.Errorf("%+v", r)
	}
	b.Start()
	b.must(b.run([]string{"--device", "gpuarb.dev/memory=64M"}, "/bin/sleep", "0")...)
	b.gone()
}
