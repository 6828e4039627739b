package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that `gpuarb config diff` shows what is in force but not in the files, and what is in the files but
// not in force.

// TestConfigDiff: config diff shows exactly the live changes, and the changes of the file that were not reloaded yet.
// The content of /gpu/config can be used as the configuration file.
func TestConfigDiff(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", Config: "schema_version = 1\n[[rule]]\nname = \"lab\"\nmatch.user = \"nobody\"\nmemory.max = \"4G\"\n"})
	file := filepath.Join(m.Dir, "gpuarb.toml")
	diff := func(want ...string) {
		t.Helper()
		r := rig.Run(t, m.Gpuarb("config", "diff"))
		code := min(1, len(want))
		if text := strings.Join(append(want, ""), "\n"); r.Stdout != text || r.Code != code {
			t.Errorf("config diff: exit status %d, want %d\n%s%s\nwant\n%s", r.Code, code, r.Stdout, r.Stderr, text)
		}
	}
	change := func(args ...string) {
		t.Helper()
		if r := rig.Run(t, m.Gpuarb(append([]string{"limit"}, args...)...)); r.Code != 0 {
			t.Fatalf("limit %v: %s", args, r.Stderr)
		}
	}
	edit := func(path string, change func(string) string) {
		t.Helper()
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(file, []byte(change(string(text))), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	diff()
	edit(filepath.Join(m.Mount, "config"), func(text string) string { return text })
	diff()
	change("--rule", "lab", "memory.max=1G")
	change("--user", "daemon", "memory.max=2G")
	change("--device", "0", "slots.max=1")
	by := rig.User()
	live := []string{
		fmt.Sprintf(`rule "lab": memory.max on device 0: in force "1GiB", in the files "4GiB"; set by %s, for rule lab (gpuarb.toml:2) (user nobody), which gives 4 GiB`, by),
		fmt.Sprintf(`all programs of user daemon: memory.max on device 0: in force "2GiB", in the files nothing; set by %s`, by),
		fmt.Sprintf(`device 0: slots.max: in force 1, in the files nothing; set by %s`, by),
	}
	diff(live...)
	for _, back := range []string{"memory.max=4G", "memory.max=50%"} { // setting the old value is not shown as a difference, in any spelling
		change("--rule", "lab", back)
		diff(live[1:]...)
	}
	change("--user", "daemon", "memory.max=max", "streams.max=3")
	change("--device", "0", "slots.max=max")
	diff(fmt.Sprintf(`all programs of user daemon: streams.max: in force 3, in the files nothing; set by %s`, by))
	change("--user", "daemon", "memory.max=2G", "streams.max=max")
	change("--rule", "lab", "memory.max=1G")
	change("--device", "0", "slots.max=1")
	diff(live...)
	edit(file, func(text string) string { return strings.Replace(text, `on_full = "deny"`, `on_full = "wait"`, 1) })
	diff(append([]string{`defaults: on_full: in force "deny", in the files "wait"; not read again yet`}, live...)...)
	if err := unix.Kill(m.DaemonPID(), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the file is read again", func() bool { return strings.Contains(m.Read("config"), `on_full = "wait"`) })
	diff(live[1:]...) // live changes of a rule last until the reload
	edit(file, func(string) string { return "schema_version = 1\nnonsense = 1\n" })
	if r := rig.Run(t, m.Gpuarb("config", "diff")); r.Code != 78 || !strings.Contains(r.Stderr, file+":2: ") {
		t.Errorf("with a mistake in the file: exit status %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
}
