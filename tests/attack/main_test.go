package attack

import (
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file starts the machines and honest programs of this package, and compares daemon and driver. roles_test.go has the attackers.

var (
	seed       = flag.Uint64("attack.seed", 1, "of all that is random")
	scale      = flag.Int("attack.scale", 1, "how many times as much of it")
	daemonPath = flag.String("attack.daemon", "", "another gpuarbd to attack")
)

// roleVariable is the variable that makes this binary run a role instead of the tests.
const roleVariable = "ATTACK_ROLE"

func TestMain(m *testing.M) {
	if name := os.Getenv(roleVariable); name != "" {
		os.Exit(play(name))
	}
	os.Exit(m.Run())
}

// random returns a random source for one test.
func random(t *testing.T) *rand.Rand {
	n := uint64(0)
	for _, c := range t.Name() {
		n = 31*n + uint64(c)
	}
	return rand.New(rand.NewPCG(*seed, n))
}

// machine returns a machine, and fails the test if its daemon reports a data race.
func machine(t *testing.T, o rig.Options) *rig.Machine {
	t.Helper()
	o.Binary, o.Life = *daemonPath, max(o.Life, time.Duration(*scale)*bounded.Lifetime)
	m := rig.New(t, o)
	t.Cleanup(func() {
		for _, sign := range []string{"DATA RACE", "panic: ", "fatal error: "} {
			if log := m.Log(); strings.Contains(log, sign) {
				t.Errorf("the daemon: %s", log[strings.Index(log, sign):])
			}
		}
	})
	return m
}

// cudaprog starts an honest program with the bare preload.
func cudaprog(m *rig.Machine, args ...string) *rig.Program {
	m.T.Helper()
	return m.Interact(m.Command(m.PreloadEnv(), rig.Build(m.T, "programs/cudaprog-dlsym"), args...))
}

// say sends a program a command and checks its answer.
func say(t *testing.T, p *rig.Program, command, want string) {
	t.Helper()
	if got := p.Ask(command); got != want {
		t.Fatalf("%s: %q, want %q", command, got, want)
	}
}

// agree compares the daemon's figures of every process, except those in except, with
// the driver's own count, in both directions. Call it only while no driver call is in progress.
func agree(t *testing.T, m *rig.Machine, except ...int) {
	t.Helper()
	if wrong := disagreement(m, except...); wrong != "" {
		t.Error(wrong)
	}
}

func disagreement(m *rig.Machine, except ...int) string { return m.Disagreement(except...) }

// uuid returns the UUID of a device in the form that clients send.
func uuid(m *rig.Machine, device int) ipc.UUID {
	m.T.Helper()
	var id ipc.UUID
	text := strings.ReplaceAll(strings.TrimPrefix(m.Snapshot().Devices[device].UUID, "GPU-"), "-", "")
	if n, err := hex.Decode(id[:], []byte(text)); err != nil || n != len(id) {
		m.T.Fatalf("the UUID of GPU %d is %q", device, text)
	}
	return id
}

// descriptors counts the daemon's open descriptors.
func descriptors(t *testing.T, m *rig.Machine) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(m.DaemonPID()), "fd"))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
