package bindings

import (
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks what programs inside the job of a cgroup see of other jobs, over the socket.

// TestSeesItsOwnJob: the commands of a user in the cgroup of a job show that job and the jobs inside it. Other programs appear only in
// the sums of the devices: their names, commands, PIDs and events are hidden. Root sees all jobs, also from inside
// the cgroup.
func TestSeesItsOwnJob(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, pod := m.OtherUser(anne), m.Cgroup()
	box, beside := m.Below(pod, "box"), m.Below(pod, "beside")
	job(t, m, 0, "", "open", "--cgroup", pod.Path, "--memory", "300M", "--name", "outer-pod")
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "100M", "--name", "own-box")
	job(t, m, 0, "", "open", "--cgroup", beside.Path, "--memory", "100M", "--name", "secret-box")
	own, inner, secret, free := u.BareIn(box), runIn(m, u, box, "--name", "own-inner"), u.BareIn(beside), runIn(m, u, beside, "--name", "secret-run")
	static := without(m, u, beside)
	for _, p := range []*rig.Program{own, inner, secret, free, static} {
		p.Want("alloc a 20M", "ok")
	}
	charged(t, m, "secret-box", 20*mib)
	for _, c := range []struct{ command, shows string }{
		{"ps --json", "own-box"}, {"jobs --json", "own-inner"}, {"job list", "own-box"}, {"job list --json", "outer-pod"}, {"queue --json", ""}, {"devices --json", `"used_bytes":83886080`},
		{"why own-box", "own-box"}, {"why secret-box", ""}, {"events", "own-inner"}, {"events --json", "own-box"}, {"top --once", "own-box"}, {"metrics", "gpuarb_"},
	} {
		got := rig.Run(t, inside(m, u, box, strings.Fields(c.command)...))
		if said := got.Stdout + got.Stderr; strings.Contains(got.Stdout, "secret") || !strings.Contains(strings.ReplaceAll(said, ": ", ":"), c.shows) {
			t.Errorf("gpuarb %s inside, want %q: %s", c.command, c.shows, said)
		}
		if got := rig.Run(t, box.In(m.Gpuarb(strings.Fields(c.command)...))); c.command == "jobs --json" && !strings.Contains(got.Stdout, "secret-run") {
			t.Errorf("gpuarb %s as root inside: %s", c.command, got.Stdout)
		}
	}
	for _, p := range []*rig.Program{own, inner, secret, free, static} {
		p.End()
	}
}
