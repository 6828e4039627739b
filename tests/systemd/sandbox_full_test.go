//go:build full

package systemd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file upgrades a service whose unit has no sandbox to this version's unit, and goes back, while programs run.
// service_full_test.go has the tests of this version's unit alone.

// release is a version of gpuarb that can be installed on a machine, also while the machine runs.
type release struct {
	name    string
	install func()
	spaces  string // 1: the daemon is in the mount namespace of process 1; 2: it has one of its own
	mounts  string // 1: the unit gives the daemon the right to mount; 0: it does not
}

// installPrevious replaces the installed programs, library and units by those of the version before. The file tests/upgrade/previous has
// the commit of that version.
func (h *host) installPrevious() {
	h.t.Helper()
	commit, err := os.ReadFile("../upgrade/previous")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, unit := range []string{"gpuarbd.service", "gpuarbd.socket"} {
		here(h.t, "sh", "-c", `git show "$0" >"$1"`, strings.TrimSpace(string(commit))+":systemd/"+unit, filepath.Join(h.root, "usr/lib/systemd/system", unit))
	}
	for _, program := range []string{"gpuarb", "gpuarbd"} {
		here(h.t, "install", "-m", "755", rig.Build(h.t, "previous/"+program), filepath.Join(h.root, "usr/bin"))
	}
	library := filepath.Join(h.root, "usr/lib/gpuarb/libgpuarb.so")
	here(h.t, "sh", "-c", `install -m 755 "$0" "$1.new" && mv "$1.new" "$1"`, rig.Build(h.t, "previous/libgpuarb.so"), library) // a rename, because programs have the old file mapped
}

// TestFullSystemdSandbox: programs keep running with their budgets and reservations while the service changes from a unit without a sandbox
// to this version's unit, back, and once more. After each change /gpu is mounted once on the machine. A daemon discards the state file if
// the name of the boot in it differs from the name that the daemon reads. In the container of this test, the sandbox hides a mount over the
// kernel's file with that name. So daemons with and without the sandbox could read different names.
func TestFullSystemdSandbox(t *testing.T) {
	h := prepare(t)
	h.install()
	h.installPrevious()
	h.start()
	releases := []release{{"the version before", h.installPrevious, "1", "1"}, {"this version", h.install, "2", "0"}}
	check := func(r release) {
		t.Helper()
		const service = "$(systemctl show -P MainPID gpuarbd.service)"
		spaces := h.shell("readlink /proc/" + service + "/ns/mnt /proc/1/ns/mnt | uniq | wc -l")
		mounts := h.shell("systemctl show -P CapabilityBoundingSet gpuarbd.service | grep -c cap_sys_admin || true")
		if spaces != r.spaces || mounts != r.mounts {
			t.Fatalf("%s: %s mount namespaces, want %s; right to mount: %s, want %s", r.name, spaces, r.spaces, mounts, r.mounts)
		}
		if got := h.shell("grep -c ' /gpu ' /proc/self/mounts"); got != "1" {
			t.Errorf("%s: %s mounts on /gpu, want 1", r.name, got)
		}
	}
	check(releases[0])

	var programs []*rig.Program
	for _, reserve := range []string{"", "--min 32M"} {
		p := h.Interact(h.command(fmt.Sprintf("exec gpuarb run --memory %d %s -- cudaprog-dlsym", budget, reserve)))
		p.Want(fmt.Sprintf("alloc a %d", held), "ok")
		programs = append(programs, p)
	}
	want := h.rows(h.shell("cat /gpu/leases"))
	const reservations = "cat /gpu/jobs/*/memory.min | sort -n"
	if got := h.shell(reservations); len(want) != 2 || got != "0\n33554432" {
		t.Fatalf("rows %q, reservations %q", want, got)
	}
	for _, i := range []int{1, 0, 1} {
		r := h.read(want, false)
		releases[i].install()
		h.shell("systemctl daemon-reload; systemctl restart gpuarbd.service")
		h.served(want)
		t.Logf("%s: a reader saw %s", releases[i].name, r.end())
		check(releases[i])
		if got := h.shell(reservations); got != "0\n33554432" {
			t.Errorf("%s: the reservations are %q", releases[i].name, got)
		}
		for _, p := range programs {
			p.Want("free a", "ok")
			p.Want(fmt.Sprintf("alloc a %d", held), "ok")
			p.Want(fmt.Sprintf("alloc b %d", budget-held+1), "err 2")
		}
	}
	for _, p := range programs {
		p.End()
	}
	h.served(nil)
}
