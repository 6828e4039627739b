package containers

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file makes what containers are started from: an installation of gpuarb, and a root folder with a test program.

// installation is gpuarb as `make install` puts it below a folder of a machine.
type installation struct{ prefix string }

// installed installs the build below the machine's folder.
func installed(t testing.TB, m *rig.Machine) installation {
	t.Helper()
	i := installation{filepath.Join(m.Dir, "usr")}
	i.from(t, filepath.Dir(rig.Build(t, "gpuarb")))
	return i
}

// from installs a build over what is there.
func (i installation) from(t testing.TB, build string) {
	t.Helper()
	cmd := bounded.Command(t, bounded.Patience, "tools/install.sh", build)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "DESTDIR=", "PREFIX="+i.prefix, "SYSCONFDIR="+filepath.Join(filepath.Dir(i.prefix), "etc"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("install.sh: %v\n%s", err, out)
	}
}

// command returns the path of the installed gpuarb.
func (i installation) command() string { return filepath.Join(i.prefix, "bin/gpuarb") }

// folder returns the folder of the installed library.
func (i installation) folder() string { return filepath.Join(i.prefix, "lib/gpuarb") }

// image makes a root folder with only the test program, the programs more, their libraries and the driver.
func image(t testing.TB, m *rig.Machine, more ...string) string {
	t.Helper()
	root := filepath.Join(m.Dir, "root")
	program := rig.Build(t, "programs/cudaprog-dlsym")
	files := map[string]string{program: "/cudaprog-dlsym", rig.Build(t, "sim/libcuda.so.1"): "/usr/lib/libcuda.so.1",
		rig.Build(t, "sim/libnvidia-ml.so.1"): "/usr/lib/libnvidia-ml.so.1"}
	for _, name := range more {
		files[name] = name
	}
	for _, name := range append([]string{program}, more...) {
		linked, err := exec.Command("ldd", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		for word := range strings.FieldsSeq(string(linked)) {
			if strings.HasPrefix(word, "/") {
				files[word] = word
			}
		}
	}
	for _, dir := range []string{"proc", "sys", "dev", "run", "tmp", "etc", "usr/bin"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range files {
		place(t, from, filepath.Join(root, to))
	}
	return root
}

// place copies a file and makes the folders above the copy.
func place(t testing.TB, from, to string) {
	t.Helper()
	install := bounded.Command(t, bounded.Patience, "install", "-D", from, to)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
