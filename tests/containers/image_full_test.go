//go:build full

package containers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file builds the image of the daemon and starts it with podman. The daemon in the container serves programs of the machine.

// imageWithin is the longest time for making the image, which includes building the packages and a Debian.
const imageWithin = 30 * time.Minute

// daemonImage makes the image and returns its name, and a file from which podman loads it.
func daemonImage(t *testing.T) (name, archive string) {
	t.Helper()
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	podman := []string{"podman", "--root", store, "--runroot", store + "-run", "--storage-driver", "vfs"}
	run := func(words ...string) string {
		t.Helper()
		cmd := bounded.Command(t, imageWithin, words[0], words[1:]...)
		cmd.Dir = "../.."
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%q: %v\n%s", words, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	out := run("env", "-u", "MAKEFLAGS", "-u", "MAKELEVEL", "make", "-s", "image", "PODMAN="+strings.Join(podman, " "))
	name = out[strings.LastIndex(out, "\n")+1:]
	archive = filepath.Join(dir, "image.tar")
	run(append(podman, "save", "--output", archive, name)...)
	return name, archive
}

// onNode is a shell script that a pod could run in the daemon's image before its containers start. It copies the command and the library
// from the image to the node's folder "$0". It renames a new file over the old one, because programs may have the old file mapped. It also
// checks that the image has some tools and the daemon's system users.
const onNode = `mkdir -p "$0/bin" "$0/lib/gpuarb"
replace() { cp "/usr/$1" "$0/$1.new" && mv -f "$0/$1.new" "$0/$1"; }
replace bin/gpuarb
replace lib/gpuarb/libgpuarb.so
test "$("$0/bin/gpuarb" version --help | wc -l)" -gt 0
for tool in nsenter setpriv flock find; do command -v $tool; done >/dev/null
getent passwd gpuarb-http gpuarb-history >/dev/null`

// TestFullImage: a daemon in a container of the image holds a program of the machine to its budget, and another container takes
// the program over. The image puts its library onto the machine.
func TestFullImage(t *testing.T) {
	name, archive := daemonImage(t)
	b := newBox(t)
	b.must(b.podman("load", "--input", archive)...)
	label := `{{index .Labels "org.opencontainers.image.licenses"}} {{index .Labels "org.opencontainers.image.version"}} {{index .Labels "org.opencontainers.image.revision"}}`
	if got := strings.Fields(b.must(b.podman("image", "inspect", "--format", label, name)...)); len(got) != 3 || got[0] != "Apache-2.0" || len(got[2]) != 40 {
		t.Errorf("the labels are %q", got)
	}
	t.Logf("%s has %s bytes", name, b.must(b.podman("image", "inspect", "--format", "{{.Size}}", name)...))

	node := filepath.Join(b.Dir, "opt")
	library := filepath.Join(node, "lib/gpuarb/libgpuarb.so")
	install := b.podman(append(append([]string{"run", "--rm"}, runWords...), "--volume", node+":"+node, "--entrypoint", "sh", name, "-euc", onNode, node)...)
	if err := os.Mkdir(node, 0o755); err != nil {
		t.Fatal(err)
	}
	b.must(install...)
	first, err := os.Open(library) // keeps the old inode, so that the new file cannot get its number
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	before := inode(t, library)
	b.must(install...)
	if inode(t, library) == before {
		t.Error("the library was written into the file that programs have mapped")
	}

	b.Stop() // from here on the daemon runs in the image
	sim := rig.Build(t, "sim")
	page, err := os.ReadFile("../../docs/admin/packages.md")
	if err != nil {
		t.Fatal(err)
	}
	_, command, _ := strings.Cut(string(page), "\nsudo podman run ")
	command, _, _ = strings.Cut(command, "\n")
	// The command of the page has the flag for the network, so that [2:] leaves it out here. The daemon itself reports that it is ready, so
	// that podman must not.
	flags := append(b.podman("run", "--env-host", "--sdnotify", "ignore"), runWords[2:]...)
	command = strings.NewReplacer("-v /run/gpuarb:/run/gpuarb", "-v "+b.Dir+":"+b.Dir+" -v "+sim+":"+sim+":ro", "localhost/gpuarb:0.1.0", name, "--mount none", `"$@"`).Replace(command)
	if !strings.Contains(command, name) {
		t.Fatalf("the page runs no such image: %s", command)
	}
	daemon := filepath.Join(b.Dir, "daemon")
	text := fmt.Sprintf("#!/bin/sh\nexec %s %s %s\n", strings.Join(b.inside, " "), strings.Join(flags, " "), command)
	if err := bounded.WriteProgram(daemon, []byte(text)); err != nil {
		t.Fatal(err)
	}
	b.Use(daemon)
	b.Start()
	environ := append(b.Env(), "LD_PRELOAD="+library, "GPUARB_SOCKET="+b.Socket, "GPUARB_MEMORY=64M")
	p := b.Interact(b.Command(environ, rig.Build(t, "programs/cudaprog-dlsym")))
	p.Want("alloc a 48M", "ok")
	p.Want(fmt.Sprintf("alloc b %d", 16<<20+1), "err 2")
	b.held(48 << 20)
	b.Stop()
	b.Start()
	p.Want(fmt.Sprintf("alloc b %d", 16<<20+1), "err 2")
	p.Want("alloc b 16M", "ok")
	b.held(64 << 20)
	p.End()
	b.AllGone()
	b.Stop() // before the box removes its containers
}
