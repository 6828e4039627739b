package vulkan

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows what Vulkan memory is charged with, when it is returned, and what a program sees as its heap
// and budget. slots_test.go has slots, and programs_test.go the programs of users.

// TestMemory: existing memory is charged exactly, however the program finds the functions, and
// returned when it is freed.
func TestMemory(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			m := machine(t, "1G")
			p := withDevice(m, way, "--memory", "100M")
			uses(m, p, 0)
			p.Want("alloc a d 10M", "ok")
			uses(m, p, 10*mib)
			p.Want("alloc b d 1000003", "ok")
			uses(m, p, 10*mib+1000003)
			p.Want("free b", "ok")
			uses(m, p, 10*mib)
			p.Want("nothing d", "ok")
			uses(m, p, 10*mib)
			p.Want("free a", "ok")
			uses(m, p, 0)
			p.Want("drop d", "ok")
			p.Want("end i", "ok")
			p.End()
			idle(m)
		})
	}
}

// TestDedicated: memory that is dedicated to one buffer or image is charged once, like other
// memory.
func TestDedicated(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	p := withDevice(m, "link", "--memory", "100M")
	for _, command := range []string{"dedicated a d 3000001", "image a d 200 100"} {
		bytes := p.Number(command)
		uses(m, p, bytes)
		p.Want("free a", "ok")
		uses(m, p, 0)
	}
}

// TestRefusal: the last byte of a budget is granted and the next byte refused, by each call that
// allocates. The program then says on stderr which budget refused it.
func TestRefusal(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	for _, way := range ways {
		p := withDevice(m, way, "--memory", "8M")
		p.Want("alloc a d 8M", "ok")
		p.Want("alloc b d 1", "err -2")
		p.Want("exportable b d 1", "err -2")
		p.Want("dedicated b d 1", "err -2")
		p.Want("image b d 1 1", "err -2")
		uses(m, p, 8*mib)
		p.Want("free a", "ok")
		p.Want("alloc a d 8388609", "err -2")
		uses(m, p, 0)
		p.Want("alloc a d 8M", "ok")
		uses(m, p, 8*mib)
		if said := p.End(); !strings.Contains(said, "8 MiB") {
			t.Errorf("the refusal is told as %q", said)
		}
	}
	idle(m)
}

// TestDriverRefuses: the driver has no memory for what was admitted. The daemon reads the device and admits it again, and the driver
// refuses again. The driver's error goes through, the user is told, and nothing stays charged.
func TestDriverRefuses(t *testing.T) {
	t.Parallel()
	m := machine(t, "4G")
	p := withDevice(m, "link", "--wait")
	p.LimitAddresses(100 * mib)
	p.Want("alloc a d 1G", "err -2")
	uses(m, p, 0)
	if said, want := p.End(), "the driver has no room for 1 GiB that the budgets allow; the device shows: "; !strings.Contains(said, want) {
		t.Errorf("it says %q, not %q", said, want)
	}
	idle(m)
}

// TestImport: imported memory is charged to its exporter; imported host memory of the program is
// not charged.
func TestImport(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	p := withDevice(m, "device", "--memory", "8M")
	p.Want("device e i", "ok")
	p.Want("exportable a d 8M", "ok")
	p.Want("import b d a", "ok")
	p.Want("import c e a", "ok")
	p.Want("host h d 2M", "ok")
	uses(m, p, 8*mib)
	p.Want("touch c", "ok")
	p.Want("free c", "ok")
	p.Want("free b", "ok")
	p.Want("free h", "ok")
	uses(m, p, 8*mib)
	p.Want("alloc x d 1", "err -2")
	p.Want("free a", "ok")
	uses(m, p, 0)
}

// TestLeftOver: memory that a program did not free ends with its logical device; memory of other
// logical devices stays.
func TestLeftOver(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	p := withDevice(m, "link", "--memory", "64M")
	p.Want("device e i", "ok")
	p.Want("alloc a d 10M", "ok")
	p.Want("alloc b d 20M", "ok")
	p.Want("alloc c e 5M", "ok")
	p.Want("drop d", "ok")
	uses(m, p, 5*mib)
	p.Want("alloc f e 59M", "ok")
	p.Want("drop e", "ok")
	uses(m, p, 0)
}

// TestLostDevice: each call on a lost logical device fails. Its memory and its slot stay charged
// until the program frees the memory or destroys the device, as the specification ("Lost Device")
// tells it to do. Then the program can make a new device.
func TestLostDevice(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G", oneAtATime)
	counting, _ := witnessed(m)
	lost := filepath.Join(m.Dir, "lost")
	p := m.Interact(vulkan(m, m.Command(m.PreloadEnv(), rig.Build(t, "programs/vkprog-link")), append(counting, "VKLOST="+lost)...))
	p.Want("instance i", "ok")
	p.Want("device d i", "ok")
	p.Want("alloc a d 10M", "ok")
	p.Want("alloc b d 20M", "ok")
	place(m, m.Dir, "lost", "")
	for range 3 {
		p.Want("alloc c d 5M", "err -4")
		p.Want("dedicated c d 5M", "err -4")
		uses(m, p, 30*mib)
	}
	p.Want("free b", "ok")
	uses(m, p, 10*mib)
	other := begin(m, "link")
	other.Want("instance i", "ok")
	other.Want("device d i", "err -3")
	p.Want("drop d", "ok")
	uses(m, p, 0)
	other.Want("device d i", "ok")
	other.Want("drop d", "ok")
	if err := os.Remove(lost); err != nil {
		t.Fatal(err)
	}
	p.Want("device e i", "ok")
	p.Want("alloc c e 5M", "ok")
	uses(m, p, 5*mib)
	p.End()
	other.End()
	idle(m)
}

// TestBudgetIsTold: a program sees its budget as the size of the device-local heap.
func TestBudgetIsTold(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	for _, way := range ways {
		p := begin(m, way, "--memory", "64M")
		p.Want("instance i", "ok")
		p.Want("heaps i", fmt.Sprint("ok ", 64*mib))
		p.Want("heaps2 i", fmt.Sprint("ok ", 64*mib))
		if s := m.Snapshot(); len(s.Leases) != 0 {
			t.Errorf("a question made a lease: %+v", s.Leases)
		}
		p.End()
	}
}

// TestRoomIsTold: VK_EXT_memory_budget reports the bytes that the process uses and the bytes that
// it could have: its own budget, or what other processes leave.
func TestRoomIsTold(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	start := func(memory string) *rig.Program {
		environ := append(chain(m, ours, witness), "VKCOUNT="+filepath.Join(m.Dir, memory), "VKCOUNT_BUDGET=1",
			"GPUARB_MEMORY="+memory)
		p := m.Interact(vulkan(m, m.Command(m.PreloadEnv(), rig.Build(t, "programs/vkprog-device")), environ...))
		p.Want("instance i", "ok")
		p.Want("budget i", fmt.Sprint("ok ", p.Number("heaps i"), " 0"))
		p.Want("device d i", "ok")
		return p
	}
	first, second := start("64M"), start("1G")
	first.Want("alloc a d 10M", "ok")
	first.Want("budget i", fmt.Sprint("ok ", 64*mib, " ", 10*mib))
	second.Want("alloc a d 1000M", "ok")
	second.Want("budget i", fmt.Sprint("ok ", 1014*mib, " ", 1000*mib))
	rig.Eventually(t, "the first is told what the second has left", func() bool {
		return first.Ask("budget i") == fmt.Sprint("ok ", 24*mib, " ", 10*mib)
	})
	first.Want("heaps i", fmt.Sprint("ok ", 64*mib))
	first.Want("free a", "ok")
	first.Want("budget i", fmt.Sprint("ok ", 24*mib, " 0"))
	second.Want("free a", "ok")
	rig.Eventually(t, "the first is told of the room", func() bool {
		return first.Ask("budget i") == fmt.Sprint("ok ", 64*mib, " 0")
	})
}

// TestThreads: memory and devices that several threads make and free at the same time are counted
// exactly.
func TestThreads(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	p := withDevice(m, "device", "--memory", "64M")
	p.Want("alloc a d 1M", "ok")
	p.Want("storm d 8 2000", "ok")
	uses(m, p, mib)
	p.Want("devices i 8 10", "ok")
	uses(m, p, mib)
	p.Want("free a", "ok")
	uses(m, p, 0)
}

// TestForked: memory that a forked child frees belongs to the parent, and stays charged to the
// parent. Memory that the child allocates is the child's.
func TestForked(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	p := withDevice(m, "link", "--memory", "64M")
	p.Want("alloc a d 1M", "ok")
	p.Want("forked a", "ok")
	uses(m, p, mib)
	p.Want("child d 63M", "ok")
	p.Want("child d 65M", "err -2")
	uses(m, p, mib)
	p.Want("free a", "ok")
	uses(m, p, 0)
}

var resident = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// residentSet returns a process's resident memory in bytes, as reported by the kernel.
func residentSet(t *testing.T, pid int) uint64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	kib, err := strconv.ParseUint(resident.FindStringSubmatch(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// TestResident: the kernel reports the same bytes as the lease for a process that has written to
// all of its memory, and after it has freed the memory.
func TestResident(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	p := withDevice(m, "link", "--memory", "400M")
	before := residentSet(t, p.PID())
	check := func(want uint64) {
		t.Helper()
		uses(m, p, want)
		if got := residentSet(t, p.PID()); got > before+want+64*mib || got+64*mib < before+want {
			t.Errorf("%d bytes are used, and %d more resident", want, got-before)
		}
	}
	p.Want("alloc a d 200M", "ok")
	p.Want("touch a", "ok")
	check(200 * mib)
	p.Want("alloc b d 100M", "ok")
	p.Want("touch b", "ok")
	check(300 * mib)
	p.Want("free a", "ok")
	check(100 * mib)
	p.Want("free b", "ok")
	check(0)
}
