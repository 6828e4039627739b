package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/ipc"
)

// Patience is how long anything that must happen may take on a busy machine. It
// bounds a failure; no test's result depends on it.
const Patience = 60 * time.Second

// Options says what kind of machine a test wants.
type Options struct {
	Devices string   // SIMCUDA_DEVICES; empty: "8G,8G"
	Sim     []string // more SIMCUDA_* variables, KEY=VALUE
	Config  string   // gpuarb.toml; empty: none
	NoMount bool     // --mount none
	Stopped bool     // do not start the daemon yet
	Daemon  []string // more flags of gpuarbd
	Binary  string   // another gpuarbd than the built one
}

// Machine is one simulated machine with its daemon.
type Machine struct {
	T      testing.TB
	Dir    string
	Socket string
	Mount  string // empty: not mounted
	o      Options

	mu     sync.Mutex
	daemon *exec.Cmd
	log    bytes.Buffer
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
	t.Cleanup(m.end)
	if o.Config != "" {
		if err := os.WriteFile(m.configPath(), []byte(o.Config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m.Sim("init")
	if !o.Stopped {
		m.Start()
	}
	return m
}

func (m *Machine) configPath() string { return filepath.Join(m.Dir, "gpuarb.toml") }

// Build is the path of something that make builds.
func Build(t testing.TB, name string) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(file), "..", "..", "build", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run `make test-build` first", err)
	}
	return path
}

// Env is the environment of a program on the machine, before any shim: the
// simulated driver first in its library path, and nothing of gpuarb's.
func (m *Machine) Env() []string {
	var env []string
	for _, kv := range os.Environ() {
		key, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(key, "GPUARB_") || strings.HasPrefix(key, "SIMCUDA_") ||
			strings.HasPrefix(key, "CUDA_") || key == "LD_LIBRARY_PATH" || key == "LD_PRELOAD" ||
			key == "XDG_RUNTIME_DIR" || key == "NOTIFY_SOCKET" {
			continue
		}
		env = append(env, kv)
	}
	devices := m.o.Devices
	if devices == "" {
		devices = "8G,8G"
	}
	sim := Build(m.T, "sim")
	env = append(env, "LD_LIBRARY_PATH="+sim, "NUMBA_CUDA_DRIVER="+filepath.Join(sim, "libcuda.so.1"),
		"SIMCUDA_DIR="+filepath.Join(m.Dir, "sim"), "SIMCUDA_DEVICES="+devices)
	return append(env, m.o.Sim...)
}

// PreloadEnv is Env with the bare preload and the daemon's socket.
func (m *Machine) PreloadEnv() []string {
	return append(m.Env(), "LD_PRELOAD="+Build(m.T, "libgpuarb.so"), "GPUARB_SOCKET="+m.Socket)
}

// Start starts the daemon and returns when it says that it is ready.
func (m *Machine) Start() {
	m.T.Helper()
	if err := m.TryStart(); err != nil {
		m.T.Fatal(err)
	}
}

// TryStart is Start for a daemon that may refuse to.
func (m *Machine) TryStart() error {
	ready, path, err := notifySocket(m.Dir)
	if err != nil {
		return err
	}
	defer ready.Close()
	args := append([]string{"--socket", m.Socket, "--mount", "none", "--debug"}, m.o.Daemon...)
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
	program := m.o.Binary
	if program == "" {
		program = Build(m.T, "gpuarbd")
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(m.Env(), "NOTIFY_SOCKET="+path)
	cmd.Stdout, cmd.Stderr = m, m
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	if err := waitReady(ready, exited); err != nil {
		_ = cmd.Process.Kill()
		return fmt.Errorf("gpuarbd: %w\n%s", err, m.Log())
	}
	m.daemon = cmd
	return nil
}

// notifySocket is where the daemon says READY=1, by systemd's protocol.
func notifySocket(dir string) (*net.UnixConn, string, error) {
	path := filepath.Join(dir, "notify")
	_ = os.Remove(path)
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	return c, path, err
}

func waitReady(c *net.UnixConn, exited chan error) error {
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
	case err := <-exited:
		return fmt.Errorf("ended before it was ready: %v", err)
	case <-time.After(Patience):
		return fmt.Errorf("not ready after %v", Patience)
	}
}

// Write takes the daemon's output.
func (m *Machine) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.log.Write(p)
}

// Log is what the daemons of this machine wrote so far.
func (m *Machine) Log() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.log.String()
}

// DaemonPID is the running daemon's.
func (m *Machine) DaemonPID() int { return m.daemon.Process.Pid }

// Kill kills the daemon with SIGKILL and waits until it is dead.
func (m *Machine) Kill() { m.stop(syscall.SIGKILL) }

// Stop stops the daemon in good order and waits for its end.
func (m *Machine) Stop() { m.stop(syscall.SIGTERM) }

func (m *Machine) stop(sig syscall.Signal) {
	m.T.Helper()
	cmd := m.daemon
	m.daemon = nil
	if err := cmd.Process.Signal(sig); err != nil {
		m.T.Fatal(err)
	}
	Eventually(m.T, "the daemon ends", func() bool {
		return syscall.Kill(cmd.Process.Pid, 0) == syscall.ESRCH
	})
}

// end stops what runs and removes the folder; on a failure the daemon's log is shown.
func (m *Machine) end() {
	if m.daemon != nil {
		m.Stop()
	}
	if m.Mount != "" {
		_ = exec.Command("umount", "-l", m.Mount).Run()
	}
	if m.T.Failed() {
		log := m.Log()
		m.T.Logf("the daemon's log (its end):\n%s", log[max(0, len(log)-8000):])
	}
	if err := os.RemoveAll(m.Dir); err != nil {
		m.T.Errorf("the machine leaves something behind: %v", err)
	}
}

// Sim runs the oracle and returns what it prints.
func (m *Machine) Sim(args ...string) string {
	m.T.Helper()
	cmd := exec.Command(Build(m.T, "sim/simcuda"), args...)
	cmd.Env = m.Env()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		m.T.Fatalf("simcuda %v: %v\n%s", args, err, &stderr)
	}
	return string(out)
}

// SimNumber is Sim for a command that prints one number.
func (m *Machine) SimNumber(args ...string) uint64 {
	m.T.Helper()
	n, err := strconv.ParseUint(strings.TrimSpace(m.Sim(args...)), 10, 64)
	if err != nil {
		m.T.Fatalf("simcuda %v: %v", args, err)
	}
	return n
}

// Command is a program on the machine with an environment (Env or PreloadEnv).
func (m *Machine) Command(env []string, name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), 5*Patience)
	m.T.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = env
	return cmd
}

// Gpuarb is the command line on the machine.
func (m *Machine) Gpuarb(args ...string) *exec.Cmd {
	return m.Command(append(m.Env(), "GPUARB_SOCKET="+m.Socket), Build(m.T, "gpuarb"), args...)
}

// Result is how a command ended.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// Run runs a command to its end.
func Run(t testing.TB, cmd *exec.Cmd) Result {
	t.Helper()
	var out, errs bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return Result{Code: cmd.ProcessState.ExitCode(), Stdout: out.String(), Stderr: errs.String()}
}

// Snapshot is the daemon's state, asked over its socket.
func (m *Machine) Snapshot() accounting.Snapshot {
	m.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	c, err := ipc.Dial(ctx, m.Socket)
	if err != nil {
		m.T.Fatal(err)
	}
	defer c.Close()
	text, err := c.Snapshot(ctx)
	if err != nil {
		m.T.Fatal(err)
	}
	var s accounting.Snapshot
	if err := json.Unmarshal(text, &s); err != nil {
		m.T.Fatal(err)
	}
	return s
}

// Read reads a file below the mount, as cat does.
func (m *Machine) Read(name string) string {
	m.T.Helper()
	f, err := os.Open(filepath.Join(m.Mount, name))
	if err != nil {
		m.T.Fatal(err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		m.T.Fatal(err)
	}
	return string(text)
}

// Eventually waits until something becomes true, looking again and again; it
// fails the test when it has not after Patience.
func Eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for pause := 100 * time.Microsecond; !f(); pause = min(2*pause, 20*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v not yet: %s", Patience, what)
		}
		time.Sleep(pause)
	}
}
