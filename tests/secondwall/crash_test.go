package secondwall

import (
	"fmt"
	"os"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file kills the daemon and checks that the original limits come back all the same.

const stood = "6442450944"

// TestKilledAtEachStepOfALimit: at whichever step the daemon is killed, the next one sets the limit of a job that is still open. It puts the original
// limit back when the job is closed.
func TestKilledAtEachStepOfALimit(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"wall.recorded", "wall.announced", "wall.written", "wall.announced:3", "wall.written:3", "wall.putback", "wall.restored"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			f := newDmem(t, first, second)
			m := kernelMachine(t, f, rig.Options{Binary: rig.Build(t, "faults/gpuarbd"), Environ: []string{"GPUARB_FAULT=" + place}})
			box := m.Cgroup()
			in := f.make(box.Path)
			in.change(func() { in.limits[first], in.limits[second] = stood, stood })
			steps := [][]string{
				{"job", "open", "--cgroup", box.Path, "--memory", "100M", "--name", "box"},
				{"limit", "--job", "box", "memory.max=200M"},
				{"job", "close", "box"},
			}
			limits := []string{wall(100), wall(200), stood}
			died := false
			for i, step := range steps {
				reached := func() bool { return in.limit(first) == limits[i] && in.limit(second) == limits[i] }
				if got := rig.Run(t, m.Gpuarb(step...)); got.Code != 0 {
					rig.Eventually(t, fmt.Sprintf("the daemon has died during gpuarb %v: %s", step, got.Stderr), func() bool { return exited(m) })
				}
				if !died {
					rig.Eventually(t, "the limit is there, or the daemon has died", func() bool { return reached() || exited(m) })
				}
				if !died && exited(m) {
					died = true
					m.Arm("GPUARB_FAULT=")
					m.Start()
					rig.Run(t, m.Gpuarb(step...)) // unless the daemon had done it
				}
				rig.Eventually(t, "the limit is that of the budget", reached)
			}
			if !died { // it dies right after it has put the limit back
				rig.Eventually(t, "the daemon has died at "+place, func() bool { return exited(m) })
				m.Arm("GPUARB_FAULT=")
				m.Start()
			}
			rig.Eventually(t, "no record is left", func() bool { return records(t, m) == 0 })
		})
	}
}

// exited reports whether the daemon has ended.
func exited(m *rig.Machine) bool {
	select {
	case <-m.Exited():
		return true
	default:
		return false
	}
}

// TestNextDaemonPutsBack: a daemon that starts without driver_limits puts back what the killed one has changed, also if the jobs are gone.
func TestNextDaemonPutsBack(t *testing.T) {
	t.Parallel()
	f := newDmem(t, first, second)
	m := kernelMachine(t, f, rig.Options{})
	box := m.Cgroup()
	in := f.make(box.Path)
	in.change(func() { in.limits[first] = stood })
	open(t, m, box, "100M", "box")
	becomes(t, in, first, wall(100))
	becomes(t, in, second, wall(100))
	m.Kill()
	reconfigure(t, m, off)
	for _, suffix := range []string{"", ".bindings"} { // the jobs are lost
		if err := os.Remove(m.Socket + ".state" + suffix); err != nil {
			t.Fatal(err)
		}
	}
	m.Start()
	becomes(t, in, first, stood)
	becomes(t, in, second, "max")
}

// TestStopKeepsTheLimit: a daemon that is stopped leaves the limits of open jobs as they are. The next daemon takes them over.
func TestStopKeepsTheLimit(t *testing.T) {
	t.Parallel()
	f := newDmem(t, first, second)
	m := kernelMachine(t, f, rig.Options{})
	box := m.Cgroup()
	in := f.make(box.Path)
	open(t, m, box, "100M", "box")
	becomes(t, in, second, wall(100))
	becomes(t, in, first, wall(100))
	m.Stop()
	if got := in.limit(first); got != wall(100) {
		t.Errorf("the limit is %s", got)
	}
	in.change(func() { in.limits[first] = stood }) // another program sets it
	m.Start()
	becomes(t, in, first, wall(100))
	job(t, m, "close", "box")
	becomes(t, in, first, stood)
	becomes(t, in, second, "max")
}

// TestRecordComesFirst: if the original limits cannot be recorded, nothing is written, which is said.
func TestRecordComesFirst(t *testing.T) {
	t.Parallel()
	f := newDmem(t, first, second)
	m := kernelMachine(t, f, rig.Options{Stopped: true})
	if err := os.Mkdir(m.Socket+".state.walls", 0o700); err != nil {
		t.Fatal(err)
	}
	m.Start()
	box := m.Cgroup()
	in := f.make(box.Path)
	open(t, m, box, "100M", "box")
	says(t, m, []string{"doctor"}, "the original limits cannot be recorded: ", ".state.walls")
	if in.writes != 0 {
		t.Error("a limit was written")
	}
}
