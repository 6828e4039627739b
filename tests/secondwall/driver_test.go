package secondwall

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks the limits of NVIDIA's driver, through the simulated NVML.

// driverMachine returns a machine with two NVIDIA devices.
func driverMachine(t *testing.T, config string, sim ...string) *rig.Machine {
	t.Helper()
	return rig.New(t, rig.Options{Devices: "8G,8G", NoMount: true, Sim: append([]string{"SIMCUDA_CONTEXT_BYTES=64M"}, sim...), Config: config})
}

// limitFile returns the file in which the simulated driver has the limits of a cgroup on a device.
func limitFile(t *testing.T, m *rig.Machine, c *rig.Cgroup, device int) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(c.Dir(), &st); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(m.Dir, "sim", fmt.Sprintf("limit-%d-%d", device, st.Ino))
}

// driverHas waits until the driver has these limits of a cgroup; "": none.
func driverHas(t *testing.T, m *rig.Machine, c *rig.Cgroup, device int, want string) {
	t.Helper()
	path, got := limitFile(t, m, c, device), ""
	rig.Eventually(t, fmt.Sprintf("the driver has the limits %q of %s on device %d", want, c.Path, device), func() bool {
		text, _ := os.ReadFile(path)
		got = strings.TrimSpace(string(text))
		return got == want
	})
}

// TestDriverHoldsTheBudget: the budget of a cgroup's job and its contexts become the hard limit of its cgroup in the driver, on each device. A soft
// limit stays as it was. At the end the limits are what they were.
func TestDriverHoldsTheBudget(t *testing.T) {
	t.Parallel()
	m := driverMachine(t, on)
	box := m.Cgroup()
	const before = "1048576 8589934592"
	if err := os.WriteFile(limitFile(t, m, box, 1), []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, m, box, "100M", "box")
	driverHas(t, m, box, 0, "0 "+wall(100))
	driverHas(t, m, box, 1, "1048576 "+wall(100))
	rig.Eventually(t, "job list says so", func() bool { return *listed(t, m, "box", 0).HeldBy == figures.HeldByDriver })
	says(t, m, []string{"doctor"}, "and the driver has a limit above each")
	says(t, m, []string{"jobs"}, "(the driver holds it to 366 MiB too)")
	p := m.OtherUser(20001).BareIn(box)
	p.Want("alloc a 10M", "ok")
	driverHas(t, m, box, 0, "0 "+wall(100+64+64)) // its context, and the next one, which will cost as much
	p.End()
	driverHas(t, m, box, 0, "0 "+wall(100+64))
	m.Kill()
	m.Start()
	job(t, m, "close", "box")
	driverHas(t, m, box, 0, "")
	driverHas(t, m, box, 1, before)
}

// TestRoomForTheNextContext: the limit has room for a context before the program makes it, because the daemon learns of it only shortly before.
func TestRoomForTheNextContext(t *testing.T) {
	t.Parallel()
	m := driverMachine(t, "schema_version = 1\n[defaults]\ndriver_limits = true\n[[device]]\ncontext_reserve = \"128M\"\n")
	box := m.Cgroup()
	open(t, m, box, "100M", "box")
	driverHas(t, m, box, 0, "0 "+wall(228))
	job(t, m, "close", "box")
	job(t, m, "open", "--cgroup", box.Path, "--memory", "100M", "--name", "box", "--contexts", "inside")
	driverHas(t, m, box, 0, "0 "+wall(100))
}

// TestNestedInTheDriver: a cgroup without limits of its own reads those of the cgroup around it. At the end it has no limits of its own again.
func TestNestedInTheDriver(t *testing.T) {
	t.Parallel()
	m := driverMachine(t, on)
	pod := m.Cgroup()
	box := m.Below(pod, "box")
	open(t, m, pod, "300M", "pod")
	driverHas(t, m, pod, 0, "0 "+wall(300))
	open(t, m, box, "100M", "box")
	driverHas(t, m, box, 0, "0 "+wall(100))
	job(t, m, "close", "box")
	driverHas(t, m, box, 0, "")
	driverHas(t, m, pod, 0, "0 "+wall(300))
	job(t, m, "close", "pod")
	driverHas(t, m, pod, 0, "")
}

// TestDriverRefuses: a driver that has the calls and not the limits, or whose soft limit is higher than the budget, is a failure that is said.
func TestDriverRefuses(t *testing.T) {
	t.Parallel()
	t.Run("not supported", func(t *testing.T) {
		t.Parallel()
		m := driverMachine(t, on, "SIMCUDA_NVML_LACKS=limits")
		open(t, m, m.Cgroup(), "100M", "box")
		says(t, m, []string{"events", "--kind", "driver_limit"}, "setting the memory limits of ", "Not Supported")
		says(t, m, []string{"doctor"}, "the library alone holds its budget: ")
		job(t, m, "close", "box")
		rig.Eventually(t, "no record is left", func() bool { return records(t, m) == 0 })
	})
	t.Run("soft limit", func(t *testing.T) {
		t.Parallel()
		m := driverMachine(t, on)
		box := m.Cgroup()
		const before = "4294967296 8589934592"
		if err := os.WriteFile(limitFile(t, m, box, 0), []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		open(t, m, box, "100M", "box")
		says(t, m, []string{"events", "--kind", "driver_limit"}, "to 4294967296 (soft) and "+wall(100)+" (hard)", "Invalid Argument")
		driverHas(t, m, box, 0, before)
	})
	t.Run("mig", func(t *testing.T) {
		t.Parallel()
		m := driverMachine(t, on, "SIMCUDA_MIG=1:0")
		open(t, m, m.Cgroup(), "100M", "box")
		says(t, m, []string{"doctor"}, "the driver has no limits by cgroup: they need release 615 or later, and no MIG")
	})
}

// TestDriverHangs: if the driver hangs on one device, limits on the other device are set, the daemon ends in time, and the state says so.
func TestDriverHangs(t *testing.T) {
	t.Parallel()
	m := driverMachine(t, on)
	box := m.Cgroup()
	hang := filepath.Join(m.Dir, "sim", "hang-0")
	if err := os.WriteFile(hang, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, m, box, "100M", "box")
	driverHas(t, m, box, 1, "0 "+wall(100))
	rig.Eventually(t, "the snapshot says so", func() bool {
		return strings.Contains(m.Snapshot().Devices[0].DriverLimitsFail, "it has not answered for ")
	})
	m.Stop()
	if err := os.Remove(hang); err != nil {
		t.Fatal(err)
	}
	m.Start()
	driverHas(t, m, box, 0, "0 "+wall(100))
}

// TestManyJobs: each of many cgroups gets its own limit, and none is left.
func TestManyJobs(t *testing.T) {
	t.Parallel()
	m := driverMachine(t, on)
	pod := m.Cgroup()
	const n = 40
	boxes := make([]*rig.Cgroup, n)
	for i := range boxes {
		boxes[i] = m.Below(pod, "box"+strconv.Itoa(i))
		open(t, m, boxes[i], strconv.Itoa(10+i)+"M", "box"+strconv.Itoa(i))
	}
	for i, box := range boxes {
		driverHas(t, m, box, i%2, "0 "+wall(10+i))
	}
	for i := range boxes {
		job(t, m, "close", "box"+strconv.Itoa(i))
	}
	left := func() []string {
		files, err := filepath.Glob(filepath.Join(m.Dir, "sim", "limit-*"))
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	rig.Eventually(t, "no limit is left", func() bool { return len(left()) == 0 })
}
