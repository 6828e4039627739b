package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that a job with a name is called by that name in all output, and can be addressed by it; without
// names, each message still shows its run.

// TestNames: a job with a name has that name in tables, files, messages and logs.
// Commands accept it, also after a restart of the daemon.
func TestNames(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	begin := func(flags ...string) *rig.Program {
		args := append(append([]string{"run"}, flags...), "--", cudaprog(t, "dlsym"), "-")
		return m.Interact(m.Gpuarb(args...))
	}
	first := begin("--name", "train-a", "--memory", "6G", "--min", "6G")
	first.Want("alloc a 5G", "ok")
	second := begin("--name", "eval of b", "--wait")
	second.Tell("alloc b 4G")
	rig.Eventually(t, "the job has waited long enough for a message at its end", func() bool {
		queue := m.Snapshot().Queue
		return len(queue) == 1 && queue[0].WaitedMs > 2000
	})
	m.Kill()
	m.Start() // names outlive the daemon
	rig.Eventually(t, "both jobs are resumed", func() bool { s := m.Snapshot(); return len(s.Leases) == 2 && len(s.Queue) == 1 })

	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"ps"}, " train-a: /"},
		{[]string{"ps", "--json"}, `"job_name":"train-a"`},
		{[]string{"jobs"}, " train-a: /"},
		{[]string{"jobs", "--json"}, `"job_name":"eval of b"`},
		{[]string{"queue"}, " eval of b: /"},
		{[]string{"queue", "--json"}, `"job_name":"eval of b"`},
		{[]string{"why", "train-a"}, "job 1 (train-a): "},
		{[]string{"why", "eval of b"}, fmt.Sprintf("%s's train-a (cudaprog-dlsym[%d]) 5 GiB", rig.User(), first.PID())},
		{[]string{"limit", "--job", "train-a"}, "memory.max"},
		{[]string{"limit", "--job", "train-a", "memory.max=7G"}, ""},
	} {
		r := rig.Run(t, m.Gpuarb(c.args...))
		if r.Code != 0 || !strings.Contains(r.Stdout, c.want) || r.Stderr != "" {
			t.Errorf("%q: code %d, want %q\n%s%s", c.args, r.Code, c.want, r.Stdout, r.Stderr)
		}
	}
	if name := m.Read("jobs/1/name"); name != "train-a\n" {
		t.Errorf("jobs/1/name is %q", name)
	}
	if max := m.Read("jobs/1/memory.max"); max != fmt.Sprintln(7<<30) {
		t.Errorf("jobs/1/memory.max is %q", max)
	}
	r := rig.Run(t, m.Gpuarb("run", "--no-wait", "--name", "late", "--min", "6G", "--", "true"))
	if r.Code != 75 || !regexp.MustCompile(`^gpuarb: late \(true, PID \d+\): memory\.min of 6 GiB .*'s train-a \(`).MatchString(r.Stderr) {
		t.Errorf("refused: code %d, %q", r.Code, r.Stderr)
	}

	other := begin("--name", "train-a")
	r = rig.Run(t, m.Gpuarb("limit", "--job", "train-a", "memory.max=1G"))
	if r.Code != 1 || !strings.Contains(r.Stderr, `2 jobs are called "train-a": 1 (`) || !strings.HasSuffix(r.Stderr, "; give the number\n") {
		t.Errorf("an ambiguous name: code %d, %q", r.Code, r.Stderr)
	}
	if r = rig.Run(t, m.Gpuarb("why", "train-a")); strings.Count(r.Stdout, "(train-a): ") != 2 {
		t.Errorf("an ambiguous name: %q", r.Stdout)
	}
	other.Want("alloc x 16G", "err 2")
	want := fmt.Sprintf("%s's train-a (cudaprog-dlsym[%d]) is refused: out of memory", rig.User(), other.PID())
	m.AwaitLog(want)
	other.End()

	pid := second.PID
	first.End()
	second.Expect("alloc b ok")
	number := pid()
	said := second.End()
	about := fmt.Sprintf("gpuarb: eval of b (cudaprog-dlsym -, PID %d): ", number)
	for _, want := range []string{about + "waits for 4 GiB on GPU 0, position 1: ", about + "has 4 GiB on GPU 0 after "} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in %q", want, said)
		}
	}
	m.AwaitLog("eval of b (cudaprog-dlsym[")
	m.AwaitLog("train-a (cudaprog-dlsym[")
}

// TestWhomItIsAbout: messages of several runs in one log show which run each is about, even without names.
func TestWhomItIsAbout(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	said := stderrOf(t, m, `for i in 1 2 3; do "$G" run --memory 1M -- "$P" "print test-$i; alloc a 2M" >/dev/null; done; LD_PRELOAD=$L GPUARB_MEMORY=1M "$P" "print bare; alloc a 2M"`)
	for _, who := range []string{"test-1", "test-2", "test-3", "bare"} {
		line := regexp.MustCompile(`(?m)^gpuarb: cudaprog-dlsym print ` + who + `; alloc a 2M \(PID \d+\): out of memory on GPU 0: `)
		if len(line.FindAllString(said, -1)) != 1 {
			t.Errorf("no line about %s in %q", who, said)
		}
	}
}
