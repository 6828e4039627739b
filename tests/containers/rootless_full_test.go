//go:build full

package containers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file runs a user's own podman. Without systemd its containers lie in the cgroup of podman itself, so that a device
// is refused. The flags that `gpuarb run` prints hold such containers.

// ann is the UID and GID of a user who has subordinate UIDs for containers.
const ann = 12345

// becomeAnn makes the user known in the box ($1 is her folder), and lets her change the root folder for containers ($2).
const becomeAnn = `mkdir -p "$1" /run/user/12345
{ cat /etc/passwd; echo "ann:x:12345:12345::$1:/bin/sh"; } >/run/passwd
echo ann:200000:65536 >/run/subids
for file in passwd subuid subgid; do
    test -e /etc/$file || touch /etc/$file
done
mount --bind /run/passwd /etc/passwd
mount --bind /run/subids /etc/subuid
mount --bind /run/subids /etc/subgid
chown -R 12345:12345 "$1" "$2" /run/user/12345`

// rootless is a box on which ann starts containers with a podman of her own.
type rootless struct {
	*box
	home string
}

// newRootless makes the user known on a box, and removes her containers at the end of the test.
func newRootless(t *testing.T) rootless {
	t.Helper()
	b := rootless{newBox(t), ""}
	b.home = filepath.Join(b.Dir, "home")
	if err := os.Chmod(b.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b.must("sh", "-ec", becomeAnn, "sh", b.home, b.root)
	// The first command of a user's podman leaves a process in the background. Start it here, outside any job.
	if r := rig.Run(t, b.as(b.podman("ps")...)); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	t.Cleanup(func() {
		rig.Run(t, b.as(b.podman("rm", "--force", "--all", "--time", "0")...))
		b.must("sh", "-ec", "kill $(cat /run/user/12345/libpod/tmp/pause.pid)")
	})
	return b
}

// as returns a command that ann runs.
func (b rootless) as(words ...string) *exec.Cmd {
	id := fmt.Sprint(ann)
	return b.in(append([]string{"setpriv", "--reuid=" + id, "--regid=" + id, "--clear-groups", "env", "-i",
		"HOME=" + b.home, "XDG_RUNTIME_DIR=/run/user/" + id, "PATH=" + os.Getenv("PATH")}, words...)...)
}

// podman returns the words of a podman command that keeps its containers in ann's folder.
func (b rootless) podman(words ...string) []string {
	return b.engine(filepath.Join(b.home, "store"), append([]string{"--storage-driver", "vfs"}, words...)...)
}

// run returns the words that run a container with flags, as a part of ann's command.
func (b rootless) run(flags []string, words ...string) []string {
	return b.podman(b.runArguments(flags, words...)...)
}

// advised starts a container under `gpuarb run --memory 64M`, first without flags. It returns the command that has the
// flags which gpuarb run prints then.
func (b rootless) advised(flags []string, words ...string) *exec.Cmd {
	b.T.Helper()
	arb := []string{b.command(), "--socket", b.Socket, "run", "--memory", "64M", "--"}
	r := rig.Run(b.T, b.as(append(arb, b.run(nil, "/bin/sleep", "0")...)...))
	_, advice, found := strings.Cut(r.Stderr, "flags of podman run: ")
	advice, _, _ = strings.Cut(advice, "\n")
	if r.Code != 0 || !found {
		b.T.Fatalf("%+v", r)
	}
	return b.as(append(arb, b.run(append(strings.Fields(advice), flags...), words...)...)...)
}

// execute starts the test program in a container of ann's.
func (b rootless) execute(name string) *rig.Program {
	b.T.Helper()
	return b.Interact(b.as(b.podman("exec", "-i", name, "/cudaprog-dlsym")...))
}

// TestFullPodmanRootless checks that a device is refused to a user's own podman, with the reason, and that its
// containers are held with the flags that `gpuarb run` prints.
func TestFullPodmanRootless(t *testing.T) {
	b := newRootless(t)
	r := rig.Run(t, b.as(b.run([]string{"--device", "gpuarb.dev/memory=64M"}, "/bin/sleep", "0")...))
	if r.Code == 0 || !strings.Contains(r.Stderr, "the cgroup of its runtime") || !strings.Contains(r.Stderr, "gpuarb run -- podman run") {
		t.Errorf("a device: %+v", r)
	}
	p := b.Interact(b.advised([]string{"-i", "--name", "one"}, "/cudaprog-dlsym"))
	p.Want("alloc a 67108865", "err 2")
	p.Want("alloc a 48M", "ok")
	q := b.execute("one")
	q.Want("alloc a 16M", "ok")
	q.Want("alloc b 1", "err 2")
	p.Want("alloc b 1", "err 2")
	b.held(64 << 20)
	q.End()
	p.End()
	if strings.Contains(p.Stderr(), "flags of podman run") {
		t.Errorf("with the flags it still says %s", p.Stderr())
	}
}

// TestFullPodmanRootlessLasting starts a user's container in the background. Its programs share the budget after the
// command that started it has ended, after its monitor was killed, and after an upgrade of library and daemon.
func TestFullPodmanRootlessLasting(t *testing.T) {
	b := newRootless(t)
	if r := rig.Run(t, b.advised([]string{"--detach", "--name", "one"}, "/bin/sleep", "1000000")); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	p := b.execute("one")
	p.Want("alloc a 67108865", "err 2")
	p.Want("alloc a 32M", "ok")
	state := func(field string) int {
		t.Helper()
		r := rig.Run(t, b.as(b.podman("inspect", "--format", "{{.State."+field+"}}", "one")...))
		n, err := strconv.Atoi(strings.TrimSpace(r.Stdout))
		if err != nil || n <= 0 {
			t.Fatalf("%s: %+v", field, r)
		}
		return n
	}
	if err := syscall.Kill(state("ConmonPid"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.Want("alloc b 8M", "ok")
	b.from(t, newer(t, b.box))
	b.Stop()
	p.Want("alloc c 25M", "err 2")
	b.Use(filepath.Join(b.prefix, "bin/gpuarbd"))
	b.Start()
	q := b.execute("one")
	q.Want("alloc a 24M", "ok")
	q.Want("alloc b 1", "err 2")
	p.Want("alloc c 1", "err 2")
	b.held(64 << 20)
	p.End()
	q.End()
	if err := syscall.Kill(state("Pid"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "its job has ended", func() bool { return len(b.Snapshot().Jobs) == 0 })
}
