package attack

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that ended sessions, jobs and processes leave no file descriptor, goroutine or record of the state
// file behind.

func init() { roles["visitor"] = visit }

// visit opens and ends sessions one after another ("UUID COUNT"): every second one with Bye, the others by closing the
// connection, and beside every sixteenth a job.
func visit(a *attacker) error {
	words, _ := a.next()
	device, n := parseUUID(words[0]), 0
	if _, err := fmt.Sscan(words[1], &n); err != nil {
		return err
	}
	for i := range n {
		s, slot, err := a.lease(device)
		if err != nil {
			// The daemon notices a moment later that a session's connection was closed.
			if strings.Contains(err.Error(), "sessions already") {
				continue
			}
			return err
		}
		if _, err := s.Main.Alloc(a.ctx, ipc.AllocRequest{Slot: slot, Kind: ipc.MemoryPlain, Bytes: 4096}); err != nil {
			return err
		}
		if i%2 == 0 {
			if err := s.Main.Bye(a.ctx); err != nil {
				return err
			}
		}
		if err := s.Close(); err != nil {
			return err
		}
		c, err := a.dial()
		if err != nil {
			return err
		}
		if i%16 == 0 {
			_, _ = c.OpenJob(context.Background(), ipc.JobOpenRequest{Memory: ipc.NoLimit})
		}
		_ = c.Close()
	}
	a.say("done")
	a.next()
	return nil
}

// records counts the live records in a machine's state file, for each table.
func records(t *testing.T, m *rig.Machine) string {
	t.Helper()
	text, err := os.ReadFile(m.Socket + ".state")
	check(t, err)
	// internal/statefile/records.go defines this layout: the header has the sizes.
	at, live := int(binary.LittleEndian.Uint32(text[12:])), ""
	for i, count := range []int{4096, 4096, 16384} {
		size := int(binary.LittleEndian.Uint32(text[16+4*i:]))
		n := 0
		for range count {
			if binary.LittleEndian.Uint32(text[at:]) != 0 {
				n++
			}
			at += size
		}
		live += fmt.Sprintf("%d ", n)
	}
	return strings.TrimSpace(live)
}

// TestNothingIsLeftBehind: after thousands of sessions and hundreds of processes, the
// daemon has as many descriptors, threads and records as before.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	id := fmt.Sprintf("%x", [16]byte(uuid(m, 0)))
	rig.Run(t, m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym"), "alloc a 1M"))
	m.Read("leases")
	m.AllGone()
	fds, goroutines := descriptors(t, m), m.Snapshot().Stats.Goroutines
	var visitors []*rig.Program
	for range 4 {
		p := start(m, "visitor")
		p.Tell(fmt.Sprintf("%s %d", id, 1000**scale))
		visitors = append(visitors, p)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 40 * *scale {
				r := rig.Run(t, m.Gpuarb("run", "--memory", "100M", "--", rig.Build(t, "programs/cudaprog-link"), "alloc a 1M", "stream s"))
				if r.Code != 0 {
					t.Errorf("exit status %d: %s", r.Code, r.Stderr)
				}
			}
		})
	}
	wg.Wait()
	for _, p := range visitors {
		if line := p.Line(); line != "done" {
			t.Errorf("a visitor: %s", line)
		}
		p.End()
	}
	m.AllGone()
	rig.Eventually(t, "all records are free", func() bool { return records(t, m) == "0 0 0" })
	if s := m.Snapshot(); len(s.Jobs) != 0 || len(s.Processes) != 0 {
		t.Errorf("%d jobs and %d processes are left", len(s.Jobs), len(s.Processes))
	}
	rig.Eventually(t, "no more descriptors and goroutines than before", func() bool {
		return descriptors(t, m) <= fds+1 && m.Snapshot().Stats.Goroutines <= goroutines+1
	})
}
