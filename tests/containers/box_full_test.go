//go:build full

package containers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file makes a machine with an installation of gpuarb, its CDI devices and podman. podman_cdi_full_test.go,
// libc_full_test.go and rootless_full_test.go start containers on it. The oracle is the simulated driver's count.

// podmanWords are the first words of a podman command that works on any machine, but for the runtime.
var podmanWords = []string{"podman", "--cgroup-manager", "cgroupfs", "--runtime"}

// runWords are the flags with which podman run works on any machine: the host's network, and limits that a container
// may set.
var runWords = []string{"--network", "host", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"}

// box is a machine with podman. Podman runs in a mount namespace whose /run is the box's own, with gpuarb's devices in
// /run/cdi, so that boxes beside each other do not see each other's containers and devices.
type box struct {
	*rig.Machine
	installation
	inside  []string // words that run a command in the mount namespace
	root    string   // root folder of containers
	runtime string   // runc or crun
}

// newBox makes a machine with podman, and removes its containers and files at the end of the test.
func newBox(t *testing.T) *box {
	t.Helper()
	removeAfter(t, "/dev/shm/libpod_lock") // podman's file for locks; podman makes it again if needed
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	b := &box{Machine: m, installation: installed(t, m), runtime: "runc"}
	b.root = image(t, m, "/bin/sleep", "/usr/bin/env", "/usr/bin/sha256sum")
	holder := m.Begin(m.Command(os.Environ(), "unshare", "--mount", "--propagation", "private", "sh", "-ec",
		"mount -t tmpfs none /run; mkdir /run/cdi; echo ready; exec sleep infinity"))
	holder.Expect("ready")
	b.inside = []string{"nsenter", "--mount=/proc/" + strconv.Itoa(holder.Process()) + "/ns/mnt"}
	b.must(b.command(), "--socket", m.Socket, "cdi", "generate", "--output", "/run/cdi/gpuarb.json")
	t.Cleanup(func() {
		b.must(b.podman("rm", "--force", "--all", "--time", "0")...)
		// Podman still cleans up after a container that has ended, and makes files meanwhile.
		rig.Eventually(t, "podman's files are removed", func() bool { return os.RemoveAll(filepath.Join(b.Dir, "store")) == nil })
	})
	return b
}

// in returns a command in the box's mount namespace.
func (b *box) in(words ...string) *exec.Cmd {
	words = append(append([]string{}, b.inside...), words...)
	return b.Command(b.Env(), words[0], words[1:]...)
}

// must runs a command in the box's mount namespace, and returns its output.
func (b *box) must(words ...string) string {
	b.T.Helper()
	r := rig.Run(b.T, b.in(words...))
	if r.Code != 0 {
		b.T.Errorf("%q: %d\n%s%s", words, r.Code, r.Stdout, r.Stderr)
	}
	return strings.TrimSpace(r.Stdout)
}

// podman returns the words of a podman command that keeps its containers in the box's folder.
func (b *box) podman(words ...string) []string {
	store := filepath.Join(b.Dir, "store")
	return b.engine(store, words...)
}

// engine returns the words of a podman command that keeps its containers in the folder store.
func (b *box) engine(store string, words ...string) []string {
	return slices.Concat(podmanWords, []string{b.runtime, "--root", store, "--runroot", store + "-run"}, words)
}

// run returns the words that run a container with flags, whose programs find the simulated driver.
func (b *box) run(flags []string, words ...string) []string {
	return b.podman(b.runArguments(flags, words...)...)
}

// runArguments returns the arguments of run.
func (b *box) runArguments(flags []string, words ...string) []string {
	driver := []string{"-v", filepath.Join(b.Dir, "sim") + ":/sim", "-e", "SIMCUDA_DIR=/sim", "-e", "SIMCUDA_DEVICES=8G"}
	return slices.Concat([]string{"run"}, runWords, driver, flags, []string{"--rootfs", b.root}, words)
}

// sleeper starts a container in the background with one of gpuarb's devices, in which other programs are executed.
func (b *box) sleeper(name, device string, flags ...string) {
	b.T.Helper()
	b.must(b.run(append(flags, "--detach", "--name", name, "--device", "gpuarb.dev/memory="+device), "/bin/sleep", "1000000")...)
}

// exec starts the test program in a container. flags are for podman exec, words come before the program.
func (b *box) exec(name string, flags []string, words ...string) *rig.Program {
	b.T.Helper()
	all := append(append(append([]string{"exec", "-i"}, flags...), name), words...)
	return b.Interact(b.in(b.podman(append(all, "/cudaprog-dlsym")...)...))
}

// bare is the part of a command that clears the environment. The driver's own variables stay.
var bare = []string{"/usr/bin/env", "-i", "SIMCUDA_DIR=/sim", "SIMCUDA_DEVICES=8G"}

// held checks how many bytes the driver has given out, without contexts.
func (b *box) held(want uint64) {
	b.T.Helper()
	if total := b.SimNumber("total", "0"); total != want {
		b.T.Errorf("the driver holds %d bytes, want %d", total, want)
	}
}

// jobs returns what `gpuarb job list` prints.
func (b *box) jobs() string {
	b.T.Helper()
	return b.must(b.command(), "--socket", b.Socket, "job", "list")
}

// gone waits until no job of a cgroup is left.
func (b *box) gone() {
	b.T.Helper()
	rig.Eventually(b.T, "the jobs of the containers are closed", func() bool { return !strings.Contains(b.jobs(), "/") })
}

// inspect returns a field of a container's state.
func (b *box) inspect(name, field string) string {
	b.T.Helper()
	return b.must(b.podman("inspect", "--format", fmt.Sprintf("{{.State.%s}}", field), name)...)
}

// number is inspect for a field that is a number.
func (b *box) number(name, field string) int {
	b.T.Helper()
	n, err := strconv.Atoi(b.inspect(name, field))
	if err != nil {
		b.T.Fatal(err)
	}
	return n
}

// removeCgroups removes at the end of the test the empty cgroups of a container.
func (b *box) removeCgroups(name string) {
	b.T.Helper()
	id := b.must(b.podman("inspect", "--format", "{{.Id}}", name)...)
	b.T.Cleanup(func() {
		left, err := filepath.Glob("/sys/fs/cgroup/*/libpod_parent/libpod-" + id)
		if err != nil {
			b.T.Error(err)
		}
		for _, folder := range left {
			if err := os.Remove(folder); err != nil {
				b.T.Error(err)
			}
		}
	})
}
