package stress

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the whole test: workers that are killed and replaced, and the sums at the end.

var (
	most    = flag.Uint64("allocations", 40_000, "how many the crowd is granted until it ends")
	killing = flag.Int("killing", 10, "how often some are killed meanwhile")
	victims = flag.Int("victims", 10, "how many are killed at a time")
	seed    = flag.Uint64("seed", 1, "of the choice of victims")
)

const (
	processes = 50
	budget    = 4 << 30 // shared by all processes, which request many times as much
)

// worker is a process of the crowd that is replaced when it is killed.
type worker struct {
	m     *rig.Machine
	place int
	tally *tally

	mu  sync.Mutex
	cmd *exec.Cmd
}

// tally is the sum of the reports of the surviving processes, and the number of killed processes.
type tally struct {
	granted, refused, killed atomic.Uint64
	wrong                    sync.Map // unexpected answers, each once
	failed                   atomic.Bool
}

// live runs a worker's processes until stop is closed. Each process does rounds of
// random allocations from four threads, until it is killed.
func (w *worker) live(t *testing.T, stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		if err := w.run(t, n, stop); err != nil {
			w.tally.wrong.Store(err.Error(), true)
			w.tally.failed.Store(true)
			return
		}
	}
}

// run runs one process to its end.
func (w *worker) run(t *testing.T, n int, stop <-chan struct{}) error {
	cmd := w.m.Command(append(w.m.PreloadEnv(), "GPUARB_QUIET=1"), rig.Build(t, "programs/cudaprog-dlsym")) // no line on stderr for a refused request, as that would be an error here
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	w.mu.Lock()
	w.cmd = cmd
	w.mu.Unlock()
	err = w.talk(in, out, n, stop)
	w.mu.Lock()
	w.cmd = nil
	w.mu.Unlock()
	_ = in.Close()
	_ = cmd.Wait()
	if err == nil && stderr.Len() > 0 {
		err = errors.New(stderr.String())
	}
	return err
}

func (w *worker) talk(in io.Writer, out io.Reader, n int, stop <-chan struct{}) error {
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return nil // killed before it was ready
	}
	if lines.Text() != "ready" {
		return fmt.Errorf("instead of ready: %s", lines.Text())
	}
	for round := 0; ; round++ {
		select {
		case <-stop:
			return nil
		default:
		}
		if _, err := fmt.Fprintf(in, "threads 4 60 1G %d\n", w.place*1000003+n*1009+round+1); err != nil {
			return nil
		}
		if !lines.Scan() {
			return nil
		}
		var granted, refused uint64
		if _, err := fmt.Sscanf(lines.Text(), "threads ok %d %d", &granted, &refused); err != nil {
			return fmt.Errorf("the program printed no tally: %s", lines.Text())
		}
		w.tally.granted.Add(granted)
		w.tally.refused.Add(refused)
	}
}

// kill kills the worker's current process, if there is one.
func (w *worker) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cmd != nil && w.cmd.Process.Kill() == nil {
		w.tally.killed.Add(1)
	}
}

func descriptors(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(pid), "fd"))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestCrowd: processes that allocate and free under one budget, some of them killed, never exceed it, and all sums are right at the end.
func TestCrowd(t *testing.T) {
	m := rig.New(t, rig.Options{Devices: "16G", Life: 4 * bounded.Lifetime, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: fmt.Sprintf(
		"schema_version = 1\n[defaults]\nscope = \"user\"\nmemory.max = \"%d\"\n", budget)})
	// Make the daemon open its long-lived descriptors (a poller, a reader of the mount) before they are counted.
	rig.Run(t, m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym"), "alloc a 1M"))
	rig.Eventually(t, "the first program has no lease", func() bool { return !strings.Contains(m.Read("leases"), "cudaprog") })
	fdsBefore, goroutinesBefore := descriptors(t, m.DaemonPID()), m.Snapshot().Stats.Goroutines

	var sums tally
	stop := make(chan struct{})
	crowd := make([]*worker, processes)
	var wg sync.WaitGroup
	for i := range crowd {
		crowd[i] = &worker{m: m, place: i, tally: &sums}
		wg.Go(func() { crowd[i].live(t, stop) })
	}
	// Kill processes as the work proceeds, independently of the time that it takes on this machine.
	random := rand.New(rand.NewPCG(*seed, 0))
	for n := range *killing {
		due := *most / uint64(*killing) * uint64(n+1)
		rig.Eventually(t, fmt.Sprintf("%d allocations are granted", due), func() bool { return sums.granted.Load() >= due || sums.failed.Load() })
		for _, i := range random.Perm(processes)[:*victims] {
			crowd[i].kill()
		}
	}
	close(stop)
	bounded.Within(t, "the crowd ends", wg.Wait)

	granted, refused, killed := sums.granted.Load(), sums.refused.Load(), sums.killed.Load()
	peak := m.SimNumber("peak", "0")
	t.Logf("%d allocations, %d refusals, %d kills; at most %d of %d bytes held at once", granted, refused, killed, peak, budget)
	sums.wrong.Range(func(what, _ any) bool {
		t.Errorf("a program says %s", what)
		return true
	})
	if refused < *most/100 || killed < uint64(*killing**victims)/2 {
		t.Errorf("too few requests were refused, or too few programs were killed")
	}
	if peak > budget || peak < budget*95/100 {
		t.Errorf("the driver saw %d bytes at once: want between 95 and 100 %% of the %d of the budget", peak, budget)
	}
	m.AllGone()
	if s := m.Snapshot(); s.Stats.ClampedWords != 0 || s.Stats.Malformed != 0 {
		t.Errorf("%d credit words were clamped, %d messages malformed", s.Stats.ClampedWords, s.Stats.Malformed)
	}
	t.Logf("descriptors %d, then %d; goroutines %d, then %d", fdsBefore, descriptors(t, m.DaemonPID()), goroutinesBefore, m.Snapshot().Stats.Goroutines)
	rig.Eventually(t, "no more descriptors and goroutines than before", func() bool {
		return descriptors(t, m.DaemonPID()) <= fdsBefore && m.Snapshot().Stats.Goroutines <= goroutinesBefore
	})
	if n := strings.Count(m.Log(), "level=ERROR"); n != 0 {
		t.Errorf("%d errors in the daemon's log", n)
	}
}
