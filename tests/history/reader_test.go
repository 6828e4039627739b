package history

import (
	"encoding/json"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/archive/rows"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks who sees which jobs, and what a job's row tells of its command.

// printed returns the rows that a command prints with --json.
func printed[T any](t *testing.T, cmd *exec.Cmd) (all []T) {
	t.Helper()
	r := rig.Run(t, cmd)
	if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil || r.Code != 0 {
		t.Fatalf("%v: %+v, %v", cmd.Args, r, err)
	}
	return all
}

// TestOwnRows: users see their own jobs, and root sees those of all users. A program without gpuarb run is a job too.
func TestOwnRows(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{NoMount: true})
	kept(m)
	ann, bob := m.OtherUser(61001), m.OtherUser(61002)
	for _, u := range []*rig.OtherUser{ann, bob} {
		p := u.Bare()
		p.Want("alloc a 100M", "ok")
		p.End()
	}
	rig.Eventually(t, "both have ended", func() bool {
		all, _ := asked[report.EndedJob](m, "history")
		return len(all) == 2
	})
	if all := printed[report.EndedJob](t, ann.Gpuarb("history", "--json")); len(all) != 1 || all[0].UID != 61001 {
		t.Errorf("ann sees %+v", all)
	}
	if all := printed[report.Total](t, bob.Gpuarb("report", "--json")); len(all) != 1 || all[0].Key == nil || *all[0].Key != "61002" {
		t.Errorf("bob sees %+v", all)
	}
	if all, _ := asked[report.Total](m, "report"); len(all) != 2 {
		t.Errorf("root sees %+v", all)
	}
	if r := rig.Run(t, bob.Gpuarb("suggest", "--", "cudaprog-dlsym")); r.Stdout != "128MiB\n" {
		t.Errorf("what bob's command needs: %+v", r)
	}
}

// TestNamesOnly: with commands = "own", no argument of a command is in the store. Runs of one script still belong together.
func TestNamesOnly(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{NoMount: true, Config: "schema_version = 1\n[privacy]\ncommands = \"own\"\n"})
	kept(m)
	script := filepath.Join(m.Dir, "secret-script.sh")
	rig.Run(t, m.Gpuarb("run", "--device", "0", "--", "sh", "-c", "true"))
	write := exec.Command("sh", "-c", "echo '"+cudaprog(m)+" \"alloc a 100M\"' >"+script)
	if out, err := write.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	rig.Run(t, m.Gpuarb("run", "--name", "script", "--device", "0", "--", "sh", script, "hush"))
	p := ended(m, 2)["script"]
	if p.Command != "sh" {
		t.Errorf("the command is %q, want sh", p.Command)
	}
	if r := rig.Run(t, m.Gpuarb("suggest", "--", "sh", script)); r.Stdout != "128MiB\n" {
		t.Errorf("what the script needs: %+v", r)
	}
	if out, err := exec.Command("grep", "-rac", "-e", "secret-script", "-e", "hush", folder(m)).CombinedOutput(); err == nil {
		t.Errorf("the store has arguments: %s", out)
	}
}

// TestWhyAfterTheEnd: gpuarb why tells how a job has ended, and of its last refusal.
func TestWhyAfterTheEnd(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{NoMount: true})
	kept(m)
	rig.Run(t, m.Gpuarb("run", "--name", "over", "--memory", "100M", "--device", "0", "--", cudaprog(m), "alloc a 60M; alloc b 50M; exit 3"))
	p := ended(m, 1)["over"]
	if p.Refused != 1 || p.Reasons["over_budget"] != 1 || p.Requested == nil || *p.Requested != 50*mib || p.Refusal == nil || p.Code == nil || *p.Code != 3 {
		t.Errorf("%+v", p)
	}
	for _, arg := range []string{"over", "1"} {
		r := rig.Run(t, m.Gpuarb("why", arg))
		if r.Code != 0 || !strings.Contains(r.Stdout, "ended with exit code 3") || !strings.Contains(r.Stdout, "one of its requests was refused: ") || !strings.Contains(r.Stdout, "asked 50 MiB, 40 MiB left of the job's 100 MiB budget") {
			t.Errorf("why %s: %+v", arg, r)
		}
	}
	for _, arg := range []string{"0", "18446744073709551615", "another"} {
		if r := rig.Run(t, m.Gpuarb("history", arg)); r.Code != 1 || !strings.Contains(r.Stderr, `the history has no job "`+arg+`" that has ended in that time`) {
			t.Errorf("history %s: %+v", arg, r)
		}
	}
	if r := rig.Run(t, m.Gpuarb("history", "--limit", "-1")); r.Code != 2 {
		t.Errorf("history --limit -1: %+v", r)
	}
	killed := m.Interact(run(m, "--name", "killed", "--device", "0"))
	killed.Want("alloc a 10M", "ok")
	killed.Tell("kill 9")
	killed.Wait()
	if p := ended(m, 2)["killed"]; p.End == nil || *p.End != rows.Killed || p.Code == nil || *p.Code != 9 {
		t.Errorf("after SIGKILL: %+v", p)
	}
}

// TestTooManyQuestions: a user with as many open questions as there may be is told so.
func TestTooManyQuestions(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{NoMount: true})
	kept(m)
	rig.Eventually(t, "the user is told how many questions are open", func() bool {
		for range 20 {
			conn, err := net.Dial("unix", filepath.Join(m.Dir, rows.SocketName))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
		r := rig.Run(t, m.Gpuarb("report"))
		if strings.Contains(r.Stderr, "keeps no history") {
			t.Fatalf("%+v", r)
		}
		return r.Code == 1 && strings.Contains(r.Stderr, "16 questions of yours are open, and a user may have no more at once: let those commands end")
	})
	kept(m)
}

// TestNoHistory: history = "none" keeps nothing, runs no process, and commands say so.
func TestNoHistory(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{NoMount: true, Config: "schema_version = 1\nhistory = \"none\"\n"})
	finish(m, nil, "alloc a 10M")
	r := rig.Run(t, m.Gpuarb("history"))
	if r.Code != 69 || !strings.Contains(r.Stderr, "history = \"none\"") {
		t.Errorf("%+v", r)
	}
	if pid := keeper(m); pid != 0 {
		t.Errorf("process %d keeps a history", pid)
	}
	if _, err := net.Dial("unix", filepath.Join(m.Dir, rows.SocketName)); err == nil {
		t.Error("a process listens")
	}
}
