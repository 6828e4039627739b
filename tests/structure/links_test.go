package structure

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// This file checks the links of all documents within the tree. documents_test.go checks other names in
// documents, and messages_test.go checks commands.

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
)

// TestLinks reports each link of a document to a file, or to a heading, that does not exist.
func TestLinks(t *testing.T) {
	for _, name := range files(t) {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(read(t, name), -1) {
			target, fragment, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") {
				continue // a link to another machine
			}
			file := name // a link within the document
			if target != "" {
				file = path.Join(path.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, target)
			} else if fragment != "" && !anchors(read(t, file))[fragment] {
				t.Errorf("%s links to the heading #%s of %s, which does not exist", name, fragment, file)
			}
		}
	}
}

// anchors returns the anchors that GitHub makes of a document's headings: lower case, spaces as hyphens, and
// neither punctuation nor markup.
func anchors(text string) map[string]bool {
	all := make(map[string]bool)
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])
		all[anchor] = true
	}
	return all
}
