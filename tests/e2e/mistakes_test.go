package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds the message and the exit status for each mistake of a user that depends on the daemon or the machine.
// TestExitCodes in cmd/gpuarb has the others, and badinput_test.go the starts of a daemon.

// mistakes are command lines with a user's mistake, the text that stderr must contain (parts are
// separated by "|"), and the exit status. A daemon with one GPU of 8 GiB runs. TestExitCodes in cmd/gpuarb has
// the mistakes that do not depend on the daemon and the machine.
var mistakes = []struct {
	line string
	says string
	code int
}{
	// Wrong sockets.
	{`gpuarb --socket /tmp/$(printf 'a%.0s' $(seq 200)) ps`, `gpuarb: --socket: a socket's path has at most 107 bytes, not 205`, 2},
	{`gpuarb --socket /tmp/$(printf 'a%.0s' $(seq 200)) events`, `gpuarb: --socket: a socket's path has at most 107 bytes, not 205`, 2},
	{`gpuarb --socket /tmp/$(printf 'a%.0s' $(seq 200)) run true`, `a socket's path has at most 107 bytes`, 125},
	{`gpuarb --socket /nowhere/gpuarb.sock ps`, `no gpuarb daemon answers|/nowhere/gpuarb.sock: no such file or directory|start gpuarbd`, 69},

	// Wrong commands and arguments.
	{`gpuarb staus`, `did you mean status?`, 2},
	{`gpuarb status x`, `gpuarb status takes no arguments, and was given "x"`, 2},
	{`gpuarb completion`, `completion: say what to do: completion bash, `, 2},
	{`gpuarb completion bsh`, `unknown command "completion bsh": did you mean completion bash`, 2},
	{`gpuarb plan --copies 2`, `nothing to plan for the copies: give --min SIZE, or --streams S`, 2},
	{`gpuarb queue cancel 99`, `no request waits with ticket 99`, 1},
	{`gpuarb why 1`, "1 is neither a process that uses gpuarb nor a job; `gpuarb jobs` shows both", 1},
	{`gpuarb limit --device 0 slot.max=1`, `"slot.max" is no limit of a device; there is slots.max`, 2},
	{`gpuarb limit --device 5`, `there is no device "5"; there are 0 (Simulated GPU 0`, 69},
	{`gpuarb config check /nowhere.toml >&2`, `/nowhere.toml: cannot be read: no such file or directory`, 78},
	{`gpuarb config check <(printf '[[rule]]\nmatch.usr = "ann"\n') >&2`, `:2: unknown key "match.usr" in [[rule]]; did you mean match.user?`, 78},

	// Wrong programs.
	{`gpuarb run /tmp`, `gpuarb: /tmp cannot be executed: is a directory`, 126},
	{`gpuarb run /etc/passwd`, `/etc/passwd cannot be executed: permission denied`, 126},
	{`gpuarb run ''`, `the command is empty`, 127},
	{`gpuarb run --memory -4G true`, `is negative`, 125},
	{`gpuarb run --memory 9G true`, `9GiB is more than device 0|8 GiB|ask for less`, 125},
	{`gpuarb run --device 7 true`, `7`, 125},

	// Mistakes with enable.
	{`gpuarb enable`, `say whose programs: --unit NAME, --group NAME, --user NAME or --all`, 2},
	{`gpuarb enable --unit a --user b`, `one of --unit, --group, --user and --all at a time`, 2},
	{`gpuarb enable --unit a.socket`, `--unit: a.socket is no service`, 2},
	{`gpuarb enable --all --memory 4G`, `--memory does not go with --all|write a rule`, 2},
	{`gpuarb enable --user ann --memory 4Q`, `--memory: "4Q" is no size`, 2},
	{`gpuarb enable --user ann --now`, `--now restarts a service of this machine`, 2},
	{`gpuarb disable`, `say whose programs`, 2},
	{`setpriv --reuid=65534 --clear-groups gpuarb enable --all`, `only root may do this|sudo gpuarb enable`, 1},
	{`gpuarb status --root /nowhere`, `--root: |/nowhere|no such file or directory`, 2},

	// Wrong limits.
	{`gpuarb limit --user no-such-user memory.max=2G`, `this machine has no user no-such-user`, 1},
	{`gpuarb limit --rule $(printf 'a\033b')`, `the configuration has no rule a\x1bb`, 1},
	{`gpuarb limit --rule students memory.max=2G`, `the configuration has no rule students, and no other`, 1},
	{`gpuarb limit --user 1000 memory.min=2G`, `"memory.min" is no limit of a user; there are memory.max and streams.max`, 2},

	// Mistakes with the daemon.
	{`gpuarbd --sokcet x`, `gpuarbd: unknown flag: --sokcet`, 2},
	{`gpuarbd --socket /etc/passwd/x/y --mount none`, `^gpuarbd: cannot make the runtime directory /etc/passwd/x`, 1},
	{`gpuarbd --socket /tmp/$(printf 'a%.0s' $(seq 200)) --mount none`, `^gpuarbd: |a socket's path has at most 107 bytes`, 1},
	{`gpuarbd --socket "$NOT_SET" --mount none`, `gpuarbd: --socket: the path is empty`, 2},
	{`gpuarbd --config /nowhere.toml`, `/nowhere.toml`, 78},
}

// TestMistakes: each mistake leads to a message that describes it, and to the exit status
// in docs/reference/exit-codes.md. Nothing is printed on stdout, where a script would take it for the answer.
func TestMistakes(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	build := portable(t, m)
	env := append(m.Env(), "PATH="+build+":"+os.Getenv("PATH"), "GPUARB_SOCKET="+m.Socket, "GPUARB_LIB="+filepath.Join(build, "libgpuarb.so"))
	for _, c := range mistakes {
		t.Run(c.line, func(t *testing.T) {
			r := rig.Run(t, m.Command(env, "bash", "-c", c.line))
			if r.Code != c.code {
				t.Errorf("exit status %d, want %d", r.Code, c.code)
			}
			for part := range strings.SplitSeq(c.says, "|") {
				if first, only := strings.CutPrefix(part, "^"); only && !strings.HasPrefix(r.Stderr, first) {
					t.Errorf("it does not begin with %q:\n%s", first, r.Stderr)
				} else if !only && !strings.Contains(r.Stderr, part) {
					t.Errorf("%q is missing in:\n%s", part, r.Stderr)
				}
			}
			if r.Stdout != "" {
				t.Errorf("stdout: %s", r.Stdout)
			}
		})
	}
	if log := m.Log(); strings.Contains(log, "panic") {
		t.Errorf("the daemon:\n%s", log)
	}
}
