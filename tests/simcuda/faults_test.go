package simcuda

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// This file shows that failures ordered by SIMCUDA_FAIL or `simcuda fail`, lost devices and other settings have
// the effect that README.md promises. programs_test.go has the driver without faults.

func TestFaults(t *testing.T) {
	m := newMachine(t, "SIMCUDA_FAIL=cuMemAlloc_v2:3:2,cuMemAlloc*:5-6:999")
	h := m.hold("1", "1")
	for i, want := range []string{"2", "0", "999", "999", "0"} {
		if got := h.ask("alloc 1"); got != want {
			t.Errorf("call %d says %s, not %s", i+3, got, want)
		}
	}
	m.wantTotal(4)
	m.sim("clear")
	m.sim("fail", "cuMemAlloc_v2:*/2:46:process")
	for i, want := range []string{"0", "46", "0", "46"} {
		if got := h.ask("alloc 1"); got != want {
			t.Errorf("call %d says %s, not %s", i+1, got, want)
		}
	}
	other := m.hold("1") // the first call of this process
	if got := other.ask("alloc 1"); got != "46" {
		t.Errorf("the other's second call says %s, not 46", got)
	}
}

func TestFaultKills(t *testing.T) {
	m := newMachine(t, "SIMCUDA_FAIL=cuMemAlloc_v2:2:kill")
	err := m.command(built(t, "test/hold"), "1", "1").Run()
	exit, ok := err.(*exec.ExitError)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("it ends with %v", err)
	}
	m.wantTotal(0)
}

func TestLostDevice(t *testing.T) {
	m := newMachine(t, "SIMCUDA_LOST_CODE=46")
	h := m.hold("1")
	m.sim("lose", "0")
	if got := h.ask("alloc 1"); got != "46" {
		t.Errorf("alloc says %s", got)
	}
	m.sim("restore", "0")
	if got := h.ask("alloc 1"); got != "46" {
		t.Errorf("a context outlived its device: alloc says %s", got)
	}
	m.wantTotal(0)
	again := m.hold("1")
	m.wantTotal(1)
	h.kill()
	m.wantTotal(1)
	again.kill()
	m.wantTotal(0)
}

func TestNonsenseIsRefused(t *testing.T) {
	for _, v := range []string{
		"SIMCUDA_DEVICES=8X", "SIMCUDA_DEVICES=", "SIMCUDA_CONTEXT_BYTES=-1", "SIMCUDA_FAIL=cuInit",
		"SIMCUDA_FAIL=cuInit:0:1", "SIMCUDA_STREAM_DELAY_US=1h",
	} {
		m := newMachine(t, v)
		cmd := m.command(built(t, "simcuda"), "init")
		cmd.Stderr = nil
		if err := cmd.Run(); (err == nil) != strings.HasSuffix(v, "=") {
			t.Errorf("%s: %v", v, err)
		}
	}
}

func TestDevices(t *testing.T) {
	m := newMachine(t, "SIMCUDA_DEVICES=none")
	cmd := m.command(built(t, "test/hold"))
	cmd.Stderr = nil
	if err := cmd.Run(); err == nil {
		t.Error("a program runs without a device")
	}
	for visible, want := range map[string]string{
		"1": " 1 77 ", "1,0": " 1 77 ", "GPU-513cda02": " 1 77 ", "0": " 0 77 ",
	} {
		m := newMachine(t, "SIMCUDA_DEVICES=1G,2G", "CUDA_VISIBLE_DEVICES="+visible)
		m.hold("77")
		if held := m.sim("held"); !strings.Contains(held, want) {
			t.Errorf("with %s visible: held %q", visible, held)
		}
	}
}

// Depending on the machine's configuration a handle is used again at once, or never.
func TestHandlesAgain(t *testing.T) {
	t.Parallel()
	program := filepath.Join(filepath.Dir(built(t, "libcuda.so.1")), "..", "programs", "cudaprog-dlsym")
	for reuse, again := range map[string]bool{"0": false, "1": true} {
		m := newMachine(t, "SIMCUDA_REUSE_HANDLES="+reuse)
		out, err := m.command(program, "stream a;value a;streamdestroy a;stream b;value b;streamdestroy b;streamdestroy b").Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		values := regexp.MustCompile(`value \w ok (\d+)`).FindAllStringSubmatch(string(out), -1)
		if len(values) != 2 || (values[0][1] == values[1][1]) != again {
			t.Errorf("reuse %s: %s", reuse, out)
		}
		if !strings.HasSuffix(string(out), "streamdestroy b err 400\n") {
			t.Errorf("reuse %s: %s", reuse, out)
		}
	}
}
