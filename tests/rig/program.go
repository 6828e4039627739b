package rig

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// Program is a running cudaprog, or another program that answers each line on
// stdin with one on stdout: nothing has to be waited for but the answers.
type Program struct {
	m      *Machine
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string // closed at the end of its output
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

// String returns the text that was written so far.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Interact is Begin for a command that says "ready" first, and returns then.
func (m *Machine) Interact(cmd *exec.Cmd) *Program {
	m.T.Helper()
	p := m.Begin(cmd)
	if line := p.Line(); line != "ready" {
		m.fatalf("%v says %q, want ready\n%s", cmd.Args, line, &p.stderr)
	}
	return p
}

// Begin starts a command and waits for nothing. It is killed at the end of the test
// if it still runs then.
func (m *Machine) Begin(cmd *exec.Cmd) *Program {
	m.T.Helper()
	p := &Program{m: m, cmd: cmd, lines: make(chan string, 64)}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		m.fatalf("%v", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		m.fatalf("%v", err)
	}
	p.stdin = stdin
	cmd.Stderr = &p.stderr
	if err := cmd.Start(); err != nil {
		m.fatalf("%v", err)
	}
	go p.read(stdout)
	m.T.Cleanup(p.kill)
	return p
}

// read hands on the program's lines, so that Line can give up on one.
func (p *Program) read(stdout io.Reader) {
	defer close(p.lines)
	for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
		p.lines <- scanner.Text()
	}
}

// kill ends the program and all that it started, stuck or not.
func (p *Program) kill() {
	p.CloseStdin()
	if !p.ended {
		bounded.Kill(p.cmd)
		_ = p.cmd.Wait()
	}
}

// drain reads output that no test asked for, to its end. It returns false if the output does not end.
func (p *Program) drain() bool {
	late := time.After(Patience)
	for {
		select {
		case _, ok := <-p.lines:
			if !ok {
				return true
			}
		case <-late:
			return false
		}
	}
}

// Line is the next line that the program prints.
func (p *Program) Line() string {
	p.m.T.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			p.m.fatalf("%v has ended\n%s", p.cmd.Args, &p.stderr)
		}
		return line
	case <-time.After(Patience):
		p.m.stuck(fmt.Sprintf("the next line of %v", p.cmd.Args))
		p.m.fatalf("%v: no further line after %v\n%s", p.cmd.Args, Patience, &p.stderr)
	}
	return ""
}

// Silent says whether the program has printed nothing that was not read yet.
func (p *Program) Silent() bool { return len(p.lines) == 0 }

// Stderr returns what the program has written to its standard error so far.
func (p *Program) Stderr() string { return p.stderr.String() }

// Signal sends a signal to the command itself, and to nothing below it.
func (p *Program) Signal(sig syscall.Signal) {
	p.m.T.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.m.fatalf("%v: %v", p.cmd.Args, err)
	}
}

// Wait waits for the end of the command, whatever its status is, and returns that:
// 128 and the signal's number where a signal ended it.
func (p *Program) Wait() int {
	p.m.T.Helper()
	p.ended = true
	_ = Wait(p.m.T, Patience, p.cmd)
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// Tell sends one line and waits for nothing.
func (p *Program) Tell(line string) {
	p.m.T.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.m.fatalf("%v: %q: %v\n%s", p.cmd.Args, line, err, &p.stderr)
	}
}

// Ask sends one command and returns what it answers after its own words: "ok",
// "ok 16", "err 2".
func (p *Program) Ask(command string) string {
	p.m.T.Helper()
	p.Tell(command)
	line := p.Line()
	for _, word := range strings.Fields(command)[:min(2, len(strings.Fields(command)))] {
		line = strings.TrimPrefix(line, word+" ")
	}
	return line
}

// Want is Ask where the answer is known.
func (p *Program) Want(command, answer string) {
	p.m.T.Helper()
	if got := p.Ask(command); got != answer {
		p.m.fatalf("%s: %s, want %s\n%s", command, got, answer, &p.stderr)
	}
}

// Number is Ask for a command that answers "ok" and one number.
func (p *Program) Number(command string) uint64 {
	p.m.T.Helper()
	got := p.Ask(command)
	n, err := strconv.ParseUint(strings.TrimPrefix(got, "ok "), 10, 64)
	if err != nil {
		p.m.fatalf("%s: %q is not a number", command, got)
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
	p.m.T.Helper()
	p.CloseStdin()
	if !p.drain() {
		p.m.stuck(fmt.Sprintf("%v ends", p.cmd.Args))
		p.m.fatalf("%v does not end\n%s", p.cmd.Args, &p.stderr)
	}
	p.ended = true
	if err := Wait(p.m.T, Patience, p.cmd); err != nil {
		p.m.fatalf("%v: %v\n%s", p.cmd.Args, err, &p.stderr)
	}
	return p.stderr.String()
}

// Process is the process ID of the command itself.
func (p *Program) Process() int { return p.cmd.Process.Pid }

// Expect reads the next line, which has to be the one that is known.
func (p *Program) Expect(line string) {
	p.m.T.Helper()
	if got := p.Line(); got != line {
		p.m.fatalf("%v: %q, want %q\n%s", p.cmd.Args, got, line, &p.stderr)
	}
}

// User is the name of the user who runs the tests.
func User() string {
	me, err := user.Current()
	if err != nil {
		return strconv.Itoa(os.Getuid())
	}
	return me.Username
}
