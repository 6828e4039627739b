package readme

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/config"
)

// This file checks that a test runs each command block of README.md and docs/, by the table played, and that
// each configuration on a page is valid. readme_test.go runs the transcripts themselves.

// block is a fenced block of a page. page is its path below docs/; the README of the project is README.md.
type block struct{ page, kind, text string }

// blocks returns the command blocks of the README and of all pages.
func blocks(t *testing.T) (list []block) {
	t.Helper()
	pages := []string{"../../README.md"}
	err := filepath.WalkDir("../../docs", func(path string, entry fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(strings.TrimPrefix(path, "../../"), "docs/")
		parts := strings.Split("\n"+string(text), "\n```")
		if len(parts)%2 == 0 {
			t.Fatalf("%s: a block does not end", path)
		}
		for i := 1; i < len(parts); i += 2 {
			kind, rest, _ := strings.Cut(parts[i], "\n")
			list = append(list, block{name, kind, rest})
		}
	}
	return list
}

// played names, for blocks of a page by their beginning, the test that runs them: "PACKAGE TEST". After
// "not run: " it has the reason why no test does.
var played = []struct{ page, kind, begins, by string }{
	{"README.md", "console", "", "tests/readme TestTranscript"},
	{"README.md", "sh", "make demo", "not run: the gate runs demo and test on a newcomer's machine; tests/demo opens the playground"},
	{"README.md", "sh", "make packages", "tests/systemd TestFullSystemdPackage"},
	{"README.md", "toml", "", "tests/readme TestConfigurationsOfThePages"},
	{"tour.md", "console", "", "tests/readme TestTour"},
	{"tour.md", "sh", "make", "not run: TestTour starts such a daemon itself, without an installed gpuarb"},
	{"admin/ci.md", "console", "", "tests/readme TestCI"},
	{"admin/ci.md", "sh", "", "tests/readme TestRunnerOfCargo"},
	{"admin/configuration.md", "toml", "", "tests/readme TestConfigurationsOfThePages"},
	{"admin/configuration.md", "ini", "# systemctl edit", "tests/systemd TestFullSystemdPages"},
	{"admin/containers.md", "sh", "", "tests/containers TestFullPodman"},
	{"admin/control.md", "sh", "", "tests/systemd TestFullSystemdPages"},
	{"admin/control.md", "ini", "[Service]", "tests/systemd TestFullSystemdWrapped"},
	{"admin/control.md", "", "session ", "cmd/gpuarb/preload TestPageForOtherDistributions"},
	{"admin/control.md", "", "LD_PRELOAD", "cmd/gpuarb/preload TestPageForOtherDistributions"},
	{"reference/gpufs.md", "sh", "", "tests/readme TestLimitsOfThePage"},
	{"reference/gpufs.md", "console", "$ cat /gpu/devices/0/memory.pressure", "tests/pressure TestSome"},
	{"reference/gpufs.md", "console", "$ gpuarb events --kind limit_changed", "tests/events TestLimitChanged"},
	{"reference/gpufs.md", "", "", "not run: a tree and tables, not commands"},
	{"reference/go-client.md", "go", "", "tests/contrib TestGoClient"},
	{"reference/http.md", "toml", "", "tests/readme TestConfigurationsOfThePages"},
	{"reference/http.md", "nginx", "", "not run: another program's configuration"},
	{"reference/metrics.md", "sh", "cat /gpu/metrics", "tests/metrics TestEveryWay"},
	{"reference/metrics.md", "toml", "", "tests/readme TestConfigurationsOfThePages"},
	{"reference/metrics.md", "promql", "", "not run: it takes dcgm-exporter, and a GPU of NVIDIA's"},
	{"admin/devices.md", "", "systemctl stop", "not run: it takes the vendor's kernel modules"},
	{"admin/install.md", "sh", "", "tests/systemd TestFullSystemdPages"},
	{"admin/kubernetes.md", "sh", "kubectl create", "kube/e2e TestFullCluster"},
	{"admin/kubernetes.md", "", "[plugins", "kube/e2e TestFullCluster"},
	{"admin/kubernetes.md", "sh", "make packages", "tests/systemd TestFullSystemdKube"},
	{"admin/kubernetes.md", "yaml", "", "not run: parts of a pod and objects of a cluster; kube/nri TestAnnotationIsHeld has such an annotation, and kube/dra has such claims"},
	{"admin/second-wall.md", "sh", "", "not run: it takes a kernel or a driver with such limits; tests/secondwall has simulated ones"},
	{"admin/slurm.md", "sh", "make packages", "tests/systemd TestFullSystemdSlurm"},
	{"admin/slurm.md", "sh", "sbatch", "tests/slurm TestFullSteps"},
	{"reference/job.md", "", "", "tests/bindings TestBudgetOfACgroup"},
	{"admin/model-servers.md", "toml", "schema_version", "tests/readme TestConfigurationsOfThePages"},
	{"admin/model-servers.md", "toml", "[[rule]]\nname = \"model\"", "tests/systemd TestFullSystemdModelServer"},
	{"admin/model-servers.md", "toml", "[[rule]]", "tests/evict TestPresets"},
	{"admin/model-servers.md", "ini", "", "tests/systemd TestFullSystemdModelServer"},
	{"admin/notebooks.md", "json", "", "tests/notebooks TestFullKernel"},
	{"admin/notebooks.md", "python", "", "tests/notebooks TestFullHub"},
	{"admin/notebooks.md", "toml", "", "tests/systemd TestFullSystemdHub"},
	{"admin/notebooks.md", "sh", "", "tests/systemd TestFullSystemdHub"},
	{"admin/history.md", "", "gpuarb report", "tests/history TestForty"},
	{"admin/history.md", "", "gpuarb suggest", "tests/history TestSuggest"},
	{"admin/notify.md", "toml", "", "tests/readme TestConfigurationsOfThePages"},
	{"admin/notify.md", "sh", "#!/bin/sh\n# Mails", "tests/contrib TestMail"},
	{"admin/notify.md", "sh", "#!/bin/sh\n# Posts", "tests/contrib TestChat"},
	{"admin/notify.md", "ini", "[Unit]", "tests/contrib TestUnit"},
	{"admin/packages.md", "sh", "sudo podman run", "tests/containers TestFullImage"},
	{"admin/packages.md", "sh", "", "tests/systemd TestFullSystemdPackage"},
	{"admin/processor.md", "toml", "", "tests/readme TestConfigurationsOfThePages"},
	{"reference/top.md", "sh", "", "tests/e2e TestTopPage"},
	{"admin/upgrade.md", "sh", "", "tests/systemd TestFullSystemdPages"},
	{"admin/user-daemon.md", "sh", "", "tests/systemd TestFullSystemdPages"},

	{"development/architecture.md", "", "", "not run: drawings"},
	{"development/adding-an-entry-point.md", "", "GA_HOOK", "not run: an example of a row, for who changes the library"},
	{"development/adding-an-entry-point.md", "c", "", "not run: an example of a function, for who changes the library"},
	{"development/adding-an-interface.md", "c", "", "not run: an example of functions, for who adds an interface"},
	{"development/performance.md", "", "make bench", "not run: it takes long, and make test runs each benchmark once"},
}

// TestPagesAreRun: each block that a reader of a page types or writes down is run by a test, or the table has a reason.
func TestPagesAreRun(t *testing.T) {
	used := make([]bool, len(played))
	for _, b := range blocks(t) {
		known := false
		for i, row := range played {
			if !known && row.page == b.page && row.kind == b.kind && strings.HasPrefix(b.text, row.begins) {
				known, used[i] = true, true
			}
		}
		if !known {
			first, _, _ := strings.Cut(b.text, "\n")
			t.Errorf("%s: no test runs the block (%s) that begins with %q", b.page, b.kind, first)
		}
	}
	for i, row := range played {
		if !used[i] {
			t.Errorf("%s has no block (%s) that begins with %q", row.page, row.kind, row.begins)
		}
		if !strings.HasPrefix(row.by, "not run: ") {
			exists(t, row.by)
		}
	}
}

// exists checks that a test named "PACKAGE TEST" is in the sources.
func exists(t *testing.T, test string) {
	t.Helper()
	pkg, name, _ := strings.Cut(test, " ")
	files, err := filepath.Glob(filepath.Join("../..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if regexp.MustCompile(`(?m)^func ` + name + `\(`).Match(text) {
			return
		}
	}
	t.Errorf("%s has no test %s", pkg, name)
}

// TestConfigurationsOfThePages: each configuration in a page is valid.
func TestConfigurationsOfThePages(t *testing.T) {
	found := 0
	for _, b := range blocks(t) {
		if b.kind != "toml" {
			continue
		}
		found++
		path := filepath.Join(t.TempDir(), "gpuarb.toml")
		if !strings.Contains(b.text, "schema_version") { // a file for conf.d
			b.text = "schema_version = 1\n" + b.text
		}
		if err := os.WriteFile(path, []byte(b.text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(path)
		if err != nil {
			t.Errorf("%s: %v", b.page, err)
			continue
		}
		if c.Files = nil; c.String() == config.Defaults().String() {
			t.Errorf("%s: nothing is in force by it", b.page)
		}
	}
	if found < 2 {
		t.Errorf("%d configurations are found", found)
	}
}

// TestLimitsOfThePage: the limits that docs/reference/gpufs.md writes are in force when the write returns.
func TestLimitsOfThePage(t *testing.T) {
	list := []step{
		{page: "reference/gpufs.md", command: `gpuarb run -- python3 -c 'import ctypes, signal
cuda, c = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0) == 0
signal.pause()' &
until pid=$(awk 'NR > 1 { print $1 }' /gpu/leases) && [ "$pid" ]; do read -rt 0.02 <> <(:); done`},
	}
	for _, b := range blocks(t) {
		if b.page == "reference/gpufs.md" && b.kind == "sh" {
			for line := range strings.Lines(strings.TrimSpace(b.text)) {
				command := strings.TrimLeft(strings.TrimSpace(line), "#$ ")
				file := strings.ReplaceAll(command[strings.Index(command, "/gpu/"):], "4242", "$pid")
				want := map[string]string{"1": "1", "4G": "4294967296"}[strings.Fields(command)[1]]
				list = append(list, step{page: b.page, command: strings.ReplaceAll(command, "4242", "$pid") + "; cat " + file, want: []string{want}})
			}
		}
	}
	if len(list) != 3 {
		t.Errorf("%d commands: %v", len(list)-1, list)
	}
	play(t, append(list, step{page: "reference/gpufs.md", command: "kill %1; wait %1 2>/dev/null"}))
}
