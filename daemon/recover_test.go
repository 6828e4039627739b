package daemon

import (
	"testing"

	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
)

// TestStandingOfADeadRunner checks that a job of root's whose runner has ended is privileged after a restart of the daemon only if a
// process of the job that lives is: the user number alone does not tell root from root in a container.
func TestStandingOfADeadRunner(t *testing.T) {
	member := func(privileged, ended bool) *recovered {
		proc := rules.Process{Privileged: privileged, Namespace: 7}
		return &recovered{session: &session{peer: ipc.Peer{UID: 0}}, proc: proc, ended: ended}
	}
	for _, c := range []struct {
		name    string
		members []*recovered
		want    bool
	}{
		{"no process lives", nil, false},
		{"the process has ended", []*recovered{member(true, true)}, false},
		{"the process is in a container", []*recovered{member(false, false)}, false},
		{"the process is privileged", []*recovered{member(true, false)}, true},
	} {
		proc := runnerFromMembers(&statefile.Job{UID: 0, RunnerPID: 12}, c.members)
		if proc.MayPass() != c.want || proc.Namespace == 0 {
			t.Errorf("%s: may pass the rules: %t, namespace %d", c.name, proc.MayPass(), proc.Namespace)
		}
	}
}
