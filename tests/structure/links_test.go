package structure

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// A link from one document to a file of the tree leads somewhere.
func TestLinks(t *testing.T) {
	for _, name := range files(t) {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(read(t, name), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, ":") {
				continue // within the page, or on another machine
			}
			file := filepath.Join(root, path.Dir(name), target)
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s, which is not there", name, target)
			}
		}
	}
}
