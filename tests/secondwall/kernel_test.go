package secondwall

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks the limits in the kernel's controller: what is written, shown and put back.

// TestKernelHoldsTheBudget: the budget of a cgroup's job, a tenth and 256 MiB become the limit of its folder on each device. It follows the
// budget, and the original limit comes back at the end. Other regions and folders stay as they are.
func TestKernelHoldsTheBudget(t *testing.T) {
	t.Parallel()
	f := newDmem(t, first, second, "drm/0000:43:00.0/stolen", "drm/0000:99:00.0/vram0")
	m := kernelMachine(t, f, rig.Options{})
	box := m.Cgroup()
	beside := f.make(box.Path + "-beside")
	in := f.make(box.Path)
	in.change(func() { in.limits[second] = "5368709120" })
	open(t, m, box, "100M", "box")
	for _, region := range []string{first, second} {
		becomes(t, in, region, wall(100))
	}
	for region, want := range map[string]string{"drm/0000:43:00.0/stolen": "max", "drm/0000:99:00.0/vram0": "max"} {
		if got := in.limit(region); got != want {
			t.Errorf("%s has the limit %s", region, got)
		}
	}
	rig.Eventually(t, "job list says so", func() bool { return listed(t, m, "box", 1).DriverMax != nil })
	row := listed(t, m, "box", 1)
	if *row.HeldBy != figures.HeldByKernel || strconv.FormatUint(uint64(*row.DriverMax), 10) != wall(100) || row.DriverFail != nil {
		t.Errorf("gpuarb job list: %+v", row)
	}
	id := strconv.FormatUint(row.Job, 10)
	says(t, m, []string{"job", "list"}, "library,kernel")
	says(t, m, []string{"why", id}, "the library holds the budget, and the kernel holds all programs of the cgroup to 366 MiB")
	says(t, m, []string{"doctor"}, "the library holds the budgets of cgroups, and the kernel has a limit above each")
	says(t, m, []string{"jobs"}, "(held by the library alone: ") // on the third device, which has no region
	if got := rig.Run(t, m.Gpuarb("limit", "--job", id, "memory.max=200M")); got.Code != 0 {
		t.Fatal(got.Stderr)
	}
	becomes(t, in, first, wall(200))
	job(t, m, "close", "box")
	becomes(t, in, first, "max")
	becomes(t, in, second, "5368709120")
	if beside.writes != 0 {
		t.Error("another folder was written to")
	}
}

// TestNeverAboveWhatStood: a lower limit that stood there stays, and is shown. A limit that another program sets meanwhile is lowered if it is
// higher than the budget allows, and comes back at the end.
func TestNeverAboveWhatStood(t *testing.T) {
	t.Parallel()
	f := newDmem(t, first, second)
	m := kernelMachine(t, f, rig.Options{})
	box := m.Cgroup()
	in := f.make(box.Path)
	const low, high = "104857600", "8589934592"
	in.change(func() { in.limits[first] = low })
	open(t, m, box, "100M", "box")
	becomes(t, in, second, wall(100))
	rig.Eventually(t, "the lower limit is shown", func() bool { d := listed(t, m, "box", 0).DriverMax; return d != nil && *d == 100<<20 })
	if got := in.limit(first); got != low {
		t.Errorf("the limit was %s and is %s", low, got)
	}
	in.change(func() { in.limits[first] = high })
	becomes(t, in, first, wall(100))
	in.change(func() { in.limits[second] = low })
	rig.Eventually(t, "the lower limit is shown", func() bool { return *listed(t, m, "box", 1).DriverMax == 100<<20 })
	job(t, m, "close", "box")
	becomes(t, in, first, high)
	if got := in.limit(second); got != low {
		t.Errorf("another program's limit was %s and is %s", low, got)
	}
}

// TestNestedLimits: the limit of an inner job is at most that of the outer one.
func TestNestedLimits(t *testing.T) {
	t.Parallel()
	f := newDmem(t, first, second)
	m := kernelMachine(t, f, rig.Options{})
	pod := m.Cgroup()
	box := m.Below(pod, "box")
	inner, outer := f.make(box.Path), f.make(pod.Path)
	open(t, m, box, "300M", "box")
	becomes(t, inner, first, wall(300))
	open(t, m, pod, "100M", "pod")
	becomes(t, outer, first, wall(100))
	becomes(t, inner, first, wall(100))
	job(t, m, "close", "pod")
	becomes(t, outer, first, "max")
	becomes(t, inner, first, wall(300))
	job(t, m, "close", "box")
	becomes(t, inner, first, "max")
}

// TestOnlyIfConfigured: without driver_limits nothing is written. A configuration that takes the key away puts back the original limits.
func TestOnlyIfConfigured(t *testing.T) {
	t.Parallel()
	f := newDmem(t, first, second)
	m := kernelMachine(t, f, rig.Options{Config: off})
	box := m.Cgroup()
	in := f.make(box.Path)
	open(t, m, box, "100M", "box")
	says(t, m, []string{"doctor"}, "the library alone holds the budgets of cgroups (driver_limits = false)")
	if row := listed(t, m, "box", 0); *row.HeldBy != figures.HeldByLibrary || in.writes != 0 {
		t.Errorf("%+v, %d writes", row, in.writes)
	}
	reload := func(config string) {
		reconfigure(t, m, config)
		if err := unix.Kill(m.DaemonPID(), unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	reload(on)
	becomes(t, in, first, wall(100))
	reload(off)
	becomes(t, in, first, "max")
	becomes(t, in, second, "max")
}

// TestFailureIsSaid: a limit that cannot be set is an event and a line of doctor, and is tried again.
func TestFailureIsSaid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		breaks, mends func(in *folder)
		says          string
	}{
		"read-only": {func(in *folder) { in.fails = syscall.EROFS }, func(in *folder) { in.fails = 0 }, "read-only file system"},
		"in use":    {func(in *folder) { in.used[first] = 1 << 40 }, func(in *folder) { in.used[first] = 0 }, "the limit stays at max instead of " + wall(100)},
		"garbage":   {func(in *folder) { in.raw = first + " many\n" }, func(in *folder) { in.raw = "" }, "is not the name of a region"},
		"no region": {func(in *folder) { in.raw = second + " max\n" }, func(in *folder) { in.raw = "" }, "has no region " + first},
		"too long":  {func(in *folder) { in.raw = strings.Repeat(second+" max\n", 10000) }, func(in *folder) { in.raw = "" }, "has more than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newDmem(t, first, second)
			m := kernelMachine(t, f, rig.Options{})
			box := m.Cgroup()
			in := f.make(box.Path)
			in.change(func() { c.breaks(in) })
			open(t, m, box, "100M", "box")
			says(t, m, []string{"events", "--kind", "driver_limit"}, c.says, box.Path)
			says(t, m, []string{"doctor"}, "the library alone holds its budget: ", c.says)
			says(t, m, []string{"job", "list"}, "held by the library alone: ")
			in.change(func() { c.mends(in) })
			becomes(t, in, first, wall(100))
			rig.Eventually(t, "nothing fails any more", func() bool { return listed(t, m, "box", 0).DriverFail == nil })
			job(t, m, "close", "box")
			becomes(t, in, first, "max")
		})
	}
}

// TestCapacityCannotBeRead: while dmem.capacity is malformed, the daemon leaves the limits of open jobs in the kernel as they are. If a job
// is closed meanwhile, the daemon puts the original limits of its cgroup back.
func TestCapacityCannotBeRead(t *testing.T) {
	t.Parallel()
	f := newDmem(t, first, second)
	m := kernelMachine(t, f, rig.Options{})
	pod := m.Cgroup()
	box, other := m.Below(pod, "box"), m.Below(pod, "other")
	in, ends := f.make(box.Path), f.make(other.Path)
	open(t, m, box, "100M", "box")
	open(t, m, other, "200M", "other")
	becomes(t, in, first, wall(100))
	becomes(t, in, second, wall(100))
	becomes(t, ends, first, wall(200))
	becomes(t, ends, second, wall(200))
	f.root.change(func() { f.root.raw, in.writes = "drm many\n", 0 })
	says(t, m, []string{"doctor"}, `"drm many" is not the name of a region`)
	job(t, m, "close", "other") // makes the daemon compare the limits of all jobs
	becomes(t, ends, first, "max")
	becomes(t, ends, second, "max")
	in.change(func() {
		if in.writes != 0 || in.limits[first] != wall(100) || in.limits[second] != wall(100) {
			t.Errorf("after %d writes the limits of the open job are %v", in.writes, in.limits)
		}
	})
	f.root.change(func() { f.root.raw = "" })
	rig.Eventually(t, "job list says that the kernel holds the budget", func() bool { return *listed(t, m, "box", 0).HeldBy == figures.HeldByKernel })
	job(t, m, "close", "box")
	becomes(t, in, first, "max")
	becomes(t, in, second, "max")
}

// TestOriginalLimitIsNotTaken: while a cgroup uses more than its original limit, the kernel ignores the write of that limit. Events and
// gpuarb doctor name the failure. The daemon tries again, also after a restart, and succeeds when the cgroup uses less.
func TestOriginalLimitIsNotTaken(t *testing.T) {
	t.Parallel()
	f := newDmem(t, first, second)
	m := kernelMachine(t, f, rig.Options{})
	box := m.Cgroup()
	in := f.make(box.Path)
	in.change(func() { in.limits[first], in.limits[second] = stood, stood })
	open(t, m, box, "100M", "box")
	becomes(t, in, first, wall(100))
	becomes(t, in, second, wall(100))
	in.change(func() { in.used[first] = 1 << 40 })
	job(t, m, "close", "box")
	becomes(t, in, second, stood)
	says(t, m, []string{"events", "--kind", "driver_limit"}, box.Path, "the original limit cannot be put back", "the limit stays at "+wall(100)+" bytes instead of "+stood)
	m.Kill()
	m.Start()
	says(t, m, []string{"doctor"}, "the original limit cannot be put back")
	in.change(func() { in.used[first] = 0 })
	becomes(t, in, first, stood)
	rig.Eventually(t, "no record is left", func() bool { return records(t, m) == 0 })
}

// TestHugeLimits: a value that exceeds signed numbers of 64 bits counts as "max".
func TestHugeLimits(t *testing.T) {
	t.Parallel()
	f := newDmem(t, first, second)
	m := kernelMachine(t, f, rig.Options{})
	box := m.Cgroup()
	in := f.make(box.Path)
	in.change(func() { in.limits[first], in.limits[second] = "9223372036854775808", "99999999999999999999999" })
	open(t, m, box, "100M", "box")
	becomes(t, in, first, wall(100))
	becomes(t, in, second, wall(100))
	job(t, m, "close", "box")
	becomes(t, in, first, "max")
	becomes(t, in, second, "max")
}

// TestDevicesWithoutRegion: a device that the controller does not know is held by the library alone, which is said; others are held.
func TestDevicesWithoutRegion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		regions []string
		device  int
		says    string
	}{
		"no controller":  {nil, 0, "the kernel's cgroup controller dmem is missing"},
		"another device": {[]string{second}, 0, "has no region of memory for the PCI address"},
		"two regions":    {[]string{first, "drm/0000:03:00.0/vram1", second}, 0, "several regions of memory (" + first + ", drm/0000:03:00.0/vram1)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newDmem(t, c.regions...)
			m := kernelMachine(t, f, rig.Options{})
			box := m.Cgroup()
			in := f.make(box.Path)
			open(t, m, box, "100M", "box")
			says(t, m, []string{"doctor"}, fmt.Sprintf("device %d", c.device), c.says)
			rig.Eventually(t, "job list says so", func() bool { return listed(t, m, "box", c.device).DriverFail != nil })
			if row := listed(t, m, "box", c.device); *row.HeldBy != figures.HeldByLibrary || !strings.Contains(*row.DriverFail, c.says) {
				t.Errorf("%+v", row)
			}
			if len(c.regions) > 0 {
				becomes(t, in, second, wall(100))
			}
		})
	}
}
