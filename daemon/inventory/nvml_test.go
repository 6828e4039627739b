package inventory

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks devices and readings that come from NVML. One part runs a program of its own with the simulated
// driver of tests/simcuda, whose settings give the expected values; the other part uses the mocks of go-nvml.
// nvmlhost_test.go has libraries that hang, fail or lose a device.

const lookEnv = "INVENTORY_TEST_LOOK"

// TestMain runs the tests. With lookEnv in the environment it runs look instead: LD_LIBRARY_PATH, which leads to the
// simulated driver, counts only if it is set when a process starts.
func TestMain(m *testing.M) {
	if os.Getenv(lookEnv) != "" {
		if err := look(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// answer has the devices and readings that look prints for each line that it reads.
type answer struct {
	Devices []Device
	Why     string
	Usage   []Usage
}

// noDrivers is an environment without drivers for the processor.
func noDrivers(string) string { return "/dev/null" }

func look(in io.Reader, out io.Writer) error {
	inv := Open(Options{SysfsRoot: os.Getenv(lookEnv), Getenv: noDrivers})
	defer inv.Close()
	enc := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		a := answer{Devices: inv.Devices(), Why: inv.Why()}
		for _, d := range a.Devices {
			u, err := inv.Read(d.Index)
			if err != nil {
				return err
			}
			a.Usage = append(a.Usage, u)
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
	return nil
}

// machine is an environment in which programs find the simulated driver.
type machine struct {
	t   *testing.T
	env []string
}

func simulated(t *testing.T, vars ...string) *machine {
	t.Helper()
	lib, err := filepath.Abs("../../build/sim")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(lib + "/libnvidia-ml.so.1"); err != nil {
		t.Fatalf("the simulated driver is not built, run `make sim`: %v", err)
	}
	return &machine{t, append(append(os.Environ(), "LD_LIBRARY_PATH="+lib, "SIMCUDA_DIR="+t.TempDir()), vars...)}
}

// program is a program on the machine that answers each line with a line.
type program struct {
	*exec.Cmd
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Reader
}

func (m *machine) start(name string, args ...string) *program {
	m.t.Helper()
	cmd := bounded.Command(m.t, bounded.Lifetime, name, args...)
	cmd.Env = m.env
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &program{cmd, m.t, in, bufio.NewReader(out)}
}

func (m *machine) looker(sysfs string) *program {
	m.env = append(m.env, lookEnv+"="+sysfs)
	return m.start(os.Args[0])
}

func (p *program) look() (a answer) {
	p.t.Helper()
	fmt.Fprintln(p.in)
	if err := json.NewDecoder(strings.NewReader(p.line())).Decode(&a); err != nil {
		p.t.Fatal(err)
	}
	return a
}

func (p *program) line() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("%s: %v", p.Path, err)
	}
	return line
}

func (m *machine) run(name string, args ...string) {
	m.t.Helper()
	cmd := bounded.Command(m.t, bounded.Patience, name, args...)
	cmd.Env = m.env
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

func TestSimulatedNVML(t *testing.T) {
	const mib = 1 << 20
	m := simulated(t, "SIMCUDA_DEVICES=1G,2G", "SIMCUDA_RESERVED=10M", "SIMCUDA_CONTEXT_BYTES=100M")
	l := m.looker("testdata/mixed")
	a := l.look()
	var got []string
	for _, d := range a.Devices {
		got = append(got, fmt.Sprintf("%d %s %s %d %d", d.Index, d.Vendor, d.PCI, d.Total/mib, d.Reserved/mib))
	}
	if len(got) != 5 || !strings.HasPrefix(got[0], "0 nvidia") || !strings.HasSuffix(got[0], " 1024 10") ||
		!strings.HasPrefix(got[1], "1 nvidia") || !strings.HasPrefix(got[2], "2 amd") || !strings.HasPrefix(got[4], "4 intel") {
		t.Errorf("devices: %q", got)
	}
	for _, d := range a.Devices[:2] {
		uuid, err := parseUUID(d.UUID)
		if err != nil || uuid != d.UUIDBytes || uuid == [16]byte{} || d.Name == "" {
			t.Errorf("device %d: %+v, %v", d.Index, d, err)
		}
	}
	hold := m.start("../../build/sim/test/hold", "1048576")
	hold.line()
	u := l.look().Usage
	want := []ProcessUsage{{PID: hold.Process.Pid, Bytes: 101 * mib}}
	if !u[0].ProcessesKnown || !reflect.DeepEqual(u[0].Processes, want) {
		t.Errorf("device 0: %+v", u[0])
	}
	if len(u[1].Processes) != 0 || !u[1].ProcessesKnown {
		t.Errorf("device 1: %+v", u[1])
	}
	m.run("../../build/sim/simcuda", "lose", "0")
	if u := l.look().Usage; !u[0].Lost || u[1].Lost {
		t.Errorf("after the loss of device 0: %+v", u)
	}
}

func TestSimulatedNoDevice(t *testing.T) {
	m := simulated(t, "SIMCUDA_DEVICES=none")
	a := m.looker(t.TempDir()).look()
	if len(a.Devices) != 0 || !strings.Contains(a.Why, "not loaded") {
		t.Errorf("%+v", a)
	}
}

func TestNoLibrary(t *testing.T) {
	// A file with the library's name that is not a library hides the machine's own library.
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/libnvidia-ml.so.1", []byte("rubbish"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := &machine{t, append(os.Environ(), "LD_LIBRARY_PATH="+dir)}
	a := m.looker(t.TempDir()).look()
	if len(a.Devices) != 0 || !strings.Contains(a.Why, "libnvidia-ml.so.1 was not found") {
		t.Errorf("%+v", a)
	}
}

func TestParseUUID(t *testing.T) {
	uuid, err := parseUUID("GPU-01234567-89ab-cdef-0123-456789ABCDEF")
	if err != nil || fmt.Sprintf("%x", uuid) != "0123456789abcdef0123456789abcdef" {
		t.Errorf("%x, %v", uuid, err)
	}
	for _, s := range []string{"", "GPU-", "CPU-01234567-89ab-cdef-0123-456789abcdef", "GPU-0123456789abcdef0123456789abcdef",
		"GPU-01234567-89ab-cdef-0123-456789abcdeg", "GPU-01234567-89ab-cdef-0123-456789abcdef-"} {
		if _, err := parseUUID(s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}

func fakeDevice(compute, graphics []nvml.ProcessInfo, ret nvml.Return) *mock.Device {
	return &mock.Device{
		GetMemoryInfoFunc:               func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.SUCCESS },
		GetComputeRunningProcessesFunc:  func() ([]nvml.ProcessInfo, nvml.Return) { return compute, ret },
		GetGraphicsRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) { return graphics, nvml.SUCCESS },
		GetMPSComputeRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) {
			return nil, nvml.ERROR_NOT_SUPPORTED
		},
	}
}

func TestProcessesMerged(t *testing.T) {
	table := []struct {
		name              string
		compute, graphics []nvml.ProcessInfo
		want              []ProcessUsage
		known             bool
	}{
		{"nobody", nil, nil, []ProcessUsage{}, true},
		{"in both lists: the larger", []nvml.ProcessInfo{{Pid: 7, UsedGpuMemory: 10}, {Pid: 3, UsedGpuMemory: 1}},
			[]nvml.ProcessInfo{{Pid: 7, UsedGpuMemory: 30}}, []ProcessUsage{{3, 1}, {7, 30}}, true},
		{"instances of a partitioned device: the sum", []nvml.ProcessInfo{{Pid: 7, UsedGpuMemory: 10, GpuInstanceId: 1},
			{Pid: 7, UsedGpuMemory: 10, GpuInstanceId: 2}}, nil, []ProcessUsage{{7, 20}}, true},
		{"no figure", []nvml.ProcessInfo{{Pid: 7, UsedGpuMemory: math.MaxUint64}}, nil, []ProcessUsage{{7, 0}}, false},
	}
	for _, c := range table {
		device := fakeDevice(c.compute, c.graphics, nvml.SUCCESS)
		u, err := fakeSource(device, nvmlOptional{memory: true, compute: true, graphics: true, mps: true}).usage()
		if err != nil || !reflect.DeepEqual(u, Usage{Processes: c.want, ProcessesKnown: c.known}) {
			t.Errorf("%s: %+v, %v", c.name, u, err)
		}
		if asked := len(device.GetMemoryInfoCalls()) > 0; asked == c.known {
			t.Errorf("%s: the driver was asked for the memory as well: %v", c.name, asked)
		}
	}
}

// TestLostWithoutLists: if the driver lists no processes of a device, an answer about its memory shows that the
// device is lost.
func TestLostWithoutLists(t *testing.T) {
	device := fakeDevice(nil, nil, nvml.ERROR_NOT_SUPPORTED)
	device.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_GPU_IS_LOST }
	if u, err := fakeSource(device, nvmlOptional{memory: true, compute: true}).usage(); !u.Lost || err != nil {
		t.Errorf("%+v, %v", u, err)
	}
}

func TestProcessErrors(t *testing.T) {
	all := nvmlOptional{memory: true, compute: true, graphics: true, mps: true}
	for ret, want := range map[nvml.Return]Usage{
		nvml.ERROR_GPU_IS_LOST:   {Lost: true},
		nvml.ERROR_NOT_SUPPORTED: {Processes: []ProcessUsage{}},
	} {
		u, err := fakeSource(fakeDevice(nil, nil, ret), all).usage()
		if err != nil || !reflect.DeepEqual(u, want) {
			t.Errorf("%v: %+v, %v", ret, u, err)
		}
	}
	_, err := fakeSource(fakeDevice(nil, nil, nvml.ERROR_UNKNOWN), all).usage()
	if !errors.Is(err, nvml.ERROR_UNKNOWN) {
		t.Errorf("an error of the driver: %v", err)
	}
}

// TestUtilisation: the larger figure of the last two readings, of new samples alone; entries that a driver left unset do not
// count, and a driver that cannot tell is not one at rest.
func TestUtilisation(t *testing.T) {
	var since uint64
	var samples []nvml.ProcessUtilizationSample
	ret := nvml.SUCCESS
	device := fakeDevice(nil, nil, nvml.SUCCESS)
	device.GetProcessUtilizationFunc = func(after uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
		since = after
		return samples, ret
	}
	s := fakeSource(device, nvmlOptional{utilisation: true})
	step := func(name string, list []nvml.ProcessUtilizationSample, answer nvml.Return, asks uint64, want map[int]int) {
		t.Helper()
		samples, ret = list, answer
		if got := s.utilisation(); since != asks || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: asks after %d for %v, want %d, %v", name, since, got, asks, want)
		}
	}
	step("two processes", []nvml.ProcessUtilizationSample{{Pid: 7, TimeStamp: 100, SmUtil: 30}, {Pid: 8, TimeStamp: 90, SmUtil: 5}},
		nvml.SUCCESS, 0, map[int]int{7: 30, 8: 5})
	step("unset entries", []nvml.ProcessUtilizationSample{{}, {Pid: 9, TimeStamp: 1 << 40, SmUtil: 4000}, {Pid: 8, TimeStamp: 90, SmUtil: 5}, {Pid: 7, TimeStamp: 200, SmUtil: 40}},
		nvml.SUCCESS, 100, map[int]int{7: 40, 8: 5})
	step("two samples", []nvml.ProcessUtilizationSample{{Pid: 7, TimeStamp: 250, SmUtil: 10}, {Pid: 7, TimeStamp: 300, SmUtil: 20}},
		nvml.SUCCESS, 200, map[int]int{7: 40})
	step("no new samples", nil, nvml.ERROR_NOT_FOUND, 300, map[int]int{7: 20})
	step("none again", nil, nvml.ERROR_NOT_FOUND, 300, map[int]int{})
	future := uint64(time.Now().Add(time.Hour).UnixMicro())
	step("the clock is set back after this", []nvml.ProcessUtilizationSample{{Pid: 7, TimeStamp: future, SmUtil: 20}}, nvml.SUCCESS, 300, map[int]int{7: 20})
	samples, ret = []nvml.ProcessUtilizationSample{{Pid: 7, TimeStamp: future - 1, SmUtil: 60}}, nvml.SUCCESS
	if got := s.utilisation(); since >= future || got[7] != 60 {
		t.Errorf("after the clock was set back: asks after %d for %v", since, got)
	}
	s.sampled, s.last = 300, nil
	step("not supported", nil, nvml.ERROR_NOT_SUPPORTED, 300, nil)
	step("no permission", nil, nvml.ERROR_NO_PERMISSION, 300, nil)
	device.GetProcessUtilizationFunc = func(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
		return make([]nvml.ProcessUtilizationSample, 1)[:len(samples)+2], nvml.ERROR_INSUFFICIENT_SIZE // as the binding does
	}
	step("processes come between the binding's questions", nil, nvml.SUCCESS, 300, nil)
	if got := fakeSource(device, nvmlOptional{}).utilisation(); got != nil {
		t.Errorf("the library lacks the function: %v", got)
	}
}
