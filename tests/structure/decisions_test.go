package structure

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// This file checks that every decision in docs/decisions can be found by its number and has all its parts.
// documents_test.go checks the other pages.

var entry = regexp.MustCompile(`(?m)^## ([0-9]+)\. `)

// TestDecisions checks the form of the pages in docs/decisions: each entry has a number of its own and a context, a
// decision and a status, and the index names each page.
func TestDecisions(t *testing.T) {
	const folder = "docs/decisions"
	index := read(t, folder+"/README.md")
	titles := make(map[string]string) // by number
	for _, name := range files(t) {
		page := path.Base(name)
		if path.Dir(name) != folder || page == "README.md" {
			continue
		}
		if !strings.Contains(index, "("+page+")") {
			t.Errorf("%s/README.md does not name %s", folder, page)
		}
		text := read(t, name)
		begins := entry.FindAllStringSubmatchIndex(text, -1)
		for i, at := range begins {
			end := len(text)
			if i+1 < len(begins) {
				end = begins[i+1][0]
			}
			number, body := text[at[2]:at[3]], text[at[0]:end]
			title, _, _ := strings.Cut(body, "\n")
			if other, twice := titles[number]; twice {
				t.Errorf("%q and %q have the same number", other, title)
			}
			titles[number] = title
			for _, part := range []string{"Context", "Decision", "Status"} {
				if strings.Count(body, "\n\n"+part+": ") != 1 {
					t.Errorf("%s, %s: there must be one paragraph that begins with %q", name, title, part+": ")
				}
			}
		}
		if strings.Count(text, "\n## ") != len(begins) {
			t.Errorf("%s: an entry has no number", name)
		}
	}
	if len(titles) < 100 {
		t.Errorf("only %d decisions are found: this test sees nothing", len(titles))
	}
}
