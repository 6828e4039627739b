package rig

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Program is a running cudaprog, or another program that answers each line on
// stdin with one on stdout: nothing has to be waited for but the answers.
type Program struct {
	t      testing.TB
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr output
	ended  bool
}

// output collects what a program writes while others look at it.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends to the collected text.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String is what was written so far.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Interact starts a command and returns when it says "ready". It is killed at the
// end of the test if it still runs then.
func (m *Machine) Interact(cmd *exec.Cmd) *Program {
	m.T.Helper()
	p := &Program{t: m.T, cmd: cmd}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		m.T.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		m.T.Fatal(err)
	}
	p.stdin, p.stdout = stdin, bufio.NewReader(stdout)
	cmd.Stderr = &p.stderr
	if err := cmd.Start(); err != nil {
		m.T.Fatal(err)
	}
	m.T.Cleanup(p.kill)
	if line := p.Line(); line != "ready" {
		m.T.Fatalf("%v says %q, want ready\n%s", cmd.Args, line, &p.stderr)
	}
	return p
}

func (p *Program) kill() {
	if !p.ended {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// Line is the next line that the program prints.
func (p *Program) Line() string {
	p.t.Helper()
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		p.t.Fatalf("%v: no further line (%q): %v\n%s", p.cmd.Args, line, err, &p.stderr)
	}
	return strings.TrimSuffix(line, "\n")
}

// Tell sends one line and waits for nothing.
func (p *Program) Tell(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.t.Fatalf("%v: %q: %v\n%s", p.cmd.Args, line, err, &p.stderr)
	}
}

// Ask sends one command and returns what it answers after its own words: "ok",
// "ok 16", "err 2".
func (p *Program) Ask(command string) string {
	p.t.Helper()
	p.Tell(command)
	line := p.Line()
	for _, word := range strings.Fields(command)[:min(2, len(strings.Fields(command)))] {
		line = strings.TrimPrefix(line, word+" ")
	}
	return line
}

// Want is Ask where the answer is known.
func (p *Program) Want(command, answer string) {
	p.t.Helper()
	if got := p.Ask(command); got != answer {
		p.t.Fatalf("%s: %s, want %s\n%s", command, got, answer, &p.stderr)
	}
}

// Number is Ask for a command that answers "ok" and one number.
func (p *Program) Number(command string) uint64 {
	p.t.Helper()
	got := p.Ask(command)
	n, err := strconv.ParseUint(strings.TrimPrefix(got, "ok "), 10, 64)
	if err != nil {
		p.t.Fatalf("%s: %q is not a number", command, got)
	}
	return n
}

// PID is the program's own, also below `gpuarb run`.
func (p *Program) PID() int { return int(p.Number("pid")) }

// CloseStdin tells the program that nothing more comes.
func (p *Program) CloseStdin() { _ = p.stdin.Close() }

// End ends the commands, waits for the program, which has to end with status 0,
// and returns what it wrote on stderr.
func (p *Program) End() string {
	p.t.Helper()
	p.CloseStdin()
	p.ended = true
	if err := p.cmd.Wait(); err != nil {
		p.t.Fatalf("%v: %v\n%s", p.cmd.Args, err, &p.stderr)
	}
	return p.stderr.String()
}
