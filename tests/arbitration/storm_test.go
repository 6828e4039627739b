package arbitration

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

var (
	stormProcesses = flag.Int("arbitration.processes", 24, "processes of a storm of claims")
	stormTime      = flag.Duration("arbitration.storm", 6*time.Second, "how long a storm lasts")
	stormHold      = flag.Duration("arbitration.hold", 4*time.Millisecond, "the longest that a claim is held in a storm")
)

// stormEnv makes the test's own binary one of a storm's processes: socket and folder.
const stormEnv = "GPUARB_TEST_STORM"

func TestMain(m *testing.M) {
	flag.Parse()
	if where := os.Getenv(stormEnv); where != "" {
		socket, dir, _ := strings.Cut(where, "|")
		if err := claimer(socket, dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// claimer claims, holds and releases until the file "stop" is there, and kills itself
// with a claim in its hands one time in five. The kernel's lock of a file for each
// device is the judge of "never two": it is gone when its process is.
func claimer(socket, dir string) error {
	ctx := context.Background()
	c, err := ipc.Dial(ctx, socket)
	if err != nil {
		return err
	}
	served, err := os.OpenFile(filepath.Join(dir, "served"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "stop")); err == nil {
			return nil
		}
		var ticket uint64
		claim, err := c.Claim(ctx, ipc.ClaimRequest{Patience: 10 * rig.Patience, Told: func(n ipc.WaitingReply) { ticket = n.Ticket }})
		if err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		if err := hold(dir, served, claim, ticket); err != nil {
			return err
		}
		if err := claim.Release(ctx); err != nil {
			return fmt.Errorf("release: %w", err)
		}
	}
}

// hold holds a claim for a random short time, and writes down how it was come by: its
// ticket, and how long after the holder before it gave the device up.
func hold(dir string, served *os.File, claim *ipc.Claim, ticket uint64) error {
	now := monotonic()
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("device-%d", claim.Devices[0].Index)), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("TWO HOLDERS of device %d: %w", claim.Devices[0].Index, err)
	}
	var stamp [8]byte
	after := int64(-1) // not known: the holder before it died
	if n, _ := f.ReadAt(stamp[:], 0); n == 8 && ticket != 0 {
		if t := int64(binary.LittleEndian.Uint64(stamp[:])); t != 0 {
			after = now - t
		}
	}
	if _, err := f.WriteAt(make([]byte, 8), 0); err != nil {
		return err
	}
	fmt.Fprintf(served, "%d %d %d\n", ticket, after, claim.Devices[0].Index)
	time.Sleep(rand.N(*stormHold)) // the work
	if rand.N(5) == 0 {
		return unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	binary.LittleEndian.PutUint64(stamp[:], uint64(monotonic()))
	_, err = f.WriteAt(stamp[:], 0)
	return err
}

// monotonic is a time that all processes read alike, in nanoseconds.
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

// served is one claim of a storm.
type served struct {
	ticket uint64
	after  int64 // nanoseconds; below 0: not known
	device int
}

// storm has processes claim and die for a time, starts a new one for each that died,
// and returns what was served, in order.
func storm(t *testing.T, m *rig.Machine) (all []served, killed int64) {
	t.Helper()
	dir := filepath.Join(m.Dir, "storm")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), *stormTime+2*rig.Patience)
	defer cancel()
	end := time.Now().Add(*stormTime)
	var deaths atomic.Int64
	var group sync.WaitGroup
	for range *stormProcesses {
		group.Go(func() {
			for time.Now().Before(end) {
				cmd := exec.CommandContext(ctx, os.Args[0], "-arbitration.hold", stormHold.String())
				cmd.Env = append(os.Environ(), stormEnv+"="+m.Socket+"|"+dir, "GOMAXPROCS=1")
				said, err := cmd.CombinedOutput()
				if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
					deaths.Add(1)
				} else if err != nil {
					t.Errorf("%v: %s", err, said)
					return
				}
			}
		})
	}
	time.AfterFunc(*stormTime, func() { _ = os.WriteFile(filepath.Join(dir, "stop"), nil, 0o600) })
	group.Wait()
	text, err := os.ReadFile(filepath.Join(dir, "served"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var s served
		if _, err := fmt.Sscan(line, &s.ticket, &s.after, &s.device); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, s)
	}
	if ctx.Err() != nil {
		t.Error("not every waiter was served")
	}
	return all, deaths.Load()
}

// TestStormOfClaims: many processes claim four devices, hold them for random short
// times and die at random: never two holders, everybody served, nothing left over.
func TestStormOfClaims(t *testing.T) {
	m := machine(t, "1G,1G,1G,1G", "")
	all, killed := storm(t, m)
	var handover []int64
	devices := map[int]int{}
	for _, s := range all {
		devices[s.device]++
		if s.after >= 0 {
			handover = append(handover, s.after)
		}
	}
	if len(devices) != 4 || killed == 0 {
		t.Errorf("claims by device %v, %d killed", devices, killed)
	}
	slices.Sort(handover)
	if n := len(handover); n > 0 {
		t.Logf("%d claims, %d processes killed; handed over to a waiter %d times: p50 %s, p99 %s",
			len(all), killed, n, time.Duration(handover[n/2]), time.Duration(handover[n*99/100]))
	}
	idle(m)
}

// TestStormInOrder: on one device waiters are served in the order of their tickets.
func TestStormInOrder(t *testing.T) {
	m := machine(t, "1G", "")
	all, _ := storm(t, m)
	var last uint64
	for i, s := range all {
		if s.ticket == 0 {
			continue // it did not wait
		}
		if s.ticket < last {
			t.Errorf("number %d: ticket %s was served after ticket %s", i, strconv.FormatUint(s.ticket, 10), strconv.FormatUint(last, 10))
		}
		last = s.ticket
	}
	idle(m)
}
