//go:build full

package systemd

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file runs the units of docs/admin/model-servers.md: a server that systemd starts when a client connects, and stops when another
// program waits for its memory. tests/evict has the servers that are asked by a call.

// TestFullSystemdModelServer: a server that needs three seconds to start answers its first connection. It is stopped while it is idle and
// another program waits, holds nothing then, and answers the next connection as soon as there is room again.
func TestFullSystemdModelServer(t *testing.T) {
	h := boot(t, "python3-minimal", "python3")
	here(t, "cp", "tests/programs/model-server", "build/sim/simcuda", h.root+"/usr/bin")
	h.shell("cat >/etc/gpuarb/conf.d/times.toml <<'.'\n[defaults]\non_full = \"wait\"\ndevices = [0]\nevict.after = \"500ms\"\nevict.idle_after = \"1s\"\nevict.min_resident = \"1s\"\n.")
	const front, second = "18461", "18463" // the machine shares the network of the tests
	h.serve("model", front, "18462")
	used := func() uint64 {
		n, err := strconv.ParseUint(h.shell("simcuda used 0"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	asked := make(chan error, 1)
	ask := func(front string) { // a client with one connection
		client := http.Client{Timeout: bounded.Patience, Transport: &http.Transport{DisableKeepAlives: true}}
		begin := time.Now()
		r, err := client.Post("http://127.0.0.1:"+front+"/v1/completions", "application/json", strings.NewReader(`{"prompt": "a"}`))
		if err != nil {
			asked <- err
			return
		}
		defer r.Body.Close()
		if text, _ := io.ReadAll(r.Body); r.StatusCode != http.StatusOK || !strings.Contains(string(text), "hello") {
			err = fmt.Errorf("%s: %s", r.Status, text)
		}
		t.Logf("an answer after %v", time.Since(begin).Round(10*time.Millisecond))
		asked <- err
	}

	if n := used(); n != 0 {
		t.Errorf("before the first connection the driver has %d bytes in use", n)
	}
	begin := time.Now()
	ask(front)
	if err := <-asked; err != nil || time.Since(begin) < 3*time.Second {
		t.Fatalf("the first connection: %v, after %v\n%s", err, time.Since(begin), h.shell("systemctl --no-pager status model.service model-front.service || true"))
	}
	alone := used()
	if alone < 6<<30 {
		t.Errorf("the server holds %d bytes", alone)
	}

	other := h.Interact(h.command("exec gpuarb run -- cudaprog-dlsym"))
	other.Want("alloc a 4294967296", "ok")
	if got := h.shell("systemctl is-active model.service model-front.socket || true"); got != "inactive\nactive" {
		t.Errorf("the server and its socket are %q", got)
	}
	context := alone - 6<<30
	if n := used(); n != 4<<30+context {
		t.Errorf("beside the other program's 4 GiB and its context the driver has %d bytes in use", n-4<<30-context)
	}

	go ask(front)
	bounded.Until(t, "the server's start waits for room", func() bool { return strings.Contains(h.shell("gpuarb queue"), "model-server") })
	select {
	case err := <-asked:
		t.Errorf("an answer without room: %v", err)
	default:
	}
	other.Want("free a", "ok")
	if err := <-asked; err != nil {
		t.Errorf("the second connection: %v", err)
	}
	other.End()

	// Two servers that do not fit together take turns, because the start of each waits for the other's memory.
	h.serve("second", second, "18464")
	for _, port := range []string{second, front, second} {
		ask(port)
		if err := <-asked; err != nil {
			t.Errorf("of two servers: %v", err)
		}
		if n := used(); n != alone {
			t.Errorf("of two servers one is there, and the driver has %d bytes in use, want %d", n, alone)
		}
	}
	h.shell("systemctl stop second.service")
	bounded.Until(t, "everything is given back", func() bool { return used() == 0 })
}

// TestFullSystemdStubbornService: the job of a service that does not stop within evict.timeout keeps its memory. The waiting program waits on,
// and gets the memory when the service ends after all.
func TestFullSystemdStubbornService(t *testing.T) {
	h := boot(t)
	h.shell(`cat >/etc/systemd/system/stubborn.service <<'.'
[Service]
ExecStart=gpuarb run -- cudaprog-dlsym "alloc a 6G; sleep 100000000"
KillSignal=SIGCONT
TimeoutStopSec=infinity
.
cat >/etc/gpuarb/conf.d/stubborn.toml <<'.'
[defaults]
on_full = "wait"
devices = [0]
evict.after = "500ms"
evict.idle_after = "1s"

[[rule]]
match.unit = "stubborn.service"
evict.how = "unit"
evict.timeout = "2s"
.
gpuarb config check; systemctl reload gpuarbd; systemctl daemon-reload; systemctl start stubborn`)
	says := func(text string) bool { return strings.Contains(h.shell("journalctl -q --no-pager -u gpuarbd"), text) }
	bounded.Until(t, "the service has its memory", func() bool { return strings.Contains(h.shell("gpuarb ps"), "6GiB") })
	waits := h.Interact(h.command("exec gpuarb run -- cudaprog-dlsym"))
	waits.Tell("alloc a 4G")
	bounded.Until(t, "the service was to stop and did not", func() bool { return says("stubborn.service did not end in time") && says("keeps its memory") })
	if got := h.shell("systemctl is-active stubborn || true; gpuarb queue"); !strings.HasPrefix(got, "deactivating") || !strings.Contains(got, "cudaprog-dlsym") {
		t.Errorf("the service, and the queue: %s", got)
	}
	h.shell("systemctl kill --signal=KILL stubborn")
	waits.Expect("alloc a ok")
	waits.End()
}

// serve writes the page's units and rule for a server, under a name and with two ports, and has systemd listen at the first.
func (h *host) serve(name, front, own string) {
	h.t.Helper()
	change := strings.NewReplacer("model-server --port 8001", "model-server vllm "+own+" 6G 3", "8000", front, "8001", own,
		"model.service", name+".service", "model-front", name+"-front", "\"model\"", "\""+name+"\"")
	for _, unit := range blocksOf(h.t, "admin/model-servers.md", "ini") {
		unit = change.Replace(unit)
		file, _, _ := strings.Cut(strings.TrimPrefix(unit, "# "), "\n")
		h.shell("cat >" + file + " <<'.'\n" + unit + ".")
	}
	for _, rule := range blocksOf(h.t, "admin/model-servers.md", "toml") {
		if strings.Contains(rule, "\"model\"") {
			h.shell("cat >/etc/gpuarb/conf.d/" + name + ".toml <<'.'\n" + change.Replace(rule) + ".")
		}
	}
	h.shell("gpuarb config check; systemctl reload gpuarbd; systemctl daemon-reload; systemctl enable --now " + name + "-front.socket")
}
