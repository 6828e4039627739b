package simcuda

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file has no test. It has a simulated machine in a folder of its own, the commands of the oracle, and the
// program hold, which takes memory and answers commands.

// patience limits every wait; no result depends on it.
var patience = bounded.Patience

// machine is a simulated machine in a folder.
type machine struct {
	t   testing.TB
	env []string
}

func built(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "build", "sim", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run `make sim` first", err)
	}
	return path
}

func newMachine(t testing.TB, vars ...string) *machine {
	t.Helper()
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "SIMCUDA_") && !strings.HasPrefix(kv, "CUDA_") &&
			!strings.HasPrefix(kv, "LD_") {
			env = append(env, kv)
		}
	}
	lib := filepath.Dir(built(t, "libcuda.so.1"))
	env = append(env, "LD_LIBRARY_PATH="+lib, "SIMCUDA_DIR="+t.TempDir())
	return &machine{t, append(env, vars...)}
}

func (m *machine) command(name string, args ...string) *exec.Cmd {
	cmd := bounded.Command(m.t, patience, name, args...)
	cmd.Env = m.env
	cmd.Stderr = os.Stderr
	return cmd
}

// sim runs the oracle and returns its output.
func (m *machine) sim(args ...string) string {
	m.t.Helper()
	out, err := m.command(built(m.t, "simcuda"), args...).Output()
	if err != nil {
		m.t.Fatalf("simcuda %v: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

func (m *machine) total() int {
	m.t.Helper()
	n, err := strconv.Atoi(m.sim("total"))
	if err != nil {
		m.t.Fatal(err)
	}
	return n
}

func (m *machine) wantTotal(want int) {
	m.t.Helper()
	if got := m.total(); got != want {
		m.t.Fatalf("the oracle counts %d bytes, not %d; held:\n%s", got, want, m.sim("held"))
	}
}

// awaitTotal waits until the oracle reports this total.
func (m *machine) awaitTotal(want int) {
	m.t.Helper()
	for end := time.Now().Add(patience); m.total() != want; {
		if time.Now().After(end) {
			m.wantTotal(want)
		}
	}
}

// run runs one of the test programs to its end.
func (m *machine) run(program string, args ...string) string {
	m.t.Helper()
	out, err := m.command(built(m.t, "test/"+program), args...).Output()
	if err != nil {
		m.t.Fatalf("%s: %v", program, err)
	}
	return strings.TrimSpace(string(out))
}

// holder is a running test/hold.
type holder struct {
	*exec.Cmd
	m   *machine
	in  io.Writer
	out *bufio.Reader
}

func (m *machine) hold(sizes ...string) *holder {
	m.t.Helper()
	return m.holdWith(nil, sizes...)
}

func (m *machine) holdWith(attr *syscall.SysProcAttr, sizes ...string) *holder {
	m.t.Helper()
	cmd := m.command(built(m.t, "test/hold"), sizes...)
	cmd.SysProcAttr = attr
	in, err := cmd.StdinPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	h := &holder{cmd, m, in, bufio.NewReader(out)}
	m.t.Cleanup(func() { h.Process.Kill() })
	if got := h.line(); got != "ready" {
		m.t.Fatalf("the holder says %q", got)
	}
	return h
}

func (h *holder) line() string {
	h.m.t.Helper()
	s, err := h.out.ReadString('\n')
	if err != nil {
		h.m.t.Fatal(err)
	}
	return strings.TrimSpace(s)
}

func (h *holder) ask(command string) string {
	h.m.t.Helper()
	if _, err := io.WriteString(h.in, command+"\n"); err != nil {
		h.m.t.Fatal(err)
	}
	return h.line()
}

func (h *holder) kill() {
	h.m.t.Helper()
	if err := h.Process.Kill(); err != nil {
		h.m.t.Fatal(err)
	}
	h.Wait()
}
