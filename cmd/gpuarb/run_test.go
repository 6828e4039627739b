package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"golang.org/x/sys/unix"
)

// This file checks `gpuarb run` with a fake daemon: the job that it asks for, the environment,
// streams and signals of the program, the exit code, and the summary. exec_test.go has --exec and
// --die-with-parent, wait_test.go has the wait in the queue.

// deadline bounds every wait of these tests.
const deadline = 60 * time.Second

func TestRunEnvironment(t *testing.T) {
	daemon := startDaemon(t, nil)
	library := testLibrary(t)
	script := `printf '%s\n' "$LD_PRELOAD" "$GPUARB_JOB" "$GPUARB_SOCKET" "$CUDA_DEVICE_ORDER" "${CUDA_VISIBLE_DEVICES-unset}"`
	for _, c := range []struct {
		name  string
		env   []string
		flags []string
		want  []string // values of LD_PRELOAD, CUDA_DEVICE_ORDER, CUDA_VISIBLE_DEVICES
	}{
		{"plain", nil, nil, []string{library, "PCI_BUS_ID", "unset"}},
		{"the user's own", []string{"LD_PRELOAD=libdl.so.2", "CUDA_DEVICE_ORDER=FASTEST_FIRST", "CUDA_VISIBLE_DEVICES=1"}, nil,
			[]string{library + ":libdl.so.2", "FASTEST_FIRST", "1"}},
		{"run below run", []string{"LD_PRELOAD=" + library + ":libdl.so.2", "GPUARB_JOB=00"}, nil,
			[]string{library + ":libdl.so.2", "PCI_BUS_ID", "unset"}},
		{"device", []string{"CUDA_VISIBLE_DEVICES=0", "CUDA_DEVICE_ORDER=FASTEST_FIRST"}, []string{"--device", "1"},
			[]string{library, "PCI_BUS_ID", "GPU-11bb0000-0000-0000-0000-000000000000"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			daemon := daemon
			if c.flags != nil {
				daemon = startDaemon(t, func(d *fakeDaemon) { d.given = []ipc.JobDevice{cardB} })
			}
			args := append(append([]string{"run"}, c.flags...), "--", "sh", "-c", script)
			got := finish(t, gpuarb(t, daemon.environment(t, c.env...), args...))
			want := strings.Join([]string{c.want[0], testJobHex, daemon.socket, c.want[1], c.want[2]}, "\n") + "\n"
			if got.code != 0 || got.stdout != want || got.stderr != "" {
				t.Errorf("code %d\n%v\nwant:\n%s", got.code, got, want)
			}
		})
	}
}

func TestRunSocketIsAbsolute(t *testing.T) {
	daemon := startDaemon(t, nil)
	command := gpuarb(t, []string{"GPUARB_LIB=" + testLibrary(t)}, "--socket", "s", "run", "sh", "-c", "echo $GPUARB_SOCKET")
	command.Dir = filepath.Dir(daemon.socket)
	if got := finish(t, command); got.stdout != daemon.socket+"\n" {
		t.Errorf("GPUARB_SOCKET=%swant %s\n%v", got.stdout, daemon.socket, got)
	}
}

func TestRunJobRequest(t *testing.T) {
	daemon := startDaemon(t, nil)
	const no = ipc.NoLimit
	on := func(r ipc.JobOpenRequest, devices ...uint32) ipc.JobOpenRequest {
		r.Devices = uint32(copy(r.Device[:], devices))
		return r
	}
	for flags, want := range map[string]ipc.JobOpenRequest{
		"":                                      {Memory: no, Min: no},
		"--memory max":                          {Memory: no, Min: no},
		"--memory 1.5G --streams 8":             {Memory: 3 << 29, Min: no, Streams: 8},
		"--memory 16G":                          {Memory: 16 << 30, Min: no},
		"--memory 12.5% --per-process":          {Memory: no, Min: no, MemoryShare: 125, Flags: ipc.JobPerProcess},
		"--memory 8G --device gpu-11AA":         on(ipc.JobOpenRequest{Memory: 8 << 30, Min: no}, 0),
		"--memory=4096M --streams=1 --device=0": on(ipc.JobOpenRequest{Memory: 4 << 30, Min: no, Streams: 1}, 0),
		"--device=00000000:02:00.0":             on(ipc.JobOpenRequest{Memory: no, Min: no}, 1),
		"--device 2,0 --exclusive":              on(ipc.JobOpenRequest{Memory: no, Min: no, Flags: ipc.JobExclusive}, 2, 0),
		"--memory 4G --min 2G":                  {Memory: 4 << 30, Min: 2 << 30},
		"--memory 4G --min max":                 {Memory: 4 << 30, Min: 4 << 30},
		"--min 25%":                             {Memory: no, Min: no, MinShare: 250},
		"--wait":                                {Memory: no, Min: no, Flags: ipc.JobWait},
		"--wait=10m":                            {Memory: no, Min: no, Flags: ipc.JobWait, WaitMillis: 600000},
		"--wait 1.5 --memory 1G":                {Memory: 1 << 30, Min: no, Flags: ipc.JobWait, WaitMillis: 1500},
		"--streams 3 --wait max":                {Memory: no, Min: no, Streams: 3, Flags: ipc.JobWait, WaitMillis: no},
		"--wait --no-wait=false":                {Memory: no, Min: no, Flags: ipc.JobWait},
		"--no-wait":                             {Memory: no, Min: no, Flags: ipc.JobNoWait},
		"--device any":                          on(ipc.JobOpenRequest{Memory: no, Min: no, Flags: ipc.JobAny}, 0, 1, 2),
		"--prefer 2,1":                          on(ipc.JobOpenRequest{Memory: no, Min: no, Flags: ipc.JobAny}, 2, 1, 0),
		"--device nvidia --prefer 1":            on(ipc.JobOpenRequest{Memory: no, Min: no, Flags: ipc.JobAny}, 1, 0),
		"--device intel":                        on(ipc.JobOpenRequest{Memory: no, Min: no, Flags: ipc.JobAny}, 2),
	} {
		args := append(append([]string{"run"}, strings.Fields(flags)...), "sh", "-c", "true --wait 10m")
		wantCode(t, finish(t, gpuarb(t, daemon.environment(t), args...)), 0)
		want.Command = ipc.MakeText("sh -c true --wait 10m")
		if got := daemon.lastJob(t); got != want {
			t.Errorf("%s: asked for %+v\nwant %+v", flags, got, want)
		}
	}
}

// TestAnyWithinTheEnvironment checks that --device any chooses only among devices that the
// environment lets a program see.
func TestAnyWithinTheEnvironment(t *testing.T) {
	daemon := startDaemon(t, nil)
	for env, want := range map[string][]uint32{
		"CUDA_VISIBLE_DEVICES=1":                          {1, 2},
		"CUDA_VISIBLE_DEVICES=GPU-11a":                    {0, 2},
		"CUDA_VISIBLE_DEVICES=":                           {2},
		"CUDA_VISIBLE_DEVICES=0,-1,1":                     {0, 2},
		"CUDA_VISIBLE_DEVICES=-1 ZE_AFFINITY_MASK=0":      {2},
		"ZE_AFFINITY_MASK=3":                              {0, 1},
		"ROCR_VISIBLE_DEVICES=":                           {0, 1, 2},
		"CUDA_VISIBLE_DEVICES=1, 0 ZE_AFFINITY_MASK=none": {0, 1},
	} {
		variables := strings.Split(strings.Replace(env, " ZE", "\nZE", 1), "\n")
		wantCode(t, finish(t, gpuarb(t, daemon.environment(t, variables...), "run", "--device", "any", "true")), 0)
		job := daemon.lastJob(t)
		if got := job.Device[:job.Devices]; !slices.Equal(got, want) {
			t.Errorf("%s: any of %v, want any of %v", env, got, want)
		}
	}
	got := finish(t, gpuarb(t, daemon.environment(t, "CUDA_VISIBLE_DEVICES="), "claim", "--device", "nvidia"))
	wantCode(t, got, 69)
	wantStderr(t, got, "no device: there is none here that may be taken; `gpuarb devices` lists them, and CUDA_VISIBLE_DEVICES and its like narrow them")
}

// TestTakenWithinTheEnvironment checks that a run reserves only on devices that its program will
// see, as CUDA reads the environment. The environment itself does not change.
func TestTakenWithinTheEnvironment(t *testing.T) {
	big := func(d *fakeDaemon) {
		d.state.Devices = twoDevices()[:2]
		d.state.Devices = append(d.state.Devices, figures.DeviceState{Index: 2, Vendor: "nvidia", Name: "Card D",
			UUID: "GPU-22dd0000-0000-0000-0000-000000000000", PCI: "0000:03:00.0", Total: 16 << 30, Context: 1 << 30})
	}
	const all = "all"
	for _, c := range []struct{ env, flags, want string }{
		{"CUDA_VISIBLE_DEVICES=1", "", all}, // reserves nothing
		{"CUDA_VISIBLE_DEVICES=1", "--no-wait", "1"},
		{"CUDA_VISIBLE_DEVICES=1", "--exclusive", "1"},
		{"CUDA_VISIBLE_DEVICES=1", "--min 1G", "1"},
		{"CUDA_VISIBLE_DEVICES=1", "--min 1G --no-wait", "1"},
		{"CUDA_VISIBLE_DEVICES=2,0", "--no-wait", "2 0"},
		{"CUDA_VISIBLE_DEVICES= 2 , 0", "--no-wait", "2 0"},
		{"CUDA_VISIBLE_DEVICES=GPU-22dd0000-0000-0000-0000-000000000000", "--no-wait", "2"},
		{"CUDA_VISIBLE_DEVICES=gpu-22", "--no-wait", "2"},
		{"CUDA_VISIBLE_DEVICES=GPU-11", "--no-wait", ""}, // two UUIDs begin with GPU-11
		{"CUDA_VISIBLE_DEVICES=2,GPU-11,1", "--no-wait", "2"},
		{"CUDA_VISIBLE_DEVICES=2,7,1", "--no-wait", "2"},
		{"CUDA_VISIBLE_DEVICES=2,x,1", "--no-wait", "2"},
		{"CUDA_VISIBLE_DEVICES=2,-1,1", "--no-wait", "2"},
		{"CUDA_VISIBLE_DEVICES=2,2,1", "--no-wait", "2"},
		{"CUDA_VISIBLE_DEVICES=2,,1", "--no-wait", "2"},
		{"CUDA_VISIBLE_DEVICES=NoDevFiles", "--no-wait", ""},
		{"CUDA_VISIBLE_DEVICES=", "--no-wait", ""},
		{"CUDA_VISIBLE_DEVICES=MIG-GPU-22dd0000-0000-0000-0000-000000000000/1/0", "--no-wait", "2"},
		{"CUDA_VISIBLE_DEVICES=MIG-01234567-89ab-cdef-0123-456789abcdef", "--no-wait", all},
		{"CUDA_VISIBLE_DEVICES=0,1,2", "--no-wait", all},
		{"CUDA_VISIBLE_DEVICES=1 CUDA_DEVICE_ORDER=FASTEST_FIRST", "--no-wait", all},
		{"CUDA_VISIBLE_DEVICES=GPU-22 CUDA_DEVICE_ORDER=FASTEST_FIRST", "--no-wait", "2"},
		{"CUDA_VISIBLE_DEVICES=1 CUDA_DEVICE_ORDER=PCI_BUS_ID", "--no-wait", "1"},
		{"CUDA_VISIBLE_DEVICES=2,1,0", "--min 12G", all},
		{"CUDA_VISIBLE_DEVICES=1,0", "--min 12G", "1"},     // the first device is too small
		{"CUDA_VISIBLE_DEVICES=2,0", "--min 15.5G", "2 0"}, // with a context, the reservation fits no device
		{"CUDA_VISIBLE_DEVICES=2,0", "--min max", "2 0"},
		{"CUDA_VISIBLE_DEVICES=2,0", "--device any --no-wait", "0 2"},
		{"CUDA_VISIBLE_DEVICES=2", "--device 1 --no-wait", "1"},
		{"ROCR_VISIBLE_DEVICES=7", "--no-wait", all},
	} {
		daemon := startDaemon(t, big)
		env := strings.Split(strings.Replace(c.env, " CUDA_", "\nCUDA_", 1), "\n")
		got := finish(t, gpuarb(t, daemon.environment(t, env...), append(append([]string{"run"}, strings.Fields(c.flags)...), "true")...))
		wantCode(t, got, 0)
		job := daemon.lastJob(t)
		text := strings.Trim(fmt.Sprint(job.Device[:job.Devices]), "[]")
		if job.Devices == 0 {
			text = all
			if c.want == "" && job.Flags&ipc.JobNoWait == 0 {
				text = "" // the program sees no device, so no other job can block it
			}
		}
		if text != c.want {
			t.Errorf("%s %s: on %q, want %q", c.env, c.flags, text, c.want)
		}
	}
	daemon := startDaemon(t, big)
	got := finish(t, gpuarb(t, daemon.environment(t, "CUDA_VISIBLE_DEVICES="), "run", "--min", "1G", "true"))
	wantCode(t, got, 125)
	wantStderr(t, got, "no device: CUDA_VISIBLE_DEVICES and its like let the program see none; `gpuarb devices` lists them")
	daemon = startDaemon(t, func(d *fakeDaemon) { big(d); d.given = []ipc.JobDevice{cardB} })
	got = finish(t, gpuarb(t, daemon.environment(t, "CUDA_VISIBLE_DEVICES=1"), "run", "--no-wait", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"))
	if got.stdout != "1\n" {
		t.Errorf("the program is given %q", got.stdout)
	}
}

func TestRunNeedsDaemon(t *testing.T) {
	folder := t.TempDir()
	env := []string{"XDG_RUNTIME_DIR=" + folder, "GPUARB_LIB=" + testLibrary(t)}
	want := "no gpuarb daemon answers (tried " + folder + "/gpuarb/gpuarb.sock: no such file or directory; " +
		ipc.SystemSocket + ": no such file or directory); start gpuarbd, or name its socket with --socket or GPUARB_SOCKET"
	got := finish(t, bounded.Bare(gpuarb(t, env, "run", "true")))
	wantCode(t, got, 125)
	wantStderr(t, got, want)
	got = finish(t, bounded.Bare(gpuarb(t, env, "ps")))
	wantCode(t, got, 69)
	wantStderr(t, got, want)
}

func TestRunNeedsShim(t *testing.T) {
	daemon := startDaemon(t, nil)
	socket := "GPUARB_SOCKET=" + daemon.socket
	script := filepath.Join(t.TempDir(), "lib.so")
	if err := os.WriteFile(script, []byte(strings.Repeat("#", 100)), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, reason := range map[string]string{
		"/no/lib.so": "no such file or directory",
		"/a b/c.so":  "LD_PRELOAD cannot hold a path with a space or a colon",
		script:       "not a shared object",
	} {
		got := finish(t, gpuarb(t, []string{socket, "GPUARB_LIB=" + path}, "run", "true"))
		wantCode(t, got, 125)
		wantStderr(t, got, "no libgpuarb.so that can be preloaded (tried "+path+": "+reason+"); install gpuarb, or name the library with GPUARB_LIB")
	}
	got := finish(t, bounded.Bare(gpuarb(t, []string{socket}, "run", "true")))
	wantCode(t, got, 125)
	if !strings.Contains(got.stderr, "/usr/lib/gpuarb/libgpuarb.so: no such file") {
		t.Errorf("the paths are not listed: %s", got.stderr)
	}
}

// TestRunScripts checks that the shell runs a script without an interpreter line. A script whose
// interpreter is missing is reported as not found, as by env(1).
func TestRunScripts(t *testing.T) {
	daemon := startDaemon(t, nil)
	folder := t.TempDir()
	for name, text := range map[string]string{"plain": "echo plain \"$@\"; exit 4\n", "lost": "#!/no/such/interpreter\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	got := finish(t, gpuarb(t, daemon.environment(t), "run", folder+"/plain", "a b", "--json"))
	if got.code != 4 || got.stdout != "plain a b --json\n" {
		t.Errorf("code %d\n%v", got.code, got)
	}
	got = finish(t, gpuarb(t, daemon.environment(t), "run", folder+"/lost"))
	wantCode(t, got, 127)
	wantStderr(t, got, folder+"/lost cannot be executed: no such file or directory: the interpreter that it names is not there")
}

// TestRunLeavesStreamsAlone checks that the program's input and output pass unchanged.
func TestRunLeavesStreamsAlone(t *testing.T) {
	daemon := startDaemon(t, nil)
	command := gpuarb(t, daemon.environment(t), "run", "sh", "-c", "cat; printf x >&2; ls -l /proc/self/fd | grep -c socket")
	text := strings.Repeat("\x00\xff\n", 100000)
	command.Stdin = strings.NewReader(text)
	got := finish(t, command)
	if got.stdout != text+"0\n" || got.stderr != "x" {
		t.Errorf("%d bytes came out, %d went in; last: %q, stderr %q", len(got.stdout), len(text), got.stdout[max(0, len(got.stdout)-5):], got.stderr)
	}
}

// TestRunLifetime checks that the job lasts as long as the program, and that gpuarb waits for
// nothing else.
func TestRunLifetime(t *testing.T) {
	daemon := startDaemon(t, nil)
	running := begin(t, gpuarb(t, daemon.environment(t), "run", "sh", "-c",
		"sleep 60 >/dev/null 2>&1 & echo $!; read x; exit 5"))
	pid, err := strconv.Atoi(running.line(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Kill(pid, unix.SIGKILL) }()
	await(t, "the end of the connection that opened the job", daemon.ends)
	select {
	case <-daemon.ends:
		t.Error("the connection ended while the program ran")
	case <-time.After(100 * time.Millisecond):
	}
	if _, err := io.WriteString(running.stdin, "go\n"); err != nil {
		t.Fatal(err)
	}
	if code := running.wait(t); code != 5 {
		t.Errorf("exit code %d, want 5", code)
	}
	select {
	case <-daemon.ends:
	case <-time.After(deadline):
		t.Error("the connection is still open")
	}
}

// await receives from a channel, with a time limit.
func await[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(deadline):
		t.Fatalf("not within %v: %s", deadline, what)
		panic("unreachable")
	}
}

// running is a started gpuarb that a test talks to.
type running struct {
	*exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

// begin starts a command in a session of its own, without a terminal.
func begin(t *testing.T, command *exec.Cmd) *running {
	t.Helper()
	command.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	group := command.Process.Pid // the command leads a session of its own
	timer := time.AfterFunc(deadline, func() { _ = unix.Kill(-group, unix.SIGKILL) })
	t.Cleanup(func() { timer.Stop() })
	return &running{command, stdin, bufio.NewReader(stdout)}
}

func (r *running) line(t *testing.T) string {
	t.Helper()
	line, err := r.stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("after %q: %v", line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

func (r *running) wait(t *testing.T) int {
	t.Helper()
	err := r.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return r.ProcessState.ExitCode()
}

func TestRunForwardsSignals(t *testing.T) {
	daemon := startDaemon(t, nil)
	for name, sig := range map[string]unix.Signal{
		"INT": unix.SIGINT, "TERM": unix.SIGTERM, "HUP": unix.SIGHUP, "QUIT": unix.SIGQUIT,
		"USR1": unix.SIGUSR1, "USR2": unix.SIGUSR2, "CONT": unix.SIGCONT, "WINCH": unix.SIGWINCH,
		"ALRM": unix.SIGALRM, "VTALRM": unix.SIGVTALRM, "IO": unix.SIGIO, "PWR": unix.SIGPWR,
		"35": 35, "37": 37, "64": 64, // real-time signals: systemd may end a service with such a signal (KillSignal=)
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script := "trap 'echo " + name + "; exit 42' " + name + "; echo ready; while :; do sleep 0.02; done"
			r := begin(t, gpuarb(t, daemon.environment(t), "run", "sh", "-c", script))
			r.line(t)
			if err := r.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if got := r.line(t); got != name {
				t.Errorf("the program got %q", got)
			}
			if code := r.wait(t); code != 42 {
				t.Errorf("exit code %d, want 42", code)
			}
		})
	}
}

func TestRunSignalDeath(t *testing.T) {
	daemon := startDaemon(t, nil)
	for sig, want := range map[unix.Signal]int{unix.SIGTERM: 143, unix.SIGINT: 130} {
		r := begin(t, gpuarb(t, daemon.environment(t), "run", "sh", "-c", "echo ready; exec sleep 60"))
		r.line(t)
		if err := r.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if code := r.wait(t); code != want {
			t.Errorf("%v: exit code %d, want %d", sig, code, want)
		}
	}
}

// TestRunKeepsIgnoredSignals checks that the program ignores the signals that gpuarb was started to
// ignore. nohup(1) needs that for HUP, and systemd ignores PIPE for its services.
func TestRunKeepsIgnoredSignals(t *testing.T) {
	daemon := startDaemon(t, nil)
	command := gpuarb(t, daemon.environment(t))
	const signals = "HUP INT QUIT PIPE TERM USR1 USR2 ALRM XFSZ"
	outer := bounded.Command(t, bounded.Patience, "sh", "-c",
		`trap "" `+signals+`; exec "$0" run sh -c 'for s in `+signals+`; do kill -$s $$; done; echo alive'`, command.Path)
	outer.Env = command.Env
	if got := finish(t, outer); got.stdout != "alive\n" {
		t.Errorf("the program did not outlive the signals, code %d\n%v", got.code, got)
	}
}

// TestRunForwardsIgnoredSignals checks that a signal that gpuarb was started to ignore reaches a
// program with a handler for it.
func TestRunForwardsIgnoredSignals(t *testing.T) {
	daemon := startDaemon(t, nil)
	command := gpuarb(t, daemon.environment(t, asCounter+"=1"))
	outer := bounded.Command(t, bounded.Patience, "sh", "-c", `trap "" INT; exec "$0" run "$0"`, command.Path)
	outer.Env = command.Env
	r := begin(t, outer)
	r.line(t)
	if err := r.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if got := r.line(t); got != "count 1" {
		t.Errorf("the program says %q", got)
	}
	if code := r.wait(t); code != 6 {
		t.Errorf("exit code %d, want 6", code)
	}
}

// TestRunKilled checks that no process is left when gpuarb is killed.
func TestRunKilled(t *testing.T) {
	daemon := startDaemon(t, nil)
	r := begin(t, gpuarb(t, daemon.environment(t), "run", "sh", "-c",
		"trap 'echo ended; exit' TERM; echo ready; while :; do sleep 0.02; done"))
	r.line(t)
	if err := r.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := r.line(t); got != "ended" {
		t.Errorf("the program said %q", got)
	}
	r.wait(t)
}

// openTerminal returns the two ends of a new terminal. Reads of the test's end have a deadline.
func openTerminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours = os.NewFile(uintptr(fd), "/dev/ptmx")
	t.Cleanup(func() { ours.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	if err := ours.SetReadDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// TestRunTerminalInterrupt checks that Ctrl-C reaches the program once, from the terminal. gpuarb
// survives and reports how the program ended.
func TestRunTerminalInterrupt(t *testing.T) {
	daemon := startDaemon(t, nil)
	ours, theirs := openTerminal(t)
	command := gpuarb(t, daemon.environment(t, asCounter+"=1"), "run")
	command.Args = append(command.Args, command.Path)
	command.Stdin, command.Stdout, command.Stderr = theirs, theirs, theirs
	command.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(deadline, func() { _ = command.Process.Kill() })
	defer timer.Stop()
	screen := bufio.NewReader(ours)
	awaitLine(t, screen, "ready")
	if _, err := ours.Write([]byte{3}); err != nil {
		t.Fatal(err)
	}
	awaitLine(t, screen, "count 1")
	r := &running{Cmd: command}
	if code := r.wait(t); code != 6 {
		t.Errorf("exit code %d, want 6", code)
	}
}

func awaitLine(t *testing.T, screen *bufio.Reader, want string) {
	t.Helper()
	for {
		line, err := screen.ReadString('\n')
		if err != nil {
			t.Fatalf("waiting for %q: %v", want, err)
		}
		line = strings.TrimSpace(line)
		if strings.HasSuffix(line, want) {
			return
		}
		if strings.Contains(line, "count") {
			t.Fatalf("got %q, want %q", line, want)
		}
	}
}

// TestSummaryOfAnOlderDaemon checks that a run with an older daemon succeeds, although that daemon
// counts nothing for its jobs. If the user asked for a summary, a line explains why there is none.
func TestSummaryOfAnOlderDaemon(t *testing.T) {
	older := startDaemon(t, func(d *fakeDaemon) {
		d.refuse[ipc.TypeJobTally] = &ipc.ProtocolError{Status: ipc.StatusUnknownType, Text: "no request has type 26"}
	})
	got := finish(t, gpuarb(t, older.environment(t), "run", "--summary", "true"))
	want := "gpuarb: no summary: the daemon at " + older.socket + " is of an older version, which keeps none\n"
	if got.code != 0 || unaddressed(got.stderr) != want {
		t.Errorf("code %d, %q, want %q", got.code, got.stderr, want)
	}
	if got := finish(t, gpuarb(t, older.environment(t), "run", "true")); got.code != 0 || got.stderr != "" {
		t.Errorf("not asked for: code %d, %q", got.code, got.stderr)
	}
}

func TestSummaryLine(t *testing.T) {
	device := func(index uint32, peak, most uint64) ipc.JobTallyDevice {
		return ipc.JobTallyDevice{Index: index, Peak: peak, Max: most}
	}
	for want, tally := range map[string]ipc.JobTallyReply{
		"asked for no GPU memory": {},
		"used at most 5 GiB of 6 GiB on GPU 0, 1 KiB on GPU 3; 2 requests waited 1m2s in all; 1 request refused": {Waits: 2, Waited: 61_600, Refused: 1,
			Devices: 2, Device: [ipc.PageSlots]ipc.JobTallyDevice{device(0, 5<<30, 6<<30), device(3, 1<<10, ipc.NoLimit)}},
		"1 request waited 40ms; 7 requests refused (counted since the daemon was restarted 3s ago)": {Waits: 1, Waited: 40, Refused: 7, Since: 3100},
	} {
		if got := summary(tally); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
