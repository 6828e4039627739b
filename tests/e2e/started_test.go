package e2e

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that `gpuarb run` starts a program in exactly the state in which env(1) would, and that gpuarb needs
// no library. The oracle is env(1). become_test.go has the job of such a program.

// startedWith starts a command in a given state. The command starts the program `started`, and startedWith returns the state that this program
// prints, without the lines in which any two processes differ.
func startedWith(t *testing.T, m *rig.Machine, state []string, behind ...string) string {
	t.Helper()
	program := rig.Build(t, "programs/started")
	args := slices.Concat([]string{"as"}, state, []string{"--"}, behind, []string{program, "show"})
	cmd := m.Command(append(m.Env(), "GPUARB_SOCKET="+m.Socket), program, args...)
	out, err := os.Create(filepath.Join(t.TempDir(), "shown"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.ExtraFiles = out, []*os.File{out}
	r := rig.Run(t, cmd)
	_, _ = out.Seek(0, io.SeekStart)
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, r.Stderr...)
	if r.Code != 0 || !strings.Contains(string(text), "SigIgn:") {
		t.Fatalf("%v: status %d\n%s", args, r.Code, text)
	}
	return withoutOwn.ReplaceAllString(string(text), "")
}

// withoutOwn matches the lines, and the parts of a descriptor's line, in which any two processes differ. FDSize is one of them: a
// child's descriptor table is as large as that of this process at the fork, and other tests in this process open descriptors, too.
var withoutOwn = regexp.MustCompile(`(?m)^(FDSize|Ngid|Pid|PPid|Tgid|NStgid|NSpid|NSpgid|NSsid|Vm\w+|Rss\w+|Hugetlb\w+|\w*voluntary_ctxt_switches|SigQ):.*\n|\[\d+\]|/TestStarted\S*/shown`)

// differences returns the lines that only one of two texts has.
func differences(a, b string) string {
	var found strings.Builder
	for i, pair := range [][2]string{{a, b}, {b, a}} {
		for _, line := range strings.SplitAfter(pair[0], "\n") {
			if !slices.Contains(strings.SplitAfter(pair[1], "\n"), line) {
				fmt.Fprintf(&found, "%c%s", "-+"[i], line)
			}
		}
	}
	return found.String()
}

// startStates returns states in which a program can be started: each property by itself, signals in sets, and all together.
func startStates() map[string][]string {
	states := map[string][]string{
		"plain":        nil,
		"no stdin":     {"close=0"},
		"no stdout":    {"close=1"},
		"no stderr":    {"close=2"},
		"no standard":  {"close=0", "close=1", "close=2"},
		"descriptors":  {"open=5", "open=17", "open=100"},
		"umask":        {"umask=0137"},
		"nice":         {"nice=7"},
		"limits":       {"files=99", "core=0", "stack=4194304"},
		"files, fewer": {"files=4000"},
	}
	// All signals, and every second signal, so that each signal's bit is seen set beside bits that are clear.
	var ignored, blocked []string
	for number := 1; number <= 64; number++ {
		ignore, block := fmt.Sprintf("ignore=%d", number), fmt.Sprintf("block=%d", number)
		ignored, blocked = append(ignored, ignore), append(blocked, block)
		half := []string{"even", "odd"}[number%2]
		states[half+" signals ignored"] = append(states[half+" signals ignored"], ignore)
		states[half+" signals blocked"] = append(states[half+" signals blocked"], block)
	}
	states["all signals ignored"] = ignored
	states["all signals blocked"] = blocked
	states["everything"] = slices.Concat(ignored, blocked, []string{"close=0", "open=33", "umask=0777", "nice=19", "files=64"})
	return states
}

// TestStartedAsByEnv checks that a program behind `gpuarb run` starts in the same state as behind env(1): dispositions
// of signals, mask, descriptors, umask, limits, nice, session and process group.
func TestStartedAsByEnv(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	gpuarb := rig.Build(t, "gpuarb")
	for name, state := range startStates() {
		want := startedWith(t, m, state, "env")
		for _, how := range []string{"--exec=false", "--exec"} {
			if diff := differences(want, startedWith(t, m, state, gpuarb, "run", how, "--")); diff != "" {
				t.Errorf("%s: behind gpuarb run %s, not as behind env (-):\n%s", name, how, diff)
			}
		}
	}
}

// TestCommandIsOneFile checks that gpuarb runs in a root folder that has no library at all.
func TestCommandIsOneFile(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	copyFile(t, rig.Build(t, "gpuarb"), filepath.Join(root, "gpuarb"))
	cmd := bounded.Command(t, bounded.Patience, "/gpuarb", "version")
	cmd.Path, cmd.Err = "/gpuarb", nil
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Chroot = root
	if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "gpuarb ") {
		t.Errorf("in an empty root: %v: %q", err, out)
	}
}
