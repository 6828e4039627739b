package arbitration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that a process cannot give itself more: root in a container has only the rights of a user outside
// it, and no process can raise the limit of a cgroup that it runs in. cgroup_test.go has the limits themselves.

// Beginnings of command lines that isolate a process as a container does, in the respects in which the daemon treats
// root there differently: the PID namespace, the user namespace, or both.
var (
	ownPIDs  = []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}
	ownUsers = []string{"unshare", "--user", "--map-root-user"}
	ownBoth  = []string{"unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"}
)

// overwrite is a shell command that writes $1 into the file $0, and prints the error if it cannot.
const overwrite = `printf %s "$1" | tee "$0" >/dev/null`

// behind returns cmd with walls put before its command line; walls is one of the isolating beginnings above.
func behind(m *rig.Machine, walls []string, cmd *exec.Cmd) *exec.Cmd {
	words := append(slices.Clone(walls), cmd.Args...)
	return m.Command(cmd.Env, words[0], words[1:]...)
}

// TestRootInAContainer checks that root in another user or PID namespace than the daemon's has only the rights of a user. Over
// the socket and below the mount it can change no limit of a device, a cgroup, a user or another user's job, and cannot raise its
// own; and it does not see hidden command lines.
func TestRootInAContainer(t *testing.T) {
	t.Parallel()
	for name, walls := range map[string][]string{"pid": ownPIDs, "user": ownUsers, "both": ownBoth} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: "400M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: `schema_version = 1
[[rule]]
name = "container"
match.user = "root"
memory.max = "200M"
[privacy]
commands = "own"
`})
			box := m.Cgroup()
			outside := m.OtherUser(anne).Bare("-")
			outside.Want("alloc a 10M", "ok")
			inside := m.Interact(box.In(behind(m, walls, m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym")))))
			inside.Want("alloc a 10M", "ok")
			own := fmt.Sprint(m.Snapshot().Leases[1].PID)
			if m.Snapshot().Leases[0].UID == 0 {
				own = fmt.Sprint(m.Snapshot().Leases[0].PID)
			}
			if r := rig.Run(t, m.Gpuarb("limit", "--cgroup", box.Path, "memory.max=50M")); r.Code != 0 {
				t.Fatal(r.Stderr)
			}
			for _, change := range [][]string{
				{"--cgroup", box.Path, "memory.max=max"},
				{"--cgroup", box.Path, "memory.max=10M"},
				{"--cgroup", "/elsewhere", "memory.max=10M"},
				{"--device", "0", "slots.max=1"},
				{"--user", "root", "memory.max=1M"},
				{"--rule", "container", "memory.max=max"},
				{fmt.Sprint(outside.PID()), "memory.max=1M"},
				{own, "memory.max=300M"},
			} {
				r := rig.Run(t, box.In(behind(m, walls, m.Gpuarb(append([]string{"limit"}, change...)...))))
				if r.Code != 1 || !strings.Contains(r.Stderr, "as in a container, is not root here") {
					t.Errorf("limit %v: %d %s%s", change, r.Code, r.Stdout, r.Stderr)
				}
			}
			for _, change := range [][2]string{
				{"cgroups" + box.Path + "/memory.max", "max"},
				{"devices/0/slots.max", "1"},
				{"users/root/memory.max", "1M"},
				{"processes/" + fmt.Sprint(outside.PID()) + "/memory.max", "1M"},
			} {
				path := filepath.Join(m.Mount, change[0])
				r := rig.Run(t, box.In(behind(m, walls, m.Command(m.Env(), "bash", "-o", "pipefail", "-c", overwrite, path, change[1]))))
				if r.Code == 0 || !strings.Contains(r.Stderr, "not permitted") && !strings.Contains(r.Stderr, "Permission denied") {
					t.Errorf("%v: %d %s", change, r.Code, r.Stderr)
				}
			}
			if r := rig.Run(t, behind(m, walls, m.Gpuarb("run", "--priority", "1", "--", "true"))); r.Code == 0 {
				t.Errorf("a priority above 0 was given: %+v", r)
			}
			words := `cudaprog-dlsym -"` // the command line of the program outside
			if r := rig.Run(t, behind(m, walls, m.Gpuarb("ps", "--json"))); r.Code != 0 || strings.Contains(r.Stdout, words) || !strings.Contains(r.Stdout, "cudaprog-dlsym") {
				t.Errorf("root in a container sees %s%s", r.Stdout, r.Stderr)
			}
			if r := rig.Run(t, m.Gpuarb("ps", "--json")); !strings.Contains(r.Stdout, words) {
				t.Errorf("root sees %s%s", r.Stdout, r.Stderr)
			}
			outside.Want("alloc b 100M", "ok")
			inside.Want("alloc b 40M", "ok")
			inside.Want("alloc c 1", errOutOfMemory)
			inside.End()
			outside.End()
		})
	}
}

// TestRootOwnsWhatIsInItsNamespace checks that root in a container may lower the limits of processes in its own PID namespace,
// also after a restart of the daemon, but not those of root's processes outside.
func TestRootOwnsWhatIsInItsNamespace(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "400M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	start := func(walls []string) (*rig.Program, string) {
		known := pids(m)
		p := m.Interact(behind(m, walls, m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym"))))
		p.Want("alloc a 10M", "ok")
		for _, pid := range pids(m) {
			if !slices.Contains(known, pid) {
				return p, fmt.Sprint(pid)
			}
		}
		t.Fatal("no new process has a lease")
		return nil, ""
	}
	here, pidHere := start([]string{"env"})
	one, pidOne := start(ownBoth)
	other, pidOther := start(ownPIDs)
	inOne := []string{"nsenter", "--target", pidOne, "--pid", "--user", "--preserve-credentials"}
	inOther := []string{"nsenter", "--target", pidOther, "--pid"}
	check := func(walls []string, pid string, code int) {
		t.Helper()
		r := rig.Run(t, behind(m, walls, m.Gpuarb("limit", pid, "memory.max=20M")))
		if r.Code != code || code == 1 && !strings.Contains(r.Stderr, "; you are root (root in a user or PID namespace other than the daemon's") {
			t.Errorf("%v limits %s: %d %s, want %d", walls, pid, r.Code, r.Stderr, code)
		}
	}
	for range 2 {
		check(inOne, pidOne, 0)
		check(inOther, pidOther, 0)
		check(inOne, pidHere, 1)
		check(inOne, pidOther, 1)
		check(inOther, pidOne, 1)
		m.Kill()
		m.Start()
		rig.Eventually(t, "all sessions are resumed", func() bool { return len(pids(m)) == 3 })
	}
	check([]string{"env"}, pidOther, 0)
	here.Want("alloc b 100M", "ok")
	one.Want("alloc b 11M", errOutOfMemory)
	for _, p := range []*rig.Program{here, one, other} {
		p.End()
	}
}

// pids returns the processes that have leases.
func pids(m *rig.Machine) (all []int) {
	for _, l := range m.Snapshot().Leases {
		all = append(all, l.PID)
	}
	return all
}

// TestNoCgroupRaisesItself checks that a process can lower the limits of its own cgroup and of the cgroups around it, but cannot
// raise them. This also holds for root, over the socket and below the mount.
func TestNoCgroupRaisesItself(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "400M", Config: "schema_version = 1\n"})
	outer := m.Cgroup()
	inner := m.Below(outer, "inner")
	set := func(in *rig.Cgroup, of *rig.Cgroup, most string, code int) {
		t.Helper()
		limit := m.Gpuarb("limit", "--cgroup", of.Path, "memory.max="+most)
		write := m.Command(m.Env(), "bash", "-o", "pipefail", "-c", overwrite, folder(m, of, "memory.max"), most)
		if in != nil {
			limit, write = in.In(limit), in.In(write)
		}
		if r := rig.Run(t, limit); r.Code != code || code == 1 && !strings.Contains(r.Stderr, "a process may not raise the limit of a cgroup that it runs in") {
			t.Errorf("limit of %s to %s: %d %s", of.Path, most, r.Code, r.Stderr)
		}
		if r := rig.Run(t, write); (r.Code != 0) != (code == 1) || code == 1 && !strings.Contains(r.Stderr, "not permitted") {
			t.Errorf("%s into %s: %d %s", most, of.Path, r.Code, r.Stderr)
		}
	}
	set(nil, outer, "100M", 0)
	set(nil, inner, "50M", 0)
	set(inner, outer, "200M", 1)
	set(inner, outer, "max", 1)
	set(inner, inner, "max", 1)
	set(inner, inner, "51M", 1)
	set(outer, outer, "101M", 1)
	set(inner, inner, "40M", 0)
	set(inner, outer, "90M", 0)
	set(outer, inner, "60M", 0) // the process runs above that cgroup, not inside
	set(nil, outer, "max", 0)
}
