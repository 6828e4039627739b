package events

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/events"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that users learn of idle and old jobs, by an event and by a line of `gpuarb run`. The times are short, and the expected
// values are what the programs did. arbiter/warn_test.go has long times, with a clock of its own.

// warned returns a machine with a rule for all programs that has the given lines.
func warned(t *testing.T, lines string) *rig.Machine {
	return rig.New(t, rig.Options{Devices: "100M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[[rule]]\nname = \"lab\"\nmatch.user = \"*\"\n" + lines})
}

// countOf returns the number of events of a kind about a job with a name.
func countOf(m *rig.Machine, kind events.Kind, name string) (n int) {
	for _, e := range parse(m.T.(*testing.T), m.Read("events")) {
		if e.Kind == kind && e.JobName == name {
			n++
		}
	}
	return n
}

// TestIdle: a program that holds memory and does nothing is warned once by an event, and on the standard error of its `gpuarb run`. A reload
// does not repeat the warning. After a call it is warned again.
func TestIdle(t *testing.T) {
	t.Parallel()
	m := warned(t, "idle.warn = \"1s\"\n")
	p := program(m, "--name", "hoard")
	runner := p.Process()
	p.Want("alloc a 20M", "ok")
	const sentence = "has been idle for 1 s, and holds 20 MiB on GPU 0 (idle.warn of rule lab)"
	await(m, "it is idle", func(e *events.Event) bool {
		return e.Kind == events.Idle && of(e, runner) && on(m, e) && e.JobName == "hoard" && e.Bytes == 20<<20 && e.IdleMs >= 1000 && e.IdleMs < 60_000 &&
			strings.Contains(e.Text, "hoard") && (strings.HasSuffix(e.Text, sentence) || e.IdleMs >= 2000)
	})
	rig.Eventually(t, "gpuarb run says so", func() bool {
		return strings.Contains(p.Stderr(), "gpuarb: hoard (cudaprog-dlsym, PID ") && strings.Contains(p.Stderr(), "and holds 20 MiB on GPU 0 (idle.warn of rule lab): end it if it is no longer needed\n")
	})
	if err := unix.Kill(m.DaemonPID(), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await(m, "the configuration", func(e *events.Event) bool { return e.Kind == events.Configured })
	later := program(m, "--name", "later") // whatever the reload repeats comes before the warning of this one
	later.Want("alloc a 10M", "ok")
	await(m, "the later one is idle", func(e *events.Event) bool { return e.Kind == events.Idle && e.JobName == "later" })
	if n := countOf(m, events.Idle, "hoard"); n != 1 {
		t.Errorf("%d warnings of one idle period:\n%s", n, m.Read("events"))
	}
	p.Want("alloc b 30M", "ok")
	rig.Eventually(t, "the next idle period is warned of", func() bool { return countOf(m, events.Idle, "hoard") == 2 })
	rig.Eventually(t, "gpuarb run says so again", func() bool { return strings.Contains(p.Stderr(), "and holds 50 MiB on GPU 0") })
	if n := strings.Count(p.Stderr(), "has been idle"); n != 2 {
		t.Errorf("%d lines on stderr:\n%s", n, p.Stderr())
	}
}

// TestAged: a program that holds memory is warned once when it is as old as its rule says, also if the rule came with a reload, and also one
// that runs without `gpuarb run`. With GPUARB_QUIET gpuarb run prints nothing.
func TestAged(t *testing.T) {
	t.Parallel()
	m := warned(t, "")
	command := m.Gpuarb("run", "--name", "quiet", "--", rig.Build(t, "programs/cudaprog-dlsym"))
	command.Env = append(command.Env, "GPUARB_QUIET=1")
	quiet := m.Interact(command)
	quiet.Want("alloc a 20M", "ok")
	bare := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym"), "--device", "0"))
	bare.Want("alloc a 10M", "ok")
	config := "schema_version = 1\n[[rule]]\nmatch.user = \"*\"\nage.warn = \"1s\"\n"
	if err := os.WriteFile(filepath.Join(m.Dir, "gpuarb.toml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(m.DaemonPID(), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	pid := bare.PID()
	await(m, "the run is old", func(e *events.Event) bool {
		return e.Kind == events.Aged && e.JobName == "quiet" && on(m, e) && e.Bytes == 20<<20 && e.AgeMs >= 1000
	})
	await(m, "the bare program is old", func(e *events.Event) bool {
		return e.Kind == events.Aged && of(e, pid) && on(m, e) && e.Bytes == 10<<20 && strings.Contains(e.Text, "(age.warn of the rule for user *)")
	})
	later := program(m, "--name", "later") // asks the daemon as often as the quiet one
	later.Want("alloc a 10M", "ok")
	rig.Eventually(t, "gpuarb run says so", func() bool {
		return strings.Contains(later.Stderr(), "has run for ") && strings.Contains(later.Stderr(), "and holds 10 MiB on GPU 0 (age.warn of the rule for user *): end it")
	})
	if n := countOf(m, events.Aged, "quiet"); n != 1 || quiet.Stderr() != "" {
		t.Errorf("%d warnings, and on the standard error of the quiet run: %q", n, quiet.Stderr())
	}
}

// TestWarnTimes: a time outside its bounds is refused with the key and the bounds.
func TestWarnTimes(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "100M", Stopped: true, NoMount: true})
	for _, value := range []string{"500ms", "31d", "0s", "-1s", "soon"} {
		for _, key := range []string{"idle.warn", "age.warn"} {
			path := filepath.Join(m.Dir, "bad.toml")
			if err := os.WriteFile(path, fmt.Appendf(nil, "schema_version = 1\n[defaults]\n%s = %q\n", key, value), 0o644); err != nil {
				t.Fatal(err)
			}
			if r := rig.Run(t, m.Gpuarb("config", "check", path)); r.Code == 0 || !strings.Contains(r.Stdout+r.Stderr, key) {
				t.Errorf("%s = %q: %+v", key, value, r)
			}
		}
	}
}

// TestBusyIsNotIdle: a program whose allocations come from its credit, so that the daemon never hears of them, is not idle. It is warned
// when it has stopped.
func TestBusyIsNotIdle(t *testing.T) {
	t.Parallel()
	m := warned(t, "idle.warn = \"2s\"\n")
	busy, other := program(m, "--name", "busy"), program(m, "--name", "other")
	busy.Want("alloc a 20M", "ok")
	other.Want("alloc a 10M", "ok")
	rig.Eventually(t, "the other one is warned", func() bool {
		busy.Want("alloc b 4K", "ok")
		busy.Want("free b", "ok")
		return countOf(m, events.Idle, "other") == 1
	})
	if n := countOf(m, events.Idle, "busy"); n != 0 {
		t.Errorf("%d warnings about a program that allocates:\n%s", n, m.Read("events"))
	}
	rig.Eventually(t, "it is warned when it has stopped", func() bool { return countOf(m, events.Idle, "busy") == 1 })
}
