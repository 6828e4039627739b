//go:build full

package systemd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file follows docs/admin/notebooks.md for a JupyterHub that starts a unit of the system for each user's server. systemd-run stands
// in for the spawner, and starts the units as systemdspawner does. tests/notebooks has a real hub with children.

// server starts a program with arguments for a user as the spawner does. It is a server with two notebooks: the first holds 2 GiB
// from the start, and the test speaks to the second.
func (h *host) server(user string) *rig.Program {
	h.t.Helper()
	const script = `cd; mkfifo first; cudaprog-dlsym <first >first.out & exec 5>first; echo alloc a 2G >&5; ` +
		`until grep -q "alloc a ok" first.out; do sleep 0.1; done; exec cudaprog-dlsym`
	return h.Interact(h.command(fmt.Sprintf("exec systemd-run --quiet --wait --pipe --collect --unit=jupyter-%s-singleuser --uid=%[1]s "+
		"--setenv=HOME=/home/%[1]s --setenv=SIMCUDA_DIR=/dev/shm/simcuda-0 sh -c '%s'", user, script)))
}

// TestFullSystemdHub: with the page's rule and commands, all notebooks of a user's server share one budget, each user has one, and programs
// outside of the hub have none.
func TestFullSystemdHub(t *testing.T) {
	h := boot(t)
	h.shell("for user in ann bob; do useradd --create-home --shell /bin/sh $user; done")
	h.shell("cat >/etc/gpuarb/conf.d/hub.toml <<'.'\n" + strings.Replace(blocksOf(t, "admin/notebooks.md", "toml")[0], "8GiB", "3GiB", 1) + ".")
	if got := h.shell(blocks(t, "admin/notebooks.md")[0]); !strings.Contains(got, "/etc/ld.so.preload") {
		t.Errorf("the state after the page's commands:\n%s", got)
	}
	ann := h.server("ann")
	ann.Want("alloc b 1G", "ok")
	ann.Want("alloc c 1", "err 2")
	bounded.Until(t, "the refusal names the budget", func() bool {
		return strings.Contains(ann.Stderr(), "0 bytes left of cgroup /system.slice/jupyter-ann-singleuser.service's 3 GiB budget")
	})
	bob := h.server("bob")
	bob.Want("alloc b 1G", "ok")
	bob.Want("alloc c 1", "err 2")
	other := h.Interact(h.command("exec cudaprog-dlsym --device 1"))
	other.Want("alloc a 4G", "ok")
	if got := h.shell("cat /gpu/budgets"); !strings.Contains(got, "/system.slice/jupyter-ann-singleuser.service") || !strings.Contains(got, "/system.slice/jupyter-bob-singleuser.service") {
		t.Errorf("the budgets:\n%s", got)
	}
	for _, p := range []*rig.Program{ann, bob, other} {
		t.Logf("%s", p.End())
	}
	h.served(nil)
	h.shell("gpuarb disable --all")
}
