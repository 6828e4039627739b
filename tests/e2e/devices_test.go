package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that the daemon lists the right devices if a machine reports them late, incompletely or divided:
// memory that NVML does not report, a driver that is installed later, a sleeping GPU, MIG instances. hung_test.go and
// lost_test.go have devices that fail.

const (
	gib     = 1 << 30
	anybody = 65534 // UID and GID of the user nobody
)

// forProbe makes the daemon start a copy of its probe, with a copy of the driver, that every user may read. A daemon that runs as root
// starts its probe without privileges, and the checkout may be in a folder that only its owner may open.
func forProbe(m *rig.Machine) {
	library := m.OtherUser(anybody).Program("libgpuarb.so")
	m.Arm("GPUARB_LIB="+library, "LD_LIBRARY_PATH="+filepath.Dir(library))
}

// onlyDevice returns the machine's device, which must be the only one.
func onlyDevice(t *testing.T, m *rig.Machine) figures.DeviceState {
	t.Helper()
	s := m.Snapshot()
	if len(s.Devices) != 1 {
		t.Fatalf("%d devices: %+v", len(s.Devices), s.Devices)
	}
	return s.Devices[0]
}

// holdsToTheByte checks that a budget of 64 MiB is kept to the byte on the first device.
func holdsToTheByte(t *testing.T, m *rig.Machine) {
	t.Helper()
	p := m.Interact(m.Gpuarb("run", "--memory", "64M", "--", rig.Build(t, "programs/cudaprog-dlsym")))
	p.Want("alloc a 64M", "ok")
	p.Want("alloc b 1", "err 2")
	p.Want("free a", "ok")
	p.Want("alloc b 1", "ok")
	p.End()
}

// TestNVMLDoesNotKnowTheMemory checks GPUs whose memory NVML does not report, such as those that share the processor's memory. The
// daemon lists such a GPU with the memory that the configuration sets, or else with the memory that CUDA reports. Budgets hold.
func TestNVMLDoesNotKnowTheMemory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lacks, config string
		from          accounting.TotalFrom
		total         accounting.Bytes
		says          string
	}{
		"memory":      {"memory", "", accounting.FromProbe, 3 * gib, "(memory by CUDA)"},
		"all":         {"memory,pci,name,processes,utilization", "", accounting.FromProbe, 3 * gib, "(memory by CUDA)"},
		"configured":  {"memory", "[[device]]\nmatch.index = 0\nmemory = \"2GiB\"\n", accounting.FromConfiguration, 2 * gib, "(memory by the configuration)"},
		"known":       {"pci,name", "", accounting.FromDriver, 3 * gib, ""},
		"known twice": {"pci", "[[device]]\nmatch.index = 0\nmemory = \"1GiB\"\n", accounting.FromConfiguration, gib, "(memory by the configuration)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: "3G", NoMount: true, Stopped: true, Sim: []string{"SIMCUDA_NVML_LACKS=" + c.lacks},
				Config: "schema_version = 1\n" + c.config})
			forProbe(m)
			m.Start()
			rig.Eventually(t, "the memory is known", func() bool { return onlyDevice(t, m).TotalFrom == c.from })
			if d := onlyDevice(t, m); d.Total != c.total || d.UUID == "" {
				t.Errorf("%+v", d)
			}
			if r := rig.Run(t, m.Gpuarb("devices")); !strings.Contains(r.Stdout, c.says) {
				t.Errorf("devices: %s", r.Stdout)
			}
			holdsToTheByte(t, m)
		})
	}
}

// TestProbeHangs checks that a daemon whose probe of CUDA hangs starts, takes half of the machine's memory as the GPU's, and keeps budgets.
func TestProbeHangs(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "3G", NoMount: true, Stopped: true, Sim: []string{"SIMCUDA_NVML_LACKS=memory"}})
	forProbe(m)
	m.Sim("fail", "cuInit:1:delay=3600s")
	m.Start()
	d := onlyDevice(t, m)
	if d.TotalFrom != accounting.FromMachine || d.Total == 0 {
		t.Errorf("%+v", d)
	}
	if r := rig.Run(t, m.Gpuarb("devices")); !strings.Contains(r.Stdout, "half of the machine's") {
		t.Errorf("devices: %s", r.Stdout)
	}
	holdsToTheByte(t, m)
	m.Stop()
}

// sysfs makes a folder to use in place of /sys, and returns a function that adds a PCI device with NVIDIA's driver to it.
func sysfs(t *testing.T) (root string, add func(pci, status string)) {
	t.Helper()
	root = t.TempDir()
	return root, func(pci, status string) {
		t.Helper()
		device := filepath.Join(root, "bus/pci/devices", pci, "power")
		for _, folder := range []string{device, filepath.Join(root, "bus/pci/drivers/nvidia", pci)} {
			if err := os.MkdirAll(folder, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		write(t, filepath.Join(device, "runtime_status"), status+"\n")
	}
}

// TestDriverComesLate checks that a daemon that starts before the driver's module finds a GPU when the module is loaded, and
// another one that is plugged in later. Known devices keep their indices, and running programs go on.
func TestDriverComesLate(t *testing.T) {
	t.Parallel()
	root, add := sysfs(t)
	m := rig.New(t, rig.Options{Devices: "1G,2G,3G", NoMount: true, Sim: []string{"SIMCUDA_ABSENT=0,1,2"}, Daemon: []string{"--sysfs", root}})
	if r := rig.Run(t, m.Gpuarb("run", "--min", "64M", "--", "true")); r.Code != 125 || !strings.Contains(r.Stderr, "knows no GPU") {
		t.Errorf("without a GPU: %d %s", r.Code, r.Stderr)
	}
	began := time.Now()
	m.Sim("arrive", "1")
	rig.Eventually(t, "the first GPU is listed", func() bool { s := m.Snapshot(); return len(s.Devices) == 1 })
	if took := time.Since(began); took > 10*time.Second {
		t.Logf("it took %v, which is more than ten seconds on a machine that is not busy", took)
	}
	if d := onlyDevice(t, m); d.Index != 0 || d.Total != 2*gib {
		t.Errorf("%+v", d)
	}
	early := m.Interact(m.Gpuarb("run", "--memory", "64M", "--", rig.Build(t, "programs/cudaprog-dlsym")))
	early.Want("alloc a 64M", "ok")
	early.Want("alloc b 1", "err 2")
	holdsToTheByte(t, m)
	m.Sim("arrive", "0")
	add("0000:10:00.0", "active")
	rig.Eventually(t, "the second GPU is listed", func() bool { s := m.Snapshot(); return len(s.Devices) == 2 })
	s := m.Snapshot()
	if s.Devices[0].Total != 2*gib || s.Devices[1].Total != gib || s.Devices[1].Index != 1 {
		t.Errorf("%+v", s.Devices)
	}
	early.Want("free a", "ok")
	early.Want("alloc a 64M", "ok")
	r := rig.Run(t, m.Gpuarb("run", "--device", "1", "--min", "64M", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"))
	if r.Code != 0 || strings.TrimSpace(r.Stdout) != s.Devices[1].UUID {
		t.Errorf("on the second: %d %q %s", r.Code, r.Stdout, r.Stderr)
	}
	m.Kill() // the next daemon finds them at its start
	m.Start()
	early.Want("free a", "ok")
	early.Want("alloc a 64M", "ok")
	early.Want("alloc b 1", "err 2")
	early.End()
	m.AllGone()
}

// TestDriverIsInstalledLate checks that the daemon finds the GPU when the driver's library is installed while it runs.
func TestDriverIsInstalledLate(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	m := rig.New(t, rig.Options{Devices: "1G", NoMount: true, Environ: []string{"LD_LIBRARY_PATH=" + folder}, Stopped: true})
	library := filepath.Join(folder, "libnvidia-ml.so.1")
	write(t, library, "a file of that name that is no library hides one that this machine may have")
	m.Start()
	if s := m.Snapshot(); len(s.Devices) != 0 {
		t.Fatalf("%+v", s.Devices)
	}
	if err := os.Rename(library, library+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(rig.Build(t, "sim"), "libnvidia-ml.so.1"), library); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the GPU is there", func() bool { s := m.Snapshot(); return len(s.Devices) == 1 })
	holdsToTheByte(t, m)
}

// TestSleepingGPU checks that the daemon does not read a GPU that the kernel has put to sleep until a program uses gpuarb.
func TestSleepingGPU(t *testing.T) {
	t.Parallel()
	root, add := sysfs(t)
	add("0000:10:00.0", "active")
	m := rig.New(t, rig.Options{Devices: "1G", NoMount: true, Daemon: []string{"--sysfs", root}})
	calls := func() uint64 { return m.SimNumber("asked", "0") }
	add("0000:10:00.0", "suspended")
	before := calls()
	time.Sleep(3 * time.Second)             // an awake device would be read three times, with at least three calls each
	if after := calls(); after-before > 4 { // up to 4: a reading or a search for devices may have been under way
		t.Errorf("the GPU sleeps and no program runs, but NVML was called %d times", after-before)
	}
	before = calls()
	p := m.Interact(m.Gpuarb("run", "--", rig.Build(t, "programs/cudaprog-dlsym")))
	p.Want("alloc a 1M", "ok")
	rig.Eventually(t, "the device is read every second", func() bool { return calls() > before+3 })
	p.End()
}

// TestInstancesOfMIG checks that each MIG instance is a device with the instance's memory, and that no job gets the divided GPU.
func TestInstancesOfMIG(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G,1G,2G,4G", NoMount: true, Sim: []string{"SIMCUDA_MIG=1:0,2:0", "SIMCUDA_ABSENT=2"}})
	s := m.Snapshot()
	if len(s.Devices) != 3 || s.Devices[0].Parent != nil || s.Devices[1].Total != 4*gib {
		t.Fatalf("%+v", s.Devices)
	}
	d := s.Devices[2]
	if d.Parent == nil || *d.Parent != 0 || d.Total != gib || !strings.HasPrefix(d.UUID, "MIG-") {
		t.Errorf("%+v", d)
	}
	m.Sim("arrive", "2") // the second instance is made while the daemon runs
	rig.Eventually(t, "the second instance is listed", func() bool { s := m.Snapshot(); return len(s.Devices) == 4 })
	s = m.Snapshot()
	if d := s.Devices[3]; d.Index != 3 || d.Parent == nil || *d.Parent != 0 || d.Total != 2*gib {
		t.Errorf("%+v", d)
	}
	if r := rig.Run(t, m.Gpuarb("run", "--device", "0", "--", "true")); r.Code != 125 || !strings.Contains(r.Stderr, "divided by MIG") {
		t.Errorf("its GPU: %d %s", r.Code, r.Stderr)
	}
	for _, index := range []int{2, 3} {
		p := m.Interact(m.Gpuarb("run", "--device", fmt.Sprint(index), "--memory", "64M", "--", rig.Build(t, "programs/cudaprog-dlsym")))
		p.Want("alloc a 64M", "ok")
		p.Want("alloc b 1", "err 2")
		if l := m.Lease(p.PID(), index); l.Used != 64<<20 {
			t.Errorf("%+v", l)
		}
		p.End()
	}
	taken := map[string]bool{}
	for range 3 {
		r := rig.Run(t, m.Gpuarb("claim", "--index", "--for", fmt.Sprint(os.Getpid())))
		taken[strings.TrimSpace(r.Stdout)] = true
	}
	if len(taken) != 3 || taken["0"] {
		t.Errorf("three claims: %v", taken)
	}
}

// TestUnknownDevice checks a device that CUDA shows and the daemon does not know. Under gpuarb run all its memory is refused, and
// one line on stderr says so for the whole job; under a bare preload it has no limit. Both cases are events, and the summary of
// gpuarb run names the refusal.
func TestUnknownDevice(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G,1G", Sim: []string{"SIMCUDA_NVML_HIDES=1"}})
	const uuid = "513cda02-0000-4000-8000-000000000002"
	program := rig.Build(t, "programs/cudaprog-dlsym")
	twice := fmt.Sprintf("%[1]s --device 1 'alloc a 1M' 'alloc b 1M'; %[1]s --device 1 'alloc a 1M'", program)
	r := rig.Run(t, m.Gpuarb("run", "--memory", "64M", "--", "sh", "-c", twice))
	if strings.Contains(r.Stdout, "alloc a ok") {
		t.Errorf("memory of an unknown device was granted: %s", r.Stdout)
	}
	if said := strings.Count(r.Stderr, "uses a device that the daemon does not know (UUID "+uuid+")"); said != 1 {
		t.Errorf("it is said %d times:\n%s", said, r.Stderr)
	}
	if !strings.Contains(r.Stderr, "was refused all memory of a device that the daemon does not know") || strings.Contains(r.Stderr, "asked for no GPU memory") {
		t.Errorf("the account: %s", r.Stderr)
	}
	bare := m.Command(m.PreloadEnv(), program, "--device", "1", "alloc a 1M")
	if r := rig.Run(t, bare); !strings.Contains(r.Stdout, "alloc a ok") || strings.Contains(r.Stderr, "does not know") {
		t.Errorf("a bare preload: %s%s", r.Stdout, r.Stderr)
	}
	rig.Eventually(t, "both cases have events", func() bool {
		text := m.Read("events")
		return strings.Count(text, `"kind":"device_unknown"`) == 2 && strings.Contains(text, "its memory is refused") && strings.Contains(text, "without limits")
	})
	holdsToTheByte(t, m)
}

// TestMoreDevicesThanALeaseHas: a process is limited on 32 devices. The first call on another device says on stderr that it is not limited
// there, once.
func TestMoreDevicesThanALeaseHas(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: strings.Repeat("1G,", 32) + "1G", NoMount: true})
	r := rig.Run(t, m.Gpuarb("run", "--memory", "100M", "--", rig.Build(t, "programs/cudaprog-dlsym"), "--device", "32", "alloc a 200M", "alloc b 200M"))
	const want = "more than 32 devices: it is not limited on the others"
	if r.Code != 0 || strings.Count(r.Stderr, want) != 1 {
		t.Errorf("on the last of 33 devices: %d: %q", r.Code, r.Stderr)
	}
	r = rig.Run(t, m.Gpuarb("run", "--memory", "100M", "--", rig.Build(t, "programs/cudaprog-dlsym"), "--device", "31", "alloc a 200M"))
	if !strings.Contains(r.Stdout, "alloc a err 2") || strings.Contains(r.Stderr, want) {
		t.Errorf("on the 32nd device: %q %q", r.Stdout, r.Stderr)
	}
}
