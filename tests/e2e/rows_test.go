package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that the flags of ps, jobs, queue and events choose rows and their order, that all tables have one
// style of units, and that -h is the help of every command. The expected rows are those of the programs that the tests
// start.

// column returns the values of a column of a table, from the top.
func column(t *testing.T, table, name string) (values []string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(table, "\n"), "\n")
	at := slices.Index(strings.Fields(lines[0]), name)
	if at < 0 {
		t.Fatalf("no column %s in\n%s", name, table)
	}
	for _, line := range lines[1:] {
		if line == "" { // the table of shared budgets follows
			break
		}
		values = append(values, strings.Fields(line)[at])
	}
	return values
}

// sharedMachine is a machine with programs of two users on two devices, and a request of one of them that waits.
type sharedMachine struct {
	*rig.Machine
	users [2]string // anne and bert, as tables show them
}

const (
	rowsAnne = 61011
	rowsBert = 61012
)

func newSharedMachine(t *testing.T) sharedMachine {
	t.Helper()
	m := sharedMachine{rig.New(t, rig.Options{Devices: "8G,8G"}), [2]string{fmt.Sprint(rowsAnne), fmt.Sprint(rowsBert)}}
	anne, bert := m.OtherUser(rowsAnne), m.OtherUser(rowsBert)
	small := m.Interact(anne.Gpuarb("run", "--name", "small", "--device", "0", "--", anne.Program("cudaprog-dlsym"), "-"))
	small.Want("alloc a 9M", "ok")
	large := m.Interact(bert.Gpuarb("run", "--name", "large", "--device", "0", "--", bert.Program("cudaprog-dlsym"), "-"))
	large.Want("alloc a 1G", "ok")
	other := m.Interact(anne.Gpuarb("run", "--name", "other", "--device", "1", "--", anne.Program("cudaprog-dlsym"), "-"))
	other.Want("alloc a 200M", "ok")
	waits := bert.Gpuarb("run", "--name", "waits", "--min", "7G", "--wait", "--device", "0", "--", "true")
	if err := waits.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = waits.Process.Kill(); _ = waits.Wait() })
	rig.Eventually(t, "a request waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	return m
}

// TestRows: --user, --device and --sort choose the rows of ps, jobs and queue, and their order, in tables and in JSON.
func TestRows(t *testing.T) {
	t.Parallel()
	m := newSharedMachine(t)
	anne, bert := m.users[0], m.users[1]
	if r := rig.Run(t, m.Gpuarb("limit", "--user", bert, "memory.max=8G")); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	for _, c := range []struct {
		line, column string
		want         []string
	}{
		{"ps", "USED", []string{"9MiB", "1GiB", "200MiB"}},
		{"ps --human", "USED", []string{"9MiB", "1GiB", "200MiB"}},
		{"ps --bytes", "USED", []string{"9437184", "1073741824", "209715200"}},
		{"ps --user " + anne, "USED", []string{"9MiB", "200MiB"}},
		{"ps --user " + bert, "USER", []string{bert}},
		{"ps --device 1", "USED", []string{"200MiB"}},
		{"ps --device 0,1 --user " + bert, "USED", []string{"1GiB"}},
		{"ps --sort used", "USED", []string{"1GiB", "200MiB", "9MiB"}},
		{"ps --sort -used", "USED", []string{"9MiB", "200MiB", "1GiB"}},
		{"ps --sort USER", "USER", []string{anne, anne, bert}},
		{"ps --sort -gpu", "GPU", []string{"1", "0", "0"}},
		{"ps --sort command", "COMMAND", []string{"large:", "other:", "small:"}},
		{"jobs --user " + anne, "USED", []string{"9MiB", "200MiB"}},
		{"jobs --device 0 --sort used", "USED", []string{"1GiB", "9MiB", "0B"}},
		{"jobs --bytes --device 0 --sort used", "USED", []string{"1073741824", "9437184", "0"}},
		{"jobs --sort waits --device 0", "WAITS", []string{"7GiB", "-", "-"}},
		{"queue", "WANTS", []string{"7GiB"}},
		{"queue --bytes", "WANTS", []string{fmt.Sprint(7 << 30)}},
		{"queue --user " + bert + " --device 0 --sort waited", "USER", []string{bert}},
		{"queue --user " + anne, "USER", nil},
		{"queue --device 1", "USER", nil},
		{"limit --user " + bert + " --device 0", "HELD", []string{"1GiB"}},
		{"limit --bytes --user " + bert + " --device 0", "HELD", []string{"1073741824"}},
	} {
		r := rig.Run(t, m.Gpuarb(strings.Fields(c.line)...))
		if got := column(t, r.Stdout, c.column); r.Code != 0 || !slices.Equal(got, c.want) {
			t.Errorf("gpuarb %s (%d): %s is %q, want %q\n%s%s", c.line, r.Code, c.column, got, c.want, r.Stdout, r.Stderr)
		}
	}
	for line, want := range map[string][]uint64{
		"ps --json --sort used":                   {1 << 30, 200 << 20, 9 << 20},
		"ps --json --user " + anne:                {9 << 20, 200 << 20},
		"jobs --json --device 1":                  {200 << 20},
		"jobs --json --sort -used --user " + anne: {9 << 20, 200 << 20},
	} {
		var rows []struct {
			Used uint64 `json:"used_bytes"`
		}
		r := rig.Run(t, m.Gpuarb(strings.Fields(line)...))
		if err := json.Unmarshal([]byte(r.Stdout), &rows); err != nil {
			t.Fatalf("gpuarb %s: %v\n%s", line, err, r.Stderr)
		}
		var got []uint64
		for _, row := range rows {
			got = append(got, row.Used)
		}
		if !slices.Equal(got, want) {
			t.Errorf("gpuarb %s: %v, want %v", line, got, want)
		}
	}
	if files := column(t, m.Read("leases"), "USED"); !slices.Equal(files, []string{"9437184", "1073741824", "209715200"}) {
		t.Errorf("/gpu/leases has %q, want exact bytes", files)
	}
}

// TestIdleRows: --idle shows programs that have done nothing for the time, and requests that have waited for it. A
// program that works, and one that has just begun to rest, are not shown.
func TestIdleRows(t *testing.T) {
	t.Parallel()
	m := newSharedMachine(t)
	busy := m.Interact(m.Gpuarb("run", "--name", "busy", "--device", "1", "--", cudaprog(t, "dlsym"), "-"))
	busy.Want("alloc a 1M", "ok")
	idle := func(flags ...string) []string {
		return column(t, rig.Run(t, m.Gpuarb(append([]string{"ps", "--sort", "used"}, flags...)...)).Stdout, "USED")
	}
	if got := idle("--idle", "1h"); got != nil {
		t.Errorf("idle for an hour: %q", got)
	}
	rig.Eventually(t, "the programs that rest are shown, and not the one that works", func() bool {
		busy.Want("free a", "ok")
		busy.Want("alloc a 20M", "ok") // more than the credit that the free left, so that the daemon is asked
		busy.Want("free a", "ok")
		busy.Want("alloc a 1M", "ok")
		return slices.Equal(idle("--idle", "3s"), []string{"1GiB", "200MiB", "9MiB"})
	})
	rig.Eventually(t, "the request that has waited is shown", func() bool {
		return len(column(t, rig.Run(t, m.Gpuarb("queue", "--idle", "1s")).Stdout, "USER")) == 1
	})
	if got := column(t, rig.Run(t, m.Gpuarb("queue", "--idle", "1h")).Stdout, "USER"); got != nil {
		t.Errorf("waited for an hour: %q", got)
	}
}

// TestRowFlagMistakes: a value that chooses nothing is refused with what is possible.
func TestRowFlagMistakes(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	for line, want := range map[string]string{
		"ps --sort size":            `2 gpuarb: --sort: there is no column "size"; there are pid, user, gpu, state, used, budget,`,
		"queue --sort used":         `2 gpuarb: --sort: there is no column "used"; there are pos, pid,`,
		"jobs --idle soon":          `2 gpuarb: --idle: "soon" is not a duration above 0; write 90s, 10m, 2h or 7d`,
		"jobs --idle 0":             `2 gpuarb: --idle: "0" is not a duration above 0`,
		"ps --device 7":             `69 gpuarb: --device: there is no device "7"; there are 0 (`,
		"ps --user nobody-here":     `1 gpuarb: this machine has no user nobody-here`,
		"ps --user=":                `2 gpuarb: --user: it is empty; without it, all rows are shown`,
		"events --since later":      `2 gpuarb: --since: "later" is neither a duration nor a time; write 90s, 2h, 7d, "14:30", 2026-11-25 or "2026-11-25 14:30"`,
		"events --since 2999-01-01": `2 gpuarb: --since: "2999-01-01" is in the future: it is `,
		"events --since=":           `2 gpuarb: --since: it is empty; without it, all events are shown`,
		"ps --human --bytes":        `2 gpuarb: if any flags in the group [human bytes] are set none of the others can be`,
	} {
		r := rig.Run(t, m.Gpuarb(strings.Fields(line)...))
		if got := fmt.Sprintf("%d %s", r.Code, r.Stderr); !strings.HasPrefix(got, want) || r.Stdout != "" {
			t.Errorf("gpuarb %s: %s%s\nwant %s", line, r.Stdout, got, want)
		}
	}
}

// TestEventsSince: events --since leaves out what happened before a duration, or before a time.
func TestEventsSince(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	named := func(name string) {
		if r := rig.Run(t, m.Gpuarb("run", "--name", name, "--", "true")); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
	}
	of := func(flags ...string) (first, second bool) {
		r := rig.Run(t, m.Gpuarb(append([]string{"events"}, flags...)...))
		if r.Code != 0 {
			t.Errorf("gpuarb events %v: %s", flags, r.Stderr)
		}
		return strings.Contains(r.Stdout, "first-job"), strings.Contains(r.Stdout, "second-job")
	}
	named("first-job")
	rig.Eventually(t, "the second in which the first job ran is over", func() bool {
		first, _ := of("--since", "1s")
		return !first
	})
	between := time.Now()
	named("second-job")
	for _, since := range []string{between.Format(time.RFC3339Nano), "1m", "1d", between.Add(-time.Hour).Format(time.DateTime)} {
		first, second := of("--since", since)
		if want := since != between.Format(time.RFC3339Nano); first != want || !second {
			t.Errorf("--since %s: the first job %v, want %v; the second %v", since, first, want, second)
		}
	}
}

// TestShortHelp: -h prints the same help as --help, for every command of both programs.
func TestShortHelp(t *testing.T) {
	t.Parallel()
	commands := [][]string{{"gpuarbd"}}
	for next := [][]string{{"gpuarb"}}; len(next) > 0; next = next[1:] {
		commands = append(commands, next[0])
		_, list, _ := strings.Cut(help(t, next[0], "--help"), "Available Commands:\n")
		list, _, _ = strings.Cut(list, "\n\n")
		for line := range strings.Lines(list) {
			if name := strings.Fields(line)[0]; name != "help" {
				next = append(next, append(slices.Clone(next[0]), name))
			}
		}
	}
	if len(commands) < 25 {
		t.Errorf("few commands: %v", commands)
	}
	for _, command := range commands {
		long := help(t, command, "--help")
		if short := help(t, command, "-h"); short != long || !strings.Contains(long, "-h, --help") {
			t.Errorf("%v -h prints\n%s\nand --help\n%s", command, short, long)
		}
	}
}

func help(t *testing.T, command []string, flag string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), rig.Build(t, command[0]), append(command[1:], flag)...)
	c.Env = append(os.Environ(), "GPUARB_SOCKET=/nowhere")
	r := rig.Run(t, c)
	if r.Code != 0 || r.Stderr != "" {
		t.Errorf("%v %s: exit status %d\n%s", command, flag, r.Code, r.Stderr)
	}
	return r.Stdout
}
