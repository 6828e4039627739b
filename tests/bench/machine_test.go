package bench

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the machine and the idle clients of the benchmarks.

// devices are large enough that no request is refused for lack of memory. They are four because a
// connection can have a lease on each: ten thousand leases then need only 2500 connections.
const devices = "64T,64T,64T,64T"

// process is a program that answers each line on stdin with one line on stdout.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Reader
}

// start starts a program and returns when it says "ready". The program ends with its
// standard input, at the end of the benchmark, or when it is killed.
func start(b *testing.B, cmd *exec.Cmd) *process {
	b.Helper()
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	p := &process{cmd: cmd, stdin: stdin, lines: bufio.NewReader(stdout)}
	b.Cleanup(p.end)
	if line := p.line(b); line != "ready" {
		b.Fatalf("%v says %q, want ready", cmd.Args, line)
	}
	return p
}

func (p *process) end() {
	_ = p.stdin.Close()
	_ = p.cmd.Wait()
}

// ask sends a line and returns the answer.
func (p *process) ask(b *testing.B, line string) string {
	b.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		b.Fatal(err)
	}
	return p.line(b)
}

func (p *process) line(b *testing.B) string {
	b.Helper()
	line, err := p.lines.ReadString('\n')
	if err != nil {
		b.Fatalf("%v: %v", p.cmd.Args, err)
	}
	return strings.TrimSpace(line)
}

// crowd opens leases of idle clients, spread over the first devices of the machine.
func crowd(b *testing.B, m *rig.Machine, leases, devices int) {
	b.Helper()
	if leases == 0 {
		return
	}
	before := m.Snapshot()
	openCrowd(b, m, leases, before.Devices[:devices])
	if got := len(m.Snapshot().Leases) - len(before.Leases); got != leases {
		b.Fatalf("the crowd has %d leases, want %d", got, leases)
	}
}

// openCrowd opens the leases of a crowd without checking the daemon's count.
func openCrowd(b *testing.B, m *rig.Machine, leases int, on []figures.DeviceState) {
	b.Helper()
	args := []string{m.Socket, fmt.Sprint(leases)}
	for _, d := range on {
		args = append(args, d.UUID)
	}
	start(b, m.Command(m.Env(), rig.Build(b, "bench/crowd"), args...))
}
