package simcuda

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// This file shows that NVML, read by NVIDIA's own go-nvml, reports the devices, bytes and processes of the
// simulated machine. TestMain runs go-nvml in a process of its own.

// seen lists the facts that go-nvml reports for a device.
type seen struct {
	Code              nvml.Return
	UUID, Name, Bus   string
	Total, Used, Free uint64
	Reserved          uint64
	Processes         map[uint32]uint64
	Busy              map[uint32]uint32 // percent of the processors, by process
	BusyCode          nvml.Return
	LaterCode         nvml.Return // of a question for samples after the last one
}

// The library path is read when a process starts, so the code that uses NVML runs in a process of
// its own.
func TestMain(m *testing.M) {
	if os.Getenv("TEST_SIMCUDA_LOOK") == "" {
		os.Exit(m.Run())
	}
	json.NewEncoder(os.Stdout).Encode(look())
}

func look() []seen {
	if r := nvml.Init(); r != nvml.SUCCESS {
		return []seen{{Code: r}}
	}
	defer nvml.Shutdown()
	n, _ := nvml.DeviceGetCount()
	var all []seen
	for i := range n {
		var s seen
		var d nvml.Device
		if d, s.Code = nvml.DeviceGetHandleByIndex(i); s.Code == nvml.SUCCESS {
			s.UUID, _ = d.GetUUID()
			s.Name, _ = d.GetName()
			pci, _ := d.GetPciInfo()
			for _, c := range pci.BusId {
				if c != 0 {
					s.Bus += string(rune(c))
				}
			}
			memory, _ := d.GetMemoryInfo_v2()
			s.Total, s.Used, s.Free, s.Reserved = memory.Total, memory.Used, memory.Free, memory.Reserved
			processes, r := d.GetComputeRunningProcesses()
			s.Code = r
			s.Processes = map[uint32]uint64{}
			for _, p := range processes {
				s.Processes[p.Pid] = p.UsedGpuMemory
			}
			var last uint64
			s.Busy = map[uint32]uint32{}
			samples, r := d.GetProcessUtilization(0)
			for _, p := range samples {
				s.Busy[p.Pid], last = p.SmUtil, max(last, p.TimeStamp)
			}
			s.BusyCode = r
			_, s.LaterCode = d.GetProcessUtilization(last + uint64(time.Hour/time.Microsecond))
		}
		all = append(all, s)
	}
	return all
}

func (m *machine) nvml() []seen {
	m.t.Helper()
	cmd := m.command(os.Args[0])
	cmd.Env = append(cmd.Env, "TEST_SIMCUDA_LOOK=1")
	out, err := cmd.Output()
	if err != nil {
		m.t.Fatal(err)
	}
	var all []seen
	if err := json.Unmarshal(out, &all); err != nil {
		m.t.Fatal(err)
	}
	return all
}

func TestNVML(t *testing.T) {
	const mib = 1 << 20
	m := newMachine(t, "SIMCUDA_DEVICES=1G,2G", "SIMCUDA_RESERVED=10M", "SIMCUDA_CONTEXT_BYTES=100M")
	h := m.hold("1048576")
	all := m.nvml()
	if len(all) != 2 {
		t.Fatalf("%d devices", len(all))
	}
	d := all[0]
	if d.UUID != "GPU-513cda01-0000-4000-8000-000000000001" || d.Bus != "00000000:10:00.0" ||
		d.Name != "Simulated GPU 0" {
		t.Errorf("device 0 is %+v", d)
	}
	if d.Total != 1024*mib || d.Reserved != 10*mib || d.Used != 101*mib || d.Free != 913*mib {
		t.Errorf("device 0 has %+v", d)
	}
	if got := d.Processes[uint32(h.Process.Pid)]; len(d.Processes) != 1 || got != 101*mib {
		t.Errorf("processes of device 0: %v", d.Processes)
	}
	if e := all[1]; e.Used != 0 || len(e.Processes) != 0 {
		t.Errorf("device 1 has %+v", e)
	}
	h.kill()
	if d := m.nvml()[0]; d.Used != 0 || len(d.Processes) != 0 {
		t.Errorf("after its death: %+v", d)
	}
	m.sim("lose", "1")
	if all := m.nvml(); all[0].Code != nvml.SUCCESS || all[1].Code != nvml.ERROR_GPU_IS_LOST {
		t.Errorf("with a lost device: %+v", all)
	}
}

// TestNVMLUtilisation: a process has a sample while it keeps the device busy. Without samples, after the last one, and where
// the device cannot tell, NVML answers with its errors.
func TestNVMLUtilisation(t *testing.T) {
	m := newMachine(t, "SIMCUDA_DEVICES=1G,1G,1G", "SIMCUDA_MIG=2:1")
	h := m.hold("1048576")
	pid := fmt.Sprint(h.Process.Pid)
	if d := m.nvml()[0]; d.BusyCode != nvml.ERROR_NOT_FOUND {
		t.Errorf("a process does nothing: %+v", d)
	}
	m.sim("busy", pid, "0", "37")
	if d := m.nvml()[0]; d.BusyCode != nvml.SUCCESS || !maps.Equal(d.Busy, map[uint32]uint32{uint32(h.Process.Pid): 37}) || d.LaterCode != nvml.ERROR_NOT_FOUND {
		t.Errorf("a process uses 37%%: %+v", d)
	}
	if d := m.nvml()[1]; d.BusyCode != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("the device is divided: %+v", d)
	}
	m.sim("busy", pid, "0", "0")
	if d := m.nvml()[0]; d.BusyCode != nvml.SUCCESS || d.Busy[uint32(h.Process.Pid)] != 37 || d.LaterCode != nvml.ERROR_NOT_FOUND {
		t.Errorf("the process does nothing any more, and its last sample is kept: %+v", d)
	}
	h.kill()
	other := newMachine(t, "SIMCUDA_NVML_LACKS=utilization")
	if d := other.nvml()[0]; d.BusyCode != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("the driver lacks it: %+v", d)
	}
}

func TestNVMLWithoutDevice(t *testing.T) {
	m := newMachine(t, "SIMCUDA_DEVICES=none")
	if all := m.nvml(); all[0].Code != nvml.ERROR_DRIVER_NOT_LOADED {
		t.Errorf("%+v", all)
	}
}
