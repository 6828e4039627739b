package events

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/events"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks that users can read the events with cat, tail and `gpuarb events`, also over a restart of the
// daemon. It has the machine and the parser that the other files use.

// machine returns a machine with a device of 100 MiB on which contexts cost no memory.
func machine(t *testing.T) *rig.Machine {
	return rig.New(t, rig.Options{Devices: "100M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: "schema_version = 1\n"})
}

// program starts the interactive test program.
func program(m *rig.Machine, flags ...string) *rig.Program {
	m.T.Helper()
	return m.Interact(m.Gpuarb(append(append([]string{"run"}, flags...), "--", rig.Build(m.T, "programs/cudaprog-dlsym"))...))
}

// parse parses lines. Each line must be an event.
func parse(t *testing.T, text string) (all []events.Event) {
	t.Helper()
	for line := range bytes.Lines([]byte(text)) {
		e, err := events.Parse(line)
		if err != nil || line[len(line)-1] != '\n' {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

// refuse makes n requests of a program, which are refused. Each adds a line to the file of events.
func refuse(m *rig.Machine, p *rig.Program, n int) {
	m.T.Helper()
	for range n {
		p.Want("alloc x 200M", "err 2")
	}
}

// size returns the file's size as stat reports it.
func size(m *rig.Machine) int64 {
	m.T.Helper()
	info, err := os.Stat(filepath.Join(m.Mount, "events"))
	if err != nil {
		m.T.Fatal(err)
	}
	return info.Size()
}

// TestCatEnds: cat prints the kept lines and ends after as many bytes as stat reports. A later read begins with the same lines.
func TestCatEnds(t *testing.T) {
	t.Parallel()
	m := machine(t)
	p := program(m)
	refuse(m, p, 3)
	cat := rig.Run(t, m.Command(m.Env(), "cat", filepath.Join(m.Mount, "events")))
	if cat.Code != 0 || int64(len(cat.Stdout)) != size(m) {
		t.Fatalf("cat: %d, %d bytes, stat says %d\n%s", cat.Code, len(cat.Stdout), size(m), cat.Stderr)
	}
	refused := 0
	for _, e := range parse(t, cat.Stdout) {
		if e.Kind == events.Refused {
			refused++
		}
	}
	if refused != 3 {
		t.Errorf("%d refusals, want 3:\n%s", refused, cat.Stdout)
	}
	was := size(m)
	refuse(m, p, 1)
	if now := size(m); now <= was {
		t.Errorf("the size was %d and is %d", was, now)
	}
	if again := m.Read("events"); !strings.HasPrefix(again, cat.Stdout) {
		t.Errorf("what was read first is no longer the beginning:\n%s", again)
	}
}

// TestTail: tail finds the last lines, and follows the file by its size, by descriptor and by name.
func TestTail(t *testing.T) {
	t.Parallel()
	m := machine(t)
	p := program(m)
	refuse(m, p, 8)
	path := filepath.Join(m.Mount, "events")
	all := strings.SplitAfter(m.Read("events"), "\n")
	all = all[:len(all)-1]
	if last := rig.Run(t, m.Command(m.Env(), "tail", "-n", "5", path)); last.Code != 0 || last.Stdout != strings.Join(all[len(all)-5:], "") {
		t.Errorf("tail -n 5: %d\n%s%s\nwant\n%s", last.Code, last.Stdout, last.Stderr, strings.Join(all[len(all)-5:], ""))
	}
	for _, flags := range [][]string{{"-f", "-n", "2"}, {"-F", "-n", "2"}, {"-f", "-n", "+1"}} {
		tail := m.Begin(m.Command(m.Env(), "tail", append(flags, "-s", "0.05", path)...))
		shown := all[len(all)-2:]
		if flags[2] == "+1" {
			shown = all
		}
		for _, line := range shown {
			tail.Expect(strings.TrimSuffix(line, "\n"))
		}
		refuse(m, p, 1)
		line := tail.Line()
		var e events.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Kind != events.Refused {
			t.Errorf("tail %v: %q: %v", flags, line, err)
		}
		if !strings.HasSuffix(m.Read("events"), line+"\n") {
			t.Errorf("tail %v printed what is not the last line: %s", flags, line)
		}
		tail.Signal(15)
		if tail.Wait(); tail.Stderr() != "" {
			t.Errorf("tail %v: %s", flags, tail.Stderr())
		}
		all = append(all, line+"\n")
	}
}

// TestCommand: gpuarb events prints the kept lines and ends, as sentences or as the file's own lines. It uses no colours in a pipe.
func TestCommand(t *testing.T) {
	t.Parallel()
	m := machine(t)
	p := program(m)
	refuse(m, p, 2)
	got := rig.Run(t, m.Gpuarb("events", "--json"))
	if want := m.Read("events"); got.Code != 0 || got.Stdout != want {
		t.Errorf("gpuarb events --json: %d\n%s%s\nwant\n%s", got.Code, got.Stdout, got.Stderr, want)
	}
	got = rig.Run(t, m.Gpuarb("events", "--kind", "refused"))
	if lines := strings.Count(got.Stdout, "\n"); got.Code != 0 || lines != 2 || strings.Count(got.Stdout, " refused       ") != 2 || strings.Contains(got.Stdout, "\x1b") {
		t.Errorf("gpuarb events --kind refused: %d\n%s%s", got.Code, got.Stdout, got.Stderr)
	}
	if got = rig.Run(t, m.Gpuarb("events", "--kind", "nonsense")); got.Code != 2 || !strings.Contains(got.Stderr, "there are granted, refused") {
		t.Errorf("gpuarb events --kind nonsense: %d %s", got.Code, got.Stderr)
	}
	for flags, want := range map[string]int{"--user=" + rig.User(): 2, "--user=0": 2, "--user=nobody": 0, "--job=no-such": 0} {
		got = rig.Run(t, m.Gpuarb("events", "--kind=refused", flags))
		if lines := strings.Count(got.Stdout, "\n"); got.Code != 0 || lines != want {
			t.Errorf("gpuarb events %s: %d, %d lines, want %d\n%s", flags, got.Code, lines, want, got.Stdout)
		}
	}
}

// TestRestart: gpuarb events -f continues with the next daemon, says so, and prints no event twice.
func TestRestart(t *testing.T) {
	t.Parallel()
	m := machine(t)
	p := program(m)
	follow := m.Begin(m.Gpuarb("events", "-f", "--json", "--kind", "refused"))
	refuse(m, p, 1)
	first := follow.Line()
	m.Kill()
	rig.Eventually(t, "gpuarb events says that the daemon has gone", func() bool { return strings.Contains(follow.Stderr(), "has gone; waiting") })
	m.Start()
	rig.Eventually(t, "gpuarb events is connected again", func() bool { return strings.Contains(follow.Stderr(), "connected to") })
	refuse(m, p, 1)
	second := follow.Line()
	if a, b := parse(t, first+"\n")[0], parse(t, second+"\n")[0]; !b.Time.After(a.Time) || a.PID != b.PID {
		t.Errorf("%s\nand after the restart\n%s", first, second)
	}
	if !follow.Silent() {
		t.Errorf("a third line: %s", follow.Line())
	}
}

// TestStoppedDaemonEndsTheCommand: if the daemon is stopped by a signal and does not answer, `gpuarb events` ends with status 69 and says
// so. Otherwise scripts that run it, such as Slurm's Epilog, would not end.
func TestStoppedDaemonEndsTheCommand(t *testing.T) {
	m := machine(t)
	m.Halt(m.DaemonPID())
	got := rig.Run(t, m.Gpuarb("events"))
	if err := unix.Kill(m.DaemonPID(), unix.SIGCONT); err != nil {
		t.Error(err)
	}
	if got.Code != 69 || !strings.Contains(got.Stderr, "the daemon at "+m.Socket+" does not answer") {
		t.Errorf("%+v", got)
	}
}
