package preload

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// This file checks what `gpuarb enable` writes and `gpuarb disable` removes, in a folder in place
// of the root of the machine: files of other programs come back to the byte, and a library that
// others can change is refused. tests/systemd/control_full_test.go does this in a booted Debian.

// TestMain sets a umask that lets all users read the files of the tests, whatever umask the tests
// inherit.
func TestMain(m *testing.M) {
	unix.Umask(0o022)
	os.Exit(m.Run())
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tree returns every folder and file below a path, with its mode and text.
func tree(t *testing.T, root string) string {
	t.Helper()
	var text strings.Builder
	check(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text.WriteString(info.Mode().String() + " " + strings.TrimPrefix(path, root) + "\n")
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			text.WriteString(string(content) + "<end>\n")
			return err
		}
		return nil
	}))
	return text.String()
}

// machineWith makes a machine that has these files.
func machineWith(t *testing.T, files map[string]string) Machine {
	t.Helper()
	m := Machine{Root: t.TempDir(), Timeout: time.Minute}
	check(t, os.MkdirAll(m.path("/etc"), 0o755))
	for name, text := range files {
		check(t, os.MkdirAll(filepath.Dir(m.path(name)), 0o755))
		check(t, os.WriteFile(m.path(name), []byte(text), 0o640))
	}
	return m
}

func target(t *testing.T, kind Kind, name string) Target {
	t.Helper()
	found, err := NewTarget(kind, name)
	check(t, err)
	return found
}

const library = "/usr/lib/gpuarb/libgpuarb.so"

// enable writes the blocks that Machine.Enable writes. Unlike Enable it starts no programs to try
// the library.
func enable(t *testing.T, m Machine, which Target, memory string) {
	t.Helper()
	check(t, m.write(which, library, memory))
}

func disable(t *testing.T, m Machine, which Target) {
	t.Helper()
	if found, err := m.removeAll(which); err != nil || !found {
		t.Fatalf("%v: %v, %v", which, found, err)
	}
}

// TestUndone checks that Disable restores all files to the byte, although several targets were
// enabled, each twice, and are disabled in another order.
func TestUndone(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"nothing there": {},
		"folders there": {"/etc/systemd/system/model.service.d/x.conf": "", "/etc/gpuarb/gpuarb.toml": "a", "/etc/pam.d/common-session": "x\n"},
		"without newlines": {"/etc/ld.so.preload": "/lib/other.so", "/etc/pam.d/common-session": "session required pam_unix.so",
			"/etc/pam.d/common-session-noninteractive": ""},
		"empty":            {"/etc/ld.so.preload": "", "/etc/systemd/system/model.service.d/50-gpuarb.conf": ""},
		"with blank lines": {"/etc/ld.so.preload": "\n\n/lib/a.so /lib/b.so:/lib/c.so\n\n", "/etc/pam.d/common-session": "\n# a\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			m := machineWith(t, files)
			before := tree(t, m.Root)
			all := []Target{target(t, Unit, "model"), target(t, User, "ann"), target(t, Group, "ann"), target(t, All, "")}
			for _, which := range all {
				enable(t, m, which, "4G")
				enable(t, m, which, "25%")
			}
			for i := range all {
				disable(t, m, all[(i+2)%len(all)])
			}
			// Only folders that one target made and another uses too may stay.
			after := tree(t, m.Root)
			if name == "nothing there" {
				before = strings.ReplaceAll(before, "drwxr-xr-x /etc\n", "")
				for _, folder := range []string{"/etc", "/etc/gpuarb", "/etc/pam.d", "/etc/systemd", "/etc/systemd/system"} {
					after = strings.ReplaceAll(after, "drwxr-xr-x "+folder+"\n", "")
				}
			}
			if after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
}

// TestOthersChangesStay checks that changes of other programs to the files survive.
func TestOthersChangesStay(t *testing.T) {
	m := machineWith(t, map[string]string{"/etc/ld.so.preload": "/lib/other.so\n", "/etc/pam.d/common-session": "one\n",
		"/etc/pam.d/common-session-noninteractive": "two\n", "/etc/gpuarb/gpuarb.toml": ""})
	unit, user, all := target(t, Unit, "model"), target(t, User, "ann"), target(t, All, "")
	for _, which := range []Target{unit, user, all} {
		enable(t, m, which, "")
	}
	change := func(path string, f func(string) string) {
		text, err := os.ReadFile(m.path(path))
		check(t, err)
		check(t, os.WriteFile(m.path(path), []byte(f(string(text))), 0o640))
	}
	around := func(text string) string { return "before\n" + text + "after" }
	change("/etc/pam.d/common-session", around)
	change("/etc/ld.so.preload", func(text string) string { return "/lib/first.so\n" + text + "/lib/last.so" })
	change("/etc/systemd/system/model.service.d/50-gpuarb.conf", around)
	for _, which := range []Target{unit, user, all} {
		disable(t, m, which)
	}
	for _, path := range []string{"/etc/systemd/system.conf.d/50-gpuarb.conf", "/etc/gpuarb/everywhere-sessions.conf"} {
		if _, err := os.Stat(m.path(path)); err == nil {
			t.Errorf("%s is there yet", path)
		}
	}
	for path, want := range map[string]string{
		"/etc/pam.d/common-session":                          "before\none\nafter",
		"/etc/pam.d/common-session-noninteractive":           "two\n",
		"/etc/ld.so.preload":                                 "/lib/first.so\n/lib/other.so\n/lib/last.so",
		"/etc/systemd/system/model.service.d/50-gpuarb.conf": "before\nafter",
	} {
		if got, err := os.ReadFile(m.path(path)); err != nil || string(got) != want {
			t.Errorf("%s: %v: %q, want %q", path, err, got, want)
		}
	}
}

// TestVulkanEverywhere checks that all sessions and services get the variable, if the machine has
// files for them.
func TestVulkanEverywhere(t *testing.T) {
	m := machineWith(t, map[string]string{"/etc/pam.d/common-session": "one\n", "/etc/pam.d/common-session-noninteractive": "two\n", "/etc/systemd/system.conf": ""})
	enable(t, m, target(t, All, ""), "")
	const line = "session optional pam_env.so readenv=0 conffile=/etc/gpuarb/everywhere-sessions.conf\n"
	for path, want := range map[string]string{
		"/etc/pam.d/common-session": line, "/etc/pam.d/common-session-noninteractive": line,
		"/etc/gpuarb/everywhere-sessions.conf":      "GPUARB_VULKAN DEFAULT=1\n",
		"/etc/systemd/system.conf.d/50-gpuarb.conf": "[Manager]\nDefaultEnvironment=GPUARB_VULKAN=1\n",
	} {
		if got, err := os.ReadFile(m.path(path)); err != nil || !strings.Contains(string(got), ")\n"+want+"# gpuarb end: all\n") {
			t.Errorf("%s: %v:\n%s\nwant\n%s", path, err, got, want)
		}
	}
	bare := machineWith(t, nil)
	enable(t, bare, target(t, All, ""), "")
	if text := tree(t, bare.Root); strings.Contains(text, "pam.d") || strings.Contains(text, "systemd") || strings.Contains(text, "sessions") {
		t.Errorf("on a system without either there is\n%s", text)
	}
}

func TestDamagedBlock(t *testing.T) {
	m := machineWith(t, nil)
	user := target(t, User, "ann")
	enable(t, m, user, "")
	path := m.path("/etc/pam.d/common-session")
	text, err := os.ReadFile(path)
	check(t, err)
	cut := strings.ReplaceAll(string(text), "# gpuarb end: user ann\n", "")
	check(t, os.WriteFile(path, []byte(cut), 0o644))
	if _, err := m.removeAll(user); err == nil || !strings.Contains(err.Error(), "by hand") {
		t.Errorf("%v, want words on what to do", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != cut {
		t.Errorf("%v: %q was changed all the same", err, got)
	}
}

func TestNoRegularFile(t *testing.T) {
	m := machineWith(t, map[string]string{"/etc/real": "/lib/other.so\n"})
	check(t, os.Symlink("real", m.path("/etc/ld.so.preload")))
	if err := m.listEverywhere(library); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("%v", err)
	}
	if entries, err := m.Entries(); err != nil || len(entries) != 0 {
		t.Errorf("%v: %+v", err, entries)
	}
}

func TestEntries(t *testing.T) {
	m := machineWith(t, nil)
	enable(t, m, target(t, Unit, "model@1"), "25%")
	enable(t, m, target(t, Group, "students"), "2G")
	enable(t, m, target(t, All, ""), "")
	entries, err := m.Entries()
	check(t, err)
	want := []Entry{
		{Target: Target{Unit, "model@1.service"}, Library: library, Memory: "25%", File: m.path("/etc/systemd/system/model@1.service.d/50-gpuarb.conf")},
		{Target: Target{Group, "students"}, Library: library, Memory: "2G", File: m.path("/etc/gpuarb/session-group-students.conf")},
		{Target: Target{All, ""}, Library: library, File: m.path("/etc/ld.so.preload")},
	}
	if len(entries) != len(want) {
		t.Fatalf("%+v", entries)
	}
	for i := range want {
		if entries[i] != want[i] {
			t.Errorf("%+v, want %+v", entries[i], want[i])
		}
	}
}

func TestTargets(t *testing.T) {
	for _, bad := range []Target{{Unit, "a.socket"}, {Unit, "../x"}, {Unit, ""}, {Unit, "a b"}, {Unit, "gpuarbd"}, {User, ""}, {User, "a\nb"},
		{User, "-x"}, {Group, "a:b"}, {Group, "a b"}} {
		if got, err := NewTarget(bad.Kind, bad.Name); err == nil {
			t.Errorf("%q is taken as %q", bad, got)
		}
	}
	if got, err := NewTarget(Unit, "ollama"); err != nil || got.Name != "ollama.service" {
		t.Errorf("%v: %v", err, got)
	}
}

// TestUntrusted checks that a library that another user could change is refused.
func TestUntrusted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root, which owns what it makes")
	}
	for name, spoil := range map[string]func(m Machine) error{
		"the file belongs to a user":     func(m Machine) error { return os.Chown(m.path(library), 1000, 0) },
		"a folder belongs to a user":     func(m Machine) error { return os.Chown(m.path("/usr/lib"), 1000, 0) },
		"a group may write it":           func(m Machine) error { return os.Chmod(m.path(library), 0o775) },
		"everybody may write the folder": func(m Machine) error { return os.Chmod(m.path("/usr/lib/gpuarb"), 0o1777) },
		"others may not read it":         func(m Machine) error { return os.Chmod(m.path(library), 0o750) },
		"others may not go there":        func(m Machine) error { return os.Chmod(m.path("/usr/lib/gpuarb"), 0o700) },
		"it is not there":                func(m Machine) error { return os.Remove(m.path(library)) },
	} {
		m := machineWith(t, map[string]string{library: ""})
		check(t, os.Chmod(m.path(library), 0o755))
		check(t, os.Chmod(m.Root, 0o755))
		if err := m.checkTrusted(library); err != nil {
			t.Fatal(err)
		}
		check(t, spoil(m))
		if err := m.checkTrusted(library); err == nil {
			t.Errorf("%s, and it is taken", name)
		}
	}
}

func TestWords(t *testing.T) {
	got := splitVariables("A=1 \"LD_PRELOAD=/lib/a.so /lib/b.so\" \"MODEL=a b\" B=\n")
	if want := []string{"A=1", "LD_PRELOAD=/lib/a.so /lib/b.so", "MODEL=a b", "B="}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestPageForOtherDistributions checks that the lines that docs/admin/control.md gives for other
// distributions are those that `gpuarb enable` writes.
func TestPageForOtherDistributions(t *testing.T) {
	page, err := os.ReadFile("../../../docs/admin/control.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		sessionLines(Target{Kind: Group, Name: "students"}, "/etc/gpuarb/students.conf"),
		"LD_PRELOAD DEFAULT=/usr/lib/gpuarb/libgpuarb.so\nGPUARB_VULKAN DEFAULT=1\n",
	} {
		if !strings.Contains(string(page), "```\n"+want+"```\n") {
			t.Errorf("docs/admin/control.md lacks\n%s", want)
		}
	}
}

// TestPageNamesEveryFile checks that docs/admin/control.md names each file that `gpuarb enable`
// writes.
func TestPageNamesEveryFile(t *testing.T) {
	page, err := os.ReadFile("../../../docs/admin/control.md")
	if err != nil {
		t.Fatal(err)
	}
	m := Machine{Root: "/"}
	written := []string{preloadList, everywhereRecord}
	for kind, name := range map[Kind]string{Unit: "NAME.service", User: "NAME", Group: "NAME", All: ""} {
		for _, b := range m.blocks(Target{Kind: kind, Name: name}, "/usr/lib/gpuarb/libgpuarb.so", "", nil) {
			written = append(written, b.path)
		}
	}
	for _, path := range written {
		if !strings.Contains(string(page), "`"+path+"`") {
			t.Errorf("docs/admin/control.md does not name %s", path)
		}
	}
}

// TestEntryState checks how `gpuarb status` says how many programs of an entry run under the library.
func TestEntryState(t *testing.T) {
	for _, c := range []struct {
		entry Entry
		want  string
	}{
		{Entry{}, "not looked at (that takes root)"},
		{Entry{Known: true}, "nothing runs"},
		{Entry{Known: true, Running: 1, Loaded: 1}, "1 of 1 processes"},
		{Entry{Known: true, Running: 3, Loaded: 2}, "2 of 3 processes"},
		{Entry{Known: true, Running: 3}, "0 of 3 processes: those that begin from now on will"},
	} {
		if got := c.entry.State(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.entry, got, c.want)
		}
	}
}
