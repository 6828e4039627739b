package arbitration

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that a `gpuarb run` inside the job of another one uses what that job holds, can reduce its budget
// but not enlarge it, and passes on signals to its own programs only.

// inside returns a command line of one `gpuarb run` inside another. outer are the arguments of the outer command; its shell
// runs script, with $G for gpuarb and $P for the program.
func inside(m *rig.Machine, script string, outer ...string) []string {
	script = strings.NewReplacer("$G", rig.Build(m.T, "gpuarb"), "$P", rig.Build(m.T, "programs/cudaprog-dlsym")).Replace(script)
	return append(append([]string{"run"}, outer...), "--", "/bin/sh", "-c", script)
}

// TestRunInsideARun: a `gpuarb run` inside another job does not wait for what that job holds, and
// its programs stay within that job's budget. It can be given a smaller budget, but not a larger one.
func TestRunInsideARun(t *testing.T) {
	t.Parallel()
	m := machine(t, "8G,8G", "[[device]]\nslots.max = 1\n")
	for name, c := range map[string]struct {
		outer        []string
		script       string
		code         int
		want, stderr string
	}{
		"alone":       {[]string{"--exclusive", "--memory", "4G"}, `$G run --no-wait -- $P "alloc a 3G; alloc b 1G"`, 0, "a ok, b ok", ""},
		"no more":     {[]string{"--memory", "1G"}, `$G run --memory 6G -- $P "alloc a 1G; alloc b 1"`, 0, "a ok, b err 2", ""},
		"less":        {[]string{"--memory", "4G"}, `$G run --memory 1G -- $P "alloc a 2G; alloc b 1G"; $P "alloc c 2G"`, 0, "a err 2, b ok, c ok", ""},
		"reserved":    {[]string{"--memory", "6G", "--min", "6G"}, `$G run -- $P "alloc a 6G"`, 0, "a ok", ""},
		"spelled out": {[]string{"--memory", "4G"}, `$G run --memory "1 GiB" -- $P "alloc a 2G; alloc b 1G"`, 0, "a err 2, b ok", ""},
		"never more":  {nil, `$G run --memory 1G --streams 1 -- $G run --memory max -- $G run --memory 2G --streams 2 -- $P "alloc a 2G; alloc b 1G; stream s; stream u"`, 0, "a err 2, b ok, s ok, u err 2", ""},
		"three deep":  {[]string{"--device", "1"}, `$G run -- $G run -- $G run --streams 1 -- $P "alloc a 1G; stream s; stream u"`, 0, "a ok, s ok, u err 2", ""},
		"in a claim":  {[]string{"--device", "0"}, `env -u GPUARB_JOB $G claim --device 1 --exec $G run -- $P "alloc a 1G"`, 0, "a ok", ""},
		"reservation": {nil, `$G run --min 1G -- $P`, 125, "", "inside the job of another `gpuarb run`"},
		"claim":       {[]string{"--device", "0"}, `$G claim`, 1, "", "inside the job of a `gpuarb run`"},
		"bad size":    {nil, `$G run --memory 1Q -- $P`, 125, "", "--memory: "},
		"status":      {nil, `$G run -- sh -c 'exit 7'`, 7, "", ""},
		"left":        {[]string{"--device", "0"}, `env -u GPUARB_JOB $G run --device 1 --min 1G -- $P "alloc a 1G"`, 0, "a ok", ""},
		"no such job": {[]string{"--device", "0"}, `GPUARB_JOB=00112233445566778899aabbccddeeff $G run --device 1 -- $P "alloc a 1G"`, 0, "a ok", ""},
	} {
		r := rig.Run(t, m.Gpuarb(inside(m, c.script, c.outer...)...))
		got := strings.ReplaceAll(strings.TrimSpace(r.Stdout), "\n", ", ")
		got = strings.NewReplacer("ready, ", "", "alloc ", "", "stream ", "").Replace(got)
		if r.Code != c.code || got != c.want || !strings.Contains(r.Stderr, c.stderr) {
			t.Errorf("%s: code %d, %q, want %d, %q\n%s", name, r.Code, got, c.code, c.want, r.Stderr)
		}
	}
	idle(m)
}

// TestSignalInsideARun: a signal to a nested gpuarb run ends the waits of its own programs only, not those of
// other programs of the job. This also holds in a PID namespace, where PIDs differ from those that the daemon knows.
func TestSignalInsideARun(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{"here": "", "namespace": "unshare --pid --fork --kill-child --mount-proc "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			signalInside(t, before+`$G run -- sh -c 'trap "" TERM; exec "$0" "alloc c 2G"' $P`)
		})
	}
}

func signalInside(t *testing.T, run string) {
	m := machine(t, "8G", "[defaults]\non_full = \"wait\"\n")
	holder := bare(m)
	holder.Want("alloc a 7G", "ok")
	job := m.Begin(m.Gpuarb(inside(m, `$P "alloc b 2G" & `+run+` & wait`)...))
	for range 2 {
		if line := job.Line(); line != "ready" {
			t.Fatalf("the job says %q", line)
		}
	}
	waiting(m, 2)
	if err := unix.Kill(parentOf(t, waiter(m, "alloc c")), unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waiting(m, 1)
	holder.End()
	if said := []string{job.Line(), job.Line()}; !slices.Contains(said, "alloc b ok") || !slices.Contains(said, "alloc c err 2") {
		t.Errorf("the job says %q", said)
	}
	if status := job.Wait(); status != 0 {
		t.Errorf("the job ended with %d: %s", status, job.Stderr())
	}
	idle(m)
}

// waiter returns the PID of the waiting process whose command line contains words; 0: there is none.
func waiter(m *rig.Machine, words string) int {
	for _, ticket := range m.Snapshot().Queue {
		if strings.Contains(ticket.Command, words) {
			return ticket.PID
		}
	}
	return 0
}

func parentOf(t *testing.T, pid int) int {
	t.Helper()
	process, err := procfs.NewProc(pid)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := process.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return stat.PPID
}
