package structure

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file runs tools/install.sh into an empty folder: what it installs must be the list in the test and in
// docs/admin/install.md, and --remove must leave the configuration alone. tests/systemd uses an installation.

// install runs the installation into dest, with empty files for what is built.
func install(t *testing.T, dest string, args ...string) {
	t.Helper()
	cmd := bounded.Command(t, bounded.Patience, "tools/install.sh", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "DESTDIR="+dest, "PREFIX=/opt/gpuarb", "SYSCONFDIR=/etc")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("install.sh %v: %v\n%s", args, err, out)
	}
}

// installed lists the files below dest, without the documents.
func installed(t *testing.T, dest string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dest, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, dest)
		if err == nil && d.Type().IsRegular() && !strings.Contains(name, "/share/doc/") {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestInstall: install.sh puts exactly the expected files into place, and docs/admin/install.md lists them.
func TestInstall(t *testing.T) {
	build, dest := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(build, "no-exports"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gpuarb", "gpuarbd", "libgpuarb.so", "no-exports/libgpuarb.so", "gpuarb-probe"} {
		if err := os.WriteFile(filepath.Join(build, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"man/man1/gpuarb.1", "man/man1/gpuarb-run.1", "man/man5/gpuarb.toml.5", "man/man5/gpuarb-files.5", "man/man8/gpuarbd.8", "bash-completion/completions/gpuarb",
		"zsh/site-functions/_gpuarb", "fish/vendor_completions.d/gpuarb.fish"} {
		path := filepath.Join(build, "share", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	install(t, dest, build)
	want := []string{
		"/etc/gpuarb/gpuarb.toml",
		"/opt/gpuarb/bin/gpuarb",
		"/opt/gpuarb/bin/gpuarbd",
		"/opt/gpuarb/lib/gpuarb/bound/README",
		"/opt/gpuarb/lib/gpuarb/container/gpuarb_layer.json",
		"/opt/gpuarb/lib/gpuarb/container/ld.so.preload",
		"/opt/gpuarb/lib/gpuarb/container/on-loss-closed",
		"/opt/gpuarb/lib/gpuarb/gpuarb-probe",
		"/opt/gpuarb/lib/gpuarb/libgpuarb.so",
		"/opt/gpuarb/lib/gpuarb/no-exports/libgpuarb.so",
		"/opt/gpuarb/lib/gpuarb/no-exports/vulkan/gpuarb_layer.json",
		"/opt/gpuarb/lib/systemd/system/gpuarbd.service",
		"/opt/gpuarb/lib/systemd/system/gpuarbd.socket",
		"/opt/gpuarb/lib/systemd/user/gpuarbd.service",
		"/opt/gpuarb/lib/sysusers.d/gpuarb.conf",
		"/opt/gpuarb/lib/tmpfiles.d/gpuarb.conf",
		"/opt/gpuarb/share/bash-completion/completions/gpuarb",
		"/opt/gpuarb/share/fish/vendor_completions.d/gpuarb.fish",
		"/opt/gpuarb/share/man/man1/gpuarb-run.1",
		"/opt/gpuarb/share/man/man1/gpuarb.1",
		"/opt/gpuarb/share/man/man5/gpuarb-files.5",
		"/opt/gpuarb/share/man/man5/gpuarb.toml.5",
		"/opt/gpuarb/share/man/man8/gpuarbd.8",
		"/opt/gpuarb/share/gpuarb/grafana/gpuarb.json",
		"/opt/gpuarb/share/gpuarb/prometheus/gpuarb.rules.yml",
		"/opt/gpuarb/share/vulkan/implicit_layer.d/gpuarb_layer.json",
		"/opt/gpuarb/share/zsh/site-functions/_gpuarb",
	}
	got := installed(t, dest)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("installed %q\nwant %q", got, want)
	}
	unit, err := os.ReadFile(filepath.Join(dest, "/opt/gpuarb/lib/systemd/system/gpuarbd.service"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(unit), "\nExecStart=/opt/gpuarb/bin/gpuarbd\n") {
		t.Error("the unit does not start the daemon that was installed")
	}

	manifest, err := os.ReadFile(filepath.Join(dest, "/opt/gpuarb/share/vulkan/implicit_layer.d/gpuarb_layer.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(manifest), `"library_path": "/opt/gpuarb/lib/gpuarb/libgpuarb.so"`) {
		t.Errorf("Vulkan's loader does not find the library that was installed:\n%s", manifest)
	}

	for _, page := range []string{"README.md", "CHANGELOG.md", "docs/README.md", "docs/admin/configuration.md", "docs/reference/json.schema.json", "docs/decisions/README.md", "contrib/pytest/pytest_gpuarb.py"} {
		if _, err := os.Stat(filepath.Join(dest, "opt/gpuarb/share/doc/gpuarb", page)); err != nil {
			t.Error(err)
		}
	}

	checkListed(t, want)

	const own = "schema_version = 1 # ours\n"
	config := filepath.Join(dest, "etc/gpuarb/gpuarb.toml")
	if err := os.WriteFile(config, []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	install(t, dest, build)
	if text, err := os.ReadFile(config); err != nil || string(text) != own {
		t.Errorf("a second installation left %q (%v) of the configuration, want %q", text, err, own)
	}
	install(t, dest, "--remove")
	if got := installed(t, dest); !slices.Equal(got, []string{"/etc/gpuarb/gpuarb.toml"}) {
		t.Errorf("after removal there is still %q, want the configuration alone", got)
	}
}

// checkListed finds each installed file, or a folder above it, in the table of docs/admin/install.md.
func checkListed(t *testing.T, installed []string) {
	t.Helper()
	const page = "docs/admin/install.md"
	_, table, _ := strings.Cut(read(t, page), "\n| path | contents |")
	table, _, _ = strings.Cut(table, "\n\n")
	var listed []string
	for line := range strings.Lines(table) {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		for i, part := range strings.Split(cell, "`") {
			if i%2 == 1 {
				listed = append(listed, part)
			}
		}
	}
	for _, file := range installed {
		name, below := strings.CutPrefix(file, "/opt/gpuarb/")
		if below && !slices.ContainsFunc(listed, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			t.Errorf("%s does not list %s", page, name)
		}
	}
}
