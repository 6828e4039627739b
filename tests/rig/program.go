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

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file has Program: a test program that executes one command for each line on its stdin. tests/programs has the sources
// of these programs. Machine.Interact and Machine.Begin start them.

// Program is a running cudaprog, or another program that answers each line on
// stdin with one line on stdout. A test waits only for these answers.
type Program struct {
	m      *Machine
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string // closed at the end of its output
	stderr output
	ended  bool
}

// output collects what a program writes while other goroutines read it.
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

// Interact starts a command that prints "ready" first, and returns after that line.
func (m *Machine) Interact(cmd *exec.Cmd) *Program {
	m.T.Helper()
	p := m.Begin(cmd)
	if line := p.Line(); line != "ready" {
		m.fatalf("%v says %q, want ready\n%s", cmd.Args, line, &p.stderr)
	}
	return p
}

// Begin starts a command and does not wait. A command that still runs at the end of the test
// is killed.
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

// read passes the program's lines to a channel, so that Line can stop waiting.
func (p *Program) read(stdout io.Reader) {
	defer close(p.lines)
	for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
		p.lines <- scanner.Text()
	}
}

// kill ends the program and all processes that it started.
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

// Line returns the next line that the program prints.
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

// Silent reports whether all lines that the program has printed were read.
func (p *Program) Silent() bool { return len(p.lines) == 0 }

// Stderr returns what the program has written to its standard error so far.
func (p *Program) Stderr() string { return p.stderr.String() }

// Signal sends a signal to the command itself, but not to its children.
func (p *Program) Signal(sig syscall.Signal) {
	p.m.T.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.m.fatalf("%v: %v", p.cmd.Args, err)
	}
}

// Wait waits for the end of the command and returns its exit status:
// 128 and the signal's number if a signal ended it.
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

// Tell sends one line and does not wait for an answer.
func (p *Program) Tell(line string) {
	p.m.T.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.m.fatalf("%v: %q: %v\n%s", p.cmd.Args, line, err, &p.stderr)
	}
}

// Ask sends one command and returns its answer without the repeated command: "ok",
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

// Want sends one command and fails the test if the answer differs.
func (p *Program) Want(command, answer string) {
	p.m.T.Helper()
	if got := p.Ask(command); got != answer {
		p.m.fatalf("%s: %s, want %s\n%s", command, got, answer, &p.stderr)
	}
}

// Number sends a command that answers "ok" and one number, and returns the number.
func (p *Program) Number(command string) uint64 {
	p.m.T.Helper()
	got := p.Ask(command)
	n, err := strconv.ParseUint(strings.TrimPrefix(got, "ok "), 10, 64)
	if err != nil {
		p.m.fatalf("%s: %q is not a number", command, got)
	}
	return n
}

// PID returns the PID of the test program itself, also below `gpuarb run`.
func (p *Program) PID() int { return int(p.Number("pid")) }

// CloseStdin closes the program's stdin, which ends its commands.
func (p *Program) CloseStdin() { _ = p.stdin.Close() }

// End closes stdin and waits for the program, which must end with status 0.
// It returns what the program wrote to stderr.
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

// Process returns the PID of the command itself, which may be `gpuarb run`.
func (p *Program) Process() int { return p.cmd.Process.Pid }

// Expect reads the next line and fails the test if it differs.
func (p *Program) Expect(line string) {
	p.m.T.Helper()
	if got := p.Line(); got != line {
		p.m.fatalf("%v: %q, want %q\n%s", p.cmd.Args, got, line, &p.stderr)
	}
}

// User returns the name of the user who runs the tests.
func User() string {
	me, err := user.Current()
	if err != nil {
		return strconv.Itoa(os.Getuid())
	}
	return me.Username
}

// LimitAddresses limits the address space of the program to what it has mapped and more bytes. A driver that computes on the processor then has no memory
// for more.
func (p *Program) LimitAddresses(more uint64) {
	p.m.T.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID()))
	if err != nil {
		p.m.fatalf("%v", err)
	}
	var pages uint64
	if _, err := fmt.Sscan(string(data), &pages); err != nil {
		p.m.fatalf("%v", err)
	}
	most := pages*uint64(os.Getpagesize()) + more
	if err := unix.Prlimit(p.PID(), unix.RLIMIT_AS, &unix.Rlimit{Cur: most, Max: most}, nil); err != nil {
		p.m.fatalf("%v", err)
	}
}
