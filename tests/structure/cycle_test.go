package structure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tools/filegraph"
)

// This file checks that the files of a Go package can be read in some order: no file needs a file that needs
// the first one. shim_test.go checks this for the shim in C, and imports_test.go checks packages.

// plain are the packages in which no two files may depend on each other, directly or through other files.
var plain = []string{
	"accounting", "arbiter", "arbiter/permit", "arbiter/pressure", "arbiter/reading", "arbiter/rules", "arbiter/threads", "arbiter/wording",
	"cmd/gpuarb", "cmd/gpuarb/doctor", "cmd/gpuarb/preload", "cmd/gpuarb/top",
	"daemon", "daemon/fair", "daemon/history", "daemon/inventory", "daemon/metrics",
	"gpufs",
	"internal/config", "internal/manual", "internal/procfacts", "internal/report", "internal/statefile",
	"ipc", "shim", "web", "internal/worker", "archive", "archive/rows", "arbiter/usage",
}

// filesOf returns the files of a package as units; each unit uses the files that define the names in it.
func filesOf(t *testing.T, p pkg, exports map[string]string) map[string]*unit {
	t.Helper()
	fset := token.NewFileSet()
	units := map[string]*unit{}
	var files []*ast.File
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		units[path] = &unit{uses: map[string]bool{}}
	}
	uses, err := filegraph.Uses(p.ImportPath, fset, files, exports)
	if err != nil {
		t.Fatal(err)
	}
	for use := range uses {
		units[use[0]].uses[use[1]] = true
	}
	return units
}

// TestNoCycleInPlainPackages: the files of these packages do not depend on each other in a cycle.
func TestNoCycleInPlainPackages(t *testing.T) {
	exports, err := filegraph.Exports(root)
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for _, name := range plain {
		found := false
		for _, p := range packages(t) {
			if p.path() != name {
				continue
			}
			found = true
			for _, cycle := range cycles(filesOf(t, p, exports)) {
				t.Errorf("these files depend on each other: %s", strings.Join(cycle, ", "))
			}
		}
		if !found {
			t.Errorf("there is no package %s", name)
		}
	}
}
