//go:build full

package containers

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file runs the commands of docs/admin/containers.md, section "By hand", with a dockerd that it starts.
// podman_full_test.go has the part that all engines share.

// TestFullDocker runs the page's commands with docker, in an engine of the test's own.
func TestFullDocker(t *testing.T) {
	play(t, func(m *rig.Machine) engine {
		host := dockerd(t, m)
		docker := "docker --host " + host
		load := bounded.Command(t, bounded.Patience, "sh", "-c", "tar -C '"+image(t, m)+"' -c . | "+docker+" import - gpuarb-test")
		if out, err := load.CombinedOutput(); err != nil {
			t.Fatalf("docker import: %v: %s", err, out)
		}
		return engine{run: docker + " run -i --network none", image: "gpuarb-test"}
	})
}

// dockerd starts an engine that shares nothing with the machine's engine, makes no network and
// ends with the test. It returns the address for clients.
func dockerd(t *testing.T, m *rig.Machine) string {
	t.Helper()
	// The path of a socket is limited, and the engine's sockets are below its folder.
	dir, err := os.MkdirTemp("/tmp", "gpuarb-docker-")
	if err != nil {
		t.Fatal(err)
	}
	host := "unix://" + filepath.Join(dir, "sock")
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	// Run dockerd in a mount namespace, so that its mounts disappear with it.
	cmd := m.Command(os.Environ(), "unshare", "--mount", "dockerd", "--host", host, "--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "run"),
		"--pidfile", filepath.Join(dir, "pid"), "--storage-driver", "vfs", "--bridge", "none", "--iptables=false", "--ip6tables=false")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = rig.Wait(t, bounded.Patience, cmd)
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("dockerd: %v\n%s", err, text)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	bounded.Until(t, "dockerd answers", func() bool {
		text, err := os.ReadFile(log.Name())
		return err == nil && strings.Contains(string(text), "API listen on")
	})
	return host
}
