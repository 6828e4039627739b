package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that a program which takes GPU memory in a job without the library is not hidden: tables, events and
// `gpuarb run` name the program and why the library did not limit it. loader_test.go has the same for programs outside
// jobs.

// TestPastTheLibraryInAJob starts, in a job, a program that bypasses the library in one of several ways, and so is not limited.
// Tables and events must list the program under the job and name the bypass. gpuarb run must report it once while
// the program runs and once at the end, where it must not say that no GPU memory was used.
func TestPastTheLibraryInAJob(t *testing.T) {
	t.Parallel()
	program := cudaprog(t, "dlsym")
	loader := rig.Build(t, "programs/loader")
	for name, c := range map[string]struct{ script, program, without string }{
		"replaced": {`LD_PRELOAD=libm.so.6 exec "$P" -`, program, "without the library (LD_PRELOAD was replaced)"},
		"removed":  {`exec env -u LD_PRELOAD "$P" -`, program, "without the library (LD_PRELOAD was removed)"},
		"cleared":  {`exec env -i LD_LIBRARY_PATH="$LD_LIBRARY_PATH" SIMCUDA_DIR="$SIMCUDA_DIR" "$P" -`, program, "without the library (its environment was cleared)"},
		"disabled": {`GPUARB_DISABLE=1 exec "$P" -`, program, "without the library (GPUARB_DISABLE is set)"},
		"unseen":   {`LD_PRELOAD=/nowhere/libgpuarb.so exec "$P" -`, program, "without the library (the loader did not load it: a static or set-user-ID program, or the file is not there)"},
		"static":   {`exec "$P" -`, rig.Build(t, "programs/cudaprog-static"), "without the library (the loader did not load it: a static or set-user-ID program, or the file is not there)"},
		"deepbind": {`exec "$P" drive libcuda.so.1 deep`, loader, "past the library (its calls went past it: a second copy of the driver, or RTLD_DEEPBIND)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
			p := m.Interact(m.Gpuarb("run", "--summary", "--memory", "64M", "--name", "wrapped", "--", "sh", "-c",
				`P="$0"; `+c.script, c.program))
			take := "alloc a 1G"
			if c.program == loader {
				take = fmt.Sprint("alloc ", 1<<30)
			}
			besideChecks(t, m, p, take, c.without)
		})
	}
}

// TestPastTheLibraryInAJobsCgroup checks that a program with neither the environment nor a parent of a job is listed under the
// job in whose cgroup it runs.
func TestPastTheLibraryInAJobsCgroup(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	cgroup := m.Cgroup()
	const script = `(env -i LD_LIBRARY_PATH="$LD_LIBRARY_PATH" SIMCUDA_DIR="$SIMCUDA_DIR" "$0" - <&3 3<&- &) 3<&0; exec sleep 1000`
	p := m.Interact(cgroup.In(m.Gpuarb("run", "--summary", "--memory", "64M", "--name", "wrapped", "--", "sh", "-c", script, cudaprog(t, "dlsym"))))
	nobodys := m.Interact(m.Command(m.Env(), cudaprog(t, "dlsym")))
	besideChecks(t, m, p, "alloc a 1G", "without the library (its environment was cleared)")
	nobodys.End()
}

// besideChecks makes a job's program take memory past the library, and checks the messages, tables and events about that.
func besideChecks(t *testing.T, m *rig.Machine, p *rig.Program, take, without string) {
	t.Helper()
	p.Want(take, "ok")
	pid := p.PID()
	var seen figures.UnmanagedState
	rig.Eventually(t, "the program is listed under the job", func() bool {
		for _, u := range m.Snapshot().Devices[0].UnmanagedBy {
			if u.PID == pid {
				seen = u
			}
		}
		return seen.Job != 0 && seen.Bytes >= 1<<30
	})
	if seen.JobName != "wrapped" || seen.Bypass.Without() != without {
		t.Errorf("%+v, want %q", seen, without)
	}
	jobs := fieldsOf(t, rig.Run(t, m.Gpuarb("jobs")).Stdout, "unmanaged")
	if jobs["JOB"] != fmt.Sprint(seen.Job) || jobs["PID"] != fmt.Sprint(pid) {
		t.Errorf("gpuarb jobs: %v", jobs)
	}
	for _, of := range []string{fmt.Sprint(seen.Job), fmt.Sprint(pid)} {
		why := rig.Run(t, m.Gpuarb("why", of))
		if !strings.Contains(why.Stdout, fmt.Sprintf("[%d] runs %s and uses ", pid, without)) {
			t.Errorf("gpuarb why %s: %s%s", of, why.Stdout, why.Stderr)
		}
	}
	if top := rig.Run(t, m.Gpuarb("top", "--once", "--tree")); !regexp.MustCompile(`(?m)wrapped[^\n]*\n[^\n]*` + fmt.Sprint(pid) + `[^\n]*unmanaged`).MatchString(top.Stdout) {
		t.Errorf("gpuarb top: %s%s", top.Stdout, top.Stderr)
	}
	events := rig.Run(t, m.Gpuarb("events", "--job", "wrapped", "--kind", "unmanaged")).Stdout
	if strings.Count(events, "\n") != 1 || !strings.Contains(events, fmt.Sprintf("[%d] of wrapped (job %d, ", pid, seen.Job)) || !strings.Contains(events, without) {
		t.Errorf("gpuarb events: %s", events)
	}
	runs := fmt.Sprintf("[%d] runs %s and uses 1 GiB outside the budget, on GPU 0", pid, without)
	rig.Eventually(t, "gpuarb run says it", func() bool { return strings.Contains(p.Stderr(), runs) })

	p.CloseStdin()
	p.Signal(unix.SIGTERM)
	p.Wait()
	ran := fmt.Sprintf("[%d] ran %s and used 1 GiB outside the budget, on GPU 0\n", pid, without)
	if got := p.Stderr(); strings.Count(got, runs) != 1 || strings.Count(got, ran) != 1 || !strings.Contains(got, "): asked for no GPU memory\n") {
		t.Errorf("stderr: %s", got)
	}
}
