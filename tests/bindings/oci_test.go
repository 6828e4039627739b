package bindings

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file finds the cgroup by a process: --cgroup-of, and --oci with the state that an OCI runtime gives its hooks.

// oci runs `gpuarb job` with the state of a container on stdin.
func oci(t *testing.T, m *rig.Machine, state string, args ...string) rig.Result {
	t.Helper()
	cmd := m.Gpuarb(append([]string{"job"}, args...)...)
	cmd.Stdin = strings.NewReader(state)
	return rig.Run(t, cmd)
}

// TestOCIHooks: the hook finds the container's cgroup by its process, memory and name in its annotations or flags, and closes by the
// container's id. It refuses a cgroup in which it runs itself, a state that says too little, and --wait.
func TestOCIHooks(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, box := m.OtherUser(anne), m.Cgroup()
	init := m.Begin(box.In(m.Command(m.Env(), "sleep", "600")))
	rig.Eventually(t, "the container's first process is in its cgroup", func() bool {
		procs, err := os.ReadFile(box.Procs())
		return err == nil && strings.TrimSpace(string(procs)) == fmt.Sprint(init.Process())
	})
	id := strings.Repeat("c0ffee", 10) + "0123"
	state := func(pid int, annotations string) string {
		return fmt.Sprintf(`{"ociVersion":"1.0.2","id":%q,"status":"creating","pid":%d,"bundle":"/b","annotations":{%s}}`, id, pid, annotations)
	}
	said := func(got rig.Result, code int, says string) {
		t.Helper()
		if got.Code != code || !strings.Contains(got.Stderr, says) {
			t.Errorf("%d, %q, %s; want %d, %q", got.Code, got.Stdout, got.Stderr, code, says)
		}
	}
	said(oci(t, m, state(init.Process(), `"gpuarb.dev/memory":"50M","gpuarb.dev/name":"podman:web"`), "open", "--oci"), 0, "")
	p := u.BareIn(box)
	holds(t, m, p, "50M", 50*mib)
	if l := m.Lease(p.PID(), 0); l.JobName != "podman:web" {
		t.Errorf("the job is called %q", l.JobName)
	}
	said(oci(t, m, `{"id":"`+id+`","pid":0}`, "close", "--oci"), 0, "")
	said(oci(t, m, `{"id":"`+id+`","pid":0}`, "close", "--oci"), 0, "") // it has none any more
	said(oci(t, m, state(init.Process(), ""), "open", "--oci", "--memory", "60M"), 0, "")
	if jobs := m.Snapshot().Jobs; len(jobs) < 1 || jobs[len(jobs)-1].Name != id {
		t.Errorf("without a name it is not called by the container's id: %+v", jobs)
	}
	said(oci(t, m, state(init.Process(), ""), "open", "--oci"), 2, "has no annotation gpuarb.dev/memory")
	said(oci(t, m, state(init.Process(), ""), "open", "--oci", "--memory", "1M", "--wait", "1m"), 2, "a hook must not wait")
	said(oci(t, m, state(0, ""), "open", "--oci", "--memory", "1M"), 2, "has no pid")
	said(oci(t, m, "nonsense", "open", "--oci", "--memory", "1M"), 2, "stdin has no state of a container")
	said(oci(t, m, state(os.Getpid(), ""), "open", "--oci", "--memory", "1M"), 2, "it runs in the cgroup of its runtime")
	p.End()
	init.Signal(syscall.SIGKILL)
	init.Wait()
}

// TestCgroupOf opens the job of the cgroup of a process, which is held too, also after a restart of the daemon. A long name keeps its beginning and its end, and the same name finds it again.
func TestCgroupOf(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u := m.OtherUser(anne)
	box := m.Below(m.Below(m.Cgroup(), "pod"), "box") // longer than the path that this machine's own container may have
	p := u.BareIn(box)
	long := "namespace/" + strings.Repeat("pod-", 20) + "/container"
	job(t, m, 0, "", "open", "--cgroup-of", fmt.Sprint(p.PID()), "--memory", "50M", "--name", long)
	holds(t, m, p, "50M", 50*mib)
	m.Kill()
	m.Start()
	rig.Eventually(t, "the session is resumed", func() bool { return len(m.Snapshot().Leases) == 1 })
	p.Want("free all", "ok")
	holds(t, m, p, "50M", 50*mib)
	p.Want("free all", "ok")
	late := u.BareIn(box)
	late.Want("alloc a 30M", "ok")
	p.Want("alloc b 20M", "ok")
	p.Want("alloc more 1", errOutOfMemory)
	name := m.Lease(late.PID(), 0).JobName
	if len(name) > 64 || !strings.HasPrefix(name, "namespace/pod-") || !strings.HasSuffix(name, "/container") || !strings.Contains(name, "~") {
		t.Errorf("the name is %q", name)
	}
	for _, words := range [][]string{{"limit", "--job", long, "memory.max=40M"}, {"why", long}} {
		if r := rig.Run(t, m.Gpuarb(words...)); r.Code != 0 {
			t.Errorf("%q: %+v", words, r)
		}
	}
	job(t, m, 0, "", "close", long)
	p.End()
	late.End()
	got := rig.Run(t, u.Gpuarb("run", "--name", "podman:web", "--", "true"))
	if got.Code == 0 || !strings.Contains(got.Stderr, "has a colon, which only names of root's jobs may have") {
		t.Errorf("a user takes the name of a container: %d, %s", got.Code, got.Stderr)
	}
}

// TestUntilIdle: --until idle=D closes the job when no process was in its cgroup for so long, in both versions of cgroups; a process that
// never uses a GPU counts.
func TestUntilIdle(t *testing.T) {
	t.Parallel()
	for name, cgroup := range map[string]func(*rig.Machine) *rig.Cgroup{"v2": (*rig.Machine).Cgroup, "v1": (*rig.Machine).CgroupV1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine(t, "400M", "")
			box := cgroup(m)
			inner := m.Below(box, "inner")
			p := m.Interact(inner.In(m.Command(m.Env(), rig.Build(t, "programs/cudaprog-dlsym"), "-")))
			p.PID() // it runs in its cgroup
			job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "50M", "--until", "idle=2s")
			job(t, m, 0, "", "open", "--cgroup", inner.Path, "--memory", "50M", "--until", "idle=1s", "--name", "busy")
			other := m.Below(box, "other")
			job(t, m, 0, "", "open", "--cgroup", other.Path, "--memory", "50M", "--until", "idle=1s", "--name", "empty")
			rig.Eventually(t, "the empty one closes", func() bool { return !named(m, "empty") })
			if !named(m, "busy") {
				t.Error("a job closed while a process was in its cgroup")
			}
			p.End()
			rig.Eventually(t, "the others close when the process has ended", func() bool { return len(m.Snapshot().Jobs) == 0 })
		})
	}
}

// named reports whether a job with a name is open.
func named(m *rig.Machine, name string) bool {
	return slices.ContainsFunc(m.Snapshot().Jobs, func(j figures.JobState) bool { return j.Name == name })
}

// TestIdleInAllHierarchies: a job is not idle while a process is in its cgroup in another hierarchy than the one in which the daemon
// found the folder.
func TestIdleInAllHierarchies(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	unified, old := m.Cgroup(), m.CgroupV1()
	p := m.Interact(old.In(m.Command(m.Env(), rig.Build(t, "programs/cudaprog-dlsym"), "-")))
	p.PID() // it runs in its cgroup
	job(t, m, 0, "", "open", "--cgroup", unified.Path, "--memory", "50M", "--until", "idle=1s", "--name", "busy")
	job(t, m, 0, "", "open", "--cgroup", m.Below(unified, "other").Path, "--memory", "50M", "--until", "idle=1s", "--name", "empty")
	rig.Eventually(t, "the empty one closes", func() bool { return !named(m, "empty") })
	if !named(m, "busy") {
		t.Error("a job closed while a process was in its cgroup in another hierarchy")
	}
	p.End()
	rig.Eventually(t, "the other closes when the process has ended", func() bool { return !named(m, "busy") })
}

// TestIdleThoughAMountIsGone: a cgroup with a process stays bound when the mount at which the daemon first found it is gone.
func TestIdleThoughAMountIsGone(t *testing.T) {
	m := machine(t, "400M", "")
	var box *rig.Cgroup
	t.Run("mounted first", func(t *testing.T) {
		machine(t, "400M", "").CgroupV1() // the same hierarchy, unmounted with this machine
		box = m.CgroupV1()
		p := m.Interact(box.In(m.Command(m.Env(), rig.Build(m.T, "programs/cudaprog-dlsym"), "-")))
		p.PID() // it runs in its cgroup
		job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "50M", "--until", "idle=1s", "--name", "busy")
	})
	job(t, m, 0, "", "open", "--cgroup", m.Below(box, "other").Path, "--memory", "50M", "--until", "idle=1s", "--name", "empty")
	rig.Eventually(t, "the empty one closes", func() bool { return !named(m, "empty") })
	if !named(m, "busy") {
		t.Error("a job closed while a process was in its cgroup")
	}
}

// TestMostSpecificCgroup: where a process is in several hierarchies, --cgroup-of takes the path with the most names that are not slices,
// whichever hierarchy it is in. A service's own cgroup in v2 does not hide the cgroup that a scheduler made in v1.
func TestMostSpecificCgroup(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ v2, v1, want []string }{
		"a scheduler's in v1": {[]string{"system.slice", "slurmd.service"}, []string{"slurm", "uid_1000", "job_6"}, []string{"slurm", "uid_1000", "job_6"}},
		"slices do not count": {[]string{"a.slice", "b.slice", "c.slice", "d.slice"}, []string{"slurm", "uid_1000", "job_7"}, []string{"slurm", "uid_1000", "job_7"}},
		"v2 of equals":        {[]string{"kube", "pod", "box2"}, []string{"kube", "pod", "box1"}, []string{"kube", "pod", "box2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine(t, "400M", "")
			u, unified, old := m.OtherUser(anne), m.Cgroup(), m.CgroupV1()
			root := unified.Path
			for _, part := range c.v2 {
				unified = m.Below(unified, part)
			}
			for _, part := range c.v1 {
				old = m.Below(old, part)
			}
			p := m.Interact(old.In(unified.In(u.BareCommand())))
			job(t, m, 0, "", "open", "--cgroup-of", fmt.Sprint(p.PID()), "--memory", "50M")
			if got, want := m.Snapshot().Jobs, root+"/"+strings.Join(c.want, "/"); !slices.ContainsFunc(got, func(j figures.JobState) bool { return j.Bound == want }) {
				t.Errorf("no job of cgroup %s: %+v", want, got)
			}
			holds(t, m, p, "50M", 50*mib)
			p.End()
		})
	}
}

// TestSamePathInTwoHierarchies: processes at the path of a binding belong to it in whichever hierarchy they are there, also if the path has
// a folder in both. All of them share its budget.
func TestSamePathInTwoHierarchies(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, unified, old := m.OtherUser(anne), m.Cgroup(), m.CgroupV1()
	if unified.Path != old.Path {
		t.Fatalf("%s and %s", unified.Path, old.Path)
	}
	job(t, m, 0, "", "open", "--cgroup", unified.Path, "--memory", "100M", "--name", "both")
	a, b := u.BareIn(unified), u.BareIn(old)
	a.Want("alloc a 60M", "ok")
	b.Want("alloc b 40M", "ok")
	b.Want("alloc more 1", errOutOfMemory)
	a.Want("alloc more 1", errOutOfMemory)
	a.End()
	b.End()
}
