package attack

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// shortOf is how the daemon says that it has no descriptors left.
const shortOf = "no descriptors left"

// leaveRoom sets the daemon's limit of files so that it can open this many more. What it
// opens for a moment may be in one look, and is not in the next.
func leaveRoom(t *testing.T, m *rig.Machine, room int) {
	t.Helper()
	looks := map[int]int{}
	for range 3 {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", m.DaemonPID()))
		check(t, err)
		for _, e := range entries {
			n, err := strconv.Atoi(e.Name())
			check(t, err)
			looks[n]++
		}
	}
	limit := 0
	for ; room > 0 || looks[limit] == 3; limit++ {
		if looks[limit] < 3 {
			room--
		}
	}
	limitFiles(t, m, uint64(limit))
}

// limitFiles sets how many files the daemon may have open, up to the most that it could.
func limitFiles(t *testing.T, m *rig.Machine, files uint64) {
	t.Helper()
	var old unix.Rlimit
	check(t, unix.Prlimit(m.DaemonPID(), unix.RLIMIT_NOFILE, nil, &old))
	check(t, unix.Prlimit(m.DaemonPID(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: min(files, old.Max), Max: old.Max}, nil))
}

// TestNoDescriptorsForNewcomers: whichever descriptor it is that the daemon lacks for one
// more client, that one waits and those that are there notice nothing.
func TestNoDescriptorsForNewcomers(t *testing.T) {
	t.Parallel()
	for room := range 4 { // connection, pidfd, page, the page's duplicate that is sent
		t.Run(fmt.Sprintf("%d left", room), func(t *testing.T) {
			t.Parallel()
			m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
				Config: "schema_version = 1\n[defaults]\nmemory.max = \"100M\"\n"})
			s, slot := shimOf(t, m, 60<<20)
			ask := func(bytes uint64) error {
				_, err := s.Main.Alloc(t.Context(), ipc.AllocRequest{Slot: slot, Kind: ipc.MemoryPlain, Bytes: bytes})
				return err
			}
			leaveRoom(t, m, room)
			in := make(chan error, 1)
			go func() {
				c, err := ipc.Dial(t.Context(), m.Socket)
				if err == nil {
					defer c.Close()
					_, err = c.HelloShim(t.Context(), ipc.HelloRequest{Memory: ipc.NoLimit})
				}
				in <- err
			}()
			rig.Eventually(t, "the daemon says so", func() bool { return strings.Contains(m.Log(), shortOf) })
			check(t, ask(40<<20))
			if err := ask(1); err == nil {
				t.Error("a byte beyond its budget was granted to a client that is there")
			}
			select {
			case err := <-in:
				t.Errorf("a client that there is no room for: %v", err)
			default:
			}
			limitFiles(t, m, 1024)
			check(t, bounded.Receive(t, "it is let in", in))
			if n := strings.Count(m.Log(), shortOf); n > 2 {
				t.Errorf("it was said %d times", n)
			}
			check(t, s.Close())
			allGone(t, m)
		})
	}
}

// TestRestartWithoutDescriptors: a daemon that starts again and has too few to watch the
// programs that run forgets none of them, and none that dies stays.
func TestRestartWithoutDescriptors(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	files := descriptors(t, m) + 8 // and each program would take two
	programs, pids := make([]*rig.Program, 10), make([]int, 10)
	for i := range programs {
		programs[i] = cudaprog(m)
		say(t, programs[i], "alloc a 50M", "ok")
		pids[i] = programs[i].PID()
		signalTo(t, pids[i], syscall.SIGSTOP) // so that none tells the next daemon what it holds
	}
	m.Kill()
	frugal := filepath.Join(m.Dir, "frugal")
	check(t, os.WriteFile(frugal, fmt.Appendf(nil, "#!/bin/sh\nulimit -n %d\nexec %s \"$@\"\n", files, gpuarbd(t)), 0o700))
	m.Use(frugal)
	m.Start()
	rig.Eventually(t, "the daemon says so", func() bool { return strings.Contains(m.Log(), shortOf) })
	for _, i := range []int{0, 1, 2, 3, 9} { // of which the last is not watched
		check(t, syscall.Kill(pids[i], syscall.SIGKILL))
		programs[i].Wait()
	}
	rig.Eventually(t, "those that live have their leases, and they alone", func() bool { return len(m.Snapshot().Leases) == 5 })
	late := cudaprog(m)
	say(t, late, "alloc a 775M", "err 2") // 1024M less 250M is 774M
	say(t, late, "alloc a 754M", "ok")    // idle credit stays theirs whose page could not be opened
	say(t, late, "free a", "ok")
	late.End()
	m.Kill()
	m.Use(gpuarbd(t))
	m.Start()
	for i, p := range programs[4:9] {
		check(t, syscall.Kill(pids[4+i], syscall.SIGCONT))
		say(t, p, "free a", "ok")
		say(t, p, "alloc a 40M", "ok")
	}
	settle(t, m, programs[4:9])
	for _, p := range programs[4:9] {
		p.End()
	}
	allGone(t, m)
}
