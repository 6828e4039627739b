package entrypoints

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/tests/rig"
)

const gib = 1024 * mib

// beside is what a device has in use beside what programs asked for, contexts apart.
func beside(m *rig.Machine, contexts int) uint64 {
	return m.SimNumber("used", "0") - m.SimNumber("total", "0") - uint64(contexts)*64*mib
}

// charged waits for what a lease uses, by the daemon.
func charged(m *rig.Machine, pid int, used uint64) {
	m.T.Helper()
	rig.Eventually(m.T, fmt.Sprintf("%d bytes are used", used), func() bool { return uint64(m.Lease(pid, 0).Used) == used })
}

// A module that is loaded by an exported function is charged before the program has it,
// and refused beyond the budget: three GiB do not run under a budget of one.
func TestModulesAreCharged(t *testing.T) {
	everyWay(t, gib, func(t *testing.T, m *rig.Machine, first *rig.Program) {
		first.End()
		for _, load := range []string{"load", "loadex", "loadfat", "loadfile", "loadlibrary", "loadlibraryfile"} {
			unload := "unload"
			if strings.Contains(load, "library") {
				unload = "unloadlibrary"
			}
			p := start(m, way(t), gib) // each has ten readings a second
			pid := p.PID()
			p.Want("alloc a 1M", "ok")
			p.Want(load+" big 3G", errOutOfMemory)
			if left := beside(m, 1); left != 0 {
				t.Errorf("%s: refused, and %d bytes are left", load, left)
			}
			p.Want(load+" m 512M", "ok")
			charged(m, pid, 513*mib)
			p.Want(load+" n 512M", errOutOfMemory)
			exactly(p, 511*mib)
			p.Want(unload+" m", "ok")
			charged(m, pid, mib)
			exactly(p, gib-mib)
			p.End()
		}
	})
}

// way is how the programs of everyWay's test find the driver's functions.
func way(t *testing.T) string {
	_, name, _ := strings.Cut(t.Name(), "/")
	return name
}

// Modules that are loaded at the same time are charged, and refused, one by one.
func TestModulesAreChargedTogether(t *testing.T) {
	everyWay(t, gib, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		p.Want("alloc a 1M", "ok")
		m.Sim("fail", "cuModuleLoadData:3:delay=300ms")
		p.Want("loadthreads 3 384M", "ok 2 1")
		if used := uint64(m.Lease(p.PID(), 0).Used); used != 769*mib {
			t.Errorf("%d bytes are used", used)
		}
		if got := beside(m, 1); got != 768*mib {
			t.Errorf("the driver has %d bytes", got)
		}
		exactly(p, 255*mib)
	})
}

// The context's end gives back what its modules were charged with.
func TestModulesEndWithTheirContext(t *testing.T) {
	everyWay(t, gib, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		p.Want("context c", "ok")
		p.Want("load m 512M", "ok")
		charged(m, p.PID(), 512*mib)
		p.Want("destroy c", "ok")
		charged(m, p.PID(), 0)
	})
}

// Heap and buffer are asked for before the driver is, and given back when they get smaller.
func TestLimitsAreCharged(t *testing.T) {
	const buffer, heap = 1, 2
	everyWay(t, gib, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want(fmt.Sprintf("setlimit %d 3G", heap), errOutOfMemory)
		if got := p.Number(fmt.Sprintf("getlimit %d", heap)); got != 8*mib {
			t.Errorf("refused, and the heap has %d bytes", got)
		}
		p.Want(fmt.Sprintf("setlimit %d 520M", heap), "ok")
		charged(m, pid, 512*mib)
		p.Want(fmt.Sprintf("setlimit %d 514M", buffer), errOutOfMemory)
		p.Want(fmt.Sprintf("setlimit %d 257M", buffer), "ok")
		charged(m, pid, 768*mib)
		if got := beside(m, 1); got != 768*mib {
			t.Errorf("the driver has %d bytes", got)
		}
		exactly(p, 256*mib)
		p.Want(fmt.Sprintf("setlimit %d 8M", heap), "ok")
		charged(m, pid, 256*mib)
		m.Sim("fail", "cuCtxSetLimit:1:999")
		p.Want(fmt.Sprintf("setlimit %d 108M", heap), "err 999")
		m.Sim("clear")
		charged(m, pid, 256*mib)
		p.Want("context c", "ok")
		p.Want(fmt.Sprintf("setlimit %d 108M", heap), "ok")
		charged(m, pid, 356*mib)
		p.Want("destroy c", "ok")
		charged(m, pid, 256*mib)
	})
}

// What is loaded through the runtime's private table, later than its load, or grows with a launch
// is found by the device's readings, and charged to its own budget: the device's room for others
// is what it really has.
func TestWhatNoCallShowsIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		commands []string
		bytes    uint64
	}{
		"private table": {[]string{"loadtable m 3G"}, 3 * gib},
		"lazy load":     {[]string{"load m 3G", "global p m"}, 3 * gib},
		"local memory":  {[]string{"load m 0 48K", "run m"}, 3 * gib},
		"stack":         {[]string{"setlimit 0 48K"}, 3 * gib},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{NoMount: true, Devices: "8G"})
			before := start(m, "dlsym", gib) // by which the daemon knows what a context costs
			before.Want("alloc a 1M", "ok")
			rig.Eventually(t, "a context was seen", func() bool { return m.Lease(before.PID(), 0).Overhead == 64*mib })
			env := append(m.PreloadEnv(), fmt.Sprintf("GPUARB_MEMORY=%d", gib))
			if name == "lazy load" {
				env = append(env, "CUDA_MODULE_LOADING=LAZY")
			}
			p := m.Interact(m.Command(env, rig.Build(t, "programs/cudaprog-dlsym")))
			pid := p.PID()
			p.Want("alloc a 1M", "ok")
			for _, command := range c.commands {
				p.Want(command, "ok")
			}
			const rounding = 2 * mib // of the one block

			rig.Eventually(t, "it is charged", func() bool { return uint64(m.Lease(pid, 0).Excess) >= c.bytes-rounding })
			s := m.Snapshot()
			l := m.Lease(pid, 0)
			if uint64(l.Excess) > c.bytes || l.State != accounting.StateOver {
				t.Errorf("%+v", l)
			}
			p.Want("alloc b 1", errOutOfMemory)
			// By the driver's own count nobody else is promised what it has.
			if used := m.SimNumber("used", "0"); uint64(s.Devices[0].Capacity)-uint64(s.Devices[0].Committed) > 8*gib-used {
				t.Errorf("%d bytes of 8 GiB are in use, and the books have %+v", used, s.Devices[0])
			}
			if row := m.Lease(before.PID(), 0); row.Excess != 0 || row.State != accounting.StateRunning {
				t.Errorf("somebody else's row: %+v", row)
			}
		})
	}
}

// Where it would have to wait, a load is undone meanwhile: nobody waits for what he has.
func TestALoadWaits(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true,
		Config: "schema_version = 1\n[defaults]\nscope = \"user\"\nmemory.max = \"1GiB\"\non_full = \"wait\"\n"})
	other, p := start(m, "dlsym", 2*gib), start(m, "dlsym", 2*gib)
	other.Want("alloc a 700M", "ok")
	p.Want("alloc b 1M", "ok")
	p.Tell("load m 384M")
	rig.Eventually(t, "it waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	if left := beside(m, 2); left != 0 {
		t.Errorf("it waits, and has %d bytes", left)
	}
	other.Want("free a", "ok")
	p.Expect("load m ok")
	charged(m, p.PID(), 385*mib)
}
