package processes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has no test. It runs a story of tests/programs/processes.h with and without the shim, and compares
// the ledger with the simulated driver's count wherever the story stops.

// machine returns a machine whose driver counts only what programs request.
func machine(t *testing.T, sim ...string) *rig.Machine {
	t.Helper()
	return rig.New(t, rig.Options{Devices: "2G", NoMount: true, Sim: append(sim, "SIMCUDA_CONTEXT_BYTES=0")})
}

// story returns the command that runs a story. The words in before name a program that starts it.
func story(t *testing.T, words []string, before ...string) []string {
	return slices.Concat(before, []string{rig.Build(t, "programs/processes")}, words)
}

// tell runs a story to its end, and returns its output lines. At each line "at PLACE" the story waits, and
// tell calls look, if look is not nil.
func tell(m *rig.Machine, env, words []string, look func(at string, p *rig.Program)) []string {
	m.T.Helper()
	p := m.Begin(m.Command(env, words[0], words[1:]...))
	var lines []string
	for {
		line := p.Line()
		lines = append(lines, line)
		if line == "end" {
			p.End()
			return lines
		}
		if at, ok := strings.CutPrefix(line, "at "); ok {
			if look != nil {
				look(at, p)
			}
			p.Tell("go on")
		}
	}
}

// bare returns the output of a story on a machine of its own without the shim: the expected output.
func bare(t *testing.T, words []string, sim ...string) []string {
	t.Helper()
	m := machine(t, sim...)
	return tell(m, m.Env(), words, nil)
}

// compare checks that a story's output is the same as without the shim.
func compare(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("under the shim it says\n\t%s\nwithout\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// agree compares the ledger with the driver's count for every process, in both directions.
func agree(m *rig.Machine, at string) {
	m.T.Helper()
	type sum struct {
		bytes   uint64
		streams int
	}
	held, leases := map[int]sum{}, map[int]sum{}
	for _, h := range m.Held() {
		if h.Bytes > 0 || h.Streams > 0 {
			held[h.PID] = sum{h.Bytes, h.Streams}
		}
	}
	for _, l := range m.Snapshot().Leases {
		s := leases[l.PID]
		s.bytes += uint64(l.Used)
		s.streams += l.Streams
		if s != (sum{}) {
			leases[l.PID] = s
		}
	}
	if fmt.Sprint(held) != fmt.Sprint(leases) {
		m.T.Errorf("%s: by process, the driver counts %v, the daemon %v", at, held, leases)
	}
}

// allGone waits until no process runs, and no lease or memory remains.
func allGone(m *rig.Machine) {
	m.T.Helper()
	rig.Eventually(m.T, "every process is gone", func() bool { return len(m.Snapshot().Processes) == 0 })
	m.AllGone()
}

// same runs a story with and without the shim, on machines of their own. At each stop of the story
// the ledger must equal the driver's count, and at the end nothing may remain.
func same(t *testing.T, words []string) *rig.Machine {
	t.Helper()
	m := machine(t)
	got := tell(m, m.PreloadEnv(), words, func(at string, _ *rig.Program) { agree(m, at) })
	compare(t, got, bare(t, words))
	allGone(m)
	return m
}
