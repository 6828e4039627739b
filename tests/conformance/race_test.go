package conformance

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the tests of the row C10 of rows.txt: threads and processes that allocate and free at once never exceed
// their budget, by the driver's highest count. The other rows of C are in memory_test.go and devices_test.go.

// Size of a race. Each thread holds up to 64 blocks of up to 1 MiB, most of them small.
const (
	raceProcesses = 3
	raceThreads   = 12
	raceCalls     = 1000
	raceLimit     = 6<<20 + 1 // about a third of what one process's threads would hold without a limit
)

// raced adds up the reports of the processes of a race, and checks that some requests were granted and some refused.
func raced(t *testing.T, answers []string) {
	t.Helper()
	var granted, refused uint64
	for _, answer := range answers {
		var g, r uint64
		if _, err := fmt.Sscanf(answer, "ok %d %d", &g, &r); err != nil {
			t.Fatalf("a process of the race says %q", answer)
		}
		granted, refused = granted+g, refused+r
	}
	if granted == 0 || refused == 0 {
		t.Errorf("%d granted, %d refused: the threads did not reach the limit", granted, refused)
	}
}

// unexceeded checks that the driver's highest usage is within the limit and above half of it.
func unexceeded(t *testing.T, m *rig.Machine) {
	t.Helper()
	if peak := m.SimNumber("peak", "0"); peak > raceLimit || peak < raceLimit/2 {
		t.Errorf("the driver saw up to %d bytes at once, the limit is %d", peak, raceLimit)
	}
}

// TestC10Races: processes of one user share a budget, and the threads of each process share its credit. The budget is never exceeded.
func TestC10Races(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true, Devices: "8G", Config: sharedConfig(raceLimit)})
	var all []*rig.Program
	var pids []int
	for i := range raceProcesses {
		p := ways[3+i%2].start(m, limits{})
		p.Want(fmt.Sprintf("many kept %d 101", 10*(i+1)), fmt.Sprintf("ok %d", 10*(i+1)))
		all, pids = append(all, p), append(pids, p.PID())
	}
	for round := range 2 {
		for i, p := range all {
			p.Tell(fmt.Sprintf("racethreads %d %d 1M %d", raceThreads, raceCalls, 10*round+i+1))
		}
		var answers []string
		for _, p := range all {
			answers = append(answers, strings.TrimPrefix(p.Line(), "racethreads "))
		}
		raced(t, answers)
		unexceeded(t, m)
		for i, pid := range pids {
			holds(t, m, pid, 0, uint64(101*10*(i+1)), 0)
		}
	}
	for _, p := range all {
		p.Ask("freemany kept")
	}
	if total := m.SimNumber("total", "0"); total != 0 {
		t.Errorf("the driver still holds %d bytes", total)
	}
	agree(t, m)
	// The whole budget can still be allocated, to the byte, whichever process has idle credit.
	for _, p := range all {
		p.Want(fmt.Sprintf("alloc all %d", raceLimit), "ok")
		p.Want("alloc more 1", errOutOfMemory)
		p.Want("free all", "ok")
	}
	unexceeded(t, m)
	for _, p := range all {
		p.End()
	}
	rig.Eventually(t, "nothing is granted", func() bool { return m.Snapshot().Devices[0].Granted == 0 })
}

// TestC10RacesInAJob runs the race below one `gpuarb run`, whose processes share the job's budget.
func TestC10RacesInAJob(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true, Devices: "8G"})
	program := rig.Build(t, "programs/cudaprog-link")
	// A program that sh starts in the background has only the stdin that the script gives it.
	script := "exec 3<&0; echo ready;"
	for i := range raceProcesses {
		script += fmt.Sprintf(" '%s' 'racethreads %d %d 1M %d' hold <&3 &", program, raceThreads, raceCalls, 77+i)
	}
	script += " wait"
	p := m.Interact(m.Gpuarb("run", "--memory", fmt.Sprint(raceLimit), "--", "sh", "-c", script))
	var answers []string
	for held := 0; held < raceProcesses; {
		switch line := p.Line(); line {
		case "ready":
		case "hold ok":
			held++
		default:
			answers = append(answers, strings.TrimPrefix(line, "racethreads "))
		}
	}
	if len(answers) != raceProcesses {
		t.Fatalf("%d of %d processes raced: %q", len(answers), raceProcesses, answers)
	}
	raced(t, answers)
	unexceeded(t, m)
	if total := m.SimNumber("total", "0"); total != 0 {
		t.Errorf("the driver still holds %d bytes", total)
	}
	agree(t, m)
	if s := m.Snapshot(); len(s.Leases) != raceProcesses || s.Stats.TotalJobs != 1 {
		t.Errorf("%d leases in %d jobs, want %d in 1", len(s.Leases), s.Stats.TotalJobs, raceProcesses)
	}
	p.End()
	rig.Eventually(t, "nothing is granted", func() bool { return m.Snapshot().Devices[0].Granted == 0 })
}
