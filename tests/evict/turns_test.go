package evict

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that two programs whose memory never fits together take turns: both go on, and they change no more often than
// evict.min_resident says. turns_full_test.go has the long one.

// minResident is evict.min_resident of the programs that take turns.
const minResident = 5 * time.Second

// worker is a program that works in bursts. It gives its memory back in a pause if its hook asks, and takes it again for the next burst.
type worker struct {
	*rig.Program
	t      *testing.T
	asked  string // file that the hook makes; the hook ends when the file is gone
	holds  bool
	waits  bool      // it has asked for its memory, and has no answer
	paused time.Time // when its pause began
	turns  int       // number of times that it took its memory
	bursts int
}

// takeTurns returns a machine of 8 GiB with two workers of 6 GiB.
func takeTurns(t *testing.T) (m *rig.Machine, both [2]*worker) {
	folder := t.TempDir()
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	hook := filepath.Join(folder, "hook")
	script := "#!/bin/sh\ntouch " + folder + "/$GPUARB_PIDS\nwhile [ -e " + folder + "/$GPUARB_PIDS ]; do sleep 0.05; done\n"
	if err := os.WriteFile(hook, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	m = rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: fmt.Sprintf(`schema_version = 1
[defaults]
on_full = "wait"
evict.after = "500ms"
evict.how = "hook"
evict.suspend = [%q]
evict.idle_after = "1s"
evict.min_resident = %q
`, hook, minResident)})
	for i := range both {
		p := cudaprog(m)
		both[i] = &worker{Program: p, t: t, asked: filepath.Join(folder, fmt.Sprint(p.PID()))}
	}
	return m, both
}

// pause is longer than evict.idle_after, by the two seconds within which the device is read and jobs are judged.
const pause = 2500 * time.Millisecond

// goOn lets a worker do what is due, without waiting for anything.
func (w *worker) goOn() {
	w.t.Helper()
	_, err := os.Stat(w.asked)
	switch {
	case w.waits && w.Silent():
	case w.waits:
		w.Expect("alloc a ok")
		w.holds, w.waits = true, false
		w.turns++
		w.burst()
	case err == nil && w.holds:
		w.gives()
	case time.Since(w.paused) < pause:
	case w.holds:
		w.burst()
	default:
		w.Tell("alloc a 6G")
		w.waits = true
	}
}

// burst works for a moment, and then begins a pause.
func (w *worker) burst() {
	w.t.Helper()
	for range 20 {
		w.Want("alloc b 1M", "ok")
		w.Want("free b", "ok")
	}
	w.bursts++
	w.paused = time.Now()
}

// gives gives the memory back, and lets the hook end.
func (w *worker) gives() {
	w.t.Helper()
	w.Want("free a", "ok")
	w.holds = false
	_ = os.Remove(w.asked)
}

// turns lets two workers work until enough returns true, and checks that they have changed no more often than they may.
func turns(t *testing.T, enough func(elapsed time.Duration, both [2]*worker) bool) {
	t.Helper()
	m, both := takeTurns(t)
	began := time.Now()
	for !enough(time.Since(began), both) {
		before := both[0].bursts + both[1].bursts
		rig.Eventually(t, "one of the two works", func() bool {
			both[0].goOn()
			both[1].goOn()
			return both[0].bursts+both[1].bursts > before
		})
	}
	elapsed := time.Since(began)
	swaps := both[0].turns + both[1].turns - 1 // the first one finds a free card
	if most := int(elapsed/minResident) + 1; swaps > most {
		t.Errorf("they have changed %d times in %v, and at most %d times are due", swaps, elapsed, most)
	}
	for i, w := range both {
		t.Logf("worker %d: %d bursts, %d turns in %v", i, w.bursts, w.turns, elapsed)
		if w.turns < 3 {
			t.Errorf("worker %d had %d turns", i, w.turns)
		}
	}
	if peak := m.SimNumber("peak", "0"); peak > 8*gib {
		t.Errorf("the driver saw %d bytes in use at once", peak)
	}
}

// TestTurns: two programs that never fit together both go on, until each has had three turns.
func TestTurns(t *testing.T) {
	t.Parallel()
	turns(t, func(_ time.Duration, both [2]*worker) bool { return both[0].turns >= 3 && both[1].turns >= 3 })
}
