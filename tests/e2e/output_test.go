package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that every command fails if its output cannot be written, and ends silently if the reader of its
// output is gone.

// printing are command lines that print something, at least one for each command. The test also prints
// each help. A daemon with one GPU runs.
var printing = []string{
	"gpuarb --help", "gpuarb --version", "gpuarb help", "gpuarb completion bash", "gpuarb completion zsh",
	"gpuarb ps", "gpuarb ps --json", "gpuarb jobs", "gpuarb jobs --json", "gpuarb queue", "gpuarb queue --json",
	"gpuarb devices", "gpuarb devices --json", "gpuarb why", "gpuarb why --json", "gpuarb limit --device 0", "gpuarb limit --device 0 --json",
	"gpuarb claim", "gpuarb claim --json", "gpuarb claim --index", "gpuarb claim --release",
	"gpuarb doctor", "gpuarb doctor --json", "gpuarb version", "gpuarb version --json",
	"gpuarb plan", "gpuarb plan --json", "gpuarb plan --copies 2 --min 1G", "gpuarb plan --copies 2 --min 1G --json", "gpuarb plan --copies 2 --streams 2 --stream-reserve 1M",
	"gpuarb history", "gpuarb history --json", "gpuarb report", "gpuarb report --json", "gpuarb report --csv", "gpuarb suggest --help",
	"gpuarb events", "gpuarb events --json", "gpuarb metrics", "gpuarb top --once", "gpuarb top --once --compact",
	"gpuarb status", "gpuarb status --json", "gpuarb config check $config", "gpuarb config check $config --json",
	"gpuarb job list", "gpuarb job list --json", "gpuarb cdi generate --help",
	"gpuarb run --help", "gpuarb suspend --help", "gpuarb resume --help", "gpuarb enable --help", "gpuarb disable --help",
	"gpuarbd --help", "gpuarbd --version", "gpuarbd --check-config --config $config",
}

// TestOutputIsLost: a command that cannot write its output says so and fails. If the reader of a pipe
// is gone, SIGPIPE ends the command silently, as other programs.
func TestOutputIsLost(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Config: "schema_version = 1\n"})
	build := portable(t, m)
	env := append(m.Env(), "PATH="+build+":"+os.Getenv("PATH"), "GPUARB_SOCKET="+m.Socket, "GPUARB_LIB="+build+"/libgpuarb.so", "config="+m.Dir+"/gpuarb.toml")
	bash := func(script string) rig.Result { return rig.Run(t, m.Command(env, "bash", "-c", script)) }

	lines := printing
	_, list, _ := strings.Cut(bash("gpuarb help").Stdout, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	for line := range strings.SplitSeq(list, "\n") {
		command := strings.Fields(line)[0]
		if tried := func(line string) bool { return strings.HasPrefix(line+" ", "gpuarb "+command+" ") }; !slices.ContainsFunc(printing, tried) {
			t.Errorf("what gpuarb %s prints is not tried", command)
		}
		lines = append(lines, "gpuarb help "+command)
	}
	// A pipe whose last reader is gone.
	const unread = `pipe=$(mktemp -u -p "${config%/*}"); mkfifo "$pipe"; exec 3<>"$pipe" 4>"$pipe" 3<&-; `
	for _, line := range lines {
		code := 1
		if strings.HasPrefix(line, "gpuarb run") {
			code = 125
		}
		r := bash(line + " >/dev/full")
		if r.Code != code || !strings.HasSuffix(r.Stderr, ": the output cannot be written: no space left on device\n") {
			t.Errorf("%s >/dev/full: exit status %d\n%s", line, r.Code, r.Stderr)
		}
		if r := bash(unread + line + " >&4; exit $?"); r.Code != 128+13 || strings.Contains(r.Stderr, "cannot be written") {
			t.Errorf("%s | true: exit status %d\n%s", line, r.Code, r.Stderr)
		}
	}
	rig.Eventually(t, "no claim is held whose output was lost", func() bool { return len(m.Snapshot().Jobs) == 0 })
}
