//go:build full

package systemd

import (
	"strings"
	"testing"
)

// This file shows what systemd and users see when the configuration of the service has a mistake.
// service_full_test.go has the service without mistakes.

// TestFullSystemdConfiguration: a mistake in the configuration fails the reload and changes nothing.
// A service that restarts with a mistake runs with its last good configuration, and every table says so. Without such
// a configuration the service stays down, however often programs ask for it, but reaches no start limit of systemd. It
// starts as soon as the mistake is corrected.
func TestFullSystemdConfiguration(t *testing.T) {
	h := boot(t)
	const (
		file    = "/etc/gpuarb/conf.d/test.toml"
		mistake = "echo 'memroy.max = 1' >" + file + "; "
		mended  = "echo '[defaults]\nstreams.max = 100' >" + file + "; "
		states  = "systemctl is-active gpuarbd.service gpuarbd.socket || true"
	)
	p := h.Interact(h.command("exec gpuarb run --memory 64M -- cudaprog-dlsym"))
	p.Want("alloc a 1048576", "ok")
	shown := h.shell(mistake + `
		if systemctl reload gpuarbd; then echo "the reload succeeds"; fi
		journalctl --sync
		systemctl status --no-pager gpuarbd`)
	if strings.Contains(shown, "the reload succeeds") || !strings.Contains(shown, file+`:1: unknown key "memroy.max"`) {
		t.Errorf("a reload with a mistake:\n%s", shown)
	}
	if got := h.shell(states); got != "active\nactive" || len(h.rows(h.shell("cat /gpu/leases"))) != 1 {
		t.Errorf("after the reload the units are %q", got)
	}
	shown = h.shell(mistake + "systemctl restart gpuarbd; gpuarb ps 2>&1")
	if !strings.Contains(shown, "the last one without is in force") || !strings.Contains(shown, file+`:1: unknown key "memroy.max"`) {
		t.Errorf("a restart with a mistake:\n%s", shown)
	}
	shown = h.shell(mistake + `
		rm -r /var/lib/gpuarb/config
		for i in 1 2 3 4 5 6 7; do
			if systemctl restart gpuarbd; then echo "the restart succeeds"; fi
			for j in $(seq 30); do ! gpuarb ps 2>/dev/null || echo "a daemon answers"; done
		done 2>&1
		journalctl --sync
		systemctl status --no-pager gpuarbd || true`)
	if strings.Contains(shown, "succeeds") || strings.Contains(shown, "a daemon answers") || !strings.Contains(shown, "status=78") {
		t.Errorf("restarts with a mistake:\n%s", shown)
	}
	if got := h.shell("systemctl show -P Result gpuarbd.service gpuarbd.socket"); got != "exit-code\n\nsuccess" {
		t.Errorf("the units ended with %q", got)
	}
	if got := h.shell(mended + "systemctl start gpuarbd; " + states); got != "active\nactive" {
		t.Errorf("after the mistake was mended the units are %q", got)
	}
	p.Want("alloc b 1048576", "ok")
	p.End()
	h.shell("rm " + file + "; systemctl reload gpuarbd")
}
