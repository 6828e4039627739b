package evict

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/rig"
	"golang.org/x/sys/unix"
)

// These tests run hooks that do not do what they should: they lie, hang, leave processes behind, or ask for a password. The daemon believes
// what the job holds, a job that gives nothing stays as it was, and each hook ends.

// asking returns a machine of 8 GiB on which a script is the hook that asks idle jobs for their memory, and the
// folder $OUT of the script.
func asking(t *testing.T, script string) (*rig.Machine, string) {
	out, err := os.MkdirTemp("", "gpuarb-hook-") // other users cannot enter the folders of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(out) })
	if err := os.Chmod(out, 0o777); err != nil {
		t.Fatal(err)
	}
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: fmt.Sprintf(`schema_version = 1
[defaults]
on_full = "wait"
evict.after = "500ms"
evict.how = "hook"
evict.suspend = ["/bin/sh", "-c", %q]
evict.resume = ["/bin/true"]
evict.idle_after = "200ms"
evict.timeout = "1s"
`, "OUT="+out+"\n"+script)})
	return m, out
}

// begin starts an idle program with 6 GiB, and a program that waits for 4 GiB.
func begin(m *rig.Machine) (idle, waits *rig.Program) {
	m.T.Helper()
	idle, waits = cudaprog(m), cudaprog(m)
	idle.Want("alloc a 3G", "ok")
	idle.Want("alloc b 3G", "ok")
	waits.Tell("alloc c 4G")
	return idle, waits
}

// number waits for a file with a number, such as a PID.
func number(t *testing.T, path string) (n int) {
	t.Helper()
	rig.Eventually(t, path+" has a number", func() bool {
		text, _ := os.ReadFile(path)
		var err error
		n, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	return n
}

// keeps checks that the idle program keeps its memory, and that the log says why. The program then makes room by itself.
func keeps(t *testing.T, m *rig.Machine, idle, waits *rig.Program, why string) {
	t.Helper()
	m.AwaitLog("keeps its memory: " + why)
	rig.Eventually(t, "the job is resident", func() bool { return m.Snapshot().Jobs[0].Residence == "" })
	if used := m.SimNumber("used", "0"); used != 6*gib || !waits.Silent() {
		t.Errorf("%d bytes are in use", used)
	}
	idle.Want("free a", "ok")
	waits.Expect("alloc c ok")
	if peak := m.SimNumber("peak", "0"); peak > 8*gib {
		t.Errorf("the driver saw %d bytes in use at once", peak)
	}
}

// TestHostileHooks: whatever a hook does, a job that gives nothing keeps its memory, and the event says how the hook failed.
func TestHostileHooks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, why string }{
		"lies":                      {"exit 0", "it gave nothing back in time"},
		"hangs":                     {"trap '' TERM INT HUP; echo $$ > $OUT/.pid; mv $OUT/.pid $OUT/pid; while :; do sleep 1000; done", "/bin/sh did not end within 1s"},
		"fails":                     {"echo first; echo no such model >&2; exit 7", "/bin/sh: exit status 7: no such model"},
		"wants a password":          {"if read word < /dev/tty; then exit 0; fi; if read word; then exit 0; fi; echo no password >&2; exit 1", "/bin/sh: exit status 1: no password"},
		"prints a lot":              {"yes no | head -c 50000000; echo; echo that was all; exit 3", "/bin/sh: exit status 3: that was all"},
		"prints bytes":              {"printf '\\377\\001\\033[31m'; exit 3", "/bin/sh: exit status 3: "},
		"leaves a process behind":   {"sleep 1000 & echo $! > $OUT/.pid; mv $OUT/.pid $OUT/pid", "it gave nothing back in time"},
		"is killed":                 {"kill -9 $$", "/bin/sh: signal: killed"},
		"leaves an open output":     {"setsid sleep 1000 & echo $! > $OUT/.away; mv $OUT/.away $OUT/away", "it gave nothing back in time"},
		"changes into a dead shell": {"exec /no/such/program", "/bin/sh: exit status 127"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, out := asking(t, c.script)
			idle, waits := begin(m)
			if strings.Contains(c.script, "$OUT/away") { // this process left the session; only systemd could end it
				pid := number(t, filepath.Join(out, "away"))
				t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
			}
			keeps(t, m, idle, waits, c.why)
			if strings.Contains(c.script, "$OUT/pid") {
				pid := number(t, filepath.Join(out, "pid"))
				rig.Eventually(t, "the processes of the hook are dead", func() bool { return unix.Kill(pid, 0) != nil })
			}
		})
	}
}

// TestAPartCounts: a hook that fails, after the program gave a half. The half serves the waiting program, and the job is suspended.
func TestAPartCounts(t *testing.T) {
	t.Parallel()
	m, out := asking(t, "touch $OUT/asked; while ! [ -e $OUT/gave ]; do sleep 0.01; done; exit 1")
	idle, waits := begin(m)
	rig.Eventually(t, "the hook runs", func() bool { _, err := os.Stat(filepath.Join(out, "asked")); return err == nil })
	idle.Want("free a", "ok")
	if err := os.WriteFile(filepath.Join(out, "gave"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	waits.Expect("alloc c ok")
	rig.Eventually(t, "the job is suspended", func() bool { return m.Snapshot().Jobs[0].Residence == figures.Suspended })
	if used := m.SimNumber("used", "0"); used != 7*gib {
		t.Errorf("%d bytes are in use", used)
	}
}

// TestHookOfAUser: the hook runs with the user, the group and no other groups of the job's owner, in an environment with five variables. It can
// be killed for lack of memory like any program, although the daemon cannot.
func TestHookOfAUser(t *testing.T) {
	t.Parallel()
	m, out := asking(t, "{ id -u; id -g; id -G; cat /proc/$$/oom_score_adj; cut -d' ' -f6 /proc/$$/stat; echo $$; pwd; } > $OUT/.is; tr '\\0' '\\n' < /proc/$$/environ > $OUT/environ; mv $OUT/.is $OUT/is")
	u := m.OtherUser(4711, 4712)
	idle := m.Interact(u.Gpuarb("run", "--", u.Program("cudaprog-dlsym")))
	idle.Want("alloc a 6G", "ok")
	waits := cudaprog(m)
	waits.Tell("alloc c 4G")
	var lines []string
	rig.Eventually(t, "the hook has run", func() bool {
		text, err := os.ReadFile(filepath.Join(out, "is"))
		lines = strings.Split(strings.TrimSpace(string(text)), "\n")
		return err == nil
	})
	if len(lines) != 7 || !slices.Equal(lines[:4], []string{"4711", "4711", "4711", "0"}) || lines[4] != lines[5] || lines[6] != "/" {
		t.Errorf("user, group, groups, oom_score_adj, session, PID, folder: %q", lines)
	}
	text, err := os.ReadFile(filepath.Join(out, "environ"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, "=")
		names = append(names, name)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"GPUARB_BYTES_WANTED", "GPUARB_DEVICE", "GPUARB_JOB", "GPUARB_PIDS", "PATH"}) {
		t.Errorf("the environment has %q", names)
	}
}

// TestNoHookForRootOfAContainer: root of another PID namespace is not privileged. No hook runs for its jobs, because the hook would be root of
// the machine.
func TestNoHookForRootOfAContainer(t *testing.T) {
	t.Parallel()
	m, out := asking(t, "touch $OUT/ran")
	idle := m.Interact(m.Command(m.PreloadEnv(), "unshare", "--pid", "--fork", "--kill-child", rig.Build(t, "programs/cudaprog-dlsym")))
	idle.Want("alloc a 3G", "ok")
	idle.Want("alloc b 3G", "ok")
	waits := cudaprog(m)
	waits.Tell("alloc c 4G")
	keeps(t, m, idle, waits, "its user is root of a container, for whom no hook runs")
	if _, err := os.Stat(filepath.Join(out, "ran")); err == nil {
		t.Error("the hook ran")
	}
}

// TestRuleChangesWhileTheHookRuns: the configuration is read again while a hook runs, and says that jobs are never suspended. The suspension that
// has begun goes on to its end, with the commands with which it began, and the job is not asked again.
func TestRuleChangesWhileTheHookRuns(t *testing.T) {
	t.Parallel()
	for _, at := range []step{atSuspending, atReturning, atResuming, atStuck} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			p := playUntil(t, at, false)
			path := filepath.Join(p.m.Dir, "gpuarb.toml")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var kept []string
			for line := range strings.Lines(string(text)) {
				if !strings.HasPrefix(line, "evict.") {
					kept = append(kept, line)
				}
			}
			if err := os.WriteFile(path, []byte(strings.Join(kept, "")), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := unix.Kill(p.m.DaemonPID(), unix.SIGHUP); err != nil {
				t.Fatal(err)
			}
			p.m.AwaitLog("configuration read again")
			if at == atSuspending || at == atResuming {
				p.s.does(p.call)
			}
			p.toTheEnd(at)
		})
	}
}
