//go:build full

package containers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file runs the commands of docs/admin/containers.md, section "By hand", with podman. docker_full_test.go shares the
// edits to the commands and the checks. install_test.go makes the image.

// TestFullPodman runs the page's commands with podman. Only paths, the image and the GPU's device are replaced.
func TestFullPodman(t *testing.T) {
	removeAfter(t, "/dev/shm/libpod_lock") // podman's file for locks; podman makes it again if needed
	play(t, func(m *rig.Machine) engine {
		store := filepath.Join(m.Dir, "store")
		return engine{
			// Options that let podman run on any machine: the host's network, and limits that a container may set.
			run:   "podman --runtime runc --root " + store + " --runroot " + store + "-run run -i --network host --ulimit nofile=1024:1024 --ulimit nproc=1024:1024",
			image: "--rootfs " + image(t, m),
		}
	})
}

// engine is a command line that starts a container: replacements for `podman run` and for IMAGE in the page.
type engine struct{ run, image string }

// play runs each command of the section with an engine of this machine. The program in the container is held to 64 MiB,
// and the daemon outside lists it.
func play(t *testing.T, begin func(*rig.Machine) engine) {
	t.Helper()
	page, err := os.ReadFile("../../docs/admin/containers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, byHand, _ := strings.Cut(string(page), "\n## By hand\n")
	blocks := strings.Split(byHand, "```sh\n")[1:]
	if len(blocks) != 2 {
		t.Fatalf("the page has %d commands", len(blocks))
	}
	for _, block := range blocks {
		command, _, _ := strings.Cut(block, "```")
		m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
		by := begin(m)
		library := filepath.Dir(rig.Build(t, "libgpuarb.so"))
		command = strings.NewReplacer(
			"podman run", by.run,
			"-v /usr/lib/gpuarb:", "-v "+library+":",
			"-v /run/gpuarb/client:", "-v "+filepath.Join(m.Dir, "client")+":",
			"-v /usr/bin/gpuarb:", "-v "+rig.Build(t, "gpuarb")+":",
			"--device nvidia.com/gpu=all IMAGE", "-v "+filepath.Join(m.Dir, "sim")+":/sim -e SIMCUDA_DIR=/sim -e SIMCUDA_DEVICES=8G "+by.image,
			"COMMAND", "/cudaprog-dlsym",
		).Replace(command)
		p := m.Interact(m.Command(m.Env(), "sh", "-c", command))
		p.Want("alloc a 50331648", "ok")
		leases := m.Snapshot().Leases
		if len(leases) != 1 || leases[0].Used != 50331648 || leases[0].Command != "/cudaprog-dlsym" {
			t.Errorf("the daemon shows %+v", leases)
		}
		p.Want("alloc b 16777216", "ok")
		p.Want("alloc c 1", "err 2")
		p.End()
	}
}

// removeAfter removes a file at the end of the test if the file did not exist before.
func removeAfter(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); err == nil {
		return
	}
	t.Cleanup(func() { _ = os.Remove(path) })
}
