package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that programs are served while the daemon cannot mount /gpu, and that a later daemon mounts it again.

// TestFuseGone: /dev/fuse is missing when the daemon starts again. Running programs are served
// without the filesystem, and the next daemon that can mount it has it again.
func TestFuseGone(t *testing.T) {
	m := rig.New(t, rig.Options{Devices: "1G"})
	p := holder(m, 0, "256M")
	m.Stop()
	without := filepath.Join(m.Dir, "without")
	text := fmt.Sprintf("#!/bin/sh\nexec unshare -m sh -c 'mount -t tmpfs none /dev && exec \"$@\"' sh %s \"$@\"\n", rig.Build(t, "gpuarbd"))
	if err := bounded.WriteProgram(without, []byte(text)); err != nil {
		t.Fatal(err)
	}
	m.Use(without)
	m.Start()
	p.Want("alloc b 64M", "ok")
	if used := m.Lease(p.PID(), 0).Used; used != 320<<20 {
		t.Errorf("it has %d", used)
	}
	m.AwaitLog("no filesystem")
	m.AwaitLog("/dev/fuse")
	m.Stop()
	m.Use("")
	covered(t, m, p)
	m.Start()
	if got := m.Read("leases"); !strings.Contains(got, "335544320") {
		t.Errorf("leases:\n%s", got)
	}
}

// covered starts the daemon while another filesystem is mounted on its mount point.
func covered(t *testing.T, m *rig.Machine, p *rig.Program) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(m.Mount, 0o755), unix.Mount("none", m.Mount, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	m.Start()
	p.Want("alloc c 1M", "ok")
	p.Want("free c", "ok")
	m.AwaitLog("something else is mounted there")
	m.Stop()
	if err := unix.Unmount(m.Mount, 0); err != nil {
		t.Fatal(err)
	}
}
