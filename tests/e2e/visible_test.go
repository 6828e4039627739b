package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that the memory.min of a rule is reserved on the devices that the environment of a program shows, and
// on no other. The oracle is another program: it gets all that is not reserved on a device.

// reservedOn returns the devices with a reservation.
func reservedOn(m *rig.Machine) (on []int) {
	for _, d := range m.Snapshot().Devices {
		if d.Reserved > 0 {
			on = append(on, d.Index)
		}
	}
	return on
}

// TestReservedWhereTheEnvironmentShows: for each scope of a rule, under `gpuarb run` and with a bare preload, memory.min is
// reserved on the visible devices alone, and still after a restart.
func TestReservedWhereTheEnvironmentShows(t *testing.T) {
	t.Parallel()
	prog := rig.Build(t, "programs/cudaprog-dlsym")
	for _, scope := range []string{"job", "process", "user", "rule"} {
		t.Run(scope, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: "8G,8G,8G", NoMount: true, Config: fmt.Sprintf(
				"schema_version = 1\n[[rule]]\nmatch.user = %q\nscope = %q\nmemory.min = \"2G\"\n", rig.User(), scope)})
			uuids := m.Snapshot().Devices
			for _, c := range []struct {
				visible string
				want    []int
			}{
				{"1", []int{1}}, {"2,1", []int{1, 2}}, {uuids[2].UUID, []int{2}}, {uuids[0].UUID + ",junk,1", []int{0}}, {"", nil}, {"unset", []int{0, 1, 2}},
			} {
				for _, run := range []bool{true, false} {
					cmd := m.Command(m.PreloadEnv(), prog, "--context", "none")
					if run {
						cmd = m.Gpuarb("run", "--", prog, "--context", "none")
					}
					if c.visible != "unset" {
						cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES="+c.visible)
					}
					p := m.Begin(cmd)
					p.Line() // "ready", or the error of cuInit without a device
					if len(c.want) > 0 {
						p.Ask("context c") // the session begins with the first call
					}
					if got := reservedOn(m); fmt.Sprint(got) != fmt.Sprint(c.want) {
						t.Errorf("CUDA_VISIBLE_DEVICES=%s, run %v: reserved on %v, want %v", c.visible, run, got, c.want)
					}
					if c.visible == "1" {
						m.Kill()
						m.Start()
						rig.Eventually(t, "the reservation is as before", func() bool { return fmt.Sprint(reservedOn(m)) == "[1]" })
					}
					p.CloseStdin()
					p.Wait()
					rig.Eventually(t, "nothing is reserved any more", func() bool { return len(reservedOn(m)) == 0 })
				}
			}
		})
	}
}

// TestSharedReservationFollowsItsPrograms: a reservation that programs share is on each device that one of them sees.
func TestSharedReservationFollowsItsPrograms(t *testing.T) {
	t.Parallel()
	prog := rig.Build(t, "programs/cudaprog-dlsym")
	m := rig.New(t, rig.Options{Devices: "8G,8G,8G", NoMount: true, Config: "schema_version = 1\n[[rule]]\nscope = \"rule\"\nmemory.min = \"6G\"\nmatch.exe = \"cudaprog-dlsym\"\n"})
	begin := func(visible string) *rig.Program {
		return m.Interact(m.Command(append(m.PreloadEnv(), "CUDA_VISIBLE_DEVICES="+visible), prog))
	}
	one := begin("1")
	two := begin("2")
	if got := reservedOn(m); fmt.Sprint(got) != "[1 2]" {
		t.Errorf("reserved on %v", got)
	}
	other := rig.Build(t, "programs/cudaprog-link") // another program gets what is not reserved, and no more
	r := rig.Run(t, m.Command(append(m.PreloadEnv(), "CUDA_VISIBLE_DEVICES=0"), other, "alloc a 5G"))
	r2 := rig.Run(t, m.Command(append(m.PreloadEnv(), "CUDA_VISIBLE_DEVICES=2"), other, "alloc a 5G"))
	if !strings.Contains(r.Stdout, "alloc a ok") || !strings.Contains(r2.Stdout, "alloc a err") {
		t.Errorf("on GPU 0: %s%s; on GPU 2: %s%s", r.Stdout, r.Stderr, r2.Stdout, r2.Stderr)
	}
	two.End()
	rig.Eventually(t, "GPU 2 is free again", func() bool { return fmt.Sprint(reservedOn(m)) == "[1]" })
	one.End()
}

// TestNarrowerThanTheRulesDevices: where the environment shows some of a rule's devices, `gpuarb run` keeps to these; where it
// shows none of them, the program gets the rule's.
func TestNarrowerThanTheRulesDevices(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G,8G,8G", NoMount: true, Config: "schema_version = 1\n[defaults]\ndevices = [0, 1]\n"})
	devices := m.Snapshot().Devices
	names := func(of ...int) string {
		var all []string
		for _, i := range of {
			all = append(all, devices[i].UUID)
		}
		return strings.Join(all, ",")
	}
	for visible, want := range map[string]string{"1": names(1), "1,2": names(1), "2": names(0, 1), "0,1,2": names(0, 1)} {
		cmd := m.Gpuarb("run", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
		cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES="+visible)
		if r := rig.Run(t, cmd); strings.TrimSpace(r.Stdout) != want {
			t.Errorf("CUDA_VISIBLE_DEVICES=%s: %s%s, want %s", visible, r.Stdout, r.Stderr, want)
		}
	}
}

// TestHiddenDeviceIsUsed: a program that uses a device that its environment hid at its start has its reservation there from
// then on, if there is room, and takes nothing from the reservations of others.
func TestHiddenDeviceIsUsed(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G,8G,8G,8G", NoMount: true, Config: "schema_version = 1\n[[rule]]\nmatch.exe = \"cudaprog-dlsym\"\nmemory.min = \"6G\"\n"})
	prog := rig.Build(t, "programs/cudaprog-dlsym")
	honest := m.Interact(m.Command(append(m.PreloadEnv(), "CUDA_VISIBLE_DEVICES=2"), prog))
	other := func(started, device string) *rig.Program { // it chooses another device itself, as a script may
		return m.Interact(m.Command(append(m.PreloadEnv(), "CUDA_VISIBLE_DEVICES="+started), prog, "--visible", device))
	}
	free := other("0", "1")
	if got := reservedOn(m); fmt.Sprint(got) != "[0 1 2]" {
		t.Errorf("reserved on %v", got)
	}
	full := other("3", "2") // there is no room for a second reservation
	full.Want("alloc a 3G", "err 2")
	honest.Want("alloc a 6G", "ok")
	free.Want("alloc a 6G", "ok")
	for _, d := range m.Snapshot().Devices {
		if d.Committed > d.Capacity {
			t.Errorf("more is promised on GPU %d than there is: %+v", d.Index, d)
		}
	}
}
