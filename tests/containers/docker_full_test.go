//go:build full

package containers

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file starts containers with a dockerd of its own. It takes the commands from docs/admin/containers.md, section
// "By hand", and the flags that `gpuarb run` prints. podman_full_test.go has the part that all engines share. Debian's
// docker is too old for CDI devices.

// TestFullDocker runs the page's commands with docker, in an engine of the test's own.
func TestFullDocker(t *testing.T) {
	play(t, func(m *rig.Machine) engine {
		by := imported(t, m)
		return engine{run: strings.Join(by.words(), " ") + " run -i --network none", image: by.image}
	})
}

// docker is a running dockerd with one image. host is its address for clients.
type docker struct{ host, image string }

// words returns the first words of a command.
func (d docker) words() []string { return []string{"docker", "--host", d.host} }

// imported starts an engine, and gives it an image with the test program.
func imported(t *testing.T, m *rig.Machine) docker {
	t.Helper()
	d := docker{dockerd(t, m), "gpuarb-test"}
	load := bounded.Command(t, bounded.Patience, "sh", "-c", "tar -C '"+image(t, m)+"' -c . | "+strings.Join(d.words(), " ")+" import - "+d.image)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("docker import: %v: %s", err, out)
	}
	return d
}

// TestFullDockerFlags starts a container of docker under `gpuarb run` with the flags that it prints: its programs and
// those of docker exec share the job's budget.
func TestFullDockerFlags(t *testing.T) {
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	i, by := installed(t, m), imported(t, m)
	words := append(by.words(), "run", "-i", "--rm", "--network", "none", "--name", "one", "-v", filepath.Join(m.Dir, "sim")+":/sim", "-e", "SIMCUDA_DIR=/sim", "-e", "SIMCUDA_DEVICES=8G")
	arb := []string{"--socket", m.Socket, "run", "--memory", "64M", "--"}
	r := rig.Run(t, m.Command(m.Env(), i.command(), slices.Concat(arb, words, []string{by.image, "/bin/true"})...))
	_, advice, found := strings.Cut(r.Stderr, "flags of docker run: ")
	advice, _, _ = strings.Cut(advice, "\n")
	if !found {
		t.Fatalf("%+v", r)
	}
	p := m.Interact(m.Command(m.Env(), i.command(), slices.Concat(arb, words, strings.Fields(advice), []string{by.image, "/cudaprog-dlsym"})...))
	p.Want("alloc a 67108865", "err 2")
	p.Want("alloc a 48M", "ok")
	exec := append(by.words(), "exec", "-i", "one", "/cudaprog-dlsym")
	q := m.Interact(m.Command(m.Env(), exec[0], exec[1:]...))
	q.Want("alloc a 16M", "ok")
	q.Want("alloc b 1", "err 2")
	p.Want("alloc b 1", "err 2")
	if total := m.SimNumber("total", "0"); total != 64<<20 {
		t.Errorf("the driver holds %d bytes", total)
	}
	q.End()
	p.End()
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
