//go:build full

package systemd

import (
	"os"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file runs the commands of README.md and of the how-to pages in docs/admin as they stand there, on a
// booted machine. tests/readme/pages_test.go lists which test runs which page.

// blocks returns the command blocks of a page in docs/.
func blocks(t *testing.T, page string) []string { return blocksOf(t, page, "sh") }

// blocksOf returns a page's blocks of one kind.
func blocksOf(t *testing.T, page, kind string) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	list := strings.Split(string(text), "```"+kind+"\n")[1:]
	if len(list) == 0 {
		t.Fatalf("%s has no such block: %s", page, kind)
	}
	for i := range list {
		list[i], _, _ = strings.Cut(list[i], "```")
	}
	return list
}

// TestFullSystemdPages: the commands of the how-to pages work as written.
func TestFullSystemdPages(t *testing.T) {
	h := boot(t)
	h.shell("useradd --create-home --shell /bin/bash ann; groupadd students; usermod --append --groups students ann; loginctl enable-linger ann")
	h.shell("printf '[Service]\\nExecStart=/bin/sleep infinity\\n' >/etc/systemd/system/model.service; systemctl daemon-reload; systemctl start model")
	before := h.shell("cd /etc; find . -type f -exec md5sum {} + | sort")
	for _, block := range blocks(t, "admin/control.md") {
		t.Logf("%s\n%s", block, h.shell("set -e\n"+block))
		if strings.Contains(block, "enable") {
			h.shell("gpuarb status | grep -E '^(unit|user|group|all) '")
		}
	}
	if after := h.shell("cd /etc; find . -type f -exec md5sum {} + | sort"); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}

	h.who()

	// Run the page as an ordinary user with a terminal's environment. The first block starts the daemon, and the last ends it.
	own := blocks(t, "admin/user-daemon.md")
	as := func(script string) string {
		const login = "cat >/tmp/script <<'.'\nset -e\nexport XDG_RUNTIME_DIR=/run/user/$(id -u)\n"
		return h.shell(login + script + "\n.\nsu --login ann --command 'bash /tmp/script' 2>&1")
	}
	for i, block := range own {
		got := as(block)
		if i == 0 && !strings.Contains(got, "this is your own daemon at /run/user/") {
			t.Errorf("%s\n%s", block, got)
		}
		if i == 1 {
			if got := as("cat $XDG_RUNTIME_DIR/gpuarb/gpu/config 2>&1 || true; gpuarb run -- true; journalctl --user -u gpuarbd -n 50 --no-pager || true"); !strings.Contains(got, "4GiB") && !strings.Contains(got, "configuration read again") {
				t.Errorf("after the reload:\n%s", got)
			}
		}
	}
	if got := as("gpuarb ps"); strings.Contains(got, "daemon") {
		t.Errorf("after the last block:\n%s", got)
	}

	// The machine has neither make nor the checkout. Copy what tools/install.sh needs, and run that script in the place of make.
	here(t, "sh", "-c", "mkdir -p '"+h.root+"/mnt/checkout/tools' && cp -r README.md LICENSE CHANGELOG.md docs systemd '"+h.root+"/mnt/checkout' && cp -r --parents cshim/vulkan/gpuarb_layer.json daemon/metrics/board contrib/pytest '"+h.root+"/mnt/checkout' && cp tools/install.sh '"+h.root+
		"/mnt/checkout/tools' && mkdir '"+h.root+"/mnt/checkout/build' && cp -r build/gpuarb build/gpuarbd build/libgpuarb.so build/no-exports build/gpuarb-probe build/share '"+h.root+"/mnt/checkout/build'")
	for i, block := range blocks(t, "admin/upgrade.md") {
		block = strings.ReplaceAll(block, "make install PREFIX=/usr", "PREFIX=/usr tools/install.sh build")
		block = strings.ReplaceAll(block, "make uninstall PREFIX=/usr", "PREFIX=/usr tools/install.sh --remove")
		got := h.shell("set -e; cd /mnt/checkout\n" + block)
		if want := []string{"gpuarbd 0.", "left: /etc/gpuarb"}[i]; !strings.Contains(got, want) {
			t.Errorf("%s\n%s\nwant %q", block, got, want)
		}
	}
	block := strings.NewReplacer("make && sudo make install PREFIX=/usr", "PREFIX=/usr tools/install.sh build; systemctl daemon-reload", "sudo ", "").
		Replace(blocks(t, "admin/install.md")[0])
	if got := h.shell("set -e; cd /mnt/checkout\n" + block); strings.Contains(got, "FAIL") || !strings.Contains(got, "GPU 0") {
		t.Errorf("%s\n%s", block, got)
	}
}

// who runs the page's commands about who may use the daemon, and who changed a limit.
func (h *host) who() {
	_, line, _ := strings.Cut(blocksOf(h.t, "reference/gpufs.md", "console")[0], "$ ")
	line, _, _ = strings.Cut(line, "\n")
	h.shell("echo 2 >/gpu/devices/0/slots.max; echo max >/gpu/devices/0/slots.max")
	for _, command := range []string{line, "journalctl -u gpuarbd GPUARB_KIND=limit_changed"} {
		bounded.Until(h.t, command+" shows the change", func() bool { // the journal has it a moment later
			return strings.Contains(h.shell(command+" || true"), "changed slots.max")
		})
	}
	const dropIn = "/etc/systemd/system/gpuarbd.socket.d/who.conf"
	const state = "; systemctl daemon-reload; systemctl restart gpuarbd.socket gpuarbd.service; stat -c '%a %G' /run/gpuarb/gpuarb.sock"
	got := h.shell("mkdir $(dirname " + dropIn + "); cat >" + dropIn + " <<'.'\n" + blocksOf(h.t, "admin/configuration.md", "ini")[0] + ".\n:" + state)
	if got != "660 gpuarb" {
		h.t.Errorf("the socket is %s", got)
	}
	h.shell("rm -r $(dirname " + dropIn + ")" + state)
}
