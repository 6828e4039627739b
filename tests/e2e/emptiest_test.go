package e2e

import (
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold which device `gpuarb run --device emptiest` chooses. The driver's own count says where the programs
// have their memory.

// TestEmptiestIsTheOneWithRoom: a program runs on the device with the most memory that would be granted: unmanaged memory,
// reservations and what others hold are not.
func TestEmptiestIsTheOneWithRoom(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G,8G,8G", NoMount: true})
	prog := rig.Build(t, "programs/cudaprog-dlsym")
	first := m.Interact(m.Command(m.PreloadEnv(), prog)) // on GPU 0, the first that CUDA shows
	first.Want("alloc a 4G", "ok")
	reserves := m.Interact(m.Gpuarb("run", "--device", "1", "--min", "3G", "--", prog))
	reserves.Want("alloc a 1G", "ok")
	p := m.Interact(m.Gpuarb("run", "--device", "emptiest", "--", prog))
	p.Want("alloc b 1G", "ok")
	if at := m.SimNumber("total", "2"); at != 1<<30 {
		t.Errorf("the driver has %d bytes on GPU 2, and %s", at, m.Sim("total", "1"))
	}
	q := m.Interact(m.Gpuarb("run", "--device", "emptiest", "--", prog))
	q.Want("alloc c 3G", "ok") // GPU 2 is shared: 7 GiB less a context are free there, and 5 on GPU 1
	if at := m.SimNumber("total", "2"); at != 4<<30 {
		t.Errorf("the driver has %d bytes on GPU 2", at)
	}
	r := rig.Run(t, m.Gpuarb("run", "--device", "emptiest", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"))
	if want := m.Snapshot().Devices[1].UUID; strings.TrimSpace(r.Stdout) != want {
		t.Errorf("then %s, want %s", r.Stdout, want)
	}
}

// TestRunsThatStartTogetherSpread: ten runs that have not allocated anything yet are spread evenly over the devices, with
// and without a budget.
func TestRunsThatStartTogetherSpread(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{{"--memory", "1G"}, {}} {
		m := rig.New(t, rig.Options{Devices: "16G,16G", NoMount: true})
		var ten []*rig.Program
		for range 10 { // no one is waited for: they start together
			ten = append(ten, m.Begin(m.Gpuarb(append(append([]string{"run", "--device", "emptiest"}, flags...), "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; read x")...)))
		}
		on := map[string]int{}
		for _, p := range ten {
			on[p.Line()]++
		}
		for _, d := range m.Snapshot().Devices {
			if on[d.UUID] != 5 {
				t.Errorf("%v: runs by device: %v", flags, on)
			}
		}
	}
}

// TestEmptiestBesideARunWithoutABudget: a run without a budget has been given the empty device, and has allocated nothing. The next run
// is given that device too, and not the other one, which is nearly full.
func TestEmptiestBesideARunWithoutABudget(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "16G,16G", NoMount: true})
	full := m.Interact(m.Gpuarb("run", "--device", "1", "--", rig.Build(t, "programs/cudaprog-dlsym")))
	full.Want("alloc a 14G", "ok")
	for i := range 6 {
		p := m.Begin(m.Gpuarb("run", "--device", "emptiest", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; read x"))
		if got, want := p.Line(), m.Snapshot().Devices[0].UUID; got != want {
			t.Errorf("run %d is given %s, want %s", i, got, want)
		}
	}
	full.End()
}

// TestEmptiestAndOtherFlags: flags that ask for a device alone contradict it, and the devices that the environment and the
// rule leave are those among which it chooses.
func TestEmptiestAndOtherFlags(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G,16G,16G", NoMount: true, Config: "schema_version = 1\n[defaults]\ndevices = [0, 1]\n"})
	for flags, want := range map[string]string{"run --exclusive": "--device any", "claim": "--device any", "run --prefer 0": "--prefer"} {
		args := append(strings.Fields(flags), "--device", "emptiest")
		if strings.HasPrefix(flags, "run") {
			args = append(args, "--", "true")
		}
		if r := rig.Run(t, m.Gpuarb(args...)); r.Code == 0 || !strings.Contains(r.Stderr, want) {
			t.Errorf("%s: %d, %s", flags, r.Code, r.Stderr)
		}
	}
	uuids := m.Snapshot().Devices
	for environment, want := range map[string]int{"X=": 1, "CUDA_VISIBLE_DEVICES=0": 0, "CUDA_VISIBLE_DEVICES=1,0": 1} {
		bounded.Until(t, "the run before has ended", func() bool { return len(m.Snapshot().Jobs) == 0 })
		cmd := m.Gpuarb("run", "--device", "emptiest", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
		cmd.Env = append(cmd.Env, environment)
		if r := rig.Run(t, cmd); strings.TrimSpace(r.Stdout) != uuids[want].UUID {
			t.Errorf("%s: %s%s, want GPU %d", environment, r.Stdout, r.Stderr, want)
		}
	}
}
