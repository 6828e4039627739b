package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that programs are served while the daemon cannot mount /gpu, and that a later daemon mounts it again. If
// another process should have mounted for the daemon, the daemon names the reason of that process.

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

// TestReasonOfTheUnitsMount: in systemd's unit another process mounts for the daemon. If that process cannot mount, the daemon ends
// with that process's reason. The daemon does not try to mount itself: it could here, and cannot in the unit.
func TestReasonOfTheUnitsMount(t *testing.T) {
	m := rig.New(t, rig.Options{Stopped: true})
	mine := filepath.Join(m.Mount, "mine")
	if err := errors.Join(os.MkdirAll(m.Mount, 0o755), os.WriteFile(mine, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	notify := filepath.Join(m.Dir, "systemd")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	const reason = "it holds mine"
	// A PID namespace of its own, because in a container the namespaces of process 1 may be closed to root.
	r := rig.Run(t, m.Command(append(m.Env(), "NOTIFY_SOCKET="+notify), "unshare", "--mount", "--pid", "--fork", "--mount-proc",
		rig.Build(t, "gpuarbd"), "--make-mount", "--mount", m.Mount))
	if r.Code != 1 || !strings.Contains(r.Stderr, reason) {
		t.Fatalf("--make-mount: status %d\n%s", r.Code, r.Stderr)
	}
	passed := stored(t, systemd, "gpuarb-no-mount")
	defer passed.Close()
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	// The variables of sd_listen_fds(3). The shell sets the process, which exec keeps.
	daemon := m.Command(append(m.Env(), "LISTEN_FDS=1", "LISTEN_FDNAMES=gpuarb-no-mount"), "sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh",
		rig.Build(t, "gpuarbd"), "--socket", m.Socket, "--mount", m.Mount)
	daemon.ExtraFiles = []*os.File{passed}
	if r := rig.Run(t, daemon); r.Code != 1 || !strings.Contains(r.Stderr, reason) {
		t.Errorf("the daemon: status %d\n%s", r.Code, r.Stderr)
	}
}

// stored reads the messages to systemd until one of them stores a descriptor with this name, and returns the descriptor.
func stored(t *testing.T, systemd *net.UnixConn, name string) *os.File {
	t.Helper()
	if err := systemd.SetReadDeadline(time.Now().Add(rig.Patience)); err != nil {
		t.Fatal(err)
	}
	for {
		text, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
		n, nr, _, _, err := systemd.ReadMsgUnix(text, rights)
		if err != nil {
			t.Fatalf("no message stores %s: %v", name, err)
		}
		if string(text[:n]) != "FDSTORE=1\nFDNAME="+name {
			continue
		}
		messages, err := unix.ParseSocketControlMessage(rights[:nr])
		if err != nil || len(messages) != 1 {
			t.Fatalf("%d control messages: %v", len(messages), err)
		}
		fds, err := unix.ParseUnixRights(&messages[0])
		if err != nil || len(fds) != 1 {
			t.Fatalf("descriptors %v: %v", fds, err)
		}
		return os.NewFile(uintptr(fds[0]), name)
	}
}
