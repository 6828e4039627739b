package bindings

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file opens and closes jobs of cgroups, and checks that the processes of a cgroup are held to one budget.

const mib = 1 << 20

// TestBudgetOfACgroup: all processes that start in a bound cgroup, or in one below it, are held together to the budget to the
// byte, whatever their environment says. A process beside it is not. After the close, programs that start there are free.
func TestBudgetOfACgroup(t *testing.T) {
	t.Parallel()
	for name, cgroup := range map[string]func(*rig.Machine) *rig.Cgroup{"v2": (*rig.Machine).Cgroup, "v1": (*rig.Machine).CgroupV1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine(t, "400M", "")
			u, box := m.OtherUser(anne), cgroup(m)
			inner := m.Below(box, "inner")
			id := job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "100M", "--name", "ns/pod/web")
			a := u.BareIn(box)
			a.Want("alloc a 60M", "ok")
			b := m.Interact(inner.In(u.Command(append(m.Env(), "GPUARB_SOCKET="+m.Socket, "GPUARB_MEMORY=300M", "GPUARB_JOB=00112233445566778899aabbccddeeff"),
				"env", "LD_PRELOAD="+u.Program("libgpuarb.so"), u.Program("cudaprog-dlsym"))))
			b.Want("alloc b 40M", "ok")
			b.Want("alloc more 1", errOutOfMemory)
			a.Want("alloc more 1", errOutOfMemory)
			beside := u.Bare()
			holdsAtLeast(t, beside, "200M")
			if sum := m.HeldBy(a.PID(), 0).Bytes + m.HeldBy(b.PID(), 0).Bytes; sum != 100*mib {
				t.Errorf("the driver counts %d bytes of the cgroup's processes", sum)
			}
			list := job(t, m, 0, "", "list", "--bytes")
			if !strings.Contains(list, "ns/pod/web") || !strings.Contains(list, box.Path) || !strings.Contains(list, " 104857600 ") {
				t.Errorf("gpuarb job list: %s", list)
			}
			for _, l := range m.Snapshot().Leases {
				if want := l.PID != beside.PID(); (l.JobName == "ns/pod/web") != want {
					t.Errorf("the lease of process %d is of job %q", l.PID, l.JobName)
				}
			}
			beside.End()
			if account := job(t, m, 0, "", "close", id); !strings.Contains(account, "100 MiB") {
				t.Errorf("gpuarb job close: %s", account)
			}
			a.Want("alloc more 1", errOutOfMemory) // the running programs stay within the budget
			late := u.BareIn(box)
			holdsAtLeast(t, late, "200M")
			job(t, m, 1, "no cgroup has this job", "close", "ns/pod/web")
			for _, p := range []*rig.Program{a, b, late} {
				p.End()
			}
			rig.Eventually(t, "nothing is left", func() bool { return len(m.Snapshot().Jobs) == 0 })
		})
	}
}

// holdsAtLeast checks that a program can allocate at least this much.
func holdsAtLeast(t *testing.T, p *rig.Program, bytes string) {
	t.Helper()
	p.Want("alloc much "+bytes, "ok")
}

// TestOpenIsRoots: only root may open and close. The cgroup must exist, must not be the root cgroup, and may have one job. A name belongs
// to one cgroup. Repeating an open changes nothing.
func TestOpenIsRoots(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, box := m.OtherUser(anne), m.Cgroup()
	other := m.Below(box, "other")
	got := rig.Run(t, u.Gpuarb("job", "open", "--cgroup", box.Path, "--memory", "1M"))
	if got.Code != 1 || !strings.Contains(got.Stderr, "only root may open the job of a cgroup") {
		t.Errorf("a user opens: %d, %s", got.Code, got.Stderr)
	}
	id := job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "100M", "--name", "a:b")
	if again := job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "100M", "--name", "a:b"); again != id {
		t.Errorf("opened again it is job %s, and was %s", again, id)
	}
	job(t, m, 1, "has the job a:b already, with other limits", "open", "--cgroup", box.Path, "--memory", "200M", "--name", "a:b")
	job(t, m, 1, "has the job a:b: close that one first", "open", "--cgroup", box.Path, "--memory", "100M", "--name", "c")
	job(t, m, 1, "has the name a:b already", "open", "--cgroup", other.Path, "--memory", "100M", "--name", "a:b")
	job(t, m, 1, "there is no cgroup "+box.Path+"/none", "open", "--cgroup", box.Path+"/none", "--memory", "100M")
	for _, root := range []string{"/", "//"} {
		job(t, m, 2, "--cgroup: the root cgroup has all programs", "open", "--cgroup", root, "--memory", "100M")
		job(t, m, 2, "--cgroup: the root cgroup has all programs", "close", "--cgroup", root)
	}
	job(t, m, 1, "the root cgroup has all programs", "open", "--cgroup", strings.TrimSuffix(box.Dir(), box.Path), "--memory", "100M")
	job(t, m, 2, "--memory: it is missing", "open", "--cgroup", other.Path)
	job(t, m, 2, "give one of --cgroup PATH, --cgroup-of PID and --oci", "open", "--memory", "1M")
	got = rig.Run(t, u.Gpuarb("job", "close", "a:b"))
	if got.Code != 1 || !strings.Contains(got.Stderr, "only root may close the job of a cgroup") {
		t.Errorf("a user closes: %d, %s", got.Code, got.Stderr)
	}
	job(t, m, 0, "", "close", "--cgroup", box.Path)
	if list := job(t, m, 0, "", "list"); strings.Contains(list, box.Path) {
		t.Errorf("it is listed after its close: %s", list)
	}
}

// TestGoneWithItsFolder: a binding ends with the folder of its cgroup, also if the folder is made again at once.
func TestGoneWithItsFolder(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, box := m.OtherUser(anne), m.Cgroup()
	pod := m.Below(box, "pod")
	job(t, m, 0, "", "open", "--cgroup", pod.Path, "--memory", "50M", "--min", "50M")
	m.Remove(pod)
	rig.Eventually(t, "the job closes by itself", func() bool { return len(m.Snapshot().Jobs) == 0 })
	m.Make(pod)
	job(t, m, 0, "", "open", "--cgroup", pod.Path, "--memory", "50M", "--min", "50M")
	m.Remove(pod)
	m.Make(pod)
	free := u.BareIn(pod)
	holdsAtLeast(t, free, "390M") // neither the budget nor the reservation is left
	free.End()
	job(t, m, 0, "", "open", "--cgroup", pod.Path, "--memory", "50M", "--until", "closed")
	m.Remove(pod)
	m.Make(pod)
	held := u.BareIn(pod)
	holds(t, m, held, "50M", 50*mib)
	held.End()
}

// TestNameOfACgroupThatIsGone: a container engine starts a container again under its name, in a new cgroup. While the old cgroup exists, a
// job for the new cgroup with that name is refused. Right after the old cgroup is removed, the new job gets the name.
func TestNameOfACgroupThatIsGone(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	top := m.Cgroup()
	before := m.Below(top, "before")
	job(t, m, 0, "", "open", "--cgroup", before.Path, "--memory", "50M", "--name", "web")
	for i := range 10 {
		box := m.Below(top, fmt.Sprint("box", i))
		job(t, m, 1, "has the name web already", "open", "--cgroup", box.Path, "--memory", "50M", "--name", "web")
		m.Remove(before)
		job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "50M", "--name", "web")
		before = box
	}
	if jobs := m.Snapshot().Jobs; len(jobs) != 1 {
		t.Errorf("jobs: %+v", jobs)
	}
}
