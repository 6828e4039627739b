package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// prog is a running cudaprog: each command that it is told is answered by a line.
type prog struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	stderr strings.Builder
}

// start starts a cudaprog and returns when its context is there.
func start(t *testing.T, cmd *exec.Cmd) *prog {
	t.Helper()
	p := &prog{t: t, cmd: cmd}
	cmd.Stderr = &p.stderr
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	p.answer("ready")
	return p
}

// answer reads one line, which must begin as given.
func (p *prog) answer(want string) string {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatalf("the program ended before it said %q; stderr:\n%s", want, &p.stderr)
	}
	if line := p.out.Text(); !strings.HasPrefix(line, want) {
		p.t.Fatalf("the program says %q, want %q; stderr:\n%s", line, want, &p.stderr)
	}
	return p.out.Text()
}

// tell sends a command and holds its answer against what it must begin with.
func (p *prog) tell(command, want string) string {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, command); err != nil {
		p.t.Fatalf("%s: %v; stderr:\n%s", command, err, &p.stderr)
	}
	return p.answer(want)
}

// end closes the program's stdin and waits for a good end.
func (p *prog) end() {
	p.t.Helper()
	_ = p.in.Close()
	for p.out.Scan() {
		p.t.Errorf("unexpected: %s", p.out.Text())
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("%v; stderr:\n%s", err, &p.stderr)
	}
}

// cudaprog is the build of cudaprog that finds the driver in one way.
func cudaprog(t *testing.T, how string) string { return rig.Build(t, "programs/cudaprog-"+how) }

// held is what the driver says that a process holds: bytes, allocations, streams, contexts.
func held(m *rig.Machine, pid int) string {
	for _, line := range strings.Split(m.Sim("held"), "\n") {
		f := strings.Fields(line)
		if len(f) == 7 && f[0] == fmt.Sprint(pid) {
			return strings.Join(f[3:], " ")
		}
	}
	return ""
}
