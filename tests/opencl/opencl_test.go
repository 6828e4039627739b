package opencl

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// processor is the UUID that the shim knows the machine's processor by: "gpuarb:processor".
const processor = "SIMCUDA_UUID=67707561-7262-3a70-726f-636573736f72"

// ways are how a program comes to OpenCL's functions.
var ways = []string{"link", "dlsym", "extension"}

const mib = 1 << 20

// machine has no GPU, but the processor, with so many bytes.
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

// uses asks for the bytes that the daemon says a program uses.
func uses(m *rig.Machine, p *rig.Program, want uint64) {
	m.T.Helper()
	if l := m.Lease(p.PID(), m.First()); uint64(l.Used) != want {
		m.T.Errorf("the lease says %d bytes are used, want %d", l.Used, want)
	}
}

// TestBuffers: what lives is charged to the byte, by each way to the functions, and given back when the driver has
// freed it, and no earlier.
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
			uses(m, p, 10*mib) // the part still needs it
			p.Want("release s", "ok")
			uses(m, p, 0)
			p.Want("buffer d c 10M", "ok")
			p.Want("hold d", "ok")
			p.Want("release d", "ok")
			uses(m, p, 10*mib)
			p.Want("release d", "ok")
			uses(m, p, 0)
			p.Want("hostbuffer h c 10M", "ok")
			uses(m, p, 0) // the processor works in the program's own memory
			p.Want("release h", "ok")
			uses(m, p, 0)
		})
	}
}

// TestRefusal: the last byte of a budget is granted and the one after it refused, as each function says it.
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

// TestImages: their size is that of their elements, whatever the driver rounds them up to.
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

// TestSharedVirtualMemory: a block goes back when it is freed, or when the command that frees it is done.
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

// TestContexts: a context is one of the device's slots, and is refused where there is none.
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
	second.Want("context c", "err -5") // the buffer still needs it
	first.Want("release a", "ok")
	second.Want("two c", "ok")
}

// TestNextDaemon: the daemon that comes after one that was killed has every byte, and has it back, whoever ends what holds it.
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

// TestFirstDaemon: the daemon that comes while a program runs hears of every byte from it, and has it back.
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

// TestBudgetIsTold: a program is told its budget as the device's memory, and no block that is larger.
func TestBudgetIsTold(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	for _, way := range ways {
		p := begin(m, way, "--memory", "64M")
		p.Want("total", fmt.Sprint("ok ", 64*mib))
		p.Want("largest", fmt.Sprint("ok ", 64*mib))
	}
}

// TestThreads: what threads make and release at once is counted to the byte.
func TestThreads(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	p := begin(m, "link", "--memory", "64M")
	p.Want("context c", "ok")
	p.Want("buffer a c 1M", "ok")
	p.Want("storm c 8 3000", "ok")
	uses(m, p, mib)
}

// TestForked: what a forked child's driver ends was its parent's, and stays charged to that.
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

// TestResidentMemory: what the kernel says that a process has of the machine's memory grows by what its lease says.
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

// TestCallback: what a callback of the program's takes in one of its calls is charged like all else.
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
