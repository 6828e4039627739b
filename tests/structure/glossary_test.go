package structure

import (
	"regexp"
	"strings"
	"testing"
)

// This file checks the length of docs/glossary.md, and that the page explains no term twice.

var term = regexp.MustCompile("(?m)^\\| ([^|]+?)(?: \\(`[^|]*)? \\| ")

// TestGlossary checks that each term is in the glossary once, and that the terms are few enough to be learned.
func TestGlossary(t *testing.T) {
	const most = 45
	seen := make(map[string]bool)
	for _, m := range term.FindAllStringSubmatch(read(t, "docs/glossary.md"), -1) {
		if m[1] == "term" || strings.HasPrefix(m[1], "---") {
			continue
		}
		if seen[m[1]] {
			t.Errorf("docs/glossary.md explains %q twice", m[1])
		}
		seen[m[1]] = true
	}
	if len(seen) > most || len(seen) < most/2 {
		t.Errorf("docs/glossary.md has %d terms, want at most %d and more than half of that", len(seen), most)
	}
}
