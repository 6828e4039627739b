package processes

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that a program which gives up rights, descriptors or its view of the system keeps its results
// and its counts, and what applies to it when it cannot connect to the daemon.

// TestWalls: a process drops rights and resources after its first calls. Its results and its counts
// stay the same, also for new threads that must ask the daemon afterwards.
func TestWalls(t *testing.T) {
	t.Parallel()
	for name, words := range map[string][]string{
		"close_range":           {"closerange"},
		"numbers used again":    {"reused"},
		"setuid":                {"setuid"},
		"no more descriptors":   {"nofiles"},
		"seccomp":               {"seccomp", "late"},
		"nothing taken away":    {"plain"},
		"network and IPC names": {"plain"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := []string{}
			if strings.HasPrefix(name, "network") {
				before = []string{"unshare", "--net", "--ipc", "--uts"}
			}
			same(t, story(t, words, before...))
		})
	}
}

// TestHidden: results and counts also stay the same if the daemon's socket becomes unreachable.
func TestHidden(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"chroot", "unshare"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			run := func(m *rig.Machine, env []string, look func(string, *rig.Program)) []string {
				folder := m.Dir // hidden by unshare
				if how == "chroot" {
					folder = filepath.Join(m.Dir, "root")
				}
				return tell(m, env, story(t, []string{how, folder}), look)
			}
			m, other := machine(t), machine(t)
			got := run(m, m.PreloadEnv(), func(at string, _ *rig.Program) { agree(m, at) })
			compare(t, got, run(other, other.Env(), nil))
			allGone(m)
		})
	}
}

// TestOtherPIDs: a program in a PID namespace of its own is listed with its PID outside of the namespace.
func TestOtherPIDs(t *testing.T) {
	t.Parallel()
	for name, before := range map[string][]string{
		"pid":      {"unshare", "--pid", "--fork", "--kill-child"},
		"own proc": {"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"},
		"user":     {"unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			same(t, story(t, []string{"plain"}, before...))
		})
	}
}

// TestNoSockets: a program that may not connect has no daemon, and the policy for that case
// applies: it runs, or its allocations are refused with one line of explanation.
func TestNoSockets(t *testing.T) {
	t.Parallel()
	words := story(t, []string{"seccomp", "early"})
	m := machine(t)
	compare(t, tell(m, m.PreloadEnv(), words, nil), bare(t, words))
	if n := len(m.Snapshot().Leases); n != 0 {
		t.Errorf("%d leases of a program that could not connect", n)
	}
	env := append(m.PreloadEnv(), "GPUARB_ON_LOSS=closed")
	var stderr string
	p := m.Begin(m.Command(env, words[0], words[1:]...))
	var lines []string
	for line := ""; line != "end"; lines = append(lines, line) {
		if line = p.Line(); strings.HasPrefix(line, "at ") {
			p.Tell("go on")
		}
	}
	stderr = p.End()
	if !slices.Contains(lines, "alloc 2") || slices.Contains(lines, "without sockets: thread 0 takes 100 MiB: 0") {
		t.Errorf("closed: %q", lines)
	}
	if strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "device memory is refused") {
		t.Errorf("stderr: %s", stderr)
	}
	allGone(m)
}
