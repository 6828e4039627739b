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

// checkRPM asks rpm about the package, installs, checks and removes it.
func checkRPM(t *testing.T, file string) {
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
	inside("gpuarb enable --all && test -s /etc/ld.so.preload && echo '# mine' >>/etc/gpuarb/gpuarb.toml")
	rpm("--upgrade", "--force", file)
	if got := inside("tail -n 1 /etc/gpuarb/gpuarb.toml; cat /etc/ld.so.preload"); got != "# mine\n/usr/lib/gpuarb/libgpuarb.so" {
		t.Errorf("after an upgrade:\n%s", got)
	}
	rpm("--erase", "gpuarb")
	for _, path := range []string{"etc/ld.so.preload", "usr/bin/gpuarb", "usr/lib/gpuarb", "gpu"} {
		if _, err := os.Lstat(filepath.Join(root, path)); err == nil {
			t.Errorf("after the removal there is %s", path)
		}
	}
	if got := inside("ls /etc/gpuarb"); got != "gpuarb.toml.rpmsave" {
		t.Errorf("after the removal /etc/gpuarb has %q", got)
	}
}
