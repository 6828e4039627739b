//go:build full

package packages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// This file installs the .rpm below a folder that has a Debian system. The package's scripts need a shell and the tools
// of systemd, and rpm runs them in that system.

// checkRPM asks rpm about the packages, installs, checks and removes them. The packages in more
// depend on the package in file.
func checkRPM(t *testing.T, file string, more ...string) {
	if got := run(t, ".", "rpm", "--query", "--package", "--queryformat", "%{NAME} %{LICENSE} %{BUILDHOST}", file); !strings.HasSuffix(got, "gpuarb Apache-2.0 localhost") {
		t.Errorf("the package is %q", got)
	}
	root := filepath.Join(t.TempDir(), "root")
	run(t, "../..", "tools/fresh-root.sh", "--make", root, "systemd")
	with := func(command ...string) string { // runs a command while the system has its /proc and /dev
		t.Helper()
		const mounts = `mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev" && exec "$@"`
		return run(t, ".", "unshare", append([]string{"--mount", "--pid", "--fork", "sh", "-c", mounts, root}, command...)...)
	}
	inside := func(script string) string { return with("chroot", root, "sh", "-c", script) }
	rpm := func(args ...string) { t.Log(with(append([]string{"rpm", "--root", root, "--nodeps"}, args...)...)) }
	rpm("--install", file)
	rpm("--verify", "gpuarb")
	if got := inside("gpuarb version; getent group gpuarb; getent passwd gpuarb-history; stat -c '%a %U' /gpu"); !strings.HasPrefix(got, "gpuarb ") || !strings.HasSuffix(got, "555 root") {
		t.Errorf("after the installation:\n%s", got)
	}
	version := run(t, ".", "rpm", "--query", "--package", "--queryformat", "%{VERSION}", file)
	for _, other := range more {
		if needs := run(t, ".", "rpm", "--query", "--package", "--requires", other); !strings.Contains(needs, "gpuarb = "+version) {
			t.Errorf("%s needs %s", filepath.Base(other), needs)
		}
		rpm("--install", other)
		rpm("--upgrade", "--force", other)
	}
	rpm("--verify", "gpuarb-slurm", "gpuarb-kube")
	inside("gpuarb-nri --help 2>&1 | grep -q cdi && test -s /usr/lib/gpuarb-slurm/gpuarb.so && sh -n /usr/lib/gpuarb-slurm/prolog && systemctl --root=/ list-unit-files gpuarb-nri.service >/dev/null")
	rpm("--erase", "gpuarb-slurm", "gpuarb-kube")
	inside("gpuarb enable --all && test -s /etc/ld.so.preload && echo '# mine' >>/etc/gpuarb/gpuarb.toml")
	rpm("--upgrade", "--force", file)
	if got := inside("tail -n 1 /etc/gpuarb/gpuarb.toml; cat /etc/ld.so.preload"); got != "# mine\n/usr/lib/gpuarb/libgpuarb.so" {
		t.Errorf("after an upgrade:\n%s", got)
	}
	rpm("--erase", "gpuarb")
	for _, path := range []string{"etc/ld.so.preload", "usr/bin/gpuarb", "usr/lib/gpuarb", "usr/lib/gpuarb-slurm", "usr/bin/gpuarb-nri", "gpu"} {
		if _, err := os.Lstat(filepath.Join(root, path)); err == nil {
			t.Errorf("after the removal there is %s", path)
		}
	}
	if got := inside("ls /etc/gpuarb"); got != "gpuarb.toml.rpmsave" {
		t.Errorf("after the removal /etc/gpuarb has %q", got)
	}
}
