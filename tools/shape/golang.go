package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// exportData says where the compiler keeps what each package shows to others.
func exportData(root string) (map[string]string, error) {
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

// readGo measures a package: which of its files use what another of them defines is the
// compiler's word.
func (r *room) readGo(root string, exports map[string]string) error {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range r.files {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		r.lines += bytes.Count(text, []byte("\n"))
		file, err := parser.ParseFile(fset, filepath.Join(root, name), text, 0)
		if err != nil {
			return err
		}
		if tagged(text) {
			continue
		}
		files = append(files, file)
		for f := range functionsOf(fset, file) {
			r.longest.atLeast(f.function)
		}
	}
	lookup := func(path string) (io.ReadCloser, error) {
		if file := exports[path]; file != "" {
			return os.Open(file)
		}
		return nil, fmt.Errorf("no export data of %s", path)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup), FakeImportC: true, Error: func(error) {}}
	pkg, _ := config.Check(r.name, fset, files, info) // what it cannot resolve is not counted
	uses := graph{}
	for ident, object := range info.Uses {
		if object.Pkg() == pkg {
			uses.add(fset.Position(ident.Pos()).Filename, fset.Position(object.Pos()).Filename)
		}
	}
	r.circle = uses.largestCircle()
	return nil
}

// tagged says whether a file is for another build than the one that runs here.
func tagged(text []byte) bool {
	for line := range bytes.Lines(text) {
		if tag, ok := bytes.CutPrefix(line, []byte("//go:build ")); ok {
			tag := strings.TrimSpace(string(tag))
			return tag != "linux" && tag != runtime.GOARCH && !strings.HasPrefix(tag, "!")
		}
		if bytes.HasPrefix(line, []byte("package ")) {
			break
		}
	}
	return false
}

// body is a function with the lines between which it stands.
type body struct {
	function
	from, to int
}

func functionsOf(fset *token.FileSet, file *ast.File) func(yield func(body) bool) {
	return func(yield func(body) bool) {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				from, to := fset.Position(f.Pos()), fset.Position(f.End())
				if !yield(body{function{f.Name.Name, from.Filename, to.Line - from.Line + 1}, from.Line, to.Line}) {
					return
				}
			}
		}
	}
}
