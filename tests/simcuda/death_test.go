package simcuda

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file shows when the memory of a process that dies, forks or execs returns to the simulated device, and
// that kills at any moment leave the shared state sound. The expected bytes are the sizes that the test program
// hold was told to take.

func TestMemoryReturnsOnDeath(t *testing.T) {
	m := newMachine(t)
	h := m.hold("1000", "3221225472")
	m.wantTotal(3221226472)
	h.kill()
	m.wantTotal(0)
}

// A zombie holds no memory, although its PID and start time still exist.
func TestMemoryReturnsBeforeTheParentWaits(t *testing.T) {
	m := newMachine(t)
	h := m.hold("1000")
	if err := h.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	m.awaitTotal(0)
	h.Wait()
}

func TestForkedChildKeepsMemory(t *testing.T) {
	m := newMachine(t)
	h := m.hold("1000")
	child, err := strconv.Atoi(h.ask("fork"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(child, syscall.SIGKILL) })
	m.wantTotal(1000)
	h.kill()
	m.wantTotal(1000)
	if held := m.sim("held"); !strings.HasPrefix(held, fmt.Sprint(h.Process.Pid, " ")) {
		t.Errorf("held by %q, not by the dead parent %d", held, h.Process.Pid)
	}
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	m.awaitTotal(0)
}

func TestExecGivesMemoryBack(t *testing.T) {
	m := newMachine(t)
	h := m.hold("1000")
	if got := h.ask("exec"); got != "ok" {
		t.Fatal(got)
	}
	if got := h.ask("now I am cat"); got != "now I am cat" {
		t.Fatal(got)
	}
	m.wantTotal(0)
}

func TestClosedDescriptorsKeepMemory(t *testing.T) {
	m := newMachine(t)
	h := m.hold("1000")
	if got := h.ask("close"); got != "ok" {
		t.Fatal(got)
	}
	m.wantTotal(1000)
	if got := h.ask("alloc 24"); got != "0" {
		t.Fatalf("alloc says %s", got)
	}
	m.wantTotal(1024)
	h.kill()
	m.wantTotal(0)
}

func TestLateRelease(t *testing.T) {
	m := newMachine(t, "SIMCUDA_RELEASE_DELAY_MS=-1", "SIMCUDA_DEVICES=1G", "SIMCUDA_CONTEXT_BYTES=0")
	m.hold("1000000000").kill()
	m.wantTotal(1000000000)
	other := m.hold()
	if got := other.ask("alloc 1000000000"); got != "2" {
		t.Errorf("alloc says %s, not 2", got)
	}
	m.sim("release")
	m.wantTotal(0)
	if got := other.ask("alloc 1000000000"); got != "0" {
		t.Errorf("alloc says %s, not 0", got)
	}
}

// The oracle outside a PID namespace prints a process by its PID outside.
func TestOtherPidNamespace(t *testing.T) {
	m := newMachine(t)
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Getuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	h := m.holdWith(attr, "1000")
	if held := m.sim("held"); !strings.HasPrefix(held, fmt.Sprint(h.Process.Pid, " ")) {
		t.Errorf("held by %q, not by %d", held, h.Process.Pid)
	}
	if _, there := m.nvml()[0].Processes[uint32(h.Process.Pid)]; !there {
		t.Errorf("NVML does not show %d", h.Process.Pid)
	}
	h.kill()
	m.wantTotal(0)
}

// Many processes that start at the same time create one machine together.
func TestManyOpenAtOnce(t *testing.T) {
	m := newMachine(t)
	const n = 50
	done := make(chan error)
	for range n {
		go func() {
			done <- m.command(built(t, "test/stress"), "1", "10").Run()
		}()
	}
	for range n {
		if err := bounded.Receive(t, "all end", done); err != nil {
			t.Error(err)
		}
	}
	m.wantTotal(0)
}

// A process may be killed at any instruction: no other process hangs, all sums are right (the
// oracle compares them with the records), and no memory stays taken.
func TestKilledUnderLoad(t *testing.T) {
	m := newMachine(t, "SIMCUDA_DEVICES=8G")
	const workers, kills = 6, 20
	done := make(chan error)
	for i := range workers {
		go func() {
			for k := range kills {
				cmd := m.command(built(t, "test/stress"), strconv.Itoa(i*kills+k))
				cmd.Stderr = nil
				if err := cmd.Start(); err != nil {
					done <- err
					return
				}
				// A random moment: none is special.
				time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
				cmd.Process.Kill()
				cmd.Wait()
			}
			done <- nil
		}()
	}
	for left := workers; left > 0; {
		select {
		case err := <-done:
			left--
			if err != nil {
				t.Error(err)
			}
		default:
			m.total() // fails if the sums differ from the records
		}
	}
	m.wantTotal(0)
	if used := m.sim("used"); used != "0" {
		t.Errorf("%s bytes are still in use", used)
	}
	m.run("stress", "1", "1000")
}
