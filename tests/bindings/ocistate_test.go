package bindings

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file runs the hooks of an OCI runtime with container states on stdin that are malformed, hostile or late. A hook fails
// within a bounded time, with a short reason, and leaves no job. oci_test.go has valid states.

// longestReason is the largest number of bytes that a hook may write to stderr. Engines repeat this text in their messages and logs.
const longestReason = 2000

// contained starts a process in a cgroup of its own, as the first process of a container.
func contained(t *testing.T, m *rig.Machine) (*rig.Cgroup, int) {
	t.Helper()
	box := m.Cgroup()
	p := m.Begin(box.In(m.Command(m.Env(), "sleep", "600")))
	rig.Eventually(t, "the container's first process is in its cgroup", func() bool {
		procs, err := os.ReadFile(box.Procs())
		return err == nil && strings.TrimSpace(string(procs)) == strconv.Itoa(p.Process())
	})
	return box, p.Process()
}

// TestOCIHostileStates: `gpuarb job open --oci` refuses malformed and hostile states with exit code 2 and a reason.
func TestOCIHostileStates(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	_, pid := contained(t, m)
	ended := m.Begin(m.Command(m.Env(), "true"))
	ended.Wait()
	annotated := func(key, value string) string {
		return fmt.Sprintf(`{"id":"c1","pid":%d,"annotations":{"gpuarb.dev/%s":"%s"}}`, pid, key, value)
	}
	for _, row := range []struct{ name, state, says string }{
		{"nothing", "", "stdin has no state of a container"},
		{"a part", `{"id":"c1","pid":1`, "stdin has no state of a container"},
		{"two", `{"id":"c1","pid":1}{"id":"c2","pid":1}`, "stdin has no state of a container"},
		{"a list", `[]`, "stdin has no state of a container"},
		{"null", `null`, "has no id"},
		{"a key twice", fmt.Sprintf(`{"id":"c1","pid":%d,"pid":1}`, pid), "stdin has no state of a container"},
		{"a long key twice", `{"` + strings.Repeat("k", 400000) + `":1,"` + strings.Repeat("k", 400000) + `":1}`, "stdin has no state of a container"},
		{"deep", strings.Repeat(`{"a":`, 100000), "stdin has no state of a container"},
		{"bytes that are no text", "{\"id\":\"\xff\xfe\",\"pid\":1}", "stdin has no state of a container"},
		{"huge", `{"id":"` + strings.Repeat("x", 1<<20) + `"}`, "more than 1048576 bytes"},
		{"100 MB", `{"id":"` + strings.Repeat("x", 100<<20) + `"}`, "more than 1048576 bytes"},
		{"a long id", `{"id":"` + strings.Repeat("x", 900000) + `","pid":0}`, "has no pid"},
		{"no pid", `{"id":"c1"}`, "has no pid"},
		{"a negative pid", `{"id":"c1","pid":-1}`, "has no pid"},
		{"a text as pid", `{"id":"c1","pid":"7"}`, "stdin has no state of a container"},
		{"a huge pid", `{"id":"c1","pid":99999999999999999999}`, "stdin has no state of a container"},
		{"a pid that is gone", fmt.Sprintf(`{"id":"c1","pid":%d}`, ended.Process()), "no such process"},
		{"the runtime's own cgroup", fmt.Sprintf(`{"id":"c1","pid":%d}`, os.Getpid()), "it runs in the cgroup of its runtime"},
		{"a name with a line break", annotated("name", `a\nb`), "annotation gpuarb.dev/name: \"a\\nb\""},
		{"a name with NUL", annotated("name", `a\u0000b`), "annotation gpuarb.dev/name: "},
		{"a long name with an escape", annotated("name", strings.Repeat("n", 900000)+`\u001b`), "annotation gpuarb.dev/name: "},
		{"a name that is a number", annotated("name", "42"), "annotation gpuarb.dev/name: "},
		{"a name like a flag", annotated("name", "--memory"), "annotation gpuarb.dev/name: "},
		{"an id that is no name", fmt.Sprintf(`{"id":"a\nb","pid":%d}`, pid), "cannot be a job's name"},
	} {
		r := oci(t, m, row.state, "open", "--oci", "--memory", "1M")
		if r.Code != 2 || r.Stdout != "" || !strings.Contains(r.Stderr, row.says) || len(r.Stderr) > longestReason {
			t.Errorf("%s: %d, %q, %.3000q\nwant %q", row.name, r.Code, r.Stdout, r.Stderr, row.says)
		}
	}
	for _, row := range []struct{ name, memory, says string }{
		{"no size", "1Q", "annotation gpuarb.dev/memory: "},
		{"none", "0", "a budget of 0"},
		{"a line break", `1M\n--memory`, "annotation gpuarb.dev/memory: "},
		{"a long text", strings.Repeat("9", 900000), "annotation gpuarb.dev/memory: "},
		{"too much", "200%", "annotation gpuarb.dev/memory: "},
		{"below zero", "-1G", "it is negative"},
		{"above all", "9000000T", "it is larger than 8 EiB"},
		{"an exponent", "1e-999999999", "annotation gpuarb.dev/memory: "},
		{"digits of another script", "٤G", "annotation gpuarb.dev/memory: "},
		{"an unknown unit", "4Gi!", "its unit"},
	} {
		r := oci(t, m, annotated("memory", row.memory), "open", "--oci")
		if r.Code != 2 || r.Stdout != "" || !strings.Contains(r.Stderr, row.says) || len(r.Stderr) > longestReason {
			t.Errorf("%s: %d, %q, %.3000q\nwant %q", row.name, r.Code, r.Stdout, r.Stderr, row.says)
		}
	}
	if jobs := m.Snapshot().Jobs; len(jobs) != 0 {
		t.Errorf("jobs are left: %+v", jobs)
	}
	for state, code := range map[string]int{"nonsense": 2, "": 2, `{"pid":7}`: 2, `{"id":"c1"}`: 0, `{"id":"c1","pid":0,"status":"stopped"}`: 0} {
		if r := oci(t, m, state, "close", "--oci"); r.Code != code || (code == 0) != (r.Stderr == "") {
			t.Errorf("closing with %q: %+v, want %d", state, r, code)
		}
	}
}

// TestOCIManyAnnotations: a state with ten thousand annotations of other programs opens the job.
func TestOCIManyAnnotations(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	_, pid := contained(t, m)
	var others strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&others, `,"example.com/%d":"gpuarb.dev/memory"`, i)
	}
	state := fmt.Sprintf(`{"id":"c1","pid":%d,"annotations":{"gpuarb.dev/memory":"50M"%s}}`, pid, &others)
	if r := oci(t, m, state, "open", "--oci"); r.Code != 0 {
		t.Errorf("%+v", r)
	}
	if jobs := m.Snapshot().Jobs; len(jobs) != 1 || jobs[0].Name != "c1" {
		t.Errorf("jobs: %+v", jobs)
	}
	if r := oci(t, m, state, "close", "--oci"); r.Code != 0 {
		t.Errorf("%+v", r)
	}
}

// TestHostilePaths: a path that cannot be that of a cgroup is refused in one line, and no job is opened.
func TestHostilePaths(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	for _, path := range []string{"/a\nb", "/", "", "relative", "/../etc", "/a/../b", "/a//b", "/\x1b[2J", "/" + strings.Repeat("x", 100000), "/\xff\xfe", "/sys/fs/cgroup", "/sys/fs/cgroup/../../etc"} {
		r := rig.Run(t, m.Gpuarb("job", "open", "--cgroup", path, "--memory", "1M", "--name", "x"))
		if r.Code == 0 || strings.Count(r.Stderr, "\n") != 1 || len(r.Stderr) > longestReason || strings.Contains(r.Stderr, "\x1b") {
			t.Errorf("%.40q: %d, %.3000q", path, r.Code, r.Stderr)
		}
	}
	if jobs := m.Snapshot().Jobs; len(jobs) != 0 {
		t.Errorf("jobs are left: %+v", jobs)
	}
}

// TestOCIHooksAtOnce: hooks that run at the same time for one container open one job. With different budgets one hook
// opens the job, and the others are refused.
func TestOCIHooksAtOnce(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	_, pid := contained(t, m)
	state := fmt.Sprintf(`{"id":"c1","pid":%d}`, pid)
	open := func(memory func(int) string) (ids map[string]bool, refused []string) {
		ids = map[string]bool{}
		results := make([]rig.Result, 8)
		var all sync.WaitGroup
		for n := range results {
			all.Go(func() { results[n] = oci(t, m, state, "open", "--oci", "--memory", memory(n)) })
		}
		all.Wait()
		for _, r := range results {
			if r.Code == 0 {
				ids[r.Stdout] = true
			} else {
				refused = append(refused, r.Stderr)
			}
		}
		return ids, refused
	}
	if ids, refused := open(func(int) string { return "50M" }); len(ids) != 1 || len(refused) != 0 {
		t.Errorf("equal hooks opened %v, and were refused by %q", ids, refused)
	}
	if r := oci(t, m, state, "close", "--oci"); r.Code != 0 {
		t.Errorf("%+v", r)
	}
	ids, refused := open(func(n int) string { return fmt.Sprint(n+1, "M") })
	if len(ids) != 1 || len(refused) != 7 {
		t.Errorf("different hooks opened %v, and were refused by %q", ids, refused)
	}
	for _, text := range refused {
		if !strings.Contains(text, "give a container one device of gpuarb, not two") {
			t.Errorf("the reason is %s", text)
		}
	}
	if jobs := m.Snapshot().Jobs; len(jobs) != 1 {
		t.Errorf("the jobs are %+v", jobs)
	}
}

// TestOCIHooksNeverWait: a hook fails with a reason if stdin stays open, or if the daemon is suspended. It does not wait for them for ever.
func TestOCIHooksNeverWait(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	_, pid := contained(t, m)
	silent, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	defer silent.Close()
	state := fmt.Sprintf(`{"id":"c1","pid":%d}`, pid)
	m.Halt(m.DaemonPID())
	defer func(pid int) { _ = unix.Kill(pid, syscall.SIGCONT) }(m.DaemonPID())
	var all sync.WaitGroup
	defer all.Wait()
	fails := func(stdin io.Reader, code int, says string, args ...string) {
		all.Go(func() {
			cmd := m.Gpuarb(append([]string{"job"}, args...)...)
			cmd.Stdin = stdin
			if r := rig.Run(t, cmd); r.Code != code || !strings.Contains(r.Stderr, says) {
				t.Errorf("%q: %+v, want %d, %q", args, r, code, says)
			}
		})
	}
	for _, args := range [][]string{{"open", "--oci", "--memory", "1M"}, {"close", "--oci"}} {
		fails(silent, 2, "stdin did not end within 10s", args...)
		fails(strings.NewReader(state), 69, "daemon", args...)
	}
}
