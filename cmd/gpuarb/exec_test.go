package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"golang.org/x/sys/unix"
)

// This file checks which process a program is under `gpuarb run`, with and without --exec, and what ends it together
// with the process that started gpuarb (--die-with-parent). run_test.go has the other flags of run.

// behind returns a command that runs a shell script, in which "$0" is gpuarb.
func behind(t *testing.T, env []string, script string) *exec.Cmd {
	t.Helper()
	command := gpuarb(t, env)
	outer := bounded.Command(t, bounded.Patience, "sh", "-c", script, command.Path)
	outer.Env = command.Env
	return outer
}

// TestRunBecomesTheProgram checks that the program has gpuarb's PID with --exec, and also if
// variables of systemd say that the PID matters. If LISTEN_PID or WATCHDOG_PID had gpuarb's PID, the
// program finds its own PID there in each case.
func TestRunBecomesTheProgram(t *testing.T) {
	daemon := startDaemon(t, nil)
	const program = ` sh -c 'echo $$ ${LISTEN_PID-unset} ${WATCHDOG_PID-unset}'`
	for _, c := range []struct{ variables, flags, want string }{
		{"", "", "child unset unset"},
		{"", "--exec", "same unset unset"},
		{"", "--exec=false", "child unset unset"},
		{"LISTEN_PID=", "", "child unset"},
		{"LISTEN_PID=$$", "", "same same unset"},
		{"WATCHDOG_PID=$$ LISTEN_PID=$$", "", "same same same"},
		{"NOTIFY_SOCKET=/run/systemd/notify", "", "same unset unset"},
		{"WATCHDOG_PID=$$ LISTEN_PID=$$ NOTIFY_SOCKET=@x", "--exec=false", "child child child"},
		{"LISTEN_PID=1 WATCHDOG_PID=", "--exec=false", "child 1"},
		{"LISTEN_PID=7$$ WATCHDOG_PID=$$", "--exec=false --", "child 7same child"},
	} {
		r := begin(t, behind(t, daemon.environment(t), "export "+c.variables+` GPUARB_LIB; exec "$0" run `+c.flags+program))
		line := r.line(t)
		child, _, _ := strings.Cut(line, " ")
		own := fmt.Sprint(r.Process.Pid)
		got := strings.ReplaceAll(line, own, "same")
		if child != own {
			got = strings.ReplaceAll(got, child, "child")
		}
		if got != c.want {
			t.Errorf("%s gpuarb run %s: %q, want %q", c.variables, c.flags, got, c.want)
		}
		if code := r.wait(t); code != 0 {
			t.Errorf("%s gpuarb run %s: exit code %d", c.variables, c.flags, code)
		}
	}
}

// TestRunCannotBecome checks that --exec changes no error about a program that cannot be executed,
// and that the shell runs a script without an interpreter line.
func TestRunCannotBecome(t *testing.T) {
	daemon := startDaemon(t, nil)
	folder := t.TempDir()
	plain, denied := filepath.Join(folder, "plain"), filepath.Join(folder, "denied")
	for name, mode := range map[string]os.FileMode{plain: 0o755, denied: 0o644} {
		if err := os.WriteFile(name, []byte("echo $1 $$; exit 4\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for program, want := range map[string]struct {
		code int
		text string
	}{
		"/no/such": {127, "/no/such cannot be executed: no such file or directory"},
		"/tmp":     {126, "/tmp cannot be executed: is a directory"},
		denied:     {126, denied + " cannot be executed: permission denied"},
	} {
		got := finish(t, gpuarb(t, daemon.environment(t), "run", "--exec", program))
		wantCode(t, got, want.code)
		wantStderr(t, got, want.text)
	}
	command := gpuarb(t, daemon.environment(t), "run", "--exec", plain, "a")
	got := finish(t, command)
	if want := fmt.Sprintf("a %d\n", command.Process.Pid); got.code != 4 || got.stdout != want {
		t.Errorf("a plain script: code %d\n%v", got.code, got)
	}
}

// TestRunInsideBecomes checks that --exec and --die-with-parent also work inside another job.
func TestRunInsideBecomes(t *testing.T) {
	daemon := startDaemon(t, nil)
	command := gpuarb(t, daemon.environment(t, "GPUARB_JOB="+testJobHex), "run", "--exec", "--die-with-parent", "sh", "-c", "echo $$")
	if got, want := finish(t, command), fmt.Sprintf("%d\n", command.Process.Pid); got.stdout != want || got.code != 0 {
		t.Errorf("code %d\n%v\nwant %s", got.code, got, want)
	}
}

// orphaned runs gpuarb from a shell, kills the shell when the program has printed "ready", and
// returns the running command, from which the rest of the output can be read.
func orphaned(t *testing.T, daemon *fakeDaemon, flags, program string) *running {
	t.Helper()
	outer := behind(t, daemon.environment(t), `exec 3<&0; "$0" run `+flags+` -- sh -c '`+program+`' <&3 & wait; echo never`)
	r := begin(t, outer)
	if got := r.line(t); got != "ready" {
		t.Fatalf("the program says %q", got)
	}
	if err := r.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRunDiesWithItsParent checks that with --die-with-parent the program gets TERM when the
// process that started gpuarb ends.
func TestRunDiesWithItsParent(t *testing.T) {
	daemon := startDaemon(t, nil)
	for _, flags := range []string{"--die-with-parent", "--die-with-parent --exec"} {
		r := orphaned(t, daemon, flags, `trap "echo ended; exit" TERM; echo ready; while :; do sleep 0.02; done`)
		if got := r.line(t); got != "ended" {
			t.Errorf("%s: the program says %q", flags, got)
		}
		r.wait(t)
	}
}

// TestRunKillsAfterItsParent checks that with --die-with-parent a program that ignores the TERM at
// its parent's end is killed. The test sees the kill in the end of the program's stdout.
func TestRunKillsAfterItsParent(t *testing.T) {
	t.Parallel()
	daemon := startDaemon(t, nil)
	r := orphaned(t, daemon, "--die-with-parent", `trap "" TERM; echo ready; while :; do sleep 0.02; done`)
	if rest, err := r.stdout.ReadString('\n'); rest != "" || err == nil {
		t.Errorf("the program said %q, %v", rest, err)
	}
	r.wait(t)
}

// TestRunOutlivesItsParent checks that without --die-with-parent the program outlives the process
// that started gpuarb.
func TestRunOutlivesItsParent(t *testing.T) {
	daemon := startDaemon(t, nil)
	r := orphaned(t, daemon, "", `trap "echo ended; exit" TERM; echo ready; read x; echo went on`)
	if _, err := r.stdin.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if got := r.line(t); got != "went on" {
		t.Errorf("the program says %q", got)
	}
	r.wait(t)
}

// TestWaitDiesWithItsParent checks that with --die-with-parent the end of the process that started
// gpuarb also ends a wait in the daemon's queue, before the program has started.
func TestWaitDiesWithItsParent(t *testing.T) {
	for _, flags := range []string{"--die-with-parent", "--die-with-parent --exec"} {
		daemon := startDaemon(t, func(d *fakeDaemon) {
			d.notices = []ipc.WaitingReply{notice(1, "waits for GPU 0")}
			d.serves = make(chan struct{})
		})
		outer := behind(t, daemon.environment(t), `"$0" run `+flags+` -- echo ran 2>&1 & wait`)
		r := begin(t, outer)
		if got := r.line(t); !strings.HasSuffix(got, "waits for GPU 0") {
			t.Fatalf("it says %q", got)
		}
		if err := unix.Kill(r.Process.Pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		await(t, "the request is given up", daemon.givenUp)
		r.wait(t)
	}
}
