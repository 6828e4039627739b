package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks the warnings of `gpuarb run` before programs into which the loader preloads
// nothing, such as set-user-ID programs, and before sudo and similar programs, with the command
// that the user should write.

// strangersProgram returns a set-user-ID program that gives this test's user rights of another
// user. For root it is a copy of env(1) that runs as user 65534 and prints its environment
// (environment is true). Another user cannot make such a copy and gets su(1), which runs as root;
// for root itself su(1) would not do, because root already has its rights.
func strangersProgram(t *testing.T) (program string, environment bool) {
	t.Helper()
	if os.Getuid() != 0 {
		su, err := exec.LookPath("su")
		if err != nil {
			t.Fatal(err)
		}
		return su, false
	}
	text, err := os.ReadFile("/usr/bin/env")
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(t.TempDir(), "strangers-env")
	if err := os.WriteFile(program, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(program, 65534, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(program, os.ModeSetuid|0o755); err != nil {
		t.Fatal(err)
	}
	return program, true
}

// TestRunOutside checks the warning before a program into which the loader preloads nothing. Other
// programs start without a warning.
func TestRunOutside(t *testing.T) {
	daemon := startDaemon(t, nil)
	library := testLibrary(t)
	program, environment := strangersProgram(t)
	const warning = "the loader drops the library"
	args := []string{"run", "--", program}
	if !environment {
		args = append(args, "--version")
	}
	got := finish(t, gpuarb(t, daemon.environment(t), args...))
	if got.code != 0 || strings.Count(got.stderr, "\n") != 1 || !strings.Contains(got.stderr, filepath.Base(program)+" runs with rights that you lack") ||
		!strings.Contains(got.stderr, warning) {
		t.Errorf("%v", got)
	}
	if strings.Contains(got.stdout, "LD_PRELOAD="+library) {
		t.Errorf("the library is in its environment all the same:\n%s", got.stdout)
	}
	for _, plain := range [][]string{{"env"}, {"setpriv", "--no-new-privs", program, "--version"}} {
		if got := finish(t, gpuarb(t, daemon.environment(t), append([]string{"run", "--"}, plain...)...)); got.code != 0 || got.stderr != "" {
			t.Errorf("%v: %v", plain, got)
		}
	}
	if bound := gainsPrivileges(program, identity{uid: os.Getuid(), gid: os.Getgid(), bound: true}); bound {
		t.Error("under no-new-privs nobody gains rights")
	}
}

// TestRunSudo checks the warning that sudo and similar programs start their program without the
// library, which they do for root too, and the command that it says to write instead.
func TestRunSudo(t *testing.T) {
	daemon := startDaemon(t, nil)
	folder := t.TempDir()
	text, err := os.ReadFile("/usr/bin/env")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sudo", "doas", "pkexec", "other"} {
		program := filepath.Join(folder, name)
		if err := bounded.WriteProgram(program, text); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(program, os.ModeSetuid|0o755); err != nil {
			t.Fatal(err)
		}
		const flags = "--memory 1G"
		got := finish(t, gpuarb(t, daemon.environment(t), "run", "--memory", "1G", program, "true", "a b"))
		want := ""
		if name != "other" { // a set-user-ID program of the user itself keeps the environment
			want = "gpuarb: " + name + " gives its program an environment without the library: what it starts is not held to any limit; " +
				"write: " + program + " gpuarb run " + flags + " -- true 'a b'\n"
		}
		if got.code != 0 || got.stderr != want {
			t.Errorf("%s: %v\nwant %s", name, got, want)
		}
	}
}

// TestWhatToWrite checks the command that the warning proposes: gpuarb run comes after the options
// of sudo and their values.
func TestWhatToWrite(t *testing.T) {
	for line, want := range map[string]string{
		"gpuarb run -- sudo python3 x.py":                      "write: sudo gpuarb run -- python3 x.py",
		"gpuarb run sudo python3 x.py":                         "write: sudo gpuarb run -- python3 x.py",
		"gpuarb --socket /s run --memory 1G -- sudo -u ann ls": "write: sudo -u ann gpuarb --socket /s run --memory 1G -- ls",
		"gpuarb run -- sudo -nu ann -g video -- ls -l":         "write: sudo -nu ann -g video -- gpuarb run -- ls -l",
		"gpuarb run -- sudo -uann --group video A=1 ls":        "write: sudo -uann --group video A=1 gpuarb run -- ls",
		"gpuarb run -- sudo --user=ann -E ls -u x":             "write: sudo --user=ann -E gpuarb run -- ls -u x",
		"gpuarb run -- /usr/bin/doas -u ann ls":                "write: /usr/bin/doas -u ann gpuarb run -- ls",
		"gpuarb run -- pkexec --user ann ls":                   "write: pkexec --user ann gpuarb run -- ls",
		"gpuarb run --min 1G -- sudo -i":                       "put gpuarb behind it: sudo … gpuarb run --min 1G -- COMMAND",
		"gpuarb run -- sudo -u ann --":                         "put gpuarb behind it: sudo … gpuarb run -- COMMAND",
		"gpuarb run -- su ann -c nvtop":                        "put gpuarb behind it: su … gpuarb run -- COMMAND",
	} {
		whole := strings.Fields(line)
		first := slices.IndexFunc(whole, func(word string) bool {
			return slices.Contains([]string{"sudo", "/usr/bin/doas", "pkexec", "su"}, word)
		})
		if got := adviceInside(whole, whole[first:]); got != want {
			t.Errorf("%s:\n%s\nwant %s", line, got, want)
		}
	}
}

func TestListedForAll(t *testing.T) {
	list := filepath.Join(t.TempDir(), "ld.so.preload")
	if listsLibrary(list, "libgpuarb.so") {
		t.Error("there is no list")
	}
	for text, want := range map[string]bool{"": false, "/usr/lib/libother.so\n": false, "/usr/lib/libother.so:/usr/lib/gpuarb/libgpuarb.so\n": true} {
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := listsLibrary(list, "libgpuarb.so"); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
