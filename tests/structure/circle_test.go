package structure

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// plain are the packages in which no two files know each other, by whatever way.
var plain = []string{"cmd/gpuarb", "config", "doctor", "manual", "preload", "report", "top", "web", "web/worker"}

// exportData says where the compiler keeps what each package shows to others.
func exportData(t *testing.T) map[string]string {
	t.Helper()
	cmd := bounded.Command(t, bounded.Lifetime, "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./cmd/...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			exports[path] = file
		}
	}
	return exports
}

// filesOf are the files of a package as units: each uses those that define what it names.
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
	lookup := func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(exports[path])
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup)}
	checked, err := config.Check(p.ImportPath, fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	for ident, object := range info.Uses {
		from, to := fset.Position(ident.Pos()).Filename, fset.Position(object.Pos()).Filename
		if object.Pkg() == checked && from != to {
			units[from].uses[to] = true
		}
	}
	return units
}

func TestNoCircleInPlainPackages(t *testing.T) {
	exports := exportData(t)
	for _, name := range plain {
		found := false
		for _, p := range packages(t) {
			if p.path() != name {
				continue
			}
			found = true
			for _, circle := range circles(filesOf(t, p, exports)) {
				t.Errorf("each of these knows the others: %s", strings.Join(circle, ", "))
			}
		}
		if !found {
			t.Errorf("there is no package %s", name)
		}
	}
}
