//go:build full

package e2e

// This file makes the two images of the cluster from programs of this machine, so that no registry is needed. One image has the test
// program, and is also the image of sandboxes. The other one is gpuarb's. It has what `make image` puts into an image, at the same paths, but
// with the libraries of this machine instead of a Debian.

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// Names of the images. The chart gets the name of gpuarb's in two parts, registry and tag.
const (
	registry     = "gpuarb.test"
	programImage = registry + "/program:1"
	gpuarbImage  = registry + "/gpuarb:1"
)

// programRoot makes the root folder of the image with the test program, and returns its path.
func (c *cluster) programRoot() string {
	c.T.Helper()
	root := c.path("program-root")
	c.place(root, map[string]string{rig.Build(c.T, "programs/cudaprog-dlsym"): "/cudaprog-dlsym"}, "/bin/sh", "/bin/sleep")
	return root
}

// gpuarbRoot makes the root folder of gpuarb's image, and returns its path.
func (c *cluster) gpuarbRoot() string {
	c.T.Helper()
	root := c.path("gpuarb-root")
	plugins := map[string]string{}
	for _, name := range []string{"gpuarb-nri", "gpuarb-dra"} {
		plugins[rig.Build(c.T, "kube/"+name)] = "/usr/bin/" + name
	}
	c.place(root, plugins, "/bin/sh", "/bin/cp", "/bin/mv", "/bin/mkdir", "/usr/bin/find", "/usr/bin/nsenter", "/usr/bin/setpriv", "/usr/bin/flock")
	install := bounded.Command(c.T, bounded.Patience, "tools/install.sh", filepath.Dir(rig.Build(c.T, "gpuarb")))
	install.Dir = "../.."
	install.Env = append(os.Environ(), "DESTDIR="+root, "PREFIX=/usr")
	if out, err := install.CombinedOutput(); err != nil {
		c.T.Fatalf("install.sh: %v\n%s", err, out)
	}
	c.place(root, map[string]string{filepath.Join(root, "usr/bin/gpuarbd"): "/usr/bin/gpuarbd"})
	c.write("gpuarb-root/etc/passwd", "root:x:0:0::/:/bin/sh\ngpuarb-http:x:990:990::/:/bin/false\ngpuarb-history:x:991:991::/:/bin/false\n")
	c.write("gpuarb-root/etc/group", "root:x:0:\ngpuarb-http:x:990:\ngpuarb-history:x:991:\n")
	return root
}

// place copies files and programs, with the libraries that they are linked with, into a root folder. The keys of files are paths on this
// machine, and its values are paths in the root folder. Programs and libraries keep their paths.
func (c *cluster) place(root string, files map[string]string, programs ...string) {
	c.T.Helper()
	for _, program := range programs {
		files[program] = program
	}
	for _, from := range slices.Collect(maps.Keys(files)) {
		linked, _ := exec.Command("ldd", from).Output() // fails for a static program
		for word := range strings.FieldsSeq(string(linked)) {
			if strings.HasPrefix(word, "/") {
				files[word] = word
			}
		}
	}
	for from, to := range files {
		if to = filepath.Join(root, to); to == from {
			continue
		}
		if out, err := bounded.Command(c.T, bounded.Patience, "install", "-D", from, to).CombinedOutput(); err != nil {
			c.T.Fatalf("%v: %s", err, out)
		}
	}
	for _, folder := range []string{"proc", "sys", "dev", "run", "tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			c.T.Fatal(err)
		}
	}
}

// load makes an image of a root folder, in the format that `docker save` writes, and imports it into containerd.
func (c *cluster) load(name, root, command string) {
	c.T.Helper()
	folder := filepath.Base(root) + "-image"
	if err := os.Mkdir(c.path(folder), 0o755); err != nil {
		c.T.Fatal(err)
	}
	c.must("tar", "-C", root, "-cf", c.path(folder+"/layer.tar"), ".")
	layer, err := os.ReadFile(c.path(folder + "/layer.tar"))
	if err != nil {
		c.T.Fatal(err)
	}
	c.writeJSON(folder+"/config.json", map[string]any{
		"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Cmd": strings.Fields(command), "Env": []string{"PATH=/usr/bin:/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	c.writeJSON(folder+"/manifest.json", []any{map[string]any{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	archive := c.path(folder + ".tar")
	c.must("tar", "-C", c.path(folder), "-cf", archive, "manifest.json", "config.json", "layer.tar")
	c.must(c.program("ctr"), "--address", c.path("containerd.sock"), "--namespace", "k8s.io", "images", "import", archive)
}

// writeJSON writes a value as JSON into a file of the cluster.
func (c *cluster) writeJSON(name string, value any) {
	c.T.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		c.T.Fatal(err)
	}
	c.write(name, string(text))
}
