package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that the processor is a device only for jobs that name it, and never stands in for a GPU. The
// expected messages and exit statuses are those of a machine that does not have the processor as a device.
// tests/attack/processor_test.go has budgets on the processor.

// withProcessor returns a machine on which the processor is a device, and an otherwise equal machine without it.
func withProcessor(t *testing.T, o rig.Options) (with, without *rig.Machine) {
	t.Helper()
	without = rig.New(t, o)
	folder := t.TempDir()
	write(t, filepath.Join(folder, "pocl.icd"), "libpocl.so.2\n")
	o.CPU, o.Environ = true, []string{"OCL_ICD_VENDORS=" + folder, "VK_DRIVER_FILES=/dev/null"}
	return rig.New(t, o), without
}

// processor returns the row of the processor, which must be the last of `devices` rows.
func processor(t *testing.T, m *rig.Machine, devices int) report.Device {
	t.Helper()
	r := rig.Run(t, m.Gpuarb("devices", "--json"))
	var rows []report.Device
	if err := json.Unmarshal([]byte(r.Stdout), &rows); err != nil || len(rows) != devices {
		t.Fatalf("%v, %d devices\n%s%s", err, len(rows), r.Stdout, r.Stderr)
	}
	d := rows[devices-1]
	if d.Vendor != "cpu" || d.Index != -1 || d.UUID == nil || *d.UUID != "CPU-67707561-7262-3a70-726f-636573736f72" || d.PCI != nil {
		t.Fatalf("the last device is %+v", d)
	}
	return d
}

var pidOfMessage = regexp.MustCompile(`PID \d+`)

// same runs a command on both machines, and compares stderr and the exit status, which must be code.
func same(t *testing.T, with, without *rig.Machine, code int, args ...string) {
	t.Helper()
	a, b := rig.Run(t, with.Gpuarb(args...)), rig.Run(t, without.Gpuarb(args...))
	plain := func(m *rig.Machine, text string) string {
		return pidOfMessage.ReplaceAllString(strings.ReplaceAll(text, m.Dir, "DIR"), "PID")
	}
	if a.Code != code || b.Code != code || plain(with, a.Stderr) != plain(without, b.Stderr) {
		t.Errorf("%v: %d and %d, want %d\nwith the processor: %s\nwithout: %s", args, a.Code, b.Code, code, a.Stderr, b.Stderr)
	}
}

// onProcessor starts a program on the processor, waits until the processor is shown, and returns a function that ends the program.
func onProcessor(t *testing.T, m *rig.Machine) (end func()) {
	t.Helper()
	p := m.Gpuarb("run", "--device", "cpu", "--", "cat")
	in, err := p.StdinPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the processor is shown", func() bool { return m.Processor().Vendor != "" })
	return func() {
		_ = in.Close()
		if err := rig.Wait(t, rig.Patience, p); err != nil {
			t.Error(err)
		}
	}
}

// TestProcessorIsNoGPU: a machine without a GPU has no device 0, and requests for a GPU are refused there.
func TestProcessorIsNoGPU(t *testing.T) {
	t.Parallel()
	with, without := withProcessor(t, rig.Options{Devices: "none"})
	for _, args := range [][]string{{"devices"}, {"claim"}, {"claim", "--try"}, {"claim", "--device", "0"}, {"claim", "--device", "nvidia"},
		{"claim", "--only-if-none"}, {"claim", "--exclusive"}, {"claim", "--prefer", "0"}, {"plan", "--arms", "2", "--min", "1G"}} {
		same(t, with, without, 69, args...)
	}
	for _, args := range [][]string{{"run", "--device", "any", "--", "true"}, {"run", "--device", "nvidia", "--", "true"},
		{"run", "--exclusive", "--", "true"},
		{"run", "--min", "1G", "--", "true"}, {"run", "--min", "25%", "--", "true"}, {"run", "--min", "max", "--", "true"},
		{"run", "--device", "0", "--", "true"}, {"run", "--device", "0,cpu", "--", "true"}, {"run", "--device", "64", "--", "true"}} {
		same(t, with, without, 125, args...)
	}
	for _, args := range [][]string{{"run", "--", "true"}, {"run", "--memory", "900G", "--", "true"}, {"run", "--min", "0", "--", "true"},
		{"run", "--no-wait", "--", "true"}, {"ps"}, {"queue"}} {
		same(t, with, without, 0, args...)
	}
	if r := rig.Run(t, with.Gpuarb("doctor")); !strings.Contains(r.Stdout, "the daemon knows no GPU on this machine") ||
		strings.Contains(r.Stdout, "the processor (") {
		t.Errorf("doctor:\n%s", r.Stdout)
	}
	end := onProcessor(t, with)
	processor(t, with, 1)
	if r := rig.Run(t, with.Gpuarb("doctor")); !strings.Contains(r.Stdout, "the processor (") {
		t.Errorf("doctor:\n%s", r.Stdout)
	}
	for _, args := range [][]string{{"run", "--device", "any", "--", "true"}, {"run", "--device", "0", "--", "true"}, {"run", "--min", "1G", "--", "true"}} {
		same(t, with, without, 125, args...)
	}
	end()
	rig.Eventually(t, "the processor is not shown", func() bool { return len(with.Snapshot().Devices) == 0 })
	if r := rig.Run(t, with.Gpuarb("claim", "--device", "cpu")); r.Code != 69 || !strings.Contains(r.Stderr, "knows no GPU") {
		t.Errorf("claim --device cpu: %d %s", r.Code, r.Stderr)
	}
	if r := rig.Run(t, without.Gpuarb("run", "--device", "cpu", "--", "true")); r.Code != 125 || !strings.Contains(r.Stderr, "neither PoCL") {
		t.Errorf("run --device cpu without one: %d %s", r.Code, r.Stderr)
	}
	if r := rig.Run(t, with.Gpuarb("run", "--device", "cpu", "--memory", "1M", "--min", "1M", "--exclusive", "--", "sh", "-c", "exit 3")); r.Code != 3 {
		t.Errorf("run --device cpu: %d %s", r.Code, r.Stderr)
	}
}

// TestProcessorAfterGPUs: the processor is listed after the GPUs, is shared like them, and is given only to jobs that name it.
func TestProcessorAfterGPUs(t *testing.T) {
	t.Parallel()
	m, without := withProcessor(t, rig.Options{Devices: "1G,2G"})
	if _, err := os.Stat(filepath.Join(m.Mount, "devices/cpu")); err == nil || len(m.Snapshot().Devices) != 2 {
		t.Error("the processor is shown, and nothing uses it")
	}
	defer onProcessor(t, m)()
	name := processor(t, m, 3).Name
	for file, want := range map[string]string{"vendor": "cpu", "uuid": "CPU-67707561-7262-3a70-726f-636573736f72", "memory.current": "0", "name": name} {
		if got := strings.TrimSpace(m.Read("devices/cpu/" + file)); got != want {
			t.Errorf("devices/cpu/%s is %q", file, got)
		}
	}
	if _, err := os.Stat(filepath.Join(without.Mount, "devices/cpu")); err == nil {
		t.Error("a machine without it has it")
	}
	for _, c := range []struct {
		code int
		text string
		args []string
	}{
		{69, "there is no device", []string{"claim", "--device", "2"}},
		{69, "the processor is no GPU", []string{"claim", "--device", "CPU-6770"}},
		{69, "the processor is no GPU", []string{"claim", "--device", "0,cpu"}},
		{69, "the processor is no GPU", []string{"claim", "--prefer", "cpu"}},
		{0, "", []string{"run", "--memory", "1G", "--", "sh", "-c", "test -z ${CUDA_VISIBLE_DEVICES+x}"}},
		{0, "", []string{"run", "--device", "cpu", "--", "sh", "-c", `test "$CUDA_VISIBLE_DEVICES" = "" && test -n "${CUDA_VISIBLE_DEVICES+x}"`}},
		{125, "there is no device", []string{"run", "--device", "2", "--", "true"}},
		{125, "more than device 1", []string{"run", "--memory", "3G", "--", "true"}}, // although the processor has that much
	} {
		if r := rig.Run(t, m.Gpuarb(c.args...)); r.Code != c.code || !strings.Contains(r.Stderr, c.text) {
			t.Errorf("%v: %d, want %d: %s", c.args, r.Code, c.code, r.Stderr)
		}
	}
	taken := fmt.Sprintf(`set -e; g=%s; $g claim --index --for $$; $g claim --index --for $$; s=0; $g claim --try --index --for $$ || s=$?; echo $s`, rig.Build(t, "gpuarb"))
	env := append(m.Env(), "GPUARB_SOCKET="+m.Socket)
	if r := rig.Run(t, m.Command(env, "sh", "-c", taken)); !strings.HasSuffix(r.Stdout, "75\n") || strings.Contains(r.Stdout, "2\n") {
		t.Errorf("three claims: %q %s", r.Stdout, r.Stderr)
	}
}

// TestProcessorsMemory: the processor has the machine's memory, or what the configuration says. A reload can change it.
func TestProcessorsMemory(t *testing.T) {
	t.Parallel()
	config := func(memory string) string {
		return "schema_version = 1\n[[device]]\nmatch.vendor = \"cpu\"\nmemory = \"" + memory + "\"\n"
	}
	m, _ := withProcessor(t, rig.Options{Devices: "1G", Config: config("3GiB"), NoMount: true})
	if d := processor(t, m, 2); d.Total != 3<<30 {
		t.Errorf("it has %d", d.Total)
	}
	write(t, filepath.Join(m.Dir, "gpuarb.toml"), config("4GiB"))
	if err := unix.Kill(m.DaemonPID(), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the processor has the configured memory", func() bool { return processor(t, m, 2).Total == 4<<30 })
}
