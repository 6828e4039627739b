//go:build full

package systemd

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file shows that a service of docs/admin/control.md keeps its socket, its notifications and its watchdog
// when `gpuarb run` starts it. The test program service (tests/programs/service.c) says what it was given.

// wrappedSocket is the socket unit for the service that docs/admin/control.md runs by `gpuarb run`.
const wrappedSocket = `[Socket]
ListenStream=/run/wrapped.sock
`

// TestFullSystemdWrapped checks that a service with a socket unit, Type=notify and WatchdogSec= works behind `gpuarb run`, as on the page,
// and behind --exec=false with the lines that the page adds for that. It waits until the service has notified its watchdog again.
func TestFullSystemdWrapped(t *testing.T) {
	h := boot(t)
	here(t, "cp", "build/programs/service", h.root+"/usr/bin/model-server")
	unit := strings.NewReplacer("WatchdogSec=30", "WatchdogSec=2", "--memory 8G --min 8G", "--memory 64M --min 64M").
		Replace(blocksOf(t, "admin/control.md", "ini")[0])
	h.shell("cat >/etc/systemd/system/wrapped.socket <<'.'\n" + wrappedSocket + ".")
	for _, c := range []struct{ name, unit string }{
		{"as the page has it", unit},
		{"with a wrapper", strings.Replace(unit, "run --", "run --exec=false --", 1) + "NotifyAccess=all\nSuccessExitStatus=143\n"},
	} {
		h.shell("cat >/etc/systemd/system/wrapped.service <<'.'\n" + c.unit + ".\nsystemctl daemon-reload; systemctl restart wrapped.socket; systemctl start wrapped.service")
		main := h.shell("systemctl show -P MainPID wrapped.service")
		first := h.answer("/run/wrapped.sock")
		if want := "ready yes watchdog yes pipe ignored"; !strings.HasSuffix(first, want) {
			t.Errorf("%s: the service says %q, want %q", c.name, first, want)
		}
		if c.unit == unit && !strings.HasPrefix(first, fmt.Sprintf("pid %s ", main)) {
			t.Errorf("the service says %q, and its unit's process is %s", first, main)
		}
		before := h.shell("systemctl show -P WatchdogTimestampMonotonic wrapped.service")
		bounded.Until(t, "the watchdog has been heard of again", func() bool {
			return h.shell("systemctl show -P WatchdogTimestampMonotonic wrapped.service") != before
		})
		if got := h.shell("systemctl show -P NRestarts wrapped.service; systemctl is-active wrapped.service"); got != "0\nactive" {
			t.Errorf("%s: restarts and state of the unit are %q", c.name, got)
		}
		if got := h.shell("gpuarb jobs"); !strings.Contains(got, "64MiB") || !strings.Contains(got, "model-server") {
			t.Errorf("%s: the jobs are\n%s", c.name, got)
		}
		h.shell("systemctl stop wrapped.service wrapped.socket")
		if got := h.shell("systemctl show -P Result wrapped.service"); got != "success" {
			t.Errorf("%s: the unit ends with %q", c.name, got)
		}
		bounded.Until(t, "its job has ended", func() bool { return !strings.Contains(h.shell("gpuarb jobs"), "model-server") })
	}
}

// answer returns the line that a service on the machine sends to a client of its socket.
func (h *host) answer(socket string) string {
	h.t.Helper()
	conn, err := net.Dial("unix", fmt.Sprintf("/proc/%d/root%s", h.leader, socket))
	if err != nil {
		h.t.Fatal(err)
	}
	defer conn.Close()
	text, err := io.ReadAll(conn)
	if err != nil {
		h.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
