//go:build full

package systemd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file boots the Debian 12 on which the tests of this package run their commands.

// host is a booted machine, with a shell on it that belongs to no unit.
type host struct {
	*rig.Machine
	t      *testing.T
	root   string
	leader int // PID of the machine's process 1 in this namespace
}

// rootWithin limits the time for making a root, which unpacks a whole system and is slow on a busy machine. This time is not part
// of the limit of the test itself.
const rootWithin = 20 * time.Minute

// boot makes the machine, with gpuarb and these Debian packages installed, and starts it.
func boot(t *testing.T, packages ...string) *host {
	h := prepare(t, packages...)
	h.install()
	h.start()
	return h
}

// install installs gpuarb from this checkout and enables its units. If the machine runs, its daemon is not restarted.
func (h *host) install() {
	h.t.Helper()
	here(h.t, "make", "--no-print-directory", "install", "DESTDIR="+h.root, "PREFIX=/usr")
	here(h.t, "chroot", h.root, "systemctl", "enable", "gpuarbd.socket", "gpuarbd.service")
}

// prepare makes the machine, with the simulated driver, a program that uses it and these Debian packages, and without gpuarb.
func prepare(t *testing.T, packages ...string) *host {
	build := filepath.Dir(rig.Build(t, "gpuarbd"))
	// Go ignores folders whose name begins with a dot.
	h := &host{t: t, root: filepath.Join(build, ".systemd")}
	t.Cleanup(func() { _ = os.RemoveAll(h.root) })
	within(t, rootWithin, "tools/fresh-root.sh", "--make", h.root, "systemd,systemd-sysv,dbus,procps,libpam-systemd", strings.Join(packages, " "))
	h.Machine = rig.New(t, rig.Options{Stopped: true, NoMount: true, Life: 20 * time.Minute})
	here(t, "cp", "build/sim/libcuda.so.1", "build/sim/libnvidia-ml.so.1", h.root+"/usr/lib")
	here(t, "cp", "build/programs/cudaprog-dlsym", h.root+"/usr/bin")
	return h
}

// here runs a command in the checkout, on this machine.
func here(t *testing.T, name string, args ...string) {
	t.Helper()
	within(t, bounded.Lifetime, name, args...)
}

// within runs a command as here does, with a time limit.
func within(t *testing.T, limit time.Duration, name string, args ...string) {
	t.Helper()
	cmd := bounded.Command(t, limit, name, args...)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// start boots the machine, and returns when systemd has started all its units.
func (h *host) start() {
	console, err := os.Create(filepath.Join(h.Dir, "console"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer console.Close()
	nspawn := exec.Command("systemd-nspawn", "--boot", "--directory="+h.root, "--machine=gpuarb-test",
		"--register=no", "--keep-unit", "--bind=/dev/fuse", "--console=read-only")
	nspawn.Stdout, nspawn.Stderr = console, console
	if err := nspawn.Start(); err != nil {
		h.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = nspawn.Wait() }()
	h.t.Cleanup(func() {
		if h.t.Failed() {
			text, _ := os.ReadFile(console.Name())
			h.t.Logf("the console:\n%s", text)
		}
		_ = nspawn.Process.Signal(unix.SIGTERM) // powers the machine off
		select {
		case <-ended:
		case <-time.After(bounded.Patience):
			h.t.Error("the machine does not power off")
			_ = nspawn.Process.Kill()
			<-ended
		}
	})
	bounded.Until(h.t, "the machine has a process 1", func() bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", nspawn.Process.Pid))
		_, err := fmt.Sscan(string(text), &h.leader)
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", h.leader))
		return err == nil && strings.TrimSpace(string(name)) == "systemd"
	})
	bounded.Until(h.t, "systemd answers", func() bool {
		return h.command("systemctl is-system-running --wait | grep -E 'running|degraded'").Run() == nil
	})
	h.t.Cleanup(func() {
		if h.t.Failed() {
			out, _ := h.command("journalctl --no-pager --boot --unit=gpuarbd.service | tail -n 100; systemctl --no-pager status gpuarbd.service gpuarbd.socket").CombinedOutput()
			h.t.Logf("the journal:\n%s", out)
		}
	})
}

// command returns a shell command on the machine.
func (h *host) command(script string) *exec.Cmd {
	return h.Command([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C"}, "nsenter", fmt.Sprintf("--target=%d", h.leader),
		"--mount", "--uts", "--ipc", "--net", "--pid", "sh", "-c", script)
}

// shell runs a command on the machine, which must succeed, and returns what it prints.
func (h *host) shell(script string) string {
	h.t.Helper()
	r := rig.Run(h.t, h.command(script))
	if r.Code != 0 {
		h.t.Fatalf("%s: status %d\n%s%s", script, r.Code, r.Stdout, r.Stderr)
	}
	return strings.TrimSpace(r.Stdout)
}

// as runs a command in a login of the user, and returns what it prints.
func (h *host) as(user, command string) string {
	h.t.Helper()
	return h.shell(fmt.Sprintf("su --login %s --command '%s' 2>&1", user, command))
}
