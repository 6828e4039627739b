package cshimtest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file has no test. It starts the scripted daemon (cshim/test/peer.c) and programs on a simulated machine,
// and asks both for what they count.

// patience is the time limit of every wait; no result depends on it.
var patience = bounded.Patience

func built(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "build", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run make first", err)
	}
	return path
}

// peer is a running cshim/test/peer.
type peer struct {
	t      testing.TB
	socket string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string

	// Results of the last show: the waiting requests, and the most threads that ever had a slot at
	// once.
	waiters, most int
}

func socketPath(t testing.TB) string {
	dir, err := os.MkdirTemp("", "gpuarb") // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func startPeer(t testing.TB, socket string, options ...string) *peer {
	t.Helper()
	p := &peer{t: t, socket: socket, lines: make(chan string, 100000)}
	p.cmd = bounded.Command(t, bounded.Lifetime, built(t, "cshim-test/peer"), append([]string{socket}, options...)...)
	p.cmd.Stderr = os.Stderr
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		close(p.lines)
	}()
	t.Cleanup(p.kill)
	if got := p.line(); got != "listening" {
		t.Fatalf("peer says %q", got)
	}
	return p
}

func (p *peer) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

func (p *peer) line() string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			p.t.Fatal("the peer has ended")
		}
		return line
	case <-time.After(patience):
		p.t.Fatal("the peer is silent")
	}
	return ""
}

func (p *peer) say(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.stdin, format+"\n", args...); err != nil {
		p.t.Fatal(err)
	}
}

// lease has the peer's counts for one session and device.
type lease struct {
	pid, slot                                 int
	granted, used, streams, contexts, pending int64
}

// show returns all leases, and the requests logged since the last show ("TYPE STATUS N").
func (p *peer) show() (leases []lease, requests []string) {
	p.t.Helper()
	p.say("show")
	for {
		line := p.line()
		var l lease
		switch n, _ := fmt.Sscanf(line, "lease %d %d %d %d %d %d %d", &l.pid, &l.slot, &l.granted, &l.used,
			&l.streams, &l.contexts, &l.pending); {
		case line == "end":
			return leases, requests
		case strings.HasPrefix(line, "waiters "):
			if _, err := fmt.Sscanf(line, "waiters %d most %d", &p.waiters, &p.most); err != nil {
				p.t.Fatalf("%q: %v", line, err)
			}
		case n == 7:
			leases = append(leases, l)
		default:
			requests = append(requests, line)
		}
	}
}

// waitFor waits until n requests wait, and returns the requests logged since the last show.
func (p *peer) waitFor(n int) (requests []string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%d requests wait", n), func() bool {
		_, more := p.show()
		requests = append(requests, more...)
		return p.waiters == n
	})
	return requests
}

// oneLease returns the lease, and fails the test unless there is exactly one.
func (p *peer) oneLease() lease {
	p.t.Helper()
	leases, _ := p.show()
	if len(leases) != 1 {
		p.t.Fatalf("leases: %+v", leases)
	}
	return leases[0]
}

// machine is a simulated machine, and the environment of programs on it.
type machine struct {
	t    testing.TB
	env  []string
	lib  string
	load bool
}

func newMachine(t testing.TB, vars ...string) *machine {
	t.Helper()
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "SIMCUDA_") && !strings.HasPrefix(name, "CUDA_") &&
			!strings.HasPrefix(name, "LD_") && !strings.HasPrefix(name, "GPUARB_") {
			env = append(env, kv)
		}
	}
	env = append(env, "SIMCUDA_DIR="+t.TempDir())
	return &machine{t, append(env, vars...), filepath.Dir(built(t, "sim/libcuda.so.1")), true}
}

// program is a running cudaprog.
type program struct {
	t      testing.TB
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	out    *bufio.Scanner
	stderr strings.Builder
}

func (m *machine) command(name string, args ...string) *exec.Cmd {
	cmd := bounded.Command(m.t, patience, name, args...)
	cmd.Env = append(append([]string{}, m.env...), "LD_LIBRARY_PATH="+m.lib)
	if m.load {
		cmd.Env = append(cmd.Env, "LD_PRELOAD="+built(m.t, "libgpuarb.so"))
	}
	return cmd
}

func (m *machine) start(how string, args ...string) *program {
	m.t.Helper()
	return m.launch("cudaprog-"+how, append(args, "-")...)
}

func (m *machine) launch(name string, args ...string) *program {
	m.t.Helper()
	p := &program{t: m.t, cmd: m.command(built(m.t, "programs/"+name), args...)}
	p.cmd.Stderr = &p.stderr
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		m.t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { p.cmd.Process.Kill(); p.cmd.Wait() })
	p.want("ready")
	return p
}

func (p *program) send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

func (p *program) answer() string {
	p.t.Helper()
	if !p.out.Scan() {
		p.cmd.Wait()
		p.t.Fatalf("the program has ended: %v %s", p.cmd.ProcessState, p.stderr.String())
	}
	return p.out.Text()
}

func (p *program) want(line string) {
	p.t.Helper()
	if got := p.answer(); got != line {
		p.t.Errorf("the program says %q, want %q", got, line)
	}
}

// do runs a command and checks its answer. The program repeats the words of the command before the
// result; these words are not compared.
func (p *program) do(command, want string) {
	p.t.Helper()
	p.send(command)
	got := p.answer()
	if _, result, _ := strings.Cut(got+" ", " "+strings.Fields(want)[0]); !strings.HasPrefix(" "+strings.Fields(want)[0]+result, " "+want) {
		p.t.Errorf("%s: the program says %q, want %q", command, got, want)
	}
}

// stopped waits until an injected fault has stopped the program.
func (p *program) stopped() {
	p.t.Helper()
	eventually(p.t, "it stops", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
}

// end lets the program finish, and returns its stderr.
func (p *program) end() string {
	p.t.Helper()
	p.stdin.Close()
	for p.out.Scan() {
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("the program: %v", err)
	}
	return p.stderr.String()
}

// setup starts a peer, and returns it with a machine whose programs connect to it.
func setup(t testing.TB, options []string, vars ...string) (*peer, *machine) {
	t.Helper()
	p := startPeer(t, socketPath(t), options...)
	return p, newMachine(t, append(vars, "GPUARB_SOCKET="+p.socket)...)
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// wantUsed checks how many bytes of the one lease the peer counts as used.
func wantUsed(t testing.TB, p *peer, used int64) {
	t.Helper()
	if got := p.oneLease(); got.used != used {
		t.Errorf("used %d, want %d", got.used, used)
	}
}
