package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that a limit which is written to a file in /gpu or set by `gpuarb limit` is in force at once and
// after a restart, and that an invalid one changes nothing. whoselimit_test.go has the limits that users set
// themselves.

// limitsMachine returns a machine with a program under `gpuarb run`, which is job 1, and a program under the bare preload.
func limitsMachine(t *testing.T) (m *rig.Machine, run, bare *rig.Program) {
	t.Helper()
	m = rig.New(t, rig.Options{Devices: "8G"})
	run = m.Interact(m.Gpuarb("run", "--memory", "64M", "--", cudaprog(t, "dlsym")))
	run.Want("alloc a 8M", "ok")
	bare = m.Interact(m.Command(m.PreloadEnv(), cudaprog(t, "dlsym")))
	bare.Want("alloc a 8M", "ok")
	return m, run, bare
}

func set(m *rig.Machine, name, value string) error {
	return os.WriteFile(filepath.Join(m.Mount, name), []byte(value+"\n"), 0)
}

// TestLimitsChangedLive: a limit that is written to the filesystem or set by gpuarb limit is
// in force at once, and still in force after the daemon was killed.
func TestLimitsChangedLive(t *testing.T) {
	t.Parallel()
	m, run, bare := limitsMachine(t)
	runPID, barePID := run.PID(), bare.PID()
	for _, c := range []struct{ name, value string }{
		{fmt.Sprintf("processes/%d/memory.max", barePID), "16M"},
		{fmt.Sprintf("processes/%d/streams.max", runPID), "2"},
		{"jobs/1/memory.max", "40M"},
		{"jobs/1/memory.min", "24M"},
		{"devices/0/slots.max", "3"},
		{fmt.Sprintf("processes/%d/devices/0/memory.max", barePID), "12M"},
	} {
		if err := set(m, c.name, c.value); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if r := rig.Run(t, m.Gpuarb("limit", "--job", "1", "memory.max=32M")); r.Code != 0 {
		t.Errorf("gpuarb limit: %d, %s", r.Code, r.Stderr)
	}
	for _, when := range []string{"at once", "after a restart"} {
		for name, want := range map[string]string{
			fmt.Sprintf("processes/%d/memory.max", barePID): "12582912", "jobs/1/memory.max": "33554432",
			"jobs/1/memory.min": "25165824", "devices/0/slots.max": "3",
			fmt.Sprintf("processes/%d/streams.max", runPID): "2",
		} {
			if got := strings.TrimSpace(m.Read(name)); got != want {
				t.Errorf("%s, %s is %s, want %s", when, name, got, want)
			}
		}
		run.Want("alloc b 24M", "ok")
		run.Want("alloc c 1", "err 2")
		run.Want("free b", "ok")
		bare.Want("alloc b 4M", "ok")
		bare.Want("alloc c 1", "err 2")
		bare.Want("free b", "ok")
		if when == "at once" {
			m.Kill()
			m.Start()
		}
	}
	if n := strings.Count(m.Log(), "root changed slots.max of GPU 0"); n != 1 {
		t.Errorf("one change of slots.max was told %d times", n)
	}
	run.End()
	bare.End()
}

// TestLimitsRefused: an invalid limit, or a reservation that does not fit, is refused with a message and changes nothing.
func TestLimitsRefused(t *testing.T) {
	t.Parallel()
	m, run, bare := limitsMachine(t)
	for _, c := range []struct{ name, value, want string }{
		{"jobs/1/memory.min", "65M", "invalid argument"},
		{"jobs/1/memory.max", "lots", "invalid argument"},
		{"jobs/1/streams.max", "0", "invalid argument"},
		{"devices/0/slots.max", "-1", "invalid argument"},
		{fmt.Sprintf("processes/%d/memory.min", bare.PID()), "8G", "no space left on device"},
	} {
		was := m.Read(c.name)
		if err := set(m, c.name, c.value); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s > %s: %v, want %s", c.value, c.name, err, c.want)
		}
		if is := m.Read(c.name); is != was {
			t.Errorf("%s was %s and is %s", c.name, was, is)
		}
	}
	for args, want := range map[string]string{
		"--job 99 memory.max=1G":              "there is no job 99 (any more); `gpuarb jobs` lists them",
		"1 memory.max=1G":                     "process 1 does not use gpuarb (any more); `gpuarb ps` lists those that do",
		"--job 1 memory.min=65M":              "memory.min",
		"--device 7 slots.max=1":              "no device",
		"--job 1 memory.min=8G memory.max=8G": "memory.min",
	} {
		r := rig.Run(t, m.Gpuarb(append([]string{"limit"}, strings.Fields(args)...)...))
		if r.Code == 0 || !strings.Contains(r.Stderr, want) {
			t.Errorf("limit %s: %d, %q, want %q", args, r.Code, r.Stderr, want)
		}
	}
	run.End()
	bare.End()
}
