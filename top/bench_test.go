package top

import (
	"fmt"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/gpuarb/gpuarb/accounting"
)

// crowd is a machine with so many leases, each of a job of its own.
func crowd(n int) accounting.Snapshot {
	s := lab()
	s.Leases, s.Jobs, s.Processes = nil, nil, nil
	for i := range n {
		pid, job := 10_000+i, uint64(100+i)
		s.Leases = append(s.Leases, accounting.LeaseState{PID: pid, User: "ann", UID: 1000, Device: i % 2, State: accounting.StateRunning,
			Used: accounting.Bytes(i) * mib, Budget: gib, Job: job, Command: fmt.Sprintf("/usr/bin/python3 train.py --fold %d", i)})
		s.Processes = append(s.Processes, accounting.ProcessState{PID: pid, UID: 1000, User: "ann", Job: job})
		s.Jobs = append(s.Jobs, accounting.JobState{ID: job, UID: 1000, User: "ann", PID: pid, Command: "python3",
			Devices: []accounting.JobDeviceState{{Device: i % 2, Max: gib}}})
	}
	return s
}

// BenchmarkSecond is what one second costs with 1,000 leases: the state is taken and drawn.
func BenchmarkSecond(b *testing.B) {
	for _, tree := range []bool{false, true} {
		b.Run(fmt.Sprintf("tree=%v", tree), func(b *testing.B) {
			s := crowd(1000)
			m := New(&answers{}, Options{Tree: tree})
			m.Update(tea.WindowSizeMsg{Width: 120, Height: 40})
			for b.Loop() {
				m.Update(snapshot{state: s, at: begin})
				_ = m.View()
			}
		})
	}
}

// BenchmarkKey is what a key costs with 1,000 leases.
func BenchmarkKey(b *testing.B) {
	m := New(&answers{}, Options{})
	m.Update(tea.WindowSizeMsg{Width: 120, Height: 40})
	m.Update(snapshot{state: crowd(1000), at: begin})
	for b.Loop() {
		m.Update(tea.KeyPressMsg{Code: tea.KeyDown})
		_ = m.View()
	}
}

// Only what is visible is drawn: a line for each lease would be a hundred times as much.
func TestDrawsWhatIsVisible(t *testing.T) {
	draw := func(n int) float64 {
		m := New(&answers{}, Options{})
		m.Update(tea.WindowSizeMsg{Width: 120, Height: 40})
		m.Update(snapshot{state: crowd(n), at: begin})
		return testing.AllocsPerRun(5, func() { _ = m.View() })
	}
	if few, many := draw(100), draw(10_000); many > 1.5*few {
		t.Errorf("drawing 10,000 leases allocates %.0f times, and 100 leases %.0f times", many, few)
	}
}
