package history

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/archive/rows"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks the sums and times of jobs in the history. The expected values are what the programs of a test allocated, times the time that
// the test measured.

const (
	mib = 1 << 20
	gib = 1 << 30
)

// machine returns a started machine with contexts of 0 bytes. The user of the history's process may enter its folder.
func machine(t *testing.T, o rig.Options) *rig.Machine {
	t.Helper()
	o.Stopped = true
	if o.Devices == "" {
		o.Devices = "8G,8G"
	}
	o.Sim = append(o.Sim, "SIMCUDA_CONTEXT_BYTES=0")
	m := rig.New(t, o)
	if err := os.Chmod(m.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	m.Start()
	return m
}

// cudaprog is the path of a program that allocates memory as it is told.
func cudaprog(m *rig.Machine) string { return rig.Build(m.T, "programs/cudaprog-dlsym") }

// run returns a command under `gpuarb run` with flags.
func run(m *rig.Machine, flags ...string) *exec.Cmd {
	return m.Gpuarb(append(append([]string{"run"}, flags...), "--", cudaprog(m))...)
}

// asked returns the answer of a command with --json, or false if the history does not answer yet.
func asked[T any](m *rig.Machine, args ...string) (all []T, ok bool) {
	m.T.Helper()
	r := rig.Run(m.T, m.Gpuarb(append(args, "--json")...))
	if r.Code != 0 {
		return nil, false
	}
	if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil {
		m.T.Fatalf("%v: %v\n%s", args, err, r.Stdout)
	}
	return all, true
}

// reported waits until a report has a number of jobs, and returns its rows by key.
func reported(m *rig.Machine, by string, jobs int64) map[string]report.Total {
	m.T.Helper()
	sums := map[string]report.Total{}
	rig.Eventually(m.T, fmt.Sprintf("%d jobs in the report", jobs), func() bool {
		all, _ := asked[report.Total](m, "report", "--by", by)
		var n int64
		for _, r := range all {
			key := ""
			if r.Key != nil {
				key = *r.Key
			}
			sums[key] = r
			n += r.Jobs
		}
		return n >= jobs
	})
	return sums
}

// ended waits until the history has the end of a number of jobs, and returns them by name.
func ended(m *rig.Machine, jobs int) map[string]report.EndedJob {
	m.T.Helper()
	pasts := map[string]report.EndedJob{}
	rig.Eventually(m.T, fmt.Sprintf("%d jobs have ended in the history", jobs), func() bool {
		all, _ := asked[report.EndedJob](m, "history", "--limit", "0")
		for _, p := range all {
			if p.Name != nil {
				pasts[*p.Name] = p
			}
		}
		return len(all) >= jobs
	})
	return pasts
}

// span is a time between two bounds: a program held memory for at least the first, and at most the second.
type span struct{ least, most time.Duration }

// hold makes a program allocate bytes, wait for d and end. It returns how long the program held them.
func hold(p *rig.Program, size string, d time.Duration) span {
	before := time.Now()
	p.Want("alloc a "+size, "ok")
	after := time.Now()
	time.Sleep(d)
	until := time.Now()
	p.End()
	return span{until.Sub(after), time.Since(before)}
}

// within reports an error if gibHours differ by more than 1 % from bytes times a time of the span.
func within(t *testing.T, what string, gibHours float64, bytes float64, s span) {
	t.Helper()
	of := bytes / gib / 3600
	if least, most := 0.99*of*s.least.Seconds(), 1.01*of*s.most.Seconds(); gibHours < least || gibHours > most {
		t.Errorf("%s: %v GiB-hours, want %v to %v", what, gibHours, least, most)
	}
}

// TestFreed: memory counts until the program frees it, although the free sends no message.
func TestFreed(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{NoMount: true})
	p := m.Interact(run(m, "--name", "freed", "--device", "0"))
	before := time.Now()
	p.Want("alloc a 1G", "ok")
	after := time.Now()
	time.Sleep(3 * time.Second)
	until := time.Now()
	p.Want("free a", "ok")
	s := span{until.Sub(after), time.Since(before)}
	time.Sleep(2 * time.Second)
	p.End()
	within(t, "freed", ended(m, 1)["freed"].Held, gib, s)
}

// TestIdle: a job is idle while its program holds memory and makes no call.
func TestIdle(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{NoMount: true})
	p := m.Interact(run(m, "--name", "idle", "--device", "0"))
	p.Want("alloc a 1G", "ok")
	for range 15 { // busy for three seconds
		p.Want("alloc b 1M", "ok")
		p.Want("free b", "ok")
		time.Sleep(200 * time.Millisecond)
	}
	quiet := time.Now()
	time.Sleep(5 * time.Second)
	p.End()
	most := time.Since(quiet) + 1500*time.Millisecond // on a busy machine the end may take a while
	if ms := ended(m, 1)["idle"].IdleMs; ms < 3000 || ms > most.Milliseconds() {
		t.Errorf("idle for %d ms, want 3000 to %v", ms, most)
	}
}

// TestHeld: a report has what a job held, times the time that it held it.
func TestHeld(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{NoMount: true})
	p := m.Interact(run(m, "--name", "one", "--min", "2G", "--device", "0"))
	s := hold(p, "1G", 2*time.Second)
	past := ended(m, 1)["one"]
	within(t, "one", past.Held, gib, s)
	if past.Peak != gib || past.End == nil || *past.End != rows.Exited || past.Code == nil || *past.Code != 0 {
		t.Errorf("%+v", past)
	}
	one := reported(m, "name", 1)["one"]
	within(t, "the report", one.Held, gib, s)
	if one.Peak != gib || one.Reserved < 2*one.Held || one.Jobs != 1 {
		t.Errorf("%+v", one)
	}
	r := rig.Run(t, m.Gpuarb("report", "--by", "device", "--csv"))
	if lines := strings.Split(strings.TrimSpace(r.Stdout), "\n"); len(lines) != 2 || !strings.HasPrefix(lines[0], "key,jobs,held_gib_hours,") || !strings.HasPrefix(lines[1], "0 ") {
		t.Errorf("%+v", r)
	}
	if info, err := os.Stat(filepath.Join(m.Dir, "state", "history", rows.FileName)); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
