package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/gpuarb/gpuarb/tools/filegraph"
)

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
		for _, f := range functionsOf(fset, file) {
			r.longest.atLeast(f.function)
		}
	}
	uses := graph{}
	resolved, _ := filegraph.Uses(r.name, fset, files, exports) // what cannot be resolved is not counted
	for use := range resolved {
		uses.add(use[0], use[1])
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

func functionsOf(fset *token.FileSet, file *ast.File) (all []body) {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			from, to := fset.Position(f.Pos()), fset.Position(f.End())
			all = append(all, body{function{f.Name.Name, from.Filename, to.Line - from.Line + 1}, from.Line, to.Line})
		}
	}
	return all
}
