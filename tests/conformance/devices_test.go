package conformance

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the test of the row C11 of rows.txt: an allocation is charged to its own device. The driver's count for
// each device is the oracle, also if driver, NVML and program number the devices differently.

// daemonIndex maps the driver's numbers of the devices to the daemon's, by their UUIDs.
func daemonIndex(t *testing.T, m *rig.Machine) map[int]int {
	t.Helper()
	known := map[string]int{}
	for _, d := range m.Snapshot().Devices {
		known[d.UUID] = d.Index
	}
	index := map[int]int{}
	for line := range strings.Lines(m.Sim("devices")) {
		var i int
		var uuid string
		if _, err := fmt.Sscan(line, &i, &uuid); err != nil {
			continue // the header
		}
		at, ok := known[uuid]
		if !ok {
			t.Fatalf("the daemon does not know %s", uuid)
		}
		index[i] = at
	}
	return index
}

// devicesHold compares the bytes that a process holds on each of the driver's two devices, by the driver's count and
// the daemon's, with want.
func devicesHold(t *testing.T, m *rig.Machine, pid int, want [2]uint64) {
	t.Helper()
	for device, at := range daemonIndex(t, m) {
		if h := m.HeldBy(pid, device); h.Bytes != want[device] {
			t.Errorf("the driver holds %d bytes on its device %d, want %d", h.Bytes, device, want[device])
		}
		used := uint64(0)
		for _, l := range m.Snapshot().Leases {
			if l.PID == pid && l.Device == at {
				used = uint64(l.Used)
			}
		}
		if used != want[device] {
			t.Errorf("the daemon says %d bytes on device %d (GPU %d), want %d", used, device, at, want[device])
		}
	}
}

var numberings = []struct {
	name    string
	sim     []string
	visible string
	first   int // the driver's number of the program's device 0
}{
	{"as they are", nil, "", 0},
	{"NVML counts from the other end", []string{"SIMCUDA_NVML_REVERSE=1"}, "", 0},
	{"the program counts from the other end", nil, "1,0", 1},
}

// TestC11EachDevice: each allocation is charged to its own device, whichever device is current.
func TestC11EachDevice(t *testing.T) {
	t.Parallel()
	const limit = 64 << 20
	for _, c := range numberings {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{NoMount: true, Devices: "2G,1G", Sim: c.sim})
			env := append(m.PreloadEnv(), fmt.Sprintf("GPUARB_MEMORY=%d", limit))
			if c.visible != "" {
				env = append(env, "CUDA_VISIBLE_DEVICES="+c.visible)
			}
			p := m.Interact(m.Command(env, rig.Build(t, "programs/cudaprog-dlsym")))
			pid := p.PID()
			check := func(first, second uint64) {
				t.Helper()
				want := [2]uint64{first, second}
				if c.first == 1 {
					want = [2]uint64{second, first}
				}
				devicesHold(t, m, pid, want)
			}
			p.Want("alloc a 1001", "ok")
			check(1001, 0)
			p.Want("stream s", "ok")
			p.Want("context other 1", "ok")
			p.Want("alloc b 20003", "ok")
			check(1001, 20003)
			// The second device is current, and the stream belongs to the first.
			p.Want("allocasync c 300007 s", "ok")
			check(301008, 20003)
			p.Want("free a", "ok")
			check(300007, 20003)
			p.Want("use first", "ok")
			p.Want("free b", "ok")
			check(300007, 0)
			p.Want("freeasync c s", "ok")
			p.Want("sync s", "ok")
			// Each device allows the whole budget, and no byte more.
			p.Want(fmt.Sprintf("alloc all %d", limit), "ok")
			p.Want("alloc more 1", errOutOfMemory)
			p.Want("use other", "ok")
			p.Want(fmt.Sprintf("alloc all2 %d", limit), "ok")
			p.Want("managed more 1", errOutOfMemory)
			check(limit, limit)
			p.Want("destroy other", "ok") // frees its memory
			check(limit, 0)
		})
	}
}
