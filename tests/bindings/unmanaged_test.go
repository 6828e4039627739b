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

// This file runs programs in a bound cgroup without the library. The oracle is what programs with the library can still allocate beside them.

// without starts the test program in a cgroup without the library.
func without(m *rig.Machine, u *rig.OtherUser, c *rig.Cgroup) *rig.Program {
	m.T.Helper()
	return m.Interact(c.In(u.Command(append(m.Env(), "GPUARB_SOCKET="+m.Socket), u.Program("cudaprog-dlsym"))))
}

// charged waits until that many bytes of processes without the library count against the budget of a job.
func charged(t *testing.T, m *rig.Machine, name string, bytes uint64) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("%d bytes are charged to %s", bytes, name), func() bool {
		i := slices.IndexFunc(m.Snapshot().Jobs, func(j figures.JobState) bool { return j.Name == name })
		return i >= 0 && uint64(m.Snapshot().Jobs[i].Devices[0].Unmanaged) == bytes
	})
}

// TestUnmanagedOfTheJob: a process in a bound cgroup that uses the device without the library is listed as unmanaged of that job, with
// how it avoids the library, whatever its environment says.
func TestUnmanagedOfTheJob(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, box := m.OtherUser(anne), m.Cgroup()
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "100M", "--name", "web")
	env := append(m.Env(), "GPUARB_SOCKET="+m.Socket)
	disabled := m.Interact(box.In(u.Command(append(env, "GPUARB_DISABLE=1"), "env", "LD_PRELOAD="+u.Program("libgpuarb.so"), u.Program("cudaprog-dlsym"))))
	static := without(m, u, box)
	for p, how := range map[*rig.Program]figures.Bypass{disabled: figures.BypassDisabled, static: figures.BypassRemoved} {
		p.Want("alloc a 20M", "ok")
		rig.Eventually(t, "it is listed with the job", func() bool {
			return slices.ContainsFunc(m.Snapshot().Devices[0].UnmanagedBy, func(x figures.UnmanagedState) bool {
				return x.PID == p.PID() && x.JobName == "web" && x.Bypass == how && x.Charged
			})
		})
		p.End()
	}
}

// TestUnmanagedIsCharged: what such a process uses is missing from the job's budget, and once from the device. Refusals, tables and events
// name the process. Nothing is taken from programs that run, also if the budget is overdrawn. It is all there again when the process ends.
func TestUnmanagedIsCharged(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, box := m.OtherUser(anne), m.Cgroup()
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "100M", "--name", "web")
	beside, free, a := without(m, u, box), u.Bare(), u.BareIn(box)
	beside.Want("alloc a 30M", "ok")
	charged(t, m, "web", 30*mib)
	a.Want("alloc a 70M", "ok")
	a.Want("alloc more 1", errOutOfMemory)
	who := fmt.Sprintf("cudaprog-dlsym[%d] 30 MiB (unmanaged)", beside.PID())
	if said := m.Snapshot().Jobs[0].Denial; !strings.Contains(said, who) {
		t.Errorf("the refusal does not name %s: %s", who, said)
	}
	free.Want("alloc a 300M", "ok") // of 400 MiB, 100 are the job's
	free.Want("alloc more 1", errOutOfMemory)
	for _, c := range []struct{ command, says string }{
		{"jobs", "unmanaged,charged"}, {"why web", "30 MiB there of the budget"}, {"why web", "30 MiB of that budget are taken without the library"},
		{"events --kind unmanaged", "30 MiB on GPU 0, which counts against the budget"}, {"job list", "30MiB"}, {"job list --json", `"unmanaged_bytes":31457280`},
	} {
		if got := rig.Run(t, m.Gpuarb(strings.Fields(c.command)...)); !strings.Contains(got.Stdout, c.says) {
			t.Errorf("gpuarb %s does not say %q: %s", c.command, c.says, got.Stdout)
		}
	}
	a.Want("free a", "ok")
	beside.Want("free a", "ok")
	beside.Want("alloc a 100M", "ok") // 400 MiB of the device are in use
	charged(t, m, "web", 100*mib)
	a.Want("alloc one 1", errOutOfMemory)
	free.Want("free a", "ok")
	beside.Want("alloc b 50M", "ok")
	charged(t, m, "web", 150*mib)
	a.Want("alloc one 1", errOutOfMemory) // the budget is overdrawn
	free.Want("alloc a 250M", "ok")
	free.Want("alloc more 1", errOutOfMemory)
	beside.End()
	charged(t, m, "web", 0)
	holds(t, m, a, "100M", 100*mib)
	a.End()
	free.End()
}

// TestUnmanagedUsesTheReservation: the bytes come out of the job's own reservation first, and out of the budgets around it. After a restart
// of the daemon they still count. When the job closes, they count against the device alone.
func TestUnmanagedUsesTheReservation(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, pod := m.OtherUser(anne), m.Cgroup()
	box := m.Below(pod, "box")
	beside := without(m, u, box) // it begins before the job is opened
	beside.Want("alloc a 60M", "ok")
	job(t, m, 0, "", "open", "--cgroup", pod.Path, "--memory", "150M", "--min", "150M", "--name", "pod")
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "100M", "--name", "box")
	charged(t, m, "box", 60*mib)
	free, a, b := u.Bare(), u.BareIn(box), u.BareIn(pod)
	free.Want("alloc a 250M", "ok")
	free.Want("alloc more 1", errOutOfMemory)
	a.Want("alloc a 40M", "ok")
	a.Want("alloc more 1", errOutOfMemory)
	m.Kill()
	m.Start()
	rig.Eventually(t, "the sessions are resumed", func() bool { return len(m.Snapshot().Leases) == 3 })
	a.Want("alloc more 1", errOutOfMemory)
	b.Want("alloc b 50M", "ok")
	b.Want("alloc more 1", errOutOfMemory)
	for _, p := range []*rig.Program{a, b} {
		p.End()
	}
	free.Want("alloc more 1", errOutOfMemory)
	job(t, m, 0, "", "close", "box")
	charged(t, m, "pod", 60*mib)
	job(t, m, 0, "", "close", "pod")
	free.Want("alloc b 90M", "ok")
	free.Want("alloc more 1", errOutOfMemory)
	free.End()
	beside.End()
}

// TestUnmanagedUncharged: with charge_unmanaged = false such bytes count against the device alone. A reload puts the key in force at once.
func TestUnmanagedUncharged(t *testing.T) {
	t.Parallel()
	const off = "schema_version = 1\n[defaults]\ncharge_unmanaged = false\n[[device]]\ncontext_reserve = \"0\"\n"
	m := rig.New(t, rig.Options{Devices: "400M", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: off})
	u, box := m.OtherUser(anne), m.Cgroup()
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "100M", "--name", "web")
	beside, a := without(m, u, box), u.BareIn(box)
	beside.Want("alloc a 30M", "ok")
	rig.Eventually(t, "it is listed with the job", func() bool {
		by := m.Snapshot().Devices[0].UnmanagedBy
		return len(by) == 1 && by[0].JobName == "web" && !by[0].Charged
	})
	holds(t, m, a, "100M", 100*mib)
	if got := rig.Run(t, m.Gpuarb("why", "web")); !strings.Contains(got.Stdout, "outside the budget: no limit holds for it") {
		t.Errorf("gpuarb why: %s", got.Stdout)
	}
	a.Want("free all", "ok")
	if err := os.WriteFile(m.Dir+"/gpuarb.toml", []byte(strings.Replace(off, "false", "true", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(m.DaemonPID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	charged(t, m, "web", 30*mib)
	a.Want("alloc a 70M", "ok")
	a.Want("alloc more 1", errOutOfMemory)
	a.End()
	beside.End()
}

// TestKeptMemoryIsCharged: if a program with the library leaves its memory to a child that goes on in the cgroup, the bytes stay in the
// budget for as long as the device shows them.
func TestKeptMemoryIsCharged(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, box := m.OtherUser(anne), m.Cgroup()
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "100M", "--name", "web")
	leaves := u.BareIn(box)
	leaves.Want("alloc a 60M", "ok")
	leaves.Tell("fork")
	child := int(leaves.Number("pid"))
	leaves.Signal(syscall.SIGKILL)
	charged(t, m, "web", 60*mib)
	a := u.BareIn(box)
	a.Want("alloc a 40M", "ok")
	a.Want("alloc more 1", errOutOfMemory)
	later := m.Snapshot().Devices[0].UnmanagedBy[0].AgeMs + 2500 // over two readings after the lease has ended
	rig.Eventually(t, "some readings have passed", func() bool { return m.Snapshot().Devices[0].UnmanagedBy[0].AgeMs > later })
	a.Want("alloc more 1", errOutOfMemory)
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	charged(t, m, "web", 0)
	a.Want("alloc b 60M", "ok")
	a.Want("alloc more 1", errOutOfMemory)
	a.End()
}
