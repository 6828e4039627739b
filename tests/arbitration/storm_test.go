package arbitration

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
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

// This test holds that many processes that claim devices at once, and are killed at random, never share a device. The
// oracle is a lock of the kernel on one file for each device, which ends with its process. claims_test.go has the
// claims of one shell.

var (
	stormProcesses = flag.Int("arbitration.processes", 24, "processes of a storm of claims")
	stormTime      = flag.Duration("arbitration.storm", 6*time.Second, "how long a storm lasts")
	stormHold      = flag.Duration("arbitration.hold", 4*time.Millisecond, "the longest that a claim is held in a storm")
)

// stormEnv is the variable that turns the test's own binary into a process of a storm. Its value is the path of the
// socket, "|" and the path of a folder.
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

// claimer claims, holds and releases devices until the file "stop" exists. One time in five it kills itself
// while it holds a claim. The oracle for "never two holders" is a file lock of the kernel for each
// device, which ends with its process.
func claimer(socket, dir string) error {
	ctx := context.Background()
	c, err := ipc.Dial(ctx, socket)
	if err != nil {
		return err
	}
	held, err := os.OpenFile(filepath.Join(dir, "held"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "stop")); err == nil {
			return nil
		}
		claim, err := c.Claim(ctx, ipc.ClaimRequest{Patience: 10 * rig.Patience})
		if err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		if err := hold(dir, held, claim); err != nil {
			return err
		}
		if err := claim.Release(ctx); err != nil {
			return fmt.Errorf("release: %w", err)
		}
	}
}

// hold keeps a claim for a random short time under the lock of the claimed device's file, and appends the device's
// index to the file held. One time in five it kills this process.
func hold(dir string, held *os.File, claim *ipc.Claim) error {
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("device-%d", claim.Devices[0].Index)), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("TWO HOLDERS of device %d: %w", claim.Devices[0].Index, err)
	}
	fmt.Fprintln(held, claim.Devices[0].Index)
	time.Sleep(rand.N(*stormHold)) // stands for work
	if rand.N(5) == 0 {
		return unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	return nil
}

// storm starts processes that claim devices and die, and replaces each dead process for a while.
// It returns how often each device was held.
func storm(t *testing.T, m *rig.Machine) (held map[string]int, killed int64) {
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
	text, err := os.ReadFile(filepath.Join(dir, "held"))
	if err != nil {
		t.Fatal(err)
	}
	held = map[string]int{}
	for device := range strings.FieldsSeq(string(text)) {
		held[device]++
	}
	if ctx.Err() != nil {
		t.Error("not every waiter was served")
	}
	return held, deaths.Load()
}

// TestStormOfClaims: many processes claim four devices, hold them for random short
// times and die at random. A device never has two holders, every process is served, and no claim remains at the end.
func TestStormOfClaims(t *testing.T) {
	m := machine(t, "1G,1G,1G,1G", "")
	held, killed := storm(t, m)
	if len(held) != 4 || killed == 0 {
		t.Errorf("claims by device %v, %d killed", held, killed)
	}
	idle(m)
}
