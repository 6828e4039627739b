package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// strangersProgram is a copy of env(1) that runs as somebody else than the test: only
// root can give a file away, and only he lacks no right of root's own programs.
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

// TestRunOutside: who starts a program into which the loader preloads nothing is told so,
// and nobody else is.
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
	if bound := gainsRights(program, ids{uid: os.Getuid(), gid: os.Getgid(), bound: true}); bound {
		t.Error("under no-new-privs nobody gains rights")
	}
}

func TestListedForAll(t *testing.T) {
	list := filepath.Join(t.TempDir(), "ld.so.preload")
	if isListed(list, "libgpuarb.so") {
		t.Error("there is no list")
	}
	for text, want := range map[string]bool{"": false, "/usr/lib/libother.so\n": false, "/usr/lib/libother.so:/usr/lib/gpuarb/libgpuarb.so\n": true} {
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := isListed(list, "libgpuarb.so"); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
