package e2e

import (
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that a GPU which fell off the bus can be used again when it is back, by new programs, without the
// memory of old programs. hung_test.go has devices that do not answer.

// TestLostDeviceComesBack: a GPU falls off the bus and comes back. NVML shows its return only to a process
// that initialises NVML again. Programs that used the GPU keep a lease that holds nothing, and new programs
// can use the whole device.
func TestLostDeviceComesBack(t *testing.T) {
	m := rig.New(t, rig.Options{Devices: "1G,1G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: "schema_version = 1\n[defaults]\ncontext_reserve = \"0\"\n"})
	old, other := holder(m, 0, "512M"), holder(m, 1, "256M")
	m.Sim("lose", "0")
	rig.Eventually(t, "the device is lost", func() bool { return m.Read("devices/0/state") == "lost\n" })
	if answer := old.Ask("alloc b 1M"); answer == "ok" {
		t.Error("there is memory on a device that is gone")
	}
	other.Want("alloc b 1M", "ok")
	why := func(says ...string) {
		t.Helper()
		text := rig.Run(t, m.Gpuarb("why", strconv.Itoa(old.PID()))).Stdout
		for _, want := range says {
			if !strings.Contains(text, want) {
				t.Errorf("gpuarb why does not say %q:\n%s", want, text)
			}
		}
	}
	why("GPU 0: it fell off the bus and is lost", "start it again on another device")
	m.Sim("restore", "0")
	rig.Eventually(t, "the device is back", func() bool { return m.Read("devices/0/state") == "ok\n" })
	if got := m.Lease(old.PID(), 0); got.State != figures.StateLost || got.Granted != 0 {
		t.Errorf("the old lease is %+v", got)
	}
	why("GPU 0: it fell off the bus and is back", "→ start it again:")
	if answer := old.Ask("alloc b 1M"); answer == "ok" {
		t.Error("a context outlived its device")
	}
	all := holder(m, 0, "1G")
	other.Want("alloc c 1M", "ok")
	m.Kill()
	m.Start()
	rig.Eventually(t, "the next daemon lists both devices", func() bool {
		return m.Lease(old.PID(), 0).State == figures.StateLost && m.Lease(all.PID(), 0).Used == 1<<30
	})
	old.Signal(unix.SIGKILL)
	old.Wait()
	rig.Eventually(t, "the old lease ends with its process", func() bool { return len(m.Snapshot().Leases) == 2 })
}

// TestLostAtTheStart: a device is missing when the daemon starts. The daemon knows the device from its last run,
// and the device can come back as if it had been lost later.
func TestLostAtTheStart(t *testing.T) {
	m := rig.New(t, rig.Options{Devices: "1G,1G"})
	p := holder(m, 0, "512M")
	m.Stop()
	m.Sim("lose", "0")
	m.Start()
	rig.Eventually(t, "the device is lost", func() bool { return m.Read("devices/0/state") == "lost\n" })
	if got := m.Lease(p.PID(), 0); got.State != figures.StateLost {
		t.Errorf("its lease is %+v", got)
	}
	m.Sim("restore", "0")
	rig.Eventually(t, "the device is back", func() bool { return m.Read("devices/0/state") == "ok\n" })
	holder(m, 0, "900M")
}
