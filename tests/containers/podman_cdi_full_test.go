//go:build full

package containers

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file starts containers with root's podman and gpuarb's CDI devices: a container's programs together hold what its
// device says, to the byte, however they were started. Each function is a row of docs/admin/containers.md.

// TestFullPodmanDevices runs two containers with different devices beside each other: each has its own budget.
func TestFullPodmanDevices(t *testing.T) {
	b := newBox(t)
	one := b.Interact(b.in(b.run([]string{"-i", "--name", "one", "--device", "gpuarb.dev/memory=64M"}, "/cudaprog-dlsym")...))
	two := b.Interact(b.in(b.run([]string{"-i", "--name", "two", "--device", "gpuarb.dev/memory=128M"}, "/cudaprog-dlsym")...))
	one.Want("alloc a 67108865", "err 2")
	one.Want("alloc a 64M", "ok")
	two.Want("alloc a 128M", "ok")
	b.held(192 << 20)
	one.Want("alloc b 1", "err 2")
	two.Want("alloc b 1", "err 2")
	one.End()
	two.End()
	b.gone()
}

// executed runs a container whose first program holds half of the budget, and executes another program in it. The two
// programs share the budget. flags are for podman exec, words come before the program.
func executed(t *testing.T, flags []string, words ...string) {
	t.Helper()
	b := newBox(t)
	first := b.Interact(b.in(b.run([]string{"-i", "--name", "one", "--device", "gpuarb.dev/memory=64M"}, "/cudaprog-dlsym")...))
	first.Want("alloc a 32M", "ok")
	p := b.exec("one", flags, words...)
	p.Want("alloc a 33554433", "err 2")
	p.Want("alloc a 32M", "ok")
	b.held(64 << 20)
	p.Want("alloc b 1", "err 2")
	first.Want("alloc b 1", "err 2")
	p.End()
	first.Want("alloc b 32M", "ok")
	first.Want("alloc c 1", "err 2")
	first.End()
	b.gone()
}

// user are flags of podman exec for another user than root.
var user = []string{"--user", "1000:1000"}

// TestFullPodmanExec executes a program without more.
func TestFullPodmanExec(t *testing.T) { executed(t, nil) }

// TestFullPodmanExecCleared executes a program with an empty environment.
func TestFullPodmanExecCleared(t *testing.T) { executed(t, nil, bare...) }

// TestFullPodmanExecUser executes a program as another user.
func TestFullPodmanExecUser(t *testing.T) { executed(t, user) }

// TestFullPodmanExecUserCleared executes a program as another user, with an empty environment.
func TestFullPodmanExecUserCleared(t *testing.T) { executed(t, user, bare...) }

// TestFullPodmanExecVariables executes a program with variables that would raise its limit if they counted.
func TestFullPodmanExecVariables(t *testing.T) {
	executed(t, []string{"-e", "LD_PRELOAD=", "-e", "GPUARB_MEMORY=4G", "-e", "GPUARB_JOB=", "-e", "GPUARB_ON_LOSS=open"})
}

// TestFullPodmanCrun runs a container with the runtime crun. The machine's cgroups of version 2 are hidden from it, because
// crun refuses a machine that has controllers in both versions.
func TestFullPodmanCrun(t *testing.T) {
	b := newBox(t)
	b.runtime = "crun"
	b.must("sh", "-c", "if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi")
	first := b.Interact(b.in(b.run([]string{"-i", "--name", "one", "--device", "gpuarb.dev/memory=64M"}, "/cudaprog-dlsym")...))
	first.Want("alloc a 67108865", "err 2")
	first.Want("alloc a 32M", "ok")
	p := b.exec("one", user, bare...)
	p.Want("alloc a 32M", "ok")
	b.held(64 << 20)
	p.Want("alloc b 1", "err 2")
	first.Want("alloc b 1", "err 2")
	p.End()
	first.End()
	b.gone()
	reason := filepath.Join(b.Dir, "reason") // crun itself says only the exit code
	r := rig.Run(t, b.in(b.run([]string{"--device", "gpuarb.dev/memory=annotation", "--annotation", "run.oci.hooks.stderr=" + reason}, "/bin/sleep", "0")...))
	if r.Code == 0 || !strings.Contains(r.Stderr, "exit code: 2") {
		t.Errorf("a refusal: %+v", r)
	}
	if text, err := os.ReadFile(reason); err != nil || !strings.Contains(string(text), "has no annotation gpuarb.dev/memory") {
		t.Errorf("the reason is %s (%v)", text, err)
	}
	b.gone()
}

// TestFullPodmanAnnotation names budget and job by annotations, and opens a job without a limit.
func TestFullPodmanAnnotation(t *testing.T) {
	b := newBox(t)
	b.sleeper("named", "annotation", "--annotation", "gpuarb.dev/memory=3M", "--annotation", "gpuarb.dev/name=podman:web")
	b.sleeper("whole", "all")
	long := "podman:" + strings.Repeat("long-", 20) + "name"
	b.sleeper("long", "64M", "--annotation", "gpuarb.dev/name="+long)
	named, whole := b.exec("named", nil), b.exec("whole", nil)
	named.Want("alloc a 3M", "ok")
	named.Want("alloc b 1", "err 2")
	whole.Want("alloc a 1G", "ok")
	jobs := b.jobs()
	for _, name := range []string{"podman:web", b.must(b.podman("inspect", "--format", "{{.Id}}", "whole")...), ipc.BindingName(long)} {
		if !strings.Contains(jobs, name) {
			t.Errorf("no job is called %s:\n%s", name, jobs)
		}
	}
	named.End()
	whole.End()
}

// TestFullPodmanRefused starts containers whose devices or annotations say too little, too much or nonsense. None is
// created, and the engine repeats the reason. A running container stays as it is, and nothing is left.
func TestFullPodmanRefused(t *testing.T) {
	b := newBox(t)
	b.sleeper("web", "64M", "--annotation", "gpuarb.dev/name=podman:web")
	alone := func() bool { return strings.Count(b.jobs(), "/libpod-") == 1 }
	two := []string{"--device", "gpuarb.dev/memory=64M", "--device", "gpuarb.dev/memory=128M"}
	for _, row := range []struct {
		flags []string
		says  string
	}{
		{two, "give a container one device of gpuarb, not two"},
		{[]string{two[2], two[3], two[0], two[1]}, "give a container one device of gpuarb, not two"},
		{[]string{"--device", "gpuarb.dev/memory=64M", "--device", "gpuarb.dev/memory=all"}, "give a container one device of gpuarb, not two"},
		{[]string{"--device", "gpuarb.dev/memory=annotation"}, "has no annotation gpuarb.dev/memory"},
		{[]string{"--device", "gpuarb.dev/memory=annotation", "--annotation", "gpuarb.dev/memory=1Q"}, `annotation gpuarb.dev/memory: "1Q" is no size`},
		{[]string{"--device", "gpuarb.dev/memory=annotation", "--annotation", "gpuarb.dev/memory=0"}, "a budget of 0"},
		{[]string{"--device", "gpuarb.dev/memory=64M", "--annotation", "gpuarb.dev/name=-web"}, "annotation gpuarb.dev/name:"},
		{[]string{"--device", "gpuarb.dev/memory=64M", "--annotation", "gpuarb.dev/name=podman:web"}, "has the name podman:web already"},
		{[]string{"--device", "gpuarb.dev/memory=65M"}, "unresolvable CDI devices"},
	} {
		r := rig.Run(t, b.in(b.run(row.flags, "/bin/sleep", "0")...))
		if r.Code == 0 || !strings.Contains(r.Stderr, row.says) {
			t.Errorf("%q: %d, %s\nwant %s", row.flags, r.Code, r.Stderr, row.says)
		}
		rig.Eventually(t, "no job is left", alone)
	}
	p := b.exec("web", nil)
	p.Want("alloc a 67108865", "err 2")
	p.Want("alloc a 64M", "ok")
	p.End()
	same := []string{"--device", "gpuarb.dev/memory=64M", "--device", "gpuarb.dev/memory=annotation", "--annotation", "gpuarb.dev/memory=64M"}
	b.must(b.run(same, "/bin/sleep", "0")...) // two devices of one budget are one job
	rig.Eventually(t, "its job is closed", alone)
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
