package opencl

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows what OpenCL objects are charged with on PoCL, what a program under a budget sees, and that a
// new daemon learns of all objects. Expected values are the sizes in the commands of clprog
// (tests/programs/clprog.c).

// processor gives a simulated GPU the UUID under which the library counts the CPU, "gpuarb:processor". So the limits of
// that GPU apply to programs on PoCL.
const processor = "SIMCUDA_UUID=67707561-7262-3a70-726f-636573736f72"

// ways lists the ways in which clprog finds OpenCL's functions.
var ways = []string{"link", "dlsym", "extension"}

const mib = 1 << 20

// machine returns a machine without a GPU, whose CPU is a device with this much memory.
func machine(t *testing.T, memory string) *rig.Machine {
	t.Helper()
	return rig.New(t, rig.Options{Devices: "none", CPU: true, NoMount: true,
		Config: "schema_version = 1\n[[device]]\nmatch.vendor = \"cpu\"\nmemory = \"" + memory + "\"\n"})
}

// begin starts clprog under gpuarb run with these flags.
func begin(m *rig.Machine, way string, flags ...string) *rig.Program {
	m.T.Helper()
	args := append(append([]string{"run"}, flags...), "--", rig.Build(m.T, "programs/clprog-"+way))
	return m.Interact(m.Gpuarb(args...))
}

// uses checks the bytes that the daemon reports for a program.
func uses(m *rig.Machine, p *rig.Program, want uint64) {
	m.T.Helper()
	if l := m.Lease(p.PID(), m.First()); uint64(l.Used) != want {
		m.T.Errorf("the lease says %d bytes are used, want %d", l.Used, want)
	}
}

// TestBuffers: the bytes of existing objects are charged exactly, however the program finds the
// functions. They are returned when the driver has freed the object, and no earlier.
func TestBuffers(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			m := machine(t, "1G")
			p := begin(m, way, "--memory", "100M")
			p.Want("context c", "ok")
			uses(m, p, 0)
			p.Want("buffer a c 10M", "ok")
			uses(m, p, 10*mib)
			p.Want("properties b c 1000003", "ok")
			uses(m, p, 10*mib+1000003)
			p.Want("sub s a 1M", "ok")
			uses(m, p, 10*mib+1000003)
			p.Want("release b", "ok")
			uses(m, p, 10*mib)
			p.Want("release a", "ok")
			uses(m, p, 10*mib) // the sub-buffer still uses the buffer
			p.Want("release s", "ok")
			uses(m, p, 0)
			p.Want("buffer d c 10M", "ok")
			p.Want("hold d", "ok")
			p.Want("release d", "ok")
			uses(m, p, 10*mib)
			p.Want("release d", "ok")
			uses(m, p, 0)
			p.Want("hostbuffer h c 10M", "ok")
			uses(m, p, 0) // the CPU uses the program's own memory
			p.Want("release h", "ok")
			uses(m, p, 0)
		})
	}
}

// TestRefusal: the last byte of a budget is granted and the next byte refused, with the error of
// each function.
func TestRefusal(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	p := begin(m, "link", "--memory", "8M")
	p.Want("context c", "ok")
	p.Want("buffer a c 8M", "ok")
	p.Want("buffer b c 1", "err -4")
	p.Want("properties b c 1", "err -4")
	p.Want("image b c 1 1", "err -4")
	p.Want("old b c 1 1", "err -4")
	p.Want("svm b c 1", "err 1")
	p.Want("sub s a 4M", "ok")
	p.Want("release s", "ok")
	uses(m, p, 8*mib)
	p.Want("buffer b c 0", "err -61") // the driver's own answer
	p.Want("release a", "ok")
	p.Want("buffer b c 8M", "ok")
	p.Want("release b", "ok")
	p.Want("buffer b c 8388609", "err -4")
	uses(m, p, 0)
}

// TestImages: an image is charged with the size of its elements, whatever the driver rounds it up
// to.
func TestImages(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	p := begin(m, "link", "--memory", "100M")
	p.Want("context c", "ok")
	for _, one := range []struct {
		command string
		bytes   uint64
	}{
		{"image i c 100 30", 100 * 30 * 4},
		{"old i c 100 30", 100 * 30 * 4},
		{"cube i c 10 20 30", 10 * 20 * 30 * 4},
		{"layers i c 10 20 3", 10 * 20 * 3 * 16},
	} {
		p.Want(one.command, "ok")
		uses(m, p, one.bytes)
		p.Want("release i", "ok")
		uses(m, p, 0)
	}
}

// TestSharedVirtualMemory: the bytes of a block are returned when it is freed, or when the command
// that frees it has executed.
func TestSharedVirtualMemory(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	p := begin(m, "link", "--memory", "100M")
	p.Want("context c", "ok")
	p.Want("svm a c 10M", "ok")
	uses(m, p, 10*mib)
	p.Want("svmfree a c", "ok")
	uses(m, p, 0)
	p.Want("svm a c 10M", "ok")
	p.Want("svmlater a c", "ok")
	uses(m, p, 10*mib)
	p.Want("fire a", "ok")
	rig.Eventually(t, "the bytes come back when the command is done", func() bool {
		return m.Lease(p.PID(), m.First()).Used == 0
	})
}

// TestContexts: a context takes one of the device's slots, and is refused if none is free.
func TestContexts(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G", Sim: []string{processor}, NoMount: true,
		Config: "schema_version = 1\n[defaults]\nslots.max = 1\nwait_timeout = \"200ms\"\n"})
	first := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/clprog-link")))
	first.Want("context c", "ok")
	second := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/clprog-link")))
	second.Want("context c", "err -5")
	second.Want("contexttype c", "err -5")
	first.Want("retain c", "ok")
	first.Want("drop c", "ok")
	second.Want("two c", "err -5")
	first.Want("buffer a c 1M", "ok")
	first.Want("drop c", "ok")
	second.Want("context c", "err -5") // the buffer still uses the context
	first.Want("release a", "ok")
	second.Want("two c", "ok")
}

// TestNextDaemon: a daemon that replaces a killed one knows every byte, and gets every byte back,
// however the objects end.
func TestNextDaemon(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	p := begin(m, "link", "--memory", "100M")
	p.Want("context c", "ok")
	for i := range 20 {
		p.Want(fmt.Sprintf("buffer a%d c %dK", i, i+1), "ok")
	}
	p.Want("svm v c 1M", "ok")
	p.Want("release a7", "ok")
	p.Want("sub s a3 1K", "ok")
	p.Want("release a3", "ok")
	const left = mib + (20*21/2-8)<<10
	uses(m, p, left)
	m.Kill()
	m.Start()
	rig.Eventually(t, "the program is taken up again", func() bool { return len(m.Snapshot().Leases) == 1 })
	uses(m, p, left)
	for i := range 20 {
		if i != 7 && i != 3 {
			p.Want(fmt.Sprint("release a", i), "ok")
		}
	}
	uses(m, p, mib+4<<10)
	p.Want("release s", "ok")
	p.Want("svmfree v c", "ok")
	uses(m, p, 0)
	p.Want("buffer b c 100M", "ok")
}

// TestFirstDaemon: a daemon that starts while a program runs learns every byte from the program,
// and gets every byte back.
func TestFirstDaemon(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	m.Stop()
	p := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/clprog-link")))
	p.Want("context c", "ok")
	for i := range 10 {
		p.Want(fmt.Sprintf("buffer a%d c %dK", i, i+1), "ok")
	}
	p.Want("release a7", "ok")
	p.Want("sub s a3 1K", "ok")
	p.Want("release a3", "ok")
	m.Start()
	rig.Eventually(t, "the daemon knows the program", func() bool {
		p.Want("buffer b c 1M", "ok")
		p.Want("release b", "ok")
		return len(m.Snapshot().Leases) == 1
	})
	uses(m, p, (10*11/2-8)<<10)
	for i := range 10 {
		if i != 7 && i != 3 {
			p.Want(fmt.Sprint("release a", i), "ok")
		}
	}
	uses(m, p, 4<<10)
	p.Want("release s", "ok")
	uses(m, p, 0)
}

// TestBudgetIsTold: a program sees its budget as the device's memory, and no larger maximum for a
// block.
func TestBudgetIsTold(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	for _, way := range ways {
		p := begin(m, way, "--memory", "64M")
		p.Want("total", fmt.Sprint("ok ", 64*mib))
		p.Want("largest", fmt.Sprint("ok ", 64*mib))
	}
}

// TestThreads: objects that several threads make and release at the same time are counted exactly.
func TestThreads(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	p := begin(m, "link", "--memory", "64M")
	p.Want("context c", "ok")
	p.Want("buffer a c 1M", "ok")
	p.Want("storm c 8 3000", "ok")
	uses(m, p, mib)
}

// TestForked: objects that the driver of a forked child ends belong to the parent, and stay charged
// to the parent.
func TestForked(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	p := begin(m, "link", "--memory", "64M")
	p.Want("context c", "ok")
	p.Want("buffer a c 1M", "ok")
	p.Want("forked a", "ok")
	uses(m, p, mib)
	p.Want("release a", "ok")
	uses(m, p, 0)
}

// TestResidentMemory: a process's resident memory, as reported by the kernel, grows by the bytes of
// its lease.
func TestResidentMemory(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	p := begin(m, "link", "--memory", "512M")
	resident := func() (kib int64) {
		t.Helper()
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
		if err != nil {
			t.Fatal(err)
		}
		_, line, _ := strings.Cut(string(status), "VmRSS:")
		if _, err := fmt.Sscan(line, &kib); err != nil {
			t.Fatalf("%v in\n%s", err, status)
		}
		return kib
	}
	p.Want("context c", "ok")
	p.Want("queue q c first", "ok")
	p.Want("buffer a c 1M", "ok")
	p.Want("fill q a 1M", "ok")
	before := resident()
	p.Want("buffer b c 300M", "ok")
	p.Want("fill q b 300M", "ok")
	uses(m, p, 301*mib)
	if grown := resident() - before; grown < (300-64)<<10 || grown > (300+64)<<10 {
		t.Errorf("it has grown by %d KiB", grown)
	}
}

// TestCallback: memory that the program allocates in a callback is charged like other memory.
func TestCallback(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	p := begin(m, "link", "--memory", "64M")
	p.Want("context c", "ok")
	p.Want("buffer a c 1M", "ok")
	p.Want("chain a c 2M", "ok")
	p.Want("release a", "ok")
	uses(m, p, 2*mib)
}

// TestDriverRefuses: the driver has no memory for what was admitted. The daemon reads the device and admits it again, and the driver
// refuses again. The driver's error goes through, the user is told, and nothing stays charged.
func TestDriverRefuses(t *testing.T) {
	t.Parallel()
	m := machine(t, "4G")
	p := begin(m, "link", "--wait")
	p.Want("context c", "ok")
	p.LimitAddresses(100 * mib)
	p.Want("atonce a c 1G", "err -6")
	p.Want("svm a c 1G", "err 1")
	uses(m, p, 0)
	said := p.End()
	for _, want := range []string{"the driver has no room for 1 GiB that the budgets allow; the device shows: ",
		"2 requests refused, the last for 1 GiB: the driver of the processor had no room for it"} {
		if !strings.Contains(said, want) {
			t.Errorf("it says %q, not %q", said, want)
		}
	}
}
