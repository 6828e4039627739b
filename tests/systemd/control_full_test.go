//go:build full

package systemd

import (
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file shows that services, sessions and all programs are put under gpuarb on a booted machine and
// released without a trace, and that the uninstaller leaves what it says. tests/scenes/testdata/enable.sh and
// uninstall.sh show it without systemd.

// modelService is a service that does not know gpuarb: it takes 48 MiB and keeps them. It already preloads another
// library.
const modelService = `[Service]
User=ann
Environment=LD_PRELOAD=libdl.so.2 "MODEL=a b" SIMCUDA_DIR=/dev/shm/simcuda-0
ExecStart=/bin/sh -c 'rm -f ~/in; mkfifo ~/in; exec 3<>~/in; echo alloc a 50331648 >&3; exec cudaprog-dlsym <&3'
[Install]
WantedBy=multi-user.target
`

// TestFullSystemdControl plays a home server. A rule for a service has no effect until the service is
// put under gpuarb. Then it holds, over restarts of both. When the service is released again,
// all files are as before.
func TestFullSystemdControl(t *testing.T) {
	h := boot(t)
	h.shell("useradd --create-home --shell /bin/sh ann")
	h.shell("cat >/etc/systemd/system/model.service <<'.'\n" + modelService + ".\nsystemctl daemon-reload; systemctl enable --now model")
	h.shell("printf '[[rule]]\nmatch.unit = \"model.service\"\nmemory.max = \"64MiB\"\n' >/etc/gpuarb/conf.d/model.toml; systemctl reload gpuarbd")
	const state = "cd /etc; find . -type f -exec md5sum {} + | sort; find . -type d | sort"
	before := h.shell(state)
	unmanaged := func() bool {
		return strings.Contains(h.shell("gpuarb doctor || true"), "model.service: cudaprog-dlsym[")
	}
	bounded.Until(t, "the service is seen as unmanaged", unmanaged)
	if got := h.shell("gpuarb doctor || true"); !strings.Contains(got, "model.service") || !strings.Contains(got, "gpuarb enable --unit model.service") {
		t.Errorf("doctor does not name the programs without gpuarb:\n%s", got)
	}

	h.shell("gpuarb enable --unit model --memory 1G --now")
	budget := func(want string) {
		t.Helper()
		bounded.Until(t, "the service has a lease of "+want, func() bool {
			out, err := h.command("cat /gpu/leases").Output()
			return err == nil && strings.Contains(string(out), " ann ") && strings.Contains(string(out), " 50331648 "+want+" ")
		})
	}
	budget("67108864")
	h.shell("systemctl restart model")
	budget("67108864")
	h.shell("systemctl restart gpuarbd")
	budget("67108864")
	if got := h.shell("systemctl show -P Environment model; gpuarb status"); !strings.Contains(got, "libgpuarb.so:libdl.so.2") || !strings.Contains(got, "MODEL=a b") ||
		!strings.Contains(got, "GPUARB_MEMORY=1G") || !strings.Contains(got, "1 of 1 processes") {
		t.Errorf("the service's environment and the state:\n%s", got)
	}
	if got := h.shell("gpuarb doctor || true"); !strings.Contains(got, "unit model.service") {
		t.Errorf("doctor does not name the service under gpuarb:\n%s", got)
	}
	h.shell("gpuarb enable --unit model --memory 50M --now") // the smaller limit wins: the command's, not the rule's
	budget("52428800")

	h.shell("gpuarb disable --unit model --now")
	bounded.Until(t, "the service is seen as unmanaged again", unmanaged)
	if after := h.shell(state); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	for script, want := range map[string]string{
		"gpuarb enable --unit nothere": "systemd has no unit nothere.service",
		"gpuarb enable --unit gpuarbd": "the daemon itself",
		"gpuarb disable --unit model":  "was not enabled",
		"sed -i s/User=ann/User=nobodyatall/ /etc/systemd/system/model.service; gpuarb enable --unit model": "nothing was changed",
	} {
		if got := h.shell("! { " + script + "; } 2>&1"); !strings.Contains(got, want) {
			t.Errorf("%s:\n%s\nwant %q", script, got, want)
		}
	}

	h.shell("sed -i s/User=nobodyatall/User=ann/ /etc/systemd/system/model.service; systemctl daemon-reload")

	// Put sessions under gpuarb, including those of a user's own systemd manager, and then all programs.
	h.shell("gpuarb enable --user ann --memory 2G")
	own := h.shell(`loginctl enable-linger ann; systemctl restart user@$(id -u ann)
		su --login ann --command 'XDG_RUNTIME_DIR=/run/user/$(id -u) systemctl --user show-environment'`)
	if !strings.Contains(own, "LD_PRELOAD=/usr/lib/gpuarb/libgpuarb.so") || !strings.Contains(own, "GPUARB_MEMORY=2G") {
		t.Errorf("a user's own services have\n%s", own)
	}
	// The service's process has the environment of systemd until it executes the program.
	const environ = "xargs -0n1 </proc/$(systemctl show --property=MainPID --value model)/environ"
	const environment = "systemctl restart model && until " + environ + " | grep -q ^MODEL=; do :; done; " + environ
	if got := h.shell("gpuarb enable --all && " + environment); !strings.Contains(got, "GPUARB_VULKAN=1") {
		t.Errorf("with all programs under gpuarb, a service has\n%s", got)
	}
	h.shell("systemctl daemon-reexec && systemctl restart gpuarbd model && gpuarb disable --all && gpuarb disable --user ann")
	if got := h.shell(environment); strings.Contains(got, "GPUARB_VULKAN") {
		t.Errorf("with no program under gpuarb, a service has\n%s", got)
	}
	if got := h.shell("ls /etc/ld.so.preload /etc/gpuarb 2>/dev/null || true"); strings.Contains(got, "session") || strings.Contains(got, "everywhere") {
		t.Errorf("there is left: %s", got)
	}

	// The uninstaller refuses while programs need gpuarb, and names them. Afterwards it lists what remains.
	here(t, "cp", "tools/install.sh", h.root+"/mnt")
	const uninstall = "PREFIX=/usr bash /mnt/install.sh --remove 2>&1"
	h.shell("gpuarb enable --user ann")
	if got := h.shell("! " + uninstall); !strings.Contains(got, "gpuarb disable --user ann") {
		t.Errorf("uninstall while something is enabled:\n%s", got)
	}
	got := h.shell("gpuarb disable --user ann && " + uninstall + "; systemctl is-active gpuarbd.socket gpuarbd.service || true; find / -xdev -path /proc -prune -o -name '*gpuarb*' -print")
	for _, want := range []string{"left: /etc/gpuarb; to remove it: rm -r /etc/gpuarb", "left: /var/lib/gpuarb; to remove it: rm -r /var/lib/gpuarb",
		"left: the user gpuarb-history; to remove it: userdel gpuarb-history", "left: /gpu; to remove it: rmdir /gpu", "inactive\ninactive\n/etc/gpuarb\n/etc/gpuarb/gpuarb.toml"} {
		if !strings.Contains(got, want) {
			t.Errorf("uninstall:\n%s\nwant %q", got, want)
		}
	}
}
