package main

// This file finds cycles among Go files. cycle.go has the graph, and clang.go the same for C.

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"runtime"
	"strings"

	"github.com/gpuarb/gpuarb/tools/filegraph"
)

// cycleOfGo returns the size of the largest cycle among the files of a package. The compiler's type
// checker decides which file uses a declaration of another.
func cycleOfGo(name string, sources []source, exports map[string]string) (int, error) {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, s := range sources {
		if isForOtherBuild(s.text) {
			continue
		}
		file, err := parser.ParseFile(fset, s.path, s.text, parser.SkipObjectResolution)
		if err != nil {
			return 0, err
		}
		files = append(files, file)
	}
	uses := graph{}
	resolved, _ := filegraph.Uses(name, fset, files, exports) // unresolved uses are not counted
	for use := range resolved {
		uses.add(use[0], use[1])
	}
	return uses.largestCycle(), nil
}

// isForOtherBuild reports whether a file belongs to another build than the build that runs here.
func isForOtherBuild(text []byte) bool {
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
