//go:build full

package systemd

import (
	"os"
	"strings"
	"testing"
)

// blocks are the commands of a page of docs/.
func blocks(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	list := strings.Split(string(text), "```sh\n")[1:]
	for i := range list {
		list[i], _, _ = strings.Cut(list[i], "```")
	}
	return list
}

// TestFullSystemdPages: the commands of the how-to pages do as they stand there.
func TestFullSystemdPages(t *testing.T) {
	h := boot(t)
	h.shell("useradd --create-home --shell /bin/bash ann; groupadd students; usermod --append --groups students ann; loginctl enable-linger ann")
	h.shell("printf '[Service]\\nExecStart=/bin/sleep infinity\\n' >/etc/systemd/system/model.service; systemctl daemon-reload; systemctl start model")
	before := h.shell("cd /etc; find . -type f -exec md5sum {} + | sort")
	for _, block := range blocks(t, "control.md") {
		t.Logf("%s\n%s", block, h.shell("set -e\n"+block))
		if strings.Contains(block, "enable") {
			h.shell("gpuarb status | grep -E '^(unit|user|group|all) '")
		}
	}
	if after := h.shell("cd /etc; find . -type f -exec md5sum {} + | sort"); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}

	// As a user, with a terminal's environment. The first block has the daemon answer; the last ends it.
	own := blocks(t, "user-daemon.md")
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

	// make is the checkout's here; on the machine it is what it runs.
	here(t, "sh", "-c", "mkdir -p '"+h.root+"/mnt/checkout/tools' && cp -r README.md LICENSE CHANGELOG.md docs systemd '"+h.root+"/mnt/checkout' && cp tools/install.sh '"+h.root+
		"/mnt/checkout/tools' && mkdir '"+h.root+"/mnt/checkout/build' && cp build/gpuarb build/gpuarbd build/libgpuarb.so '"+h.root+"/mnt/checkout/build'")
	for i, block := range blocks(t, "upgrade.md") {
		block = strings.ReplaceAll(block, "make install PREFIX=/usr", "PREFIX=/usr tools/install.sh build")
		block = strings.ReplaceAll(block, "make uninstall PREFIX=/usr", "PREFIX=/usr tools/install.sh --remove")
		got := h.shell("set -e; cd /mnt/checkout\n" + block)
		if want := []string{"gpuarbd 0.", "left: /etc/gpuarb"}[i]; !strings.Contains(got, want) {
			t.Errorf("%s\n%s\nwant %q", block, got, want)
		}
	}
}
