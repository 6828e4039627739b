//go:build full

package containers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// TestFullPodmanRootless checks that a device is refused to a user's own podman, with the reason, and that its
// containers are held with the flags that `gpuarb run` prints.
func TestFullPodmanRootless(t *testing.T) {
	b := newBox(t)
	home := filepath.Join(b.Dir, "home")
	if err := os.Chmod(b.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b.must("sh", "-ec", becomeAnn, "sh", home, b.root)
	as := func(words ...string) *exec.Cmd {
		id := fmt.Sprint(ann)
		return b.in(append([]string{"setpriv", "--reuid=" + id, "--regid=" + id, "--clear-groups", "env", "-i",
			"HOME=" + home, "XDG_RUNTIME_DIR=/run/user/" + id, "PATH=" + os.Getenv("PATH")}, words...)...)
	}
	store := filepath.Join(home, "store")
	podman := func(words ...string) []string {
		return append(append(podmanWords[:len(podmanWords):len(podmanWords)], "--root", store, "--runroot", store+"-run", "--storage-driver", "vfs"), words...)
	}
	run := func(flags []string, words ...string) []string {
		all := append(append([]string{"run"}, runWords...), "-v", filepath.Join(b.Dir, "sim")+":/sim", "-e", "SIMCUDA_DIR=/sim", "-e", "SIMCUDA_DEVICES=8G")
		return podman(append(append(append(all, flags...), "--rootfs", b.root), words...)...)
	}
	t.Cleanup(func() { rig.Run(t, as(podman("rm", "--force", "--all", "--time", "0")...)) })

	r := rig.Run(t, as(run([]string{"--device", "gpuarb.dev/memory=64M"}, "/bin/sleep", "0")...))
	if r.Code == 0 || !strings.Contains(r.Stderr, "the cgroup of its runtime") || !strings.Contains(r.Stderr, "gpuarb run -- podman run") {
		t.Errorf("a device: %+v", r)
	}
	arb := []string{b.command(), "--socket", b.Socket, "run", "--memory", "64M", "--"}
	r = rig.Run(t, as(append(arb, run(nil, "/bin/sleep", "0")...)...))
	_, advice, found := strings.Cut(r.Stderr, "flags of podman run: ")
	advice, _, _ = strings.Cut(advice, "\n")
	if r.Code != 0 || !found {
		t.Fatalf("%+v", r)
	}
	p := b.Interact(as(append(arb, run(append(strings.Fields(advice), "-i", "--name", "one"), "/cudaprog-dlsym")...)...))
	p.Want("alloc a 67108865", "err 2")
	p.Want("alloc a 48M", "ok")
	q := b.Interact(as(podman("exec", "-i", "one", "/cudaprog-dlsym")...))
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
