package contrib

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that the pytest plug-in names tests that leave GPU memory behind, and that the time in which a test waits for the GPU does not
// count in the time-outs of pytest-timeout. Each has a run without the plug-in, or without its answer, which has the other result.

// pytest returns the command of a pytest under gpuarb run, with the plug-in. arguments are for pytest.
func pytest(m *rig.Machine, arguments ...string) *exec.Cmd {
	m.T.Helper()
	plugin, err := filepath.Abs("../../contrib/pytest")
	if err != nil {
		m.T.Fatal(err)
	}
	build := filepath.Dir(rig.Build(m.T, "gpuarb"))
	cmd := m.Gpuarb(append([]string{"run", "--wait", "--", "/usr/bin/python3", "-m", "pytest", "-p", "no:cacheprovider", "-vv"}, arguments...)...)
	cmd.Env = append(cmd.Env, "PYTHONPATH="+plugin, "PYTHONDONTWRITEBYTECODE=1", "PATH="+build+":"+os.Getenv("PATH"))
	return cmd
}

func machine(t *testing.T) *rig.Machine {
	return rig.New(t, rig.Options{Devices: "100M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: "schema_version = 1\n"})
}

// leak matches a line about a test at the end of pytest's output.
var leak = regexp.MustCompile(`(?m)^testdata/test_leaks.py::(\w+): (.*)$`)

// TestLeaks: the tests that leave memory behind are named, with how much, and no other test. Memory of fixtures that live longer, of garbage,
// of a failed test's variables and of numba's queue of pending frees is not a leak. The daemon's files and the command give the same result.
func TestLeaks(t *testing.T) {
	t.Parallel()
	want := [][2]string{
		{"test_that_leaks", "7 MiB of GPU memory left behind (GPU 0: 7 MiB)"},
		{"test_that_leaves_a_process", "9 MiB of GPU memory left behind (GPU 0: 9 MiB)"},
		{"test_with_a_fixture_that_leaks", "4 MiB of GPU memory left behind (GPU 0: 4 MiB); fixtures that ended with it: hoarder, model"},
	}
	for name, flags := range map[string][]string{
		"files":   {"-o", "gpuarb_mount=MOUNT"},
		"command": nil,
		"workers": {"-n2", "--dist=loadfile"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine(t)
			flags = slices.Clone(flags)
			for i := range flags {
				flags[i] = strings.ReplaceAll(flags[i], "MOUNT", m.Mount)
			}
			r := rig.Run(t, pytest(m, append(flags, "-p", "pytest_gpuarb", "testdata/test_leaks.py")...))
			var got [][2]string
			for _, match := range leak.FindAllStringSubmatch(r.Stdout, -1) {
				got = append(got, [2]string{match[1], match[2]})
			}
			if r.Code != 0 || !slices.Equal(got, want) {
				t.Errorf("exit status %d, leaks %q, want %q\n%s%s", r.Code, got, want, r.Stdout, r.Stderr)
			}
		})
	}
}

// TestLeaksAreErrors: with --gpuarb-leaks=error a test that leaves memory behind is an error, and the run fails. With off nothing is looked for.
func TestLeaksAreErrors(t *testing.T) {
	t.Parallel()
	m := machine(t)
	r := rig.Run(t, pytest(m, "-p", "pytest_gpuarb", "--gpuarb-leaks=error", "testdata/test_leaks.py"))
	if r.Code != 1 || !strings.Contains(r.Stdout, "ERROR at teardown of test_that_leaks") || !strings.Contains(r.Stdout, "3 errors") {
		t.Errorf("%+v", r)
	}
	r = rig.Run(t, pytest(m, "-p", "pytest_gpuarb", "--gpuarb-leaks=off", "testdata/test_leaks.py"))
	if r.Code != 0 || strings.Contains(r.Stdout, "left behind") {
		t.Errorf("%+v", r)
	}
}

// TestNoDaemon: without a daemon the plug-in says so, and tests pass as without it.
func TestNoDaemon(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "100M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Stopped: true, NoMount: true})
	plugin, err := filepath.Abs("../../contrib/pytest")
	if err != nil {
		t.Fatal(err)
	}
	cmd := m.Command(append(m.Env(), "PYTHONPATH="+plugin, "PYTHONDONTWRITEBYTECODE=1", "GPUARB_SOCKET="+m.Socket, "PATH="+filepath.Dir(rig.Build(t, "gpuarb"))+":"+os.Getenv("PATH")),
		"/usr/bin/python3", "-m", "pytest", "-p", "no:cacheprovider", "-p", "pytest_gpuarb", "testdata/test_leaks.py::test_that_leaks", "testdata/test_waits.py::test_waits")
	if r := rig.Run(t, cmd); r.Code != 0 || !strings.Contains(r.Stdout, "gpuarb: leaks are not checked, because the daemon cannot be read") || !strings.Contains(r.Stdout, "2 passed") {
		t.Errorf("%+v", r)
	}
}

// waited starts pytest with a test while another program holds the device, frees the device after a wait that is longer than the test's time-out,
// and returns pytest's result.
func waited(m *rig.Machine, arguments ...string) rig.Result {
	m.T.Helper()
	holder := m.Interact(m.Gpuarb("run", "--", rig.Build(m.T, "programs/cudaprog-dlsym"), "--device", "0"))
	holder.Want("alloc a 80M", "ok")
	cmd := pytest(m, arguments...)
	ended := make(chan rig.Result, 1)
	go func() { ended <- rig.Run(m.T, cmd) }()
	const long = 6500 * time.Millisecond
	rig.Eventually(m.T, "the test has waited for longer than its time-out, or has ended", func() bool {
		return len(ended) > 0 || slices.ContainsFunc(m.Snapshot().Queue, func(t figures.TicketState) bool { return t.WaitedMs > long.Milliseconds() })
	})
	holder.Want("free a", "ok")
	r := bounded.Receive(m.T, "pytest ends", ended)
	holder.End()
	return r
}

// TestTimeouts: a test that waits for longer than its time-out passes, and one that takes longer besides fails. So it is with both methods of
// pytest-timeout, and if a program waits that the test has started. Without the plug-in the wait is a time-out.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, test string
		flags      []string
		code       int
	}{
		{"signal", "test_waits", []string{"-p", "pytest_gpuarb", "-o", "timeout_method=signal"}, 0},
		{"thread", "test_waits", []string{"-p", "pytest_gpuarb", "-o", "timeout_method=thread"}, 0},
		{"files", "test_waits", []string{"-p", "pytest_gpuarb", "-o", "timeout_method=thread", "-o", "gpuarb_mount=MOUNT"}, 0},
		{"worker", "test_waits", []string{"-p", "pytest_gpuarb", "-n1"}, 0},
		{"another process", "test_lets_another_wait", []string{"-p", "pytest_gpuarb"}, 0},
		{"too long", "test_waits_and_takes_too_long", []string{"-p", "pytest_gpuarb"}, 1},
		{"without the plug-in", "test_waits", nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := machine(t)
			flags := slices.Clone(c.flags)
			for i := range flags {
				flags[i] = strings.ReplaceAll(flags[i], "MOUNT", m.Mount)
			}
			r := waited(m, append(flags, "testdata/test_waits.py::"+c.test)...)
			if r.Code != c.code || (c.code == 1) != strings.Contains(r.Stdout, "Timeout >5.0s") {
				t.Errorf("exit status %d, want %d:\n%s%s", r.Code, c.code, r.Stdout, r.Stderr)
			}
		})
	}
}

// TestNoWaitNoTime: a test that does not wait has its time-out as without the plug-in.
func TestNoWaitNoTime(t *testing.T) {
	t.Parallel()
	r := rig.Run(t, pytest(machine(t), "-p", "pytest_gpuarb", "testdata/test_waits.py::test_takes_too_long"))
	if r.Code != 1 || !strings.Contains(r.Stdout, "Timeout >5.0s") {
		t.Errorf("%+v", r)
	}
}

// TestIdleWorkers: after its last test a worker keeps no freed memory, so that another program need not wait for the end of the run.
func TestIdleWorkers(t *testing.T) {
	t.Parallel()
	m := machine(t)
	p := m.Begin(pytest(m, "-p", "pytest_gpuarb", "-s", "testdata/test_rests.py"))
	for !strings.Contains(p.Line(), "tests that freed memory are over") {
	}
	rig.Eventually(t, "the process keeps nothing", func() bool {
		leases := m.Snapshot().Leases
		return len(leases) == 1 && leases[0].Used == 0
	})
	p.CloseStdin()
}
