package structure

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// This file checks that messages and pages send users only to pages, commands and flags that exist.
// links_test.go checks links.

var (
	use      = regexp.MustCompile(`Use:\s+"([a-z]+)`)
	command  = regexp.MustCompile("`gpuarb ((?:[a-z]+ )*[a-z]+)?((?: --[a-z-]+)*)")
	page     = regexp.MustCompile(`\bdocs/(?:[a-z-]+/)*[a-zA-Z.-]+\.(?:md|json)\b`)
	flagMade = regexp.MustCompile(`"([a-z][a-z-]*)"`)
)

// TestWhatMessagesNameIsThere: each page, command and flag that a message or a page names exists.
func TestWhatMessagesNameIsThere(t *testing.T) {
	commands := map[string]bool{"completion": true, "run": true}
	flags := map[string]bool{"help": true}
	for _, name := range files(t) {
		if !strings.HasPrefix(name, "cmd/gpuarb/") || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, m := range use.FindAllStringSubmatch(read(t, name), -1) {
			commands[m[1]] = true
		}
		for _, m := range flagMade.FindAllStringSubmatch(read(t, name), -1) {
			flags[m[1]] = true
		}
	}
	parents := map[string]bool{"config": true, "queue": true, "help": true}
	told := 0
	for _, name := range files(t) {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "tests/") || name == "CHANGELOG.md" {
			continue
		}
		text := read(t, name)
		for _, m := range page.FindAllString(text, -1) {
			told++
			if _, err := os.Stat(filepath.Join(root, m)); err != nil {
				t.Errorf("%s names %s, which is not there", name, m)
			}
		}
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			told++
			words := strings.Fields(m[1])
			if len(words) > 0 && !commands[words[0]] || len(words) > 1 && parents[words[0]] && !commands[words[1]] {
				t.Errorf("%s names %q, and there is no such command", name, m[0])
			}
			for _, flag := range strings.Fields(m[2]) {
				if !flags[strings.TrimPrefix(flag, "--")] {
					t.Errorf("%s names %q, and nothing has that flag", name, m[0])
				}
			}
		}
	}
	if told < 100 {
		t.Errorf("only %d pages and commands are named: this test sees nothing", told)
	}
}
