package main

// This file finds cycles among C files. cycle.go has the graph, and golang.go the same for Go.

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var included = regexp.MustCompile(`(?m)^#\s*include "([^"]+)"`)

// cycleOfC returns the size of the largest cycle of includes among the files of a folder. A .c and
// its .h count as one file. Included files of other folders are read too, because they may close a
// cycle.
func cycleOfC(root string, sources []source) int {
	uses := graph{}
	seen := map[string]bool{}
	var todo []string
	for _, s := range sources {
		todo = append(todo, s.path)
	}
	for ; len(todo) > 0; todo = todo[1:] {
		file := todo[0]
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil || seen[file] {
			continue // a generated header
		}
		seen[file] = true
		for _, m := range included.FindAllSubmatch(text, -1) {
			for _, base := range []string{filepath.Dir(file), "cshim"} {
				other := filepath.Join(base, string(m[1]))
				if _, err := os.Stat(filepath.Join(root, other)); err == nil {
					uses.add(withoutSuffix(file), withoutSuffix(other))
					todo = append(todo, other)
					break
				}
			}
		}
	}
	return uses.largestCycle()
}

// withoutSuffix returns the common name of a .c and its .h. A .def file counts as a file of its
// own.
func withoutSuffix(file string) string {
	return strings.TrimSuffix(strings.TrimSuffix(file, ".c"), ".h")
}
