package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that the manual pages are well-formed, and have every command, flag, key and file of the help and of
// the documents they are made from.

// TestManualPages: man and mandoc read every page without a warning. There is a page for each command, with all flags
// spelled as in --help, so that they can be searched and copied.
func TestManualPages(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(filepath.Dir(rig.Build(t, "gpuarb")), "share/man")
	pages, err := filepath.Glob(folder + "/man[0-9]/*")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages below %s: %v", folder, err)
	}
	utf8 := append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=200", "MAN_KEEP_FORMATTING=")
	text := map[string]string{}
	for _, page := range pages {
		for _, args := range [][]string{{"mandoc", "-Tlint", page}, {"man", "--warnings", "-l", page}} {
			cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
			cmd.Env = utf8
			r := rig.Run(t, cmd)
			if r.Code != 0 || r.Stderr != "" || args[0] == "mandoc" && r.Stdout != "" {
				t.Errorf("%v: exit status %d\n%s%s", args, r.Code, r.Stdout, r.Stderr)
			}
			text[filepath.Base(page)] = r.Stdout
		}
	}
	check := func(binary string, command []string, page string) string {
		help := rig.Run(t, exec.CommandContext(t.Context(), rig.Build(t, binary), append(command, "--help")...)).Stdout
		for _, flag := range regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[a-z-]+)`).FindAllStringSubmatch(help, -1) {
			if !strings.Contains(text[page], flag[1]) {
				t.Errorf("%s says nothing of %s:\n%s", page, flag[1], text[page])
			}
		}
		return help
	}
	check("gpuarbd", nil, "gpuarbd.8")
	help := check("gpuarb", nil, "gpuarb.1")
	_, list, _ := strings.Cut(help, "Available Commands:")
	commands := regexp.MustCompile(`(?m)^  ([a-z]+) `).FindAllStringSubmatch(list, -1)
	if len(commands) < 10 {
		t.Errorf("few commands: %v", commands)
	}
	for _, c := range commands {
		if c[1] != "help" {
			check("gpuarb", c[1:], "gpuarb-"+c[1]+".1")
		}
	}
	for page, document := range map[string]string{"gpuarb.toml.5": "admin/configuration.md", "gpuarb-files.5": "reference/gpufs.md"} {
		checkDocument(t, text[page], filepath.Join("../../docs", document))
	}
}

// checkDocument checks that the page has an item for each row of the document's tables that begins with a name.
func checkDocument(t *testing.T, page, document string) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(string(text), -1)
	if len(rows) < 20 {
		t.Errorf("%s has only %d rows", document, len(rows))
	}
	for _, row := range rows {
		if !regexp.MustCompile(`(?m)^ +` + regexp.QuoteMeta(row[1]) + `(\W|$)`).MatchString(page) {
			t.Errorf("the page made of %s has no item %s", filepath.Base(document), row[1])
		}
	}
}
