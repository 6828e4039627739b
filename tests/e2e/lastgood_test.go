package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that a typo in the configuration does not end the limits: the daemon keeps the last configuration
// without mistakes over a restart, and says so.

// TestLastGoodConfiguration checks that a daemon that restarts after a typo in its configuration keeps the limits of the last
// good one. The log, doctor and each command that prints a table say so until the file is mended and read again. A daemon that
// never had a good configuration does not start.
func TestLastGoodConfiguration(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Config: "schema_version = 1\n[defaults]\nmemory.max = \"64M\"\n", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	file := filepath.Join(m.Dir, "gpuarb.toml")
	wrong := file + `:3: unknown key "memroy.max" in [defaults]; did you mean memory.max?`
	says := func(when string, want bool, args ...string) {
		t.Helper()
		r := rig.Run(t, m.Gpuarb(args...))
		if strings.Contains(r.Stderr, wrong) != want || strings.Contains(r.Stderr, "systemctl reload gpuarbd") != want || r.Code != 0 {
			t.Errorf("%s gpuarb %s says (%d):\n%s", when, strings.Join(args, " "), r.Code, r.Stderr)
		}
		if want && strings.Contains(r.Stdout, "memroy") {
			t.Errorf("gpuarb %s prints it on stdout:\n%s", strings.Join(args, " "), r.Stdout)
		}
	}
	tables := [][]string{{"ps"}, {"queue"}, {"devices"}, {"jobs"}, {"limit", "--device", "0"}, {"ps", "--json"}}
	limited := func(bytes, refused string) {
		t.Helper()
		p := m.Interact(m.Gpuarb("run", "--", rig.Build(t, "programs/cudaprog-dlsym")))
		p.Want("alloc a "+bytes, "ok")
		p.Want("alloc more "+refused, "err 2")
		p.End()
	}
	says("before", false, "ps")
	rig.Eventually(t, "the good configuration is kept", func() bool {
		kept, err := filepath.Glob(filepath.Join(m.Dir, "state", "config", "*.toml"))
		return err == nil && len(kept) == 1
	})

	write(t, file, "schema_version = 1\n[defaults]\nmemroy.max = \"32M\"\n")
	m.Stop()
	m.Start()
	m.AwaitLog("the configuration has mistakes: the last one without mistakes is in force")
	m.AwaitLog("memroy.max")
	limited("64M", "1")
	for _, args := range tables {
		says("with a typo", true, args...)
	}
	if r := rig.Run(t, m.Gpuarb("doctor")); r.Code != 1 || !strings.Contains(r.Stdout, "wrong   config   the configuration has mistakes") || !strings.Contains(r.Stdout, wrong) {
		t.Errorf("gpuarb doctor (%d):\n%s", r.Code, r.Stdout)
	}
	m.Kill() // a second start does not lose the kept configuration
	m.Start()
	says("after another start", true, "ps")

	reload := func(text, log string) {
		t.Helper()
		write(t, file, text)
		before := strings.Count(m.Log(), log)
		if err := unix.Kill(m.DaemonPID(), unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
		rig.Eventually(t, "the configuration is read", func() bool { return strings.Count(m.Log(), log) > before })
	}
	reload("schema_version = 1\n[defaults]\nmemory.max = \"16M\"\n", "configuration read again")
	limited("16M", "1")
	for _, args := range tables {
		says("once it is mended", false, args...)
	}
	reload("schema_version = 1\n[defaults]\nmemroy.max = \"8M\"\n", "the old one stays in force")
	rig.Eventually(t, "a reload that fails is told, too", func() bool {
		return strings.Contains(rig.Run(t, m.Gpuarb("ps")).Stderr, wrong)
	})
	m.Stop()
	m.Start()
	limited("16M", "1") // the limit of the last reload that succeeded

	m.Stop()
	if err := os.RemoveAll(filepath.Join(m.Dir, "state")); err != nil {
		t.Fatal(err)
	}
	if err := m.TryStart(); err == nil || !strings.Contains(m.Log(), wrong) {
		t.Errorf("without a good configuration the start ends with %v:\n%s", err, m.Log())
	}
	write(t, file, "schema_version = 1\n")
	m.Start()
}
