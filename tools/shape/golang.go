package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"runtime"
	"strings"

	"github.com/gpuarb/gpuarb/tools/filegraph"
)

// circleOfGo returns the size of the largest circle among a package's files. Which file uses what another one defines
// is the compiler's word.
func circleOfGo(name string, sources []source, exports map[string]string) (int, error) {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, s := range sources {
		if tagged(s.text) {
			continue
		}
		file, err := parser.ParseFile(fset, s.path, s.text, parser.SkipObjectResolution)
		if err != nil {
			return 0, err
		}
		files = append(files, file)
	}
	uses := graph{}
	resolved, _ := filegraph.Uses(name, fset, files, exports) // what cannot be resolved is not counted
	for use := range resolved {
		uses.add(use[0], use[1])
	}
	return uses.largestCircle(), nil
}

// tagged reports whether a file is for another build than the one that runs here.
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
