package history

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks what a command needs: gpuarb suggest, and gpuarb run --memory auto.

// finish runs a program with commands until it ends.
func finish(m *rig.Machine, flags []string, commands string) {
	m.T.Helper()
	args := append(append([]string{"run", "--device", "0"}, flags...), "--", cudaprog(m), commands)
	rig.Run(m.T, m.Gpuarb(args...))
}

// TestSuggest: the suggestion is the largest peak of the last 20 runs plus a tenth, up to the next 64 MiB. A refused request is added
// to the peak of its run. --memory auto sets the same budget.
func TestSuggest(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{NoMount: true})
	suggested := func(args ...string) string {
		r := rig.Run(t, m.Gpuarb(append([]string{"suggest"}, args...)...))
		if r.Code != 0 {
			return fmt.Sprintf("%d: %s", r.Code, r.Stderr)
		}
		return strings.TrimSpace(r.Stdout)
	}
	rig.Eventually(t, "the history", func() bool {
		_, err := os.Stat(filepath.Join(m.Dir, "history.sock"))
		return err == nil
	})
	none := rig.Run(t, m.Gpuarb("run", "--memory", "auto", "--", cudaprog(m), "mem"))
	if none.Code != 125 || !strings.Contains(none.Stderr, "gpuarb: --memory auto: the history has no run of cudaprog-dlsym by you") || !strings.Contains(none.Stderr, "gpuarb run -- "+cudaprog(m)) {
		t.Errorf("without an earlier run: %+v", none)
	}
	if r := rig.Run(t, m.Gpuarb("suggest", "--", "other")); r.Code != 125 || r.Stdout != "" {
		t.Errorf("an unknown command: %+v", r)
	}
	if r := rig.Run(t, m.Gpuarb("suggest", "--name", "x", "--", "no such; rm", "$(a b)")); r.Code != 125 || !strings.Contains(r.Stderr, "gpuarb run --name x -- 'no such; rm' '$(a b)'") {
		t.Errorf("advice with words that a shell would change: %+v", r)
	}
	if r := rig.Run(t, m.Gpuarb("suggest", "--", "")); r.Code != 2 {
		t.Errorf("an empty command: %+v", r)
	}
	finish(m, nil, "alloc a 1G") // it does not count any more after 20 later runs
	ended(m, 1)
	if got := suggested("--", cudaprog(m), "other", "arguments"); got != "1152MiB" { // 1126.4 MiB
		t.Errorf("after a run with a peak of 1 GiB: %s", got)
	}
	for range 19 {
		finish(m, []string{"--name", "small"}, "alloc a 100M")
	}
	finish(m, []string{"--name", "refused", "--memory", "200M"}, "alloc a 150M; alloc b 300M")
	rig.Eventually(t, "the runs", func() bool { return suggested("--name", "refused") == "512MiB" }) // 1.1 × 450 MiB = 495 MiB
	of := rig.Run(t, m.Gpuarb("suggest", "--name", "refused"))
	if want := "the last run of refused: it used at most 150 MiB on a device and was refused another 300 MiB; 450 MiB plus a tenth"; !strings.Contains(of.Stderr, want) {
		t.Errorf("the reason is %q, want %q", of.Stderr, want)
	}
	if got := suggested("--", cudaprog(m)); got != "512MiB" {
		t.Errorf("the runs of the command without the first: %s", got)
	}
	if got := suggested("--name", "small"); got != "128MiB" { // 110 MiB
		t.Errorf("of a name: %s", got)
	}
	auto := rig.Run(t, m.Gpuarb("run", "--device", "0", "--name", "small", "--memory", "auto", "--", cudaprog(m), "alloc a 128M; alloc b 1"))
	if !strings.Contains(auto.Stdout, "alloc a ok") || !strings.Contains(auto.Stdout, "alloc b err 2") || !strings.Contains(auto.Stderr, "gpuarb: --memory auto: the last 19 runs of small used at most 100 MiB on a device") {
		t.Errorf("with --memory auto: %+v", auto)
	}
	finish(m, []string{"--name", "wide"}, "alloc a 200M") // its peak is larger than that of the run that decides
	rig.Eventually(t, "the run", func() bool { return suggested("--name", "wide") == "256MiB" })
	r := rig.Run(t, m.Gpuarb("suggest", "--json", "--", cudaprog(m)))
	for _, want := range []string{`"peak_bytes": 209715200`, `"refused_bytes": 314572800`, `"deciding_peak_bytes": 157286400`, `"deciding_job": 21`, `"memory_bytes": 536870912`} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("suggest --json lacks %s: %+v", want, r)
		}
	}

	for _, command := range [][]string{{"bash", "-o", "errexit", "-c", cudaprog(m) + " 'alloc a 300M'"}, {"env", "A=b", "sh", "-ec", cudaprog(m) + " 'alloc a 100M'"}} {
		rig.Run(t, m.Gpuarb(append([]string{"run", "--name", strings.Repeat("n", 64), "--device", "0", "--"}, command...)...))
	}
	for command, want := range map[string]string{"300M": "384MiB", "100M": "128MiB", "1M": ""} { // code is a program of its own
		rig.Eventually(t, "the runs of code", func() bool {
			r := rig.Run(t, m.Gpuarb("suggest", "--", "bash", "-c", cudaprog(m)+" 'alloc a "+command+"'"))
			other := rig.Run(t, m.Gpuarb("suggest", "--", "sh", "-ec", cudaprog(m)+" 'alloc a "+command+"'"))
			return strings.TrimSpace(r.Stdout+other.Stdout) == want
		})
	}
}
