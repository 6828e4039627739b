package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that each message of the library and of `gpuarb run` gives the true reason, and gives it once.
// stderrOf, which runs a shell script, is used by other files, too.

// stderrOf runs a shell script in which $G is gpuarb, $P a program and $L the library, and
// returns its stderr.
func stderrOf(t *testing.T, m *rig.Machine, script string) string {
	t.Helper()
	env := append(m.Env(), "GPUARB_SOCKET="+m.Socket, "G="+rig.Build(t, "gpuarb"), "P="+cudaprog(t, "dlsym"), "L="+rig.Build(t, "libgpuarb.so"))
	return rig.Run(t, m.Command(env, "/bin/bash", "-c", script)).Stderr
}

// TestTrueReason: while a daemon answers, no message says that there is no daemon. Each cause
// has its own sentence, which appears once.
func TestTrueReason(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\nwait_timeout = \"100ms\"\n" +
			"[[rule]]\nmatch.command = \"* early *\"\nmemory.min = \"6G\"\n" +
			"[[rule]]\nmatch.command = \"*alloc small*\"\nmemory.max = \"1M\"\n" +
			"[[rule]]\nmatch.command = \"*alloc patient*\"\non_full = \"wait\"\n"})
	// gpuarb run --no-wait starts after the daemon has seen the earlier jobs end. It must not be
	// started with the token of such a job, because its process would keep that job alive.
	for name, c := range map[string]struct{ script, want string }{
		"ended": {`J=$("$G" run -- sh -c 'echo $GPUARB_JOB'); "$G" run --no-wait true; GPUARB_JOB=$J LD_PRELOAD=$L "$P" "alloc a 1M"`,
			"which ended"},
		"released": {`eval "$("$G" claim)"; "$G" claim --release >/dev/null; (unset GPUARB_JOB; "$G" run --no-wait true); "$P" "alloc a 1M"`, "a claim that was given back"},
		"unknown":  {`GPUARB_JOB=00112233445566778899aabbccddeeff LD_PRELOAD=$L "$P" "alloc a 1M"`, "no job that the daemon knows"},
		"reserved": {`"$G" run --min 4G -- sh -c 'GPUARB_JOB= "$P" "early" "alloc a 1M"'`, "did not get its memory.min of 6 GiB"},
		"rule":     {`LD_PRELOAD=$L "$P" "alloc small 2M; alloc b 2M; alloc c 3M"`, "the process's 1 MiB budget"},
		"waits":    {`"$G" run --min 7G -- sh -c 'GPUARB_JOB= "$P" "alloc patient 2G; alloc b 2G"'`, "waits for 2 GiB"},
		"size":     {`GPUARB_MEMORY=64X LD_PRELOAD=$L "$P" "alloc a 1M"`, "GPUARB_MEMORY=64X is no size"},
		"run size": {`GPUARB_MEMORY=64X "$G" run -- "$P" "alloc a 1M"`, `GPUARB_MEMORY: "64X" is no size`},
	} {
		got := stderrOf(t, m, c.script)
		if strings.Count(got, c.want) != 1 || strings.Contains(got, "no daemon at") || strings.Contains(got, "no gpuarb daemon") {
			t.Errorf("%s: %q, want one %q", name, got, c.want)
		}
	}
	if got := stderrOf(t, m, `GPUARB_QUIET=1 LD_PRELOAD=$L "$P" "alloc small 2M"`); got != "" {
		t.Errorf("GPUARB_QUIET: %q", got)
	}
	// An unreadable limit does not mean that there is no limit.
	log := filepath.Join(m.Dir, "out")
	stderrOf(t, m, `GPUARB_MEMORY=64X LD_PRELOAD=$L "$P" "alloc a 1M" >`+log)
	if text, err := os.ReadFile(log); err != nil || !strings.Contains(string(text), "init err 2") {
		t.Errorf("%s, %v", text, err)
	}
}
