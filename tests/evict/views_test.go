package evict

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/events"
	"github.com/gpuarb/gpuarb/tests/rig"
	"golang.org/x/sys/unix"
)

// These tests check that files, commands, events and metrics show which jobs are asked to make room. The same views must show which jobs
// are suspended, and which return. hook_test.go tests what happens to the memory.

// gpuarb runs the command gpuarb, and returns its output. It fails the test if the command fails.
func gpuarb(m *rig.Machine, args ...string) string {
	m.T.Helper()
	r := rig.Run(m.T, m.Gpuarb(args...))
	if r.Code != 0 {
		m.T.Fatalf("gpuarb %v: %d, %s", args, r.Code, r.Stderr)
	}
	return r.Stdout
}

// eventsOf returns the events of a job that tell of its suspension or its return.
func eventsOf(m *rig.Machine, job uint64) (all []events.Event) {
	m.T.Helper()
	for line := range strings.Lines(gpuarb(m, "events", "--json")) {
		e, err := events.Parse([]byte(line))
		if err != nil {
			m.T.Fatalf("%v in %s", err, line)
		}
		switch e.Kind {
		case events.Suspending, events.Suspended, events.SuspendFailed, events.Resuming, events.Resumed, events.Stuck:
			if e.Job == job {
				all = append(all, e)
			}
		}
	}
	return all
}

// TestEvents: each step of a suspension has an event. It says how many bytes, how long the step took, and whether a waiting request or a
// user asked.
func TestEvents(t *testing.T) {
	t.Parallel()
	folder := hooks(t)
	m := machine(t, folder)
	idle, waits := cudaprog(m), cudaprog(m)
	idle.Want("alloc a 6G", "ok")
	waits.Tell("alloc b 4G")
	said(t, folder, "suspend")
	ticket := m.Snapshot().Queue[0].Ticket
	idle.Want("free a", "ok")
	ends(t, folder, 0)
	if got := waits.Line(); got != "alloc b ok" {
		t.Fatalf("the waiting program says %q", got)
	}
	m.AwaitLog("gave its memory back") // the waiting program may have its memory before the hook has ended
	waits.Want("free b", "ok")
	gpuarb(m, "resume", "1")
	said(t, folder, "resume")
	idle.Want("alloc a 6G", "ok")
	ends(t, folder, 0)
	m.AwaitLog("has its memory again")
	gpuarb(m, "suspend", "1")
	said(t, folder, "suspend")
	ends(t, folder, 1)
	m.AwaitLog("keeps its memory")
	var got []string
	for _, e := range eventsOf(m, 1) {
		if e.PID == 0 || e.User != rig.User() || e.UID == nil || *e.UID != uint32(os.Getuid()) {
			t.Errorf("the event %s names process %d of %q", e.Kind, e.PID, e.User)
		}
		by := "nobody"
		switch {
		case e.Ticket == ticket:
			by = "the request"
		case e.ByUID != nil && *e.ByUID == uint32(os.Getuid()) && e.ByPID != 0:
			by = "the user"
		}
		got = append(got, fmt.Sprintf("%s %d GiB, by %s", e.Kind, e.Bytes>>30, by))
		if e.Kind == events.SuspendFailed && e.TookMs < 2000 {
			t.Errorf("it was asked for %d ms, although a job has 2 s to give its memory back", e.TookMs)
		}
	}
	want := []string{"suspending 0 GiB, by the request", "suspended 6 GiB, by the request", "resuming 6 GiB, by the user", "resumed 0 GiB, by the user",
		"suspending 0 GiB, by the user", "suspend_failed 0 GiB, by the user"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the events are\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	stats := m.Snapshot().Stats
	if stats.Suspended != 1 || stats.NotSuspended != 1 || stats.Resumed != 1 || stats.Stuck != 0 {
		t.Errorf("counted are %d suspensions, %d that failed, %d returns, and %d stuck jobs", stats.Suspended, stats.NotSuspended, stats.Resumed, stats.Stuck)
	}
}

// mounted returns a machine like that of machine, which also has the mount and the metrics of jobs.
func mounted(t *testing.T, folder string) *rig.Machine {
	return rig.New(t, rig.Options{Devices: "8G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: fmt.Sprintf(`schema_version = 1
[defaults]
on_full = "wait"
evict.after = "1s"
evict.how = "hook"
evict.suspend = [%[1]q, "suspend"]
evict.resume = [%[1]q, "resume"]
evict.idle_after = "500ms"
evict.return = "never"
[metrics]
jobs = true
`, folder+"/hook")})
}

// contains checks that the output of a command has all the texts.
func contains(m *rig.Machine, command string, texts ...string) {
	m.T.Helper()
	got := gpuarb(m, strings.Fields(command)...)
	for _, text := range texts {
		if !strings.Contains(got, text) {
			m.T.Errorf("gpuarb %s does not say %q:\n%s", command, text, got)
		}
	}
}

// TestWhoMakesRoom: while an idle job is asked to make room, the message of the waiting program, `gpuarb why` and `gpuarb queue` name
// that job, and all tables show its state. When the job is suspended, they show how much it gave back. When it waits to return, they
// show for how much.
func TestWhoMakesRoom(t *testing.T) {
	t.Parallel()
	folder := hooks(t)
	m := mounted(t, folder)
	idle, log := cudaprog(m), filepath.Join(t.TempDir(), "log")
	idle.Want("alloc a 6G", "ok")
	run := m.Gpuarb("run", "--", rig.Build(m.T, "programs/cudaprog-dlsym"))
	run.Env = append(run.Env, "GPUARB_LOG="+log) // the file gets each message that a terminal would show
	waits := m.Interact(run)
	waits.Tell("alloc b 4G")
	said(t, folder, "suspend")
	asked := fmt.Sprintf("asked to make room: %s's job 1 (cudaprog-dlsym)", rig.User())
	rig.Eventually(t, "the waiting program says who is asked", func() bool {
		text, _ := os.ReadFile(log)
		return strings.Contains(string(text), asked)
	})
	contains(m, "why 2", asked)
	contains(m, "queue", "(asks job 1 to make room)")
	contains(m, "queue --json", `"asks":[1],"returns":false`)
	contains(m, "jobs", "(suspending)")
	contains(m, "ps", " suspending ")
	contains(m, "why 1", "it is asked to give its memory back")
	idle.Want("free a", "ok")
	ends(t, folder, 0)
	if got := waits.Line(); got != "alloc b ok" {
		t.Fatalf("the waiting program says %q", got)
	}
	m.AwaitLog("gave its memory back")
	contains(m, "jobs", "(suspended: 6 GiB given back)")
	contains(m, "jobs --json", `"suspended_bytes":6442450944,"residence":"suspended"`)
	contains(m, "why 1", "it is suspended: it gave memory back, which others may use", "it gave 6 GiB back", "`gpuarb resume 1` lets it take its memory again")
	contains(m, "devices --json", `"suspended_bytes":6442450944`)
	contains(m, "metrics", `gpuarb_suspended_bytes{device="0",uuid="`, "} 6.442450944e+09", `gpuarb_suspends_total{result="suspended"} 1`,
		`gpuarb_jobs{state="suspended"} 1`, `gpuarb_job_memory_bytes{device="0",job_id="1",kind="suspended"`)
	for file, want := range map[string]string{"jobs/1/memory.suspended": "6442450944\n", "devices/0/memory.suspended": "6442450944\n",
		"jobs/1/state": "suspended\n", "jobs/1/freeze": "1\n", "jobs/2/freeze": "0\n", "jobs/2/memory.suspended": "0\n"} {
		if got := m.Read(file); got != want {
			t.Errorf("%s has %q, want %q", file, got, want)
		}
	}
	gpuarb(m, "resume", "1")
	rig.Eventually(t, "the way back waits in the queue", func() bool { return strings.Contains(gpuarb(m, "queue"), "(returns)") })
	contains(m, "queue --json", `"wants":"its return with 6 GiB"`, `"asks":[],"returns":true`)
	contains(m, "why 1", "it waits for its return with 6 GiB on GPU 0")
}

// TestFreeze: writing 1 to the file freeze suspends a job, and writing 0 resumes it. The file shows 1 until the job is asked to take its
// memory again. Writing 1 to a suspended job, or 0 to a resident job, changes nothing. Other writes fail with an errno, and the log says
// why.
func TestFreeze(t *testing.T) {
	t.Parallel()
	folder := hooks(t)
	m := mounted(t, folder)
	p, empty := cudaprog(m), cudaprog(m)
	p.Want("alloc a 6G", "ok")
	empty.Want("alloc b 1M", "ok")
	empty.Want("free b", "ok")
	write := func(job int, value string) error {
		return os.WriteFile(filepath.Join(m.Mount, "jobs", fmt.Sprint(job), "freeze"), []byte(value), 0)
	}
	shows := func(when, want string) {
		t.Helper()
		if got := m.Read("jobs/1/freeze"); got != want+"\n" {
			t.Errorf("%s freeze has %q, want %s", when, got, want)
		}
	}
	works := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	fails := func(err error, want unix.Errno, why string) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("the write ends with %v, want %v", err, want)
		}
		m.AwaitLog(why)
	}
	shows("at first,", "0")
	works(write(1, "0")) // it has its memory already
	works(write(1, "1\n"))
	said(t, folder, "suspend")
	shows("while it is asked,", "1")
	works(write(1, "1"))
	p.Want("free a", "ok")
	ends(t, folder, 0)
	m.AwaitLog("gave its memory back")
	shows("while it is suspended,", "1")
	works(write(1, "0"))
	said(t, folder, "resume")
	shows("while it returns,", "0")
	fails(write(1, "1"), unix.EBUSY, "is resuming already")
	p.Want("alloc a 6G", "ok")
	ends(t, folder, 0)
	m.AwaitLog("has its memory again")
	shows("at the end,", "0")
	fails(write(1, "2"), unix.EINVAL, "is neither 1 (suspend) nor 0 (resume)")
	fails(write(2, "1"), unix.EBUSY, "it holds no memory")
	if n := len(eventsOf(m, 1)); n != 4 {
		t.Errorf("there are %d events about job 1, want one for each of 4 steps", n)
	}
}

// TestWhoMaySuspend: a user may suspend and resume own jobs, by the command and by the file, and no job of another user. Root may do
// both to all jobs. A command about a job that is not there fails, and says so.
func TestWhoMaySuspend(t *testing.T) {
	t.Parallel()
	folder := hooks(t)
	if err := os.Chmod(filepath.Dir(folder), 0o755); err != nil { // hooks run as the user of their job
		t.Fatal(err)
	}
	m := mounted(t, folder)
	mine := cudaprog(m)
	mine.Want("alloc a 1G", "ok")
	u := m.OtherUser(61201)
	theirs := m.Interact(u.Gpuarb("run", "--name", "theirs", "--", u.Program("cudaprog-dlsym")))
	theirs.Want("alloc a 1G", "ok")
	refused := func(want string, code int, r rig.Result) {
		t.Helper()
		if r.Code != code || !strings.Contains(r.Stderr, want) {
			t.Errorf("exit status %d, want %d with %q: %s", r.Code, code, want, r.Stderr)
		}
	}
	refused("only that user or root may suspend and resume it", 1, rig.Run(t, u.Gpuarb("suspend", "1")))
	refused("only that user or root may suspend and resume it", 1, rig.Run(t, u.Gpuarb("resume", "1")))
	refused("Permission denied", 2, rig.Run(t, u.Command(m.Env(), "sh", "-c", "echo 1 >"+filepath.Join(m.Mount, "jobs/1/freeze"))))
	refused("there is no job 99; `gpuarb jobs` lists them", 1, rig.Run(t, u.Gpuarb("suspend", "99")))
	refused("is not suspended", 1, rig.Run(t, u.Gpuarb("resume", "theirs")))
	if got := m.Read("jobs/1/state"); got != "running\n" {
		t.Errorf("job 1 is %q", got)
	}
	asked := func(how string, r rig.Result) {
		t.Helper()
		if r.Code != 0 {
			t.Fatalf("%s: %d, %s", how, r.Code, r.Stderr)
		}
		if env := said(t, folder, "suspend"); env["GPUARB_JOB"] != "2" {
			t.Errorf("%s: job %s is asked", how, env["GPUARB_JOB"])
		}
		ends(t, folder, 1) // it keeps its memory
		rig.Eventually(t, "it is resident again", func() bool { return m.Read("jobs/2/state") == "running\n" })
	}
	asked("by the user's command", rig.Run(t, u.Gpuarb("suspend", "theirs")))
	asked("by the user's write", rig.Run(t, u.Command(m.Env(), "sh", "-c", "echo 1 >"+filepath.Join(m.Mount, "jobs/2/freeze"))))
	asked("by root", rig.Run(t, m.Gpuarb("suspend", "2")))
}
