package arbitration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that `gpuarb limit` and the folders in /gpu change the limits of a user and of a rule while programs
// run. The expected values are what the programs can still allocate. quarter_test.go has the budgets in the
// configuration, and cgroup_test.go the limits of cgroups.

// limitTable checks the exit status and stderr of a gpuarb limit that has run; stderr "" means none. It returns what
// the command printed, with single spaces between the columns.
func limitTable(t *testing.T, code int, stderr string, r rig.Result) string {
	t.Helper()
	if r.Code != code || !strings.Contains(r.Stderr, stderr) || stderr == "" && r.Stderr != "" {
		t.Errorf("%d, %q; want %d, %q", r.Code, r.Stderr, code, stderr)
	}
	var lines []string
	for line := range strings.Lines(r.Stdout) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

// writeConfig replaces the configuration file.
func writeConfig(t *testing.T, m *rig.Machine, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.Dir, "gpuarb.toml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// reload makes the daemon read its configuration again.
func reload(t *testing.T, m *rig.Machine) {
	t.Helper()
	const said = "configuration read again"
	before := strings.Count(m.Log(), said)
	if err := syscall.Kill(m.DaemonPID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the configuration is read again", func() bool { return strings.Count(m.Log(), said) > before })
}

// TestUserLimit: root's limit on a user bounds the sum of all programs of that user, including later ones. It holds
// under all rules and in all shared budgets, and is shown with the name of the setter. The user
// may lower it, and may raise it again up to root's value. It survives a
// kill of the daemon and a reload, and ends when it is removed.
func TestUserLimit(t *testing.T) {
	t.Parallel()
	config := `schema_version = 1
[[rule]]
name = "one-device"
match.command = "*--device 0*"
memory.max = "390M"
[[rule]]
name = "class"
match.group = "61100"
scope = "rule"
memory.max = "300M"
`
	m := rig.New(t, rig.Options{Devices: "400M,200M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: config})
	u, v := m.OtherUser(anne, class), m.OtherUser(bert, class)
	root := func(args ...string) rig.Result { return rig.Run(t, m.Gpuarb(append([]string{"limit"}, args...)...)) }
	self := func(args ...string) rig.Result { return rig.Run(t, u.Gpuarb(append([]string{"limit"}, args...)...)) }
	a, b, other := u.Bare(), u.Bare("--device", "0", "-"), v.Bare()
	a.Want("alloc a 100M", "ok")
	b.Want("alloc b 30M", "ok")

	limitTable(t, 0, "gpuarb: 61001's programs hold 130 MiB of a limit of 120 MiB on GPU 0: nothing new until 10 MiB are freed", root("--user", "61001", "memory.max=120M"))
	for _, p := range []*rig.Program{a, b} {
		p.Want("alloc more 1", errOutOfMemory)
	}
	other.Want("alloc a 100M", "ok")
	b.Want("free b", "ok")
	b.Want("alloc b 20M", "ok")
	late := u.Bare()
	late.Want("alloc more 1", errOutOfMemory)
	late.Want("alloc on 1M", errOutOfMemory)

	limitTable(t, 1, "user 61001: memory.max of 121 MiB is above the 120 MiB that is allowed on GPU 0", self("--user", "61001", "memory.max=121M"))
	limitTable(t, 1, "only 61002 or root may change 61002's limit; you are 61001", self("--user", "61002", "memory.max=1M"))
	limitTable(t, 2, `"memory.min" is no limit of a user; there are memory.max and streams.max`, root("--user", "61001", "memory.min=1M"))
	for _, said := range []string{"root changed memory.max of user 61001 on GPU 0 from max to 120 MiB", `level=INFO msg="a change of a limit was refused"`,
		`uid=61001 of="user 61002" change="memory.max=1048576 on every GPU"`} {
		m.AwaitLog(said)
	}

	shown := func(most, by string) {
		t.Helper()
		want := "GPU LIMIT VALUE HELD IN-FORCE SET-BY\n0 memory.max " + most + " 125829120 yes " + by + "\n1 memory.max " + most + " 0 yes " + by
		if got := limitTable(t, 0, "", self("--bytes", "--user", "61001")); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	shown("125829120", "root")
	if got := limitTable(t, 0, "", self("--bytes", fmt.Sprint(late.PID()))); !strings.Contains(got, "0 memory.max 125829120 125829120 yes root; shared by all programs of user 61001") {
		t.Errorf("the limits of a program:\n%s", got)
	}
	why := rig.Run(t, u.Gpuarb("why", fmt.Sprint(late.PID())))
	for _, said := range []string{"it shares the budget of all programs of user 61001: 120 MiB of 120 MiB are used (by root)", "  last refused ",
		fmt.Sprintf("[%d]: out of memory on GPU 0: asked 1 MiB, 0 bytes left of the 120 MiB that root set for user 61001; holds: ", late.PID())} {
		if why.Code != 0 || !strings.Contains(why.Stdout, said) {
			t.Errorf("%q is missing in gpuarb why:\n%s%s", said, why.Stdout, why.Stderr)
		}
	}
	if got := m.Read("budgets"); !strings.Contains(got, "all programs of user 61001\n") {
		t.Errorf("budgets:\n%s", got)
	}
	limitTable(t, 0, "61001's programs hold 120 MiB of a limit of 60 MiB on GPU 0: nothing new until 60 MiB are freed", self("--user", "61001", "memory.max=60M"))
	shown("62914560", "user 61001")
	m.Kill()
	m.Start()
	rig.Eventually(t, "all sessions are resumed", func() bool { return len(m.Snapshot().Leases) == 4 })
	shown("62914560", "user 61001")
	a.Want("free a", "ok")
	a.Want("alloc a 40M", "ok")
	a.Want("alloc more 1", errOutOfMemory)
	limitTable(t, 0, "", self("--user", "61001", "memory.max=120M"))
	late.Want("alloc a 60M", "ok")
	late.Want("alloc more 1", errOutOfMemory)
	reload(t, m)
	late.Want("alloc more 1", errOutOfMemory)
	limitTable(t, 0, "", root("--user", "61001", "memory.max=max"))
	late.Want("alloc more 100M", "ok")
	late.Want("alloc beyond 1M", errOutOfMemory) // the class has 300 MiB
	if s := m.Snapshot(); len(s.Budgets) != 1 || s.Budgets[0].Devices[0].Used != 300<<20 {
		t.Errorf("%+v", s.Budgets)
	}
	for _, p := range []*rig.Program{a, b, other, late} {
		p.End()
	}
	m.Kill()
	m.Start()
	rig.Eventually(t, "no lease is left", func() bool { return len(m.Snapshot().Leases) == 0 })
	if s := m.Snapshot(); len(s.Budgets) != 0 {
		t.Errorf("%+v", s.Budgets)
	}
}

// TestUserWaitsForHisOwn: a program under on_full = "wait" waits until another program of its user
// frees memory. Its message says who set the limit.
func TestUserWaitsForHisOwn(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "400M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: `schema_version = 1
[defaults]
on_full = "wait"
`})
	u := m.OtherUser(anne)
	if r := rig.Run(t, m.Gpuarb("limit", "--user", "61001", "memory.max=100M", "streams.max=3")); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	a, b := u.Bare(), u.Bare()
	a.Want("alloc a 80M", "ok")
	b.Tell("alloc b 40M")
	rig.Eventually(t, "a request waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	if q := m.Snapshot().Queue[0]; q.Reason != "shared_full" || !strings.Contains(q.Text, "of the 100 MiB that root set for user 61001, ") || !strings.Contains(q.Text, " free; holds: user 61001's") {
		t.Errorf("%+v", q)
	}
	a.Want("free a", "ok")
	b.Expect("alloc b ok")
	if s := m.Snapshot(); len(s.Leases) != 2 || s.Leases[0].StreamsMax != 3 || s.Leases[0].StreamsBy != "root, for all programs of user 61001" {
		t.Errorf("%+v", s.Leases)
	}
	a.End()
	b.End()
}

// TestRuleLimit: a change of a rule's limit holds for running and for later programs under the rule, whether they
// share its budget or have one each. It is shown beside the value in the file. It survives a kill of
// the daemon, and ends with a reload, or with a restart that reads another file.
func TestRuleLimit(t *testing.T) {
	t.Parallel()
	config := `schema_version = 1
[[rule]]
name = "class"
match.group = "61100"
scope = "rule"
memory.max = "200M"
[[rule]]
match.user = "61004"
memory.max = "100M"
`
	m := rig.New(t, rig.Options{Devices: "400M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: config})
	u, v := m.OtherUser(anne, class), m.OtherUser(teacher)
	root := func(args ...string) rig.Result { return rig.Run(t, m.Gpuarb(append([]string{"limit"}, args...)...)) }
	a, b := u.Bare(), v.Bare()
	a.Want("alloc a 100M", "ok")
	b.Want("alloc b 50M", "ok")
	limitTable(t, 0, "gpuarb: programs under rule class hold 100 MiB of a limit of 60 MiB on GPU 0: nothing new until 40 MiB are freed", root("--rule", "class", "memory.max=60M"))
	limitTable(t, 0, "", root("--rule", "2", "memory.max=60M"))
	a.Want("alloc more 1", errOutOfMemory)
	b.Want("alloc more 10M", "ok")
	b.Want("alloc beyond 1", errOutOfMemory)
	title := "rule class (gpuarb.toml:2) (group 61100)"
	show := func(want string) {
		t.Helper()
		if got := limitTable(t, 0, "", root("--bytes", "--rule", "class")); got != "GPU LIMIT VALUE HELD IN-FORCE SET-BY\n"+want+"\n0 streams.max 256 0 yes "+title {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	changed := "0 memory.max 62914560 104857600 yes root, for " + title + ", which gives 200 MiB"
	show(changed)
	limitTable(t, 1, "rule class: only root may change what a rule gives", rig.Run(t, u.Gpuarb("limit", "--rule", "class", "memory.max=1M")))
	m.Kill()
	m.Start()
	rig.Eventually(t, "all sessions are resumed", func() bool { return len(m.Snapshot().Leases) == 2 })
	show(changed)
	reload(t, m)
	show("0 memory.max 209715200 104857600 yes " + title)
	a.Want("alloc more 100M", "ok")
	limitTable(t, 0, "", root("--rule", "2", "memory.max=90M"))
	m.Stop()
	writeConfig(t, m, strings.Replace(config, `"100M"`, `"110M"`, 1))
	m.Start()
	rig.Eventually(t, "all sessions are resumed", func() bool { return len(m.Snapshot().Leases) == 2 })
	if r := m.Snapshot().Rules[1]; r.Devices[0].Max != 110*accounting.Bytes(1<<20) {
		t.Errorf("%+v", r)
	}
	a.End()
	b.End()
}

// TestUserFolder: root can limit a user through the user's folder, as with `gpuarb limit --user`; the user cannot. The folder shows the user's
// memory and limits, even when no program of the user runs.
func TestUserFolder(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "400M,200M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: "schema_version = 1\n"})
	u := m.OtherUser(anne)
	a, b := u.Bare(), u.Bare()
	a.Want("alloc a 100M", "ok")
	b.Want("alloc b 20M", "ok")
	b.Want("stream s", "ok")
	const folder = "users/61001/"
	shown := func(name, want string) {
		t.Helper()
		if got := m.Read(folder + name); got != want+"\n" {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	shown("memory.current", "125829120")
	shown("memory.max", "max")
	shown("streams.current", "1")
	file := filepath.Join(m.Mount, folder, "memory.max")
	if r := rig.Run(t, u.Command(m.Env(), "sh", "-c", "echo 1G > "+file)); r.Code == 0 || !strings.Contains(r.Stderr, "Permission denied") {
		t.Errorf("the user writes into it: %d, %q", r.Code, r.Stderr)
	}
	write := func(text string) error { return os.WriteFile(file, []byte(text), 0) }
	if err := write("120M\n"); err != nil {
		t.Fatal(err)
	}
	m.AwaitLog("root changed memory.max of user 61001 on GPU 0 from max to 120 MiB")
	shown("memory.max", "125829120")
	a.Want("alloc more 1", errOutOfMemory)
	if got := m.Read(folder + "stats"); !strings.Contains(got, "refused.shared_full 1\n") || !strings.Contains(got, "wait.granted.count 0\n") {
		t.Errorf("stats:\n%s", got)
	}
	if err := write("nonsense"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an unknown message is answered with %v", err)
	}
	if err := write("max"); err != nil {
		t.Fatal(err)
	}
	a.Want("alloc more 1M", "ok")
	a.End()
	b.End()
	rig.Eventually(t, "nothing of his runs", func() bool { return len(m.Snapshot().Jobs) == 0 })
	shown("memory.current", "0")
}
