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

// These tests run hooks that misbehave: they lie, hang, leave processes behind, or ask for a password. The daemon judges only by what
// the job holds. A job that gives nothing back stays resident, and each hook ends.

// asking returns a machine with a device of 8 GiB, on which script is the suspend hook of all jobs. It also returns a folder to which
// the script may write. The script has its path in $OUT.
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

// begin starts a program with 6 GiB, which becomes idle, and a program that waits for 4 GiB.
func begin(m *rig.Machine) (idle, waits *rig.Program) {
	m.T.Helper()
	idle, waits = cudaprog(m), cudaprog(m)
	idle.Want("alloc a 3G", "ok")
	idle.Want("alloc b 3G", "ok")
	waits.Tell("alloc c 4G")
	return idle, waits
}

// number waits until a file has a number, such as a PID, and returns the number.
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

// keeps checks that the idle program keeps its memory after the hook has run, and that the log says why. Then the test lets the program
// free memory without a hook, for the waiting program.
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

// TestHostileHooks: whatever a hook does, a job that gives nothing back stays resident, and the log says how the hook failed.
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
			if strings.Contains(c.script, "$OUT/away") { // without systemd a process that left the hook's session runs on
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

// TestAPartCounts: the program frees half of its memory, and then its hook fails. The waiting program gets that memory, and the job is
// suspended.
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

// TestHookOfAUser: the hook has the UID and the GID of the job's owner, but not the further group of the job's process. Its environment
// has five variables. Unlike the daemon, it is not protected from the kernel's out-of-memory killer.
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

// TestNoHookForRootOfAContainer: root of another PID namespace is not privileged. No hook runs for the jobs of that root, because the
// hook would run as root of the machine.
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

// TestRuleChangesWhileTheHookRuns: while a job is suspended, the daemon reads a configuration in which no job has an evict.how any more.
// The daemon completes the suspension by the commands of the old configuration.
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
