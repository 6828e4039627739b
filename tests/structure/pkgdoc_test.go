package structure

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// This file checks that each package says what it is: in its package comment, and in
// docs/development/architecture.md.

// TestPackageDocs: every package has one package comment, in doc.go; a command of one file may have it
// in that file. This includes packages that consist of tests only.
func TestPackageDocs(t *testing.T) {
	for _, p := range packages(t) {
		var with []string
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles, p.TestGoFiles, p.XTestGoFiles) {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil,
				parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Error(err)
				continue
			}
			if file.Doc == nil {
				continue
			}
			with = append(with, name)
			want := "Package " + p.Name + " "
			if p.Name == "main" {
				want = "Command " + filepath.Base(p.Dir) + " "
			}
			if !strings.HasPrefix(file.Doc.Text(), want) {
				t.Errorf("%s/%s: the package comment does not begin with %q", p.path(), name, want)
			}
		}
		ok := len(with) == 1 && (with[0] == "doc.go" || p.Name == "main" && with[0] == "main.go")
		if !ok {
			t.Errorf("%s: want one package comment, in doc.go; there is one in %q", p.path(), with)
		}
	}
}

// TestArchitectureHasEveryPart: the architecture page has every part of the tree, and does not announce parts that do not exist.
func TestArchitectureHasEveryPart(t *testing.T) {
	page := read(t, "docs/development/architecture.md")
	parts := map[string]bool{"systemd": true, "docs": true, "tools": true, "contrib": true}
	for _, p := range packages(t) {
		part, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/"), "/")
		parts[part] = part != ""
	}
	for part, is := range parts {
		if is && !strings.Contains(page, "`"+part+"/`") {
			t.Errorf("docs/development/architecture.md does not say what %s/ is", part)
		}
	}
	for _, promise := range []string{"This version has", "words of\nlater", "is yet to come"} {
		if i := strings.Index(page, promise); i >= 0 {
			t.Errorf("docs/development/architecture.md speaks of what is to come: %q", page[max(0, i-40):min(len(page), i+60)])
		}
	}
}
