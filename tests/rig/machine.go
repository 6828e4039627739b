package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file has Machine: its options, its environment, its daemon's start and end, and the commands that run on it.
// Nearly every test package calls New. Interactive programs are in program.go, the oracle is in oracle.go, and the end of a hanging test in stuck.go.

// Patience is the longest time that any expected event may take on a busy machine. It
// bounds a failure; the result of a test does not depend on it.
var Patience = bounded.Patience

// Options are the properties of the machine that a test needs.
type Options struct {
	Devices string        // SIMCUDA_DEVICES; empty: "8G,8G"
	Sim     []string      // more SIMCUDA_* variables, KEY=VALUE
	Config  string        // gpuarb.toml; empty: none
	NoMount bool          // --mount none
	Stopped bool          // do not start the daemon yet
	Daemon  []string      // more flags of gpuarbd
	Binary  string        // another gpuarbd than the built one
	Environ []string      // more of the daemon's environment, KEY=VALUE
	Quiet   bool          // the daemon logs no decisions: for a test that takes very long
	System  bool          // the host's own driver and devices instead of simulated ones
	CPU     bool          // the processor is a device if the host has PoCL or lavapipe; else the daemon finds neither
	Broken  bool          // the daemon is expected to break an invariant; else the test fails if it does
	Life    time.Duration // the longest time that the test may take; 0: bounded.Lifetime
}

// Machine is one simulated machine with its daemon.
type Machine struct {
	T      testing.TB
	Dir    string
	Socket string
	Mount  string // empty: not mounted
	o      Options

	mu     sync.Mutex
	daemon *daemon // nil: no daemon runs
	log    bytes.Buffer
	over   bool // the test has ended: it cannot log or fail any more

	stuckOnce sync.Once
}

// NoProcessor is the environment of a daemon that must find no driver that computes on the processor. Then its
// devices are those that a test names, whatever is installed on the host.
var NoProcessor = []string{"OCL_ICD_VENDORS=/dev/null", "VK_DRIVER_FILES=/dev/null"}

// daemon is a running gpuarbd.
type daemon struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the daemon was waited for
	err    error         // result of Wait; valid when exited is closed
}

// New makes a machine and starts its daemon. Both end with the test.
func New(t testing.TB, o Options) *Machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "gpuarb-test-") // t.TempDir's names are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	m := &Machine{T: t, Dir: dir, Socket: filepath.Join(dir, "gpuarb.sock"), o: o}
	if !o.NoMount {
		m.Mount = filepath.Join(dir, "gpu")
	}
	if m.o.Life == 0 {
		m.o.Life = bounded.Lifetime
	}
	machines.Store(t, m)
	t.Cleanup(m.end)
	m.watch()
	if o.Config != "" {
		if err := os.WriteFile(m.configPath(), []byte(o.Config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if !o.System {
		m.Sim("init")
	}
	if !o.Stopped {
		m.Start()
	}
	return m
}

func (m *Machine) configPath() string { return filepath.Join(m.Dir, "gpuarb.toml") }

// Build returns the path of a file that make builds. GPUARBD in the environment replaces the path of
// the daemon.
func Build(t testing.TB, name string) string {
	t.Helper()
	if other := os.Getenv("GPUARBD"); other != "" && name == "gpuarbd" {
		return other
	}
	_, file, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(file), "..", "..", "build", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run `make test-build` first", err)
	}
	return path
}

// Env returns the environment of a program on the machine, before any shim: the
// simulated driver first in its library path (unless System), and no variables of gpuarb. Files that
// the program leaves in TMPDIR are removed with the machine.
// SIMCUDA_DIR names the machine to the rig, also with a real driver.
func (m *Machine) Env() []string {
	var env []string
	for _, kv := range os.Environ() {
		key, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(key, "GPUARB_") || strings.HasPrefix(key, "SIMCUDA_") ||
			strings.HasPrefix(key, "CUDA_") && !(m.o.System && isToolkit(key)) || key == "LD_LIBRARY_PATH" || key == "LD_PRELOAD" ||
			key == "XDG_RUNTIME_DIR" || key == "NOTIFY_SOCKET" || key == "TMPDIR" || key == "STATE_DIRECTORY" || isTaste(key) {
			continue
		}
		env = append(env, kv)
	}
	env = append(env, "SIMCUDA_DIR="+filepath.Join(m.Dir, "sim"), "TMPDIR="+m.Dir, "STATE_DIRECTORY="+filepath.Join(m.Dir, "state"))
	if m.o.System {
		return append(env, "LD_LIBRARY_PATH="+os.Getenv("LD_LIBRARY_PATH"))
	}
	devices := m.o.Devices
	if devices == "" {
		devices = "8G,8G"
	}
	sim := Build(m.T, "sim")
	env = append(env, "LD_LIBRARY_PATH="+sim, "NUMBA_CUDA_DRIVER="+filepath.Join(sim, "libcuda.so.1"),
		"SIMCUDA_DEVICES="+devices)
	return append(env, m.o.Sim...)
}

// isTaste reports whether a variable sets how programs colour their output. Tests set such variables themselves.
func isTaste(key string) bool {
	switch key {
	case "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR":
		return true
	}
	return false
}

// isToolkit reports whether a variable tells frameworks where CUDA's own files are.
func isToolkit(key string) bool {
	return key == "CUDA_HOME" || key == "CUDA_PATH" || key == "CUDA_ROOT"
}

// PreloadEnv returns Env with the bare preload and the daemon's socket.
func (m *Machine) PreloadEnv() []string {
	return append(m.Env(), "LD_PRELOAD="+Build(m.T, "libgpuarb.so"), "GPUARB_SOCKET="+m.Socket)
}

// Start starts the daemon and returns when it says that it is ready.
func (m *Machine) Start() {
	m.T.Helper()
	if err := m.TryStart(); err != nil {
		m.fatalf("%v", err)
	}
}

// Use sets the binary of all daemons that are started from here on.
func (m *Machine) Use(daemon string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.o.Binary = daemon
}

// Arm adds variables, as KEY=VALUE, to the environment of all daemons that are started from here on.
func (m *Machine) Arm(env ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.o.Environ = env
}

// Exited returns a channel that is closed when the current daemon has ended for any reason.
func (m *Machine) Exited() <-chan struct{} {
	m.T.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.daemon == nil {
		m.fatalf("no daemon runs")
	}
	return m.daemon.exited
}

// TryStart does what Start does, and returns an error if the daemon refuses to start.
func (m *Machine) TryStart() error {
	ready, path, err := notifySocket(m.Dir)
	if err != nil {
		return err
	}
	defer ready.Close()
	args := append([]string{"--socket", m.Socket, "--mount", "none"}, m.o.Daemon...)
	if !m.o.Quiet {
		args = append(args, "--debug")
	}
	if m.Mount != "" {
		args[3] = m.Mount
	}
	if m.o.Config != "" {
		args = append(args, "--config", m.configPath())
	} else {
		empty := filepath.Join(m.Dir, "empty.toml")
		if err := os.WriteFile(empty, []byte("schema_version = 1\n"), 0o600); err != nil {
			return err
		}
		args = append(args, "--config", empty)
	}
	m.mu.Lock()
	program, environ := m.o.Binary, m.o.Environ
	m.mu.Unlock()
	if program == "" {
		program = Build(m.T, "gpuarbd")
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(m.Env(), "NOTIFY_SOCKET="+path)
	if !m.o.CPU {
		cmd.Env = append(cmd.Env, NoProcessor...)
	}
	cmd.Env = append(cmd.Env, environ...)
	cmd.Stdout, cmd.Stderr = m, m
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = bounded.Grace
	if err := cmd.Start(); err != nil {
		return err
	}
	d := &daemon{cmd: cmd, exited: make(chan struct{})}
	go func() { defer close(d.exited); d.err = cmd.Wait() }()
	m.mu.Lock()
	m.daemon = d
	m.mu.Unlock()
	if err := waitReady(ready, d); err != nil {
		m.abandon()
		return fmt.Errorf("gpuarbd: %w\n%s", err, m.Log())
	}
	return nil
}

// notifySocket makes the socket on which the daemon sends READY=1, by systemd's protocol.
func notifySocket(dir string) (*net.UnixConn, string, error) {
	path := filepath.Join(dir, "notify")
	_ = os.Remove(path)
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	return c, path, err
}

func waitReady(c *net.UnixConn, d *daemon) error {
	ready := make(chan error, 1)
	go func() {
		buf := make([]byte, 512)
		for {
			n, err := c.Read(buf)
			if err != nil || strings.Contains(string(buf[:n]), "READY=1") {
				ready <- err
				return
			}
		}
	}()
	select {
	case err := <-ready:
		return err
	case <-d.exited:
		return fmt.Errorf("ended before it was ready: %w", d.err)
	case <-time.After(Patience):
		return fmt.Errorf("not ready after %v", Patience)
	}
}

// Write appends to the log; the daemon's output goes here.
func (m *Machine) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.log.Write(p)
}

// Log returns what the daemons of this machine have logged so far.
func (m *Machine) Log() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.log.String()
}

// AwaitLog waits until the log has a text. The daemon writes its log with a delay, so
// a line may be missing when clients already see its effect.
func (m *Machine) AwaitLog(text string) {
	m.T.Helper()
	Eventually(m.T, fmt.Sprintf("the log says %q", text), func() bool { return strings.Contains(m.Log(), text) })
}

// DaemonPID returns the PID of the running daemon.
func (m *Machine) DaemonPID() int {
	m.T.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.daemon == nil {
		m.fatalf("no daemon runs")
	}
	return m.daemon.cmd.Process.Pid
}

// Kill kills the daemon with SIGKILL and waits until it is dead.
func (m *Machine) Kill() { m.T.Helper(); m.stop(unix.SIGKILL) }

// Stop sends the daemon SIGTERM and waits for its end.
func (m *Machine) Stop() { m.T.Helper(); m.stop(unix.SIGTERM) }

func (m *Machine) stop(sig os.Signal) {
	m.T.Helper()
	m.mu.Lock()
	d := m.daemon
	m.mu.Unlock()
	if d == nil {
		m.fatalf("no daemon runs")
	}
	if err := d.cmd.Process.Signal(sig); err != nil {
		m.fatalf("the daemon: %v", err)
	}
	select {
	case <-d.exited:
	case <-time.After(Patience):
		m.stuck(fmt.Sprintf("the daemon ends by a signal (%v)", sig))
		m.fatalf("the daemon has not ended %v after a signal (%v)", Patience, sig)
	}
	m.mu.Lock()
	m.daemon = nil
	m.mu.Unlock()
}

// Command returns a program on the machine with an environment (Env or PreloadEnv). It may
// run as long as the test may, and is killed at the end of the test.
func (m *Machine) Command(env []string, name string, args ...string) *exec.Cmd {
	cmd := bounded.Command(m.T, m.o.Life, name, args...)
	cmd.Env = env
	return cmd
}

// Sim runs the simulated driver's command, which is the oracle, and returns what it prints.
func (m *Machine) Sim(args ...string) string {
	m.T.Helper()
	cmd := bounded.Command(m.T, Patience, Build(m.T, "sim/simcuda"), args...)
	cmd.Env = m.Env()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		m.fatalf("simcuda %v: %v\n%s", args, err, &stderr)
	}
	return string(out)
}

// AllGone waits until there is no lease and the daemon's sums are zero, which happens a moment
// later. Then the driver must hold nothing either.
func (m *Machine) AllGone() {
	m.T.Helper()
	Eventually(m.T, "every lease is gone, and what it had", func() bool {
		s := m.Snapshot()
		held := slices.ContainsFunc(s.Devices, func(d figures.DeviceState) bool {
			return d.Granted != 0 || d.Committed != 0 || d.Used != 0 || d.Streams != 0
		})
		return len(s.Leases) == 0 && !held
	})
	if used := m.SimNumber("total"); used != 0 {
		m.T.Errorf("at the end the driver holds %d bytes:\n%s", used, m.Sim("held"))
	}
}

// SimNumber runs Sim with a command that prints one number, and returns the number.
func (m *Machine) SimNumber(args ...string) uint64 {
	m.T.Helper()
	n, err := strconv.ParseUint(strings.TrimSpace(m.Sim(args...)), 10, 64)
	if err != nil {
		m.fatalf("simcuda %v: %v", args, err)
	}
	return n
}

// Gpuarb returns a gpuarb command on the machine.
func (m *Machine) Gpuarb(args ...string) *exec.Cmd {
	return m.Command(append(m.Env(), "GPUARB_SOCKET="+m.Socket), Build(m.T, "gpuarb"), args...)
}

// Result is the output and the exit status of a command that has ended.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// Run runs a command to its end, within Patience.
func Run(t testing.TB, cmd *exec.Cmd) Result {
	t.Helper()
	return RunFor(t, Patience, cmd)
}

// RunFor runs a command to its end, within limit.
func RunFor(t testing.TB, limit time.Duration, cmd *exec.Cmd) Result {
	t.Helper()
	var out, errs bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &errs
	err := cmd.Start()
	if err == nil {
		err = Wait(t, limit, cmd)
	}
	if cmd.ProcessState == nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return Result{Code: cmd.ProcessState.ExitCode(), Stdout: out.String(), Stderr: errs.String()}
}

// Wait waits for a started command of Machine.Command. A command that has not ended
// within limit is killed and fails the test.
func Wait(t testing.TB, limit time.Duration, cmd *exec.Cmd) error {
	t.Helper()
	late := time.AfterFunc(limit, func() {
		if m, ok := machines.Load(t); ok {
			m.(*Machine).stuck(fmt.Sprintf("%v ends within %v", cmd.Args, limit))
		}
		t.Errorf("%v has not ended after %v\n%s", cmd.Args, limit, bounded.Threads(cmd.Process.Pid))
		bounded.Kill(cmd)
	})
	defer late.Stop()
	return cmd.Wait()
}

// Snapshot returns the daemon's state, requested over its socket.
func (m *Machine) Snapshot() figures.Snapshot {
	m.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	c, err := ipc.Dial(ctx, m.Socket)
	if err != nil {
		m.fatalf("%v", err)
	}
	defer c.Close()
	text, err := c.Snapshot(ctx)
	if err != nil {
		m.fatalf("%v", err)
	}
	var s figures.Snapshot
	if err := json.Unmarshal(text, &s); err != nil {
		m.fatalf("%v", err)
	}
	return s
}

// Read reads a file below the mount, as cat does.
func (m *Machine) Read(name string) string {
	m.T.Helper()
	var text []byte
	var err error
	if !bounded.Done(func() { text, err = os.ReadFile(filepath.Join(m.Mount, name)) }) {
		m.stuck("a read of " + name)
		m.fatalf("after %v not yet: %s is read", Patience, name)
	}
	if err != nil {
		m.fatalf("%v", err)
	}
	return string(text)
}

// Eventually polls f until it returns true. It fails the test if that takes longer than Patience;
// what describes the expected state.
func Eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for pause := 100 * time.Microsecond; !f(); pause = min(2*pause, 20*time.Millisecond) {
		if time.Now().After(deadline) {
			giveUp(t, what)
		}
		time.Sleep(pause)
	}
}
