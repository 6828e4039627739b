package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
	"golang.org/x/sys/unix"
)

// These tests hold that programs use and reserve only the devices that their rule lists (the key devices), under
// `gpuarb run` and with a bare preload, over restarts of the daemon and reloads of the configuration.

// rulesOf returns a configuration with one rule for the programs of a user.
func rulesOf(uid, keys string) string {
	return "schema_version = 1\n[[rule]]\nname = \"lab\"\nmatch.user = \"" + uid + "\"\n" + keys
}

// reload replaces the machine's configuration, and waits until the daemon has put it in force.
func reload(t *testing.T, m *rig.Machine, config string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.Dir, "gpuarb.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	before := strings.Count(m.Log(), "configuration")
	if err := unix.Kill(m.DaemonPID(), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the configuration is in force", func() bool { return strings.Count(m.Log(), "configuration") > before })
}

// TestRunShowsTheRulesDevices: `gpuarb run` lets a program see the devices of its rule alone, and the memory.min of the rule
// is reserved there alone. The driver counts which device has the memory.
func TestRunShowsTheRulesDevices(t *testing.T) {
	t.Parallel()
	for _, list := range []string{"[1]", ""} {
		m := rig.New(t, rig.Options{Devices: "8G,8G,8G", NoMount: true, Stopped: true})
		if list == "" { // by UUID; the daemon tells which
			m.Start()
			list = `["` + m.Snapshot().Devices[1].UUID + `"]`
			m.Stop()
		}
		config := rulesOf("root", "devices = "+list+"\nmemory.min = \"1G\"\n")
		if err := os.WriteFile(filepath.Join(m.Dir, "gpuarb.toml"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		m = rig.New(t, rig.Options{Devices: "8G,8G,8G", NoMount: true, Config: config})
		p := m.Interact(m.Gpuarb("run", "--", rig.Build(t, "programs/cudaprog-dlsym")))
		p.Want("alloc a 64M", "ok")
		if on := m.SimNumber("total", "1"); on != 64<<20 {
			t.Errorf("%s: the driver has %d bytes on GPU 1", list, on)
		}
		for i, want := range []bool{false, true, false} {
			if got := m.Snapshot().Devices[i].Reserved > 0; got != want {
				t.Errorf("%s: GPU %d has a reservation: %v, want %v", list, i, got, want)
			}
		}
		m.Kill()
		m.Start()
		p.Want("alloc b 64M", "ok")
		if s := m.Snapshot(); s.Devices[0].Reserved != 0 || s.Devices[1].Reserved == 0 {
			t.Errorf("%s: after a restart: %+v", list, s.Devices)
		}
		p.End()
	}
}

// TestBarePreloadElsewhere: a program with the library alone is refused a context on a device that its rule does not list.
// The message names the rule, and the variable with which the program then runs.
func TestBarePreloadElsewhere(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G,8G", NoMount: true, Config: rulesOf("root", "devices = [1]\n")})
	prog := rig.Build(t, "programs/cudaprog-dlsym")
	r := rig.Run(t, m.Command(m.PreloadEnv(), prog, "alloc a 64M"))
	uuid := m.Snapshot().Devices[1].UUID
	set := "CUDA_VISIBLE_DEVICES=" + uuid
	if strings.Contains(r.Stdout, "ready") || m.SimNumber("total", "0") != 0 {
		t.Errorf("on GPU 0: %s", r.Stdout)
	}
	for _, want := range []string{"GPU 0", "rule lab", "GPU 1", set} {
		if !strings.Contains(r.Stderr, want) {
			t.Errorf("the message lacks %q: %s", want, r.Stderr)
		}
	}
	if n := strings.Count(r.Stderr, "\n"); n != 1 {
		t.Errorf("%d lines: %s", n, r.Stderr)
	}
	p := m.Interact(m.Command(append(m.PreloadEnv(), set), prog))
	p.Want("alloc a 64M", "ok")
	if on := m.SimNumber("total", "1"); on != 64<<20 {
		t.Errorf("the driver has %d bytes on GPU 1", on)
	}
	p.End()
}

// TestTheAdviceElsewhereWorks: the message to a program on a device that its rule does not list gives advice that works: the program
// does what it says, and runs on the rule's device. If none of the rule's devices is here, it says who can change that. `gpuarb run`
// is not advised if it would be under another rule.
func TestTheAdviceElsewhereWorks(t *testing.T) {
	t.Parallel()
	const several = "8G,8G,8G,8G,8G,8G"
	for _, c := range []struct{ name, devices, config, says string }{
		{"one", "8G,8G", "match.user = \"root\"\ndevices = [1]\n", "or start the program with `gpuarb run`"},
		{"one, by its program", "8G,8G", "match.exe = \"cudaprog*\"\ndevices = [1]\n", "(`gpuarb run` itself is not under this rule)"},
		{"several", several, "match.user = \"root\"\ndevices = [1, 2, 3, 4, 5]\n", "; start the program with `gpuarb run`"},
		{"several, by its program", several, "match.command = \"*cudaprog*\"\ndevices = [1, 2, 3, 4, 5]\n", "to the UUIDs of those"},
		{"none here", "8G,8G", "match.user = \"root\"\ndevices = [7]\n", "none of them is here: the administrator must change `devices` of rule lab"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: c.devices, NoMount: true, Config: "schema_version = 1\n[[rule]]\nname = \"lab\"\n" + c.config})
			prog := rig.Build(t, "programs/cudaprog-dlsym")
			r := rig.Run(t, m.Command(m.PreloadEnv(), prog, "alloc a 64M"))
			if !strings.Contains(r.Stderr, c.says) || strings.Contains(r.Stdout, "ready") {
				t.Errorf("it says %q, not %q", r.Stderr, c.says)
			}
			advisesRun := strings.Contains(r.Stderr, "start the program with `gpuarb run`")
			if advisesRun == (strings.Contains(c.name, "program") || c.name == "none here") {
				t.Errorf("it says %q", r.Stderr)
			}
			if advisesRun {
				if r := rig.Run(t, m.Gpuarb("run", "--", prog, "alloc a 64M")); r.Code != 0 || m.SimNumber("peak", "1") < 64<<20 {
					t.Errorf("under gpuarb run: %d, %s", r.Code, r.Stderr)
				}
			}
			set := "CUDA_VISIBLE_DEVICES=" + m.Snapshot().Devices[1].UUID
			if c.name != "none here" {
				if r := rig.Run(t, m.Command(append(m.PreloadEnv(), set), prog, "alloc a 64M")); r.Code != 0 {
					t.Errorf("with %s: %d, %s", set, r.Code, r.Stderr)
				}
			}
		})
	}
}

// TestReloadOfTheRulesDevices: a program that uses a device goes on there after a reload has taken the device from its
// rule. Another one is refused there, until a reload gives the device back.
func TestReloadOfTheRulesDevices(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G,8G", NoMount: true, Config: rulesOf("root", "devices = [0]\nmemory.min = \"1G\"\n")})
	prog := rig.Build(t, "programs/cudaprog-dlsym")
	there := m.Interact(m.Command(m.PreloadEnv(), prog))
	there.Want("alloc a 64M", "ok")
	reload(t, m, rulesOf("root", "devices = [1]\nmemory.min = \"1G\"\n"))
	there.Want("alloc b 64M", "ok")
	if s := m.Snapshot(); s.Devices[0].Reserved != 0 || s.Devices[1].Reserved == 0 {
		t.Errorf("reservations after the reload: %d and %d", s.Devices[0].Reserved, s.Devices[1].Reserved)
	}
	if r := rig.Run(t, m.Command(m.PreloadEnv(), prog, "alloc a 64M")); strings.Contains(r.Stdout, "ready") {
		t.Errorf("a new program on GPU 0: %s", r.Stdout)
	}
	m.Kill() // the program was there before: it stays, with the next daemon too
	m.Start()
	there.Want("alloc c 64M", "ok")
	reload(t, m, rulesOf("root", "devices = [0, 1]\n"))
	if r := rig.Run(t, m.Command(m.PreloadEnv(), prog, "alloc a 64M")); !strings.Contains(r.Stdout, "alloc a ok") {
		t.Errorf("after GPU 0 is allowed again: %s%s", r.Stdout, r.Stderr)
	}
	there.End()
}

// TestDevicesThatTheRuleLacks: a user's request for a device that the rule does not list is refused, with the rule's name
// and the devices that it has; any device means any of the rule's. Root may name any device.
func TestDevicesThatTheRuleLacks(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G,8G", NoMount: true, Config: "schema_version = 1\n[defaults]\ndevices = [1]\n"})
	user := m.OtherUser(anybody)
	prog := user.Program("cudaprog-dlsym")
	run := func(args ...string) rig.Result {
		return rig.Run(t, user.Command(append(m.Env(), "GPUARB_SOCKET="+m.Socket), user.Program("gpuarb"), append(append([]string{"run"}, args...), "--", prog, "alloc a 1M")...))
	}
	if r := run("--device", "0"); r.Code != 125 || !strings.Contains(r.Stderr, "GPU 0 is not among the devices of the defaults, which are: GPU 1") {
		t.Errorf("--device 0: %d, %s", r.Code, r.Stderr)
	}
	for _, args := range [][]string{{"--device", "any"}, {"--device", "1"}, {"--exclusive"}, {}} {
		if r := run(args...); r.Code != 0 || !strings.Contains(r.Stdout, "alloc a ok") {
			t.Errorf("%v: %d, %s%s", args, r.Code, r.Stdout, r.Stderr)
		}
	}
	if used := m.SimNumber("peak", "0"); used != 0 {
		t.Errorf("GPU 0 had %d bytes", used)
	}
	if r := rig.Run(t, m.Gpuarb("run", "--device", "0", "--", rig.Build(t, "programs/cudaprog-dlsym"), "alloc a 1M")); r.Code != 0 || m.SimNumber("peak", "0") == 0 {
		t.Errorf("root on GPU 0: %d, %s%s", r.Code, r.Stdout, r.Stderr)
	}
}
