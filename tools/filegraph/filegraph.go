package filegraph

// This file is the whole package.

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
)

// Exports returns, for each package that the commands need, the file with the compiler's export
// data. root is the folder of go.mod.
func Exports(root string) (map[string]string, error) {
	command := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./cmd/...")
	command.Dir, command.Stderr = root, os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			exports[path] = file
		}
	}
	return exports, nil
}

// Uses returns pairs of files of a package: the first uses a declaration of the second. If the
// compiler cannot resolve everything, Uses returns its first error, and the uses that were
// resolved.
func Uses(name string, fset *token.FileSet, files []*ast.File, exports map[string]string) (map[[2]string]bool, error) {
	lookup := func(path string) (io.ReadCloser, error) {
		if file := exports[path]; file != "" {
			return os.Open(file)
		}
		return nil, fmt.Errorf("no export data of %s", path)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup), FakeImportC: true, Error: func(error) {}}
	pkg, err := config.Check(name, fset, files, info)
	uses := map[[2]string]bool{}
	for ident, object := range info.Uses {
		from, to := fset.Position(ident.Pos()).Filename, fset.Position(object.Pos()).Filename
		if object.Pkg() == pkg && from != to {
			uses[[2]string{from, to}] = true
		}
	}
	return uses, err
}
