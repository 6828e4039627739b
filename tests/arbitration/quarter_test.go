package arbitration

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that users in a group share the budget of the group's rule, however their programs are started, and
// also over a kill of the daemon. userlimit_test.go has limits that are set while programs run.

// UIDs of three students and their teacher, and the GID of the class; they need no entry in /etc/passwd.
const (
	anne, bert, carl, teacher = 61001, 61002, 61003, 61004
	class                     = 61100
)

// quarter is a configuration that gives the class a quarter of each device, shared by its members.
const quarter = `schema_version = 1
[[rule]]
name = "students"
match.group = "61100"
scope = "rule"
memory.max = "25%"
`

// shared returns the state of the only shared budget on a device.
func shared(m *rig.Machine, device int) figures.BudgetDeviceState {
	m.T.Helper()
	s := m.Snapshot()
	if len(s.Budgets) != 1 || s.Budgets[0].Name != "rule students" || s.Budgets[0].Scope != "rule" {
		m.T.Fatalf("%+v", s.Budgets)
	}
	return s.Budgets[0].Devices[device]
}

// TestThreeUsersShareAQuarter: memory that one student holds is not available to the other two, in whatever way their
// programs are started. Other users have the rest of the device. All this holds after a kill of the daemon, even if a
// `gpuarb run` was killed before it, and after the rule has moved in the file.
func TestThreeUsersShareAQuarter(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "400M,200M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: quarter})
	a, b := m.OtherUser(anne, class).Bare(), m.OtherUser(bert, class).Bare()
	third := m.OtherUser(carl, class)
	c := m.Interact(third.Command(append(m.Env(), "GPUARB_SOCKET="+m.Socket), "sh", "-c", `
		exec 3<&0
		"$1" run --memory 45M -- sh -c 'trap "" TERM; "$1"; true' sh "$2" <&3 &
		wait`, "sh", third.Program("gpuarb"), third.Program("cudaprog-dlsym")))
	d := m.OtherUser(teacher, teacher).Bare("--device", "0", "-")
	a.Want("alloc a 40M", "ok")
	b.Want("alloc a 30M", "ok")
	c.Want("alloc a 30M", "ok")
	full := func() {
		t.Helper()
		for _, p := range []*rig.Program{a, b, c} {
			p.Want("alloc more 1", errOutOfMemory)
		}
		if on := shared(m, 0); on.Used != 100*mib || on.Max != 100*mib || on.Over {
			t.Errorf("%+v", on)
		}
	}
	full()
	d.Want("alloc a 300M", "ok")
	rig.Eventually(t, "under `gpuarb run` it is said", func() bool {
		return strings.Contains(c.Stderr(), "0 bytes left of the 100 MiB budget shared by rule students; holds: user 61001's cudaprog-dlsym[")
	})
	table := fmt.Sprintf("GPU STATE      USED       MAX MIN JOBS SHARED-BY\n  0 ok    %d %d   0    3 rule students\n"+
		"  1 ok            0  %d   0    3 rule students\n", 100*mib, 100*mib, 50*mib)
	if got := m.Read("budgets"); got != table {
		t.Errorf("/gpu/budgets:\n%swant:\n%s", got, table)
	}
	if r := rig.Run(t, m.OtherUser(bert, class).Gpuarb("ps", "--bytes")); r.Code != 0 || !strings.HasSuffix(r.Stdout, "\n\n"+table) {
		t.Errorf("gpuarb ps --bytes: exit status %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}

	// Kill only the runner, so that the daemon must find the class of the job through the program.
	runner := parent(t, parent(t, c.PID()))
	if err := syscall.Kill(runner, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the runner is gone", func() bool { return syscall.Kill(runner, 0) != nil })
	m.Kill()
	m.Start()
	rig.Eventually(t, "the four sessions are resumed", func() bool { return len(m.Snapshot().Leases) == 4 })
	full()

	before := "schema_version = 1\n[[rule]]\nmatch.user = \"61004\"\nmemory.max = \"300M\"\n" + strings.TrimPrefix(quarter, "schema_version = 1\n")
	if err := os.WriteFile(filepath.Join(m.Dir, "gpuarb.toml"), []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(m.DaemonPID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	m.AwaitLog("a configuration with 2 rules is in force")
	full()
	a.Want("free a", "ok")
	b.Want("alloc b 25M", "ok")
	c.Want("alloc b 15M", "ok")
	full()
	for _, p := range []*rig.Program{a, b, c, d} {
		p.End()
	}
	idle(m)
	if left := m.Snapshot().Budgets; len(left) != 0 {
		t.Errorf("a budget without members: %+v", left)
	}
}

// parent returns the PID of a process's parent.
func parent(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nPPid:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
