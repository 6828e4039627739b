package arbitration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that users are told which helper process keeps the reservation of a job whose command has ended, and
// how to end that reservation. remain_test.go has the lifetime of such a job.

// TestHelperLeftBehind leaves a helper running whose job has a reservation. A request is refused because of this
// reservation. The refusal, the tables and gpuarb why must name the helper and the command that ends the reservation, also after a
// restart of the daemon. The command must work.
func TestHelperLeftBehind(t *testing.T) {
	t.Parallel()
	m := machine(t, "8G", "")
	u := m.OtherUser(anne)
	gate := filepath.Join(m.Dir, "gate") // a shell reads it before it becomes the helper
	if err := unix.Mkfifo(gate, 0o644); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("(read line <%s; exec setsid tail -f /dev/null) </dev/null >/dev/null 2>&1 & exit 0", gate)
	if r := rig.Run(t, u.Gpuarb("run", "--min", "6G", "--memory", "7G", "--", "bash", "-c", script)); r.Code != 0 {
		t.Fatalf("gpuarb run ended with %d: %s", r.Code, r.Stderr)
	}
	livesOn(m)
	named := func(program string) {
		t.Helper()
		rig.Eventually(t, program+" still runs", func() bool { return strings.HasPrefix(m.Snapshot().Jobs[0].StillRuns, program+"[") })
	}
	named("bash")
	if err := os.WriteFile(gate, []byte("go on\n"), 0); err != nil {
		t.Fatal(err)
	}
	named("tail")
	job := m.Snapshot().Jobs[0]
	helper := regexp.MustCompile(`^tail\[\d+\]$`)
	check := func(when string) {
		t.Helper()
		left := m.Snapshot().Jobs[0].StillRuns
		if !helper.MatchString(left) {
			t.Fatalf("%s %q still runs", when, left)
		}
		said := fmt.Sprintf("'s job %d (bash; still runs: %s) 6 GiB (reserved)", job.ID, left)
		back := fmt.Sprintf("`gpuarb limit --job %d memory.min=0`", job.ID)
		if r := rig.Run(t, m.Gpuarb("run", "--no-wait", "--min", "7G", "--", "/bin/true")); r.Code != 75 || !strings.Contains(r.Stderr, said) || !strings.Contains(r.Stderr, back) {
			t.Errorf("%s a refusal says (%d):\n%s\nwant %s and %s", when, r.Code, r.Stderr, said, back)
		}
		if r := rig.Run(t, m.Gpuarb("jobs")); !strings.Contains(r.Stdout, "(still runs: "+left+")") {
			t.Errorf("%s gpuarb jobs:\n%s", when, r.Stdout)
		}
		if r := rig.Run(t, u.Gpuarb("why", fmt.Sprint(job.ID))); !strings.Contains(r.Stdout, "(still runs: "+left+")") || !strings.Contains(r.Stdout, back) {
			t.Errorf("%s gpuarb why:\n%s%s", when, r.Stdout, r.Stderr)
		}
		for _, command := range []string{"jobs", "why"} {
			r := rig.Run(t, u.Gpuarb(command, "--json"))
			var rows []struct {
				StillRuns *string `json:"still_runs"`
			}
			if err := json.Unmarshal([]byte(r.Stdout), &rows); err != nil || len(rows) != 1 || rows[0].StillRuns == nil || *rows[0].StillRuns != left {
				t.Errorf("%s gpuarb %s --json: %v\n%s", when, command, err, r.Stdout)
			}
		}
	}
	check("at first")
	m.Kill()
	m.Start()
	check("after a restart")

	program := u.Command(append(m.Env(), "GPUARB_SOCKET="+m.Socket), u.Program("gpuarb"), "run", "--wait", "--min", "7G", "--", u.Program("cudaprog-dlsym"))
	waits := m.Begin(program)
	rig.Eventually(t, "a request waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	if text := m.Snapshot().Queue[0].Text; !strings.Contains(text, "bash; still runs: tail[") || !strings.Contains(text, "memory.min=0") {
		t.Errorf("the waiting job says %q", text)
	}
	if r := rig.Run(t, u.Gpuarb("limit", "--job", fmt.Sprint(job.ID), "memory.min=0")); r.Code != 0 {
		t.Errorf("giving it back (%d): %s", r.Code, r.Stderr)
	}
	if line := waits.Line(); line != "ready" {
		t.Errorf("the job that had waited says %q", line)
	}
	waits.Want("alloc a 1G", "ok")
	waits.End()
	if r := rig.Run(t, u.Gpuarb("why", fmt.Sprint(job.ID))); strings.Contains(r.Stdout, "memory.min=0") {
		t.Errorf("with nothing reserved gpuarb why says:\n%s", r.Stdout)
	}
	if err := unix.Kill(helperPID(t, m.Snapshot().Jobs[0].StillRuns), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	idle(m)
}

// helperPID returns the PID in a process's name like "tail[12]".
func helperPID(t *testing.T, name string) (pid int) {
	t.Helper()
	if _, err := fmt.Sscanf(name, "tail[%d]", &pid); err != nil {
		t.Fatalf("%q: %v", name, err)
	}
	return pid
}
