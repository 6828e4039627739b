package bindings

import (
	"slices"
	"testing"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file runs programs in a bound cgroup without the library.

// TestUnmanagedOfTheJob: a process in a bound cgroup that uses the device without the library is listed as unmanaged of that job, with
// how it avoids the library, whatever its environment says.
func TestUnmanagedOfTheJob(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, box := m.OtherUser(anne), m.Cgroup()
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "100M", "--name", "web")
	env := append(m.Env(), "GPUARB_SOCKET="+m.Socket)
	disabled := m.Interact(box.In(u.Command(append(env, "GPUARB_DISABLE=1"), "env", "LD_PRELOAD="+u.Program("libgpuarb.so"), u.Program("cudaprog-dlsym"))))
	static := m.Interact(box.In(u.Command(env, u.Program("cudaprog-dlsym"))))
	for p, how := range map[*rig.Program]figures.Bypass{disabled: figures.BypassDisabled, static: figures.BypassRemoved} {
		p.Want("alloc a 20M", "ok")
		rig.Eventually(t, "it is listed with the job", func() bool {
			return slices.ContainsFunc(m.Snapshot().Devices[0].UnmanagedBy, func(x figures.UnmanagedState) bool {
				return x.PID == p.PID() && x.JobName == "web" && x.Bypass == how
			})
		})
		p.End()
	}
}
