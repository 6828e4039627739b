package bindings

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks which names of programs and jobs a program in the job of a cgroup reads in messages about its requests. It also checks
// which files below /gpu such a program sees. views_test.go checks the commands.

// TestMessagesNameItsOwnJob: if a program in the job of a cgroup is refused or waits, the message names only the programs of that job. It
// gives the number of all other programs and the sum of their bytes. That holds for the text that `gpuarb run` prints, for the event, for
// the queue and for `gpuarb why`. The message to a program outside has all names.
func TestMessagesNameItsOwnJob(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, top := m.OtherUser(anne), m.Cgroup()
	box, beside := m.Below(top, "box"), m.Below(top, "beside")
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "400M", "--name", "own-box")
	job(t, m, 0, "", "open", "--cgroup", beside.Path, "--memory", "200M", "--name", "secret-box")
	secret, second, mate := u.BareIn(beside), u.BareIn(beside), runIn(m, u, box, "--name", "mate")
	secret.Want("alloc a 120M", "ok")
	second.Want("alloc a 10M", "ok")
	mate.Want("alloc a 50M", "ok")
	refused := m.Interact(inside(m, u, box, "run", "--name", "asks", "--", u.Program("cudaprog-dlsym")))
	refused.Want("alloc a 300M", errOutOfMemory)
	const others = " and 2 more with 130 MiB"
	said := func(what, text string) {
		t.Helper()
		if strings.Contains(text, "secret") || strings.Contains(text, fmt.Sprintf("[%d]", secret.PID())) || !strings.Contains(text, "mate") || !strings.Contains(text, others) {
			t.Errorf("%s, want the name mate and %q: %s", what, others, text)
		}
	}
	refused.End()
	said("what gpuarb run prints", refused.Stderr())
	for what, command := range map[string][]string{"the event": {"events", "--kind", "refused"}, "the JSON of the event": {"events", "--kind", "refused", "--json"}} {
		said(what, rig.Run(t, m.Gpuarb(command...)).Stdout)
	}
	waits := m.Interact(inside(m, u, box, "run", "--name", "waits", "--wait", "--", u.Program("cudaprog-dlsym")))
	waits.Tell("alloc a 300M")
	rig.Eventually(t, "it waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	said("the queue", m.Snapshot().Queue[0].Text)
	said("gpuarb why", rig.Run(t, inside(m, u, box, "why", "waits")).Stdout)

	behind := m.Interact(m.Gpuarb("run", "--name", "outside", "--", u.Program("cudaprog-dlsym")))
	behind.Want("alloc a 380M", errOutOfMemory)
	behind.End()
	for _, name := range []string{"secret-box (cudaprog-dlsym[", "mate (cudaprog-dlsym["} {
		if text := behind.Stderr(); !strings.Contains(text, name) {
			t.Errorf("a program outside is not told the name %s: %s", name, text)
		}
	}
	mate.Want("free a", "ok")
	secret.End()
	waits.Expect("alloc a ok")
	for _, p := range []*rig.Program{mate, waits, second} {
		p.End()
	}
}

// TestDeadlockNamesItsOwnJob: a program in the job of a cgroup is in a deadlock with a program of another job. Its message, and the event
// as read from inside its job, name only the party of that job. Root reads both parties in the event.
func TestDeadlockNamesItsOwnJob(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "400M", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\non_full = \"wait\"\nwait_timeout = \"max\"\n[[device]]\ncontext_reserve = \"0\"\n"})
	u, top := m.OtherUser(anne), m.Cgroup()
	box, beside := m.Below(top, "box"), m.Below(top, "beside")
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "400M", "--name", "own-box")
	job(t, m, 0, "", "open", "--cgroup", beside.Path, "--memory", "400M", "--name", "secret-box")
	secret, own := runIn(m, u, beside, "--name", "secret-run"), runIn(m, u, box, "--name", "own-run")
	secret.Want("alloc a 200M", "ok")
	own.Want("alloc a 200M", "ok")
	secret.Tell("alloc b 100M")
	rig.Eventually(t, "it waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	own.Want("alloc b 100M", errOutOfMemory)
	var event string
	rig.Eventually(t, "the event is there", func() bool {
		event = rig.Run(t, inside(m, u, box, "events", "--kind", "deadlock", "--json")).Stdout
		return event != ""
	})
	if strings.Contains(event, "secret") || !strings.Contains(event, "another program holds 200 MiB") || strings.Count(event, `"holds"`) != 1 {
		t.Errorf("inside, the event says %s", event)
	}
	if event := rig.Run(t, m.Gpuarb("events", "--kind", "deadlock", "--json")).Stdout; strings.Count(event, `"holds"`) != 2 {
		t.Errorf("root does not read two parties: %s", event)
	}
	own.End()
	if text := own.Stderr(); strings.Contains(text, "secret") || !strings.Contains(text, "deadlock: ") {
		t.Errorf("gpuarb run prints %s", text)
	}
	secret.Expect("alloc b ok")
	secret.End()
}

// TestMessagesNameNoOpener: root opens the job of a cgroup, but messages do not call the job root's. If all its programs belong to one
// user, messages call it that user's job.
func TestMessagesNameNoOpener(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, box := m.OtherUser(anne), m.Cgroup()
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "200M", "--min", "200M", "--name", "web")
	free := u.Bare()
	says := func(want string) {
		t.Helper()
		free.Want("alloc a 300M", errOutOfMemory)
		jobs := m.Snapshot().Jobs
		i := slices.IndexFunc(jobs, func(j figures.JobState) bool { return j.PID == free.PID() })
		if i < 0 || !strings.Contains(jobs[i].Denial, want) {
			t.Errorf("the refusal does not say %q: %+v", want, jobs)
		}
	}
	says("holds: web (job 1, cgroup) 200 MiB (reserved)")
	p := u.BareIn(box)
	p.Want("alloc a 20M", "ok")
	says(fmt.Sprintf("holds: user %d's web (job 1, cgroup) ", anne))
	says(fmt.Sprintf("user %d's web (cudaprog-dlsym[%d]) 20 MiB", anne, p.PID()))
	p.End()
	job(t, m, 0, "", "close", "web")
	rig.Eventually(t, "it is over", func() bool { return len(m.Snapshot().Jobs) == 1 })
	if got := rig.Run(t, m.Gpuarb("events", "--kind", "ended")); strings.Contains(got.Stdout, "root's web") || !strings.Contains(got.Stdout, "web (job 1, cgroup) has ended") {
		t.Errorf("the event of its end: %s", got.Stdout)
	}
	free.End()
}

// TestMessagesNameNoProcessAround: a program in a job inside another job waits for the slot of a process that is only in the outer job. Its
// message does not name that process. Root is told its name.
func TestMessagesNameNoProcessAround(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "slots.max = 1\nslots.scope = \"process\"\n")
	u, outer := m.OtherUser(anne), m.Cgroup()
	inner := m.Below(outer, "inner")
	job(t, m, 0, "", "open", "--cgroup", outer.Path, "--memory", "200M", "--name", "outer")
	job(t, m, 0, "", "open", "--cgroup", inner.Path, "--memory", "100M", "--name", "inner")
	around := u.BareIn(outer)
	around.Want("alloc a 20M", "ok")
	waits := m.Begin(inside(m, u, inner, "run", "--name", "waits", "--wait", "--", u.Program("cudaprog-dlsym"), "alloc a 20M"))
	rig.Eventually(t, "it waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	name := fmt.Sprintf("[%d]", around.PID())
	if text := m.Snapshot().Queue[0].Text; strings.Contains(text, name) {
		t.Errorf("the queue says %s", text)
	}
	if said := rig.Run(t, inside(m, u, inner, "why", "waits")); said.Code != 0 || strings.Contains(said.Stdout, name) {
		t.Errorf("gpuarb why says %d: %s", said.Code, said.Stdout)
	}
	if said := rig.Run(t, m.Gpuarb("ps")).Stdout; !strings.Contains(said, fmt.Sprint(around.PID())) {
		t.Errorf("root is not told the name: %s", said)
	}
	around.End()
	waits.Expect("ready")
	waits.Expect("alloc a ok")
	waits.Wait()
}

// TestWhoMakesRoomIsHidden: an idle job outside is asked to make room for a program in the job of a cgroup. The messages to that program, and
// what it sees of the queue, do not name the idle job. The event about the idle job, as a program inside that job's cgroup reads it, does not
// name the waiting program. Root is told both names.
func TestWhoMakesRoomIsHidden(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "400M", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: `schema_version = 1
[defaults]
on_full = "wait"
evict.after = "100ms"
evict.how = "hook"
evict.suspend = ["/bin/sleep", "30"]
evict.resume = ["/bin/true"]
evict.idle_after = "100ms"
evict.min_resident = "100ms"
[[device]]
context_reserve = "0"
`})
	u, top := m.OtherUser(anne), m.Cgroup()
	box, beside := m.Below(top, "box"), m.Below(top, "beside")
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "400M", "--name", "own-box")
	job(t, m, 0, "", "open", "--cgroup", beside.Path, "--memory", "400M", "--name", "secret-box")
	secret, waits := runIn(m, u, beside, "--name", "secret-run"), runIn(m, u, box, "--name", "own-run")
	secret.Want("alloc a 300M", "ok")
	waits.Tell("alloc a 200M")
	rig.Eventually(t, "a job is asked", func() bool { q := m.Snapshot().Queue; return len(q) == 1 && len(q[0].Asks) == 1 })
	for _, command := range [][]string{{"why", "own-run"}, {"queue"}, {"queue", "--json"}, {"events"}} {
		text := rig.Run(t, inside(m, u, box, command...)).Stdout
		if strings.Contains(text, "secret") || strings.Contains(text, "(asks job") || !strings.Contains(text, "own-run") {
			t.Errorf("inside, gpuarb %v says %s", command, text)
		}
		if command[0] == "why" && !strings.Contains(text, "asked to make room: another program") {
			t.Errorf("inside, nothing says that another program is asked: %s", text)
		}
	}
	if text := rig.Run(t, inside(m, u, beside, "events", "--kind", "suspending")).Stdout; strings.Contains(text, "own-") || !strings.Contains(text, "another program waits for room") {
		t.Errorf("inside the idle job, the event says %s", text)
	}
	if text := rig.Run(t, m.Gpuarb("queue")).Stdout; !strings.Contains(text, "(asks job ") {
		t.Errorf("root is not told who is asked: %s", text)
	}
	secret.Want("free a", "ok")
	waits.Expect("alloc a ok")
	waits.End()
	secret.End()
}

// TestFilesShowItsOwnJob: below /gpu, a user's process in the job of a cgroup sees only that job and the jobs inside it. It cannot read
// /gpu/events, which has the events of all jobs. Root in the cgroup, and processes outside, see all jobs.
func TestFilesShowItsOwnJob(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "400M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: "schema_version = 1\n[[device]]\ncontext_reserve = \"0\"\n"})
	u, top := m.OtherUser(anne), m.Cgroup()
	box, beside := m.Below(top, "box"), m.Below(top, "beside")
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "100M", "--name", "own-box")
	job(t, m, 0, "", "open", "--cgroup", beside.Path, "--memory", "200M", "--name", "secret-box")
	own, secret := u.BareIn(box), u.BareIn(beside)
	inner := runIn(m, u, box, "--name", "own-inner")
	for _, p := range []*rig.Program{own, inner, secret} {
		p.Want("alloc a 20M", "ok")
	}
	read := func(in func(*exec.Cmd) *exec.Cmd, script string) string {
		t.Helper()
		got := rig.Run(t, in(u.Command(m.Env(), "sh", "-c", "cd \"$0\" && "+script, m.Mount)))
		return got.Stdout + got.Stderr
	}
	outside := func(cmd *exec.Cmd) *exec.Cmd { return cmd }
	hidden := fmt.Sprint(secret.PID())
	number := regexp.MustCompile(`\b` + hidden + `\b`)
	for script, shows := range map[string]string{
		"cat leases": fmt.Sprint(own.PID()), "ls processes": fmt.Sprint(inner.PID()), "ls jobs": "1\n", "cat devices/0/leases": fmt.Sprint(inner.PID()), "cat metrics": "gpuarb_",
		fmt.Sprintf("cat processes/%d/memory.current", inner.PID()): "20971520",
	} {
		if text := read(outside, script); !strings.Contains(text, shows) || strings.HasPrefix(script, "cat leases") && !number.MatchString(text) {
			t.Errorf("%s outside: %s", script, text)
		}
		if text := read(box.In, script); !strings.Contains(text, shows) || number.MatchString(text) || script == "ls jobs" && strings.Contains(text, "2\n") {
			t.Errorf("%s inside, want %q: %s", script, shows, text)
		}
	}
	for _, script := range []string{"cat processes/" + hidden + "/memory.current", "cat jobs/2/memory.max", "cat events"} {
		if text := read(box.In, script+" && echo read"); strings.Contains(text, "read\n") {
			t.Errorf("%s inside: %s", script, text)
		}
		if text := read(outside, script+" && echo read"); !strings.Contains(text, "read\n") {
			t.Errorf("%s outside: %s", script, text)
		}
	}
	if got := rig.Run(t, box.In(exec.Command("cat", m.Mount+"/leases"))); !strings.Contains(got.Stdout, hidden) {
		t.Errorf("root in the cgroup does not see all leases: %s", got.Stdout+got.Stderr)
	}
	for _, p := range []*rig.Program{own, inner, secret} {
		p.End()
	}
}
