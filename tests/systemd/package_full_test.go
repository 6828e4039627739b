//go:build full

package systemd

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file installs the Debian package on a booted machine, upgrades it under running programs, goes back to the version
// before, and removes it. tests/packages examines the packages themselves.

// earlier is the version that the package of the commit before gets, because both commits may have the same version.
const earlier = "0.0.9"

// debs builds the package of the commit before and that of this commit into the machine's /mnt, and returns their paths there.
func (h *host) debs() (before, now string) {
	h.t.Helper()
	clone := filepath.Join(h.t.TempDir(), "before")
	here(h.t, "git", "clone", "--quiet", "--shared", ".", clone)
	here(h.t, "git", "-C", clone, "checkout", "--quiet", "HEAD~1")
	return h.build(clone, []string{"gpuarb"}, "VERSION="+earlier)[0], h.build("../..", []string{"gpuarb"})[0]
}

// build builds packages in a checkout, copies their .deb into the machine's /mnt, and returns their paths there, in the same order.
func (h *host) build(checkout string, packages []string, settings ...string) (paths []string) {
	h.t.Helper()
	args := append([]string{"-u", "MAKEFLAGS", "-u", "MAKELEVEL", "make", "-s", "-C", mustAbs(h.t, checkout), "packages", "PACKAGES=" + strings.Join(packages, " ")}, settings...)
	within(h.t, rootWithin, "env", args...)
	for _, name := range packages {
		found, err := filepath.Glob(filepath.Join(checkout, "build/packages", name+"_*.deb"))
		if err != nil || len(found) != 1 {
			h.t.Fatalf("packages %s in %s: %q, %v", name, checkout, found, err)
		}
		here(h.t, "cp", "--", mustAbs(h.t, found[0]), h.root+"/mnt")
		paths = append(paths, "/mnt/"+filepath.Base(found[0]))
	}
	return paths
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// apt runs apt-get, which must succeed, and returns what it prints.
func (h *host) apt(arguments string) string {
	h.t.Helper()
	return h.shell("DEBIAN_FRONTEND=noninteractive apt-get --yes --no-install-recommends --allow-downgrades " + arguments + " 2>&1")
}

// page runs the commands of a page that build and install packages, as root. The packages are built already: debs are their paths.
func (h *host) page(commands string, debs ...string) {
	h.t.Helper()
	commands = regexp.MustCompile("(?m)^make packages .*$").ReplaceAllString(commands, ":")
	for _, deb := range debs {
		name, _, _ := strings.Cut(filepath.Base(deb), "_")
		commands = strings.ReplaceAll(commands, "./build/packages/"+name+"_*.deb", deb)
	}
	commands = strings.NewReplacer("sudo apt install", "DEBIAN_FRONTEND=noninteractive apt-get --yes --no-install-recommends --allow-downgrades install", "sudo ", "").Replace(commands)
	if got := h.shell("set -e\n" + commands); strings.Contains(got, "FAIL") {
		h.t.Errorf("%s\n%s", commands, got)
	}
}

// files lists all files of the machine, without those of dpkg and apt themselves, logs, and the list of users.
func (h *host) files() string {
	return h.shell(`find / -xdev -path /mnt -prune -o -path /var/log -prune -o -path /var/cache -prune -o -path /var/lib/dpkg -prune -o -path /var/lib/apt -prune -o -path /tmp -prune -o -print |
		grep -vE '^/etc/(passwd|group|shadow|gshadow)-?$|^/etc/\.pwd\.lock$|^/var/lib/systemd/(random-seed|timers)' | sort`)
}

// bound starts a program in a unit whose cgroup has a job with the budget of the other programs.
func (h *host) bound() *rig.Program {
	h.t.Helper()
	const script = "gpuarb job open --cgroup /system.slice/bound.service --memory %d --name bound >/dev/null && LD_PRELOAD=/usr/lib/gpuarb/libgpuarb.so exec cudaprog-dlsym"
	return h.Interact(h.command(fmt.Sprintf("exec systemd-run --quiet --wait --pipe --collect --unit=bound sh -c '"+script+"'", budget)))
}

// TestFullSystemdPackage: the package starts the daemon. All programs survive an upgrade and a downgrade with their budgets, as does a
// program in the job of a cgroup. Removal takes back what was enabled. A purge leaves nothing but system users. Programs run until after the purge.
func TestFullSystemdPackage(t *testing.T) {
	h := prepare(t)
	before, now := h.debs()
	h.start()
	clean := h.files()
	h.apt("install " + before)
	daemon := func(want string) {
		t.Helper()
		if got := h.shell("systemctl is-active gpuarbd.socket gpuarbd.service; systemctl is-enabled gpuarbd.socket; gpuarb version"); !strings.HasPrefix(got, "active\nactive\nenabled\n") ||
			!strings.Contains(got, "gpuarbd "+want) {
			t.Errorf("the daemon of %s:\n%s", want, got)
		}
	}
	daemon(earlier)

	programs := []*rig.Program{h.bound()}
	for range 2 {
		programs = append(programs, h.Interact(h.command(fmt.Sprintf("exec gpuarb run --memory %d -- cudaprog-dlsym", budget))))
	}
	for _, p := range programs {
		p.Want(fmt.Sprintf("alloc a %d", held), "ok")
	}
	want := h.rows(h.shell("cat /gpu/leases"))
	version := strings.Split(filepath.Base(now), "_")[1]
	for i, step := range []struct{ deb, version string }{{now, version}, {before, earlier}, {now, version}} {
		readers := h.read(want, false)
		h.apt("install " + step.deb)
		daemon(step.version)
		t.Logf("%s: a reader saw %s", step.deb, readers.end())
		if got := h.shell("gpuarb job list"); !strings.Contains(got, " bound ") {
			t.Errorf("the job of the cgroup is not there any more:\n%s", got)
		}
		for _, p := range programs {
			name := fmt.Sprint("b", i)
			p.Want(fmt.Sprintf("alloc %s %d", name, budget), "err 2") // beyond the budget with what it holds
			p.Want(fmt.Sprintf("alloc %s %d", name, budget-held), "ok")
			p.Want("free "+name, "ok")
		}
	}

	// An upgrade keeps the settings of the administrator.
	h.shell("systemctl disable gpuarbd.service; echo '# mine' >>/etc/gpuarb/gpuarb.toml")
	h.apt("install " + before)
	if got := h.shell("systemctl is-enabled gpuarbd.service || true; tail -n 1 /etc/gpuarb/gpuarb.toml"); got != "disabled\n# mine" {
		t.Errorf("after an upgrade: %q", got)
	}
	if got := h.shell("stat -c '%a %U' /run/cdi/gpuarb.json; grep -c '\"path\": \"/usr/bin/gpuarb\"' /run/cdi/gpuarb.json"); !strings.HasPrefix(got, "644 root\n") {
		t.Errorf("the devices for containers: %q", got)
	}
	h.page(blocks(t, "../README.md")[1], now)
	h.page(blocks(t, "admin/packages.md")[0], now)

	h.shell("useradd --system ann; printf '[Service]\\nExecStart=/bin/sleep infinity\\n' >/etc/systemd/system/model.service; systemctl daemon-reload")
	h.shell("gpuarb enable --all && gpuarb enable --user ann && gpuarb enable --unit model")
	got := h.apt("remove gpuarb")
	for _, line := range []string{"disabled: all programs", "disabled: user ann", "disabled: unit model.service"} {
		if !strings.Contains(got, line) {
			t.Errorf("the removal does not say %q:\n%s", line, got)
		}
	}
	if got := h.shell("systemctl is-active gpuarbd.socket gpuarbd.service || true; ls -d /run/gpuarb /run/cdi /gpu /etc/ld.so.preload 2>/dev/null || true; ls /etc/gpuarb"); got != "inactive\ninactive\ngpuarb.toml" {
		t.Errorf("after the removal:\n%s", got)
	}
	h.apt("purge gpuarb")
	for _, p := range programs {
		p.Want(fmt.Sprintf("alloc more %d", budget-held+1), "err 2") // also without a daemon
		p.Want("free a", "ok")
		p.End()
	}
	h.shell("rm /etc/systemd/system/model.service; userdel ann; systemctl daemon-reload")
	if after := h.files(); after != clean {
		t.Errorf("after the purge:\n%s", difference(t, clean, after))
	}
	if got := h.shell("systemctl list-unit-files --no-legend 'gpuarb*' || true; getent passwd gpuarb-http gpuarb-history | cut -d: -f1,7"); got != "gpuarb-http:/usr/sbin/nologin\ngpuarb-history:/usr/sbin/nologin" {
		t.Errorf("after the purge: %s", got)
	}
}

// difference returns the lines that only one of two texts has.
func difference(t *testing.T, before, after string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"before": before, "after": after} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, _ := bounded.Command(t, bounded.Patience, "diff", filepath.Join(dir, "before"), filepath.Join(dir, "after")).CombinedOutput()
	return string(out)
}
